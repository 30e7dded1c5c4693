"""The Lambda function: tells its three triggers apart, and puts the parts together."""

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.config import Config

from job_queue.api import build_api
from job_queue.changes import Changes
from job_queue.cycle import Invocation, Scheduler
from job_queue.errors import QueueError
from job_queue.events import training_job_detail
from job_queue.intake import Intake
from job_queue.listing import Listing
from job_queue.metrics import Metric, QueueMetrics
from job_queue.notifications import Notifier
from job_queue.observing import Observers, TransitionLog
from job_queue.outlook import Outlook
from job_queue.policy import Policies
from job_queue.policy_desk import PolicyDesk
from job_queue.settings import Settings
from job_queue.store import Store
from job_queue.tables import DynamoTables
from job_queue.telemetry import log
from job_queue.training import TrainingService

API_PATIENCE_SECONDS = 10  # an API call starts no further cycle after so long: somebody waits for its answer
PATIENCE_SECONDS = 25
WORKERS = 16
NOTIFYING_SECONDS = 4  # an invocation waits no longer for EventBridge: a try of PutEvents takes 3 at most
DAY_SECONDS = 24 * 3600
REQUEST_OR_EVENT = "requestContext.requestId || id"  # API Gateway's request, as in its own log, or EventBridge's event


class Queue:
    """The queue, put together from real parts. One lives as long as the Lambda process."""

    def __init__(self, settings: Settings) -> None:
        pool = ThreadPoolExecutor(WORKERS)

        def parallel(calls: Sequence[Callable[[], Any]], /) -> list[Any]:
            if len(calls) == 1:
                return [calls[0]()]
            return [future.result() for future in [pool.submit(call) for call in calls]]

        patient = Config(
            retries={"mode": "standard", "max_attempts": 4},
            connect_timeout=2,
            read_timeout=5,
            max_pool_connections=WORKERS,
        )
        once = Config(
            retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=8, max_pool_connections=WORKERS
        )
        brief = Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=2)
        clock = time.time
        self._metrics = QueueMetrics()
        self._notifier = Notifier(
            boto3.client("events", config=brief),
            ThreadPoolExecutor(1),
            lambda count: self._metrics.add(Metric.LOST_NOTIFICATIONS, count),
        )
        observers = Observers([TransitionLog(), self._metrics, self._notifier])
        self._store = Store(
            DynamoTables(boto3.client("dynamodb", config=patient)),
            settings.jobs_table,
            settings.lines_table,
            settings.history_days * DAY_SECONDS,
            observers,
        )
        training = TrainingService(
            boto3.client("sagemaker", config=patient), boto3.client("sagemaker", config=once), time.sleep
        )
        policies = Policies(settings.max_capacity)
        self._scheduler = Scheduler(self._store, training, policies, clock, parallel, observers)
        outlook = Outlook(self._store, policies, clock, parallel)
        self._invocation: Invocation | None = None
        self._api = build_api(
            self._store,
            Intake(self._store, training, policies, settings, clock),
            self._scheduler,
            outlook,
            Listing(self._store, parallel),
            Changes(self._store, policies, settings, clock),
            PolicyDesk(self._store, policies, settings, outlook.world, clock),
            self._current,
        )

    def handle(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any] | None:
        """Answer one trigger, and let out what was measured and is to be told."""
        try:
            return self._handle(event, context)
        finally:
            self._let_out(context)

    def _let_out(self, context: LambdaContext) -> None:
        left = context.get_remaining_time_in_millis() / 1000 - 1
        try:
            self._notifier.flush(max(0, min(NOTIFYING_SECONDS, left)))
            self._metrics.flush()
        except Exception as error:  # the work is done and answered for
            log.exception("metrics or notifications are lost", exc_info=error)

    def _handle(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any] | None:
        if "httpMethod" in event:
            self._invocation = _invocation(context, API_PATIENCE_SECONDS)
            return self._api.resolve(event, context)
        self._invocation = _invocation(context, PATIENCE_SECONDS)
        if event.get("source") == "aws.sagemaker" and (detail := training_job_detail(event)):
            log.info("training job", attempt=detail["TrainingJobName"], status=detail["TrainingJobStatus"])
            if self._scheduler.reconciler.handle_event(detail):
                self._scheduler.wake(self._invocation)
        elif event.get("source") == "aws.events":
            self._scheduler.wake(self._invocation)
        else:
            log.warning("an event that the queue does not know", keys=sorted(event))
        return None

    def _current(self) -> Invocation:
        if self._invocation is None:
            raise QueueError("No invocation is under way.")
        return self._invocation


def _invocation(context: LambdaContext, patience: float) -> Invocation:
    began = time.monotonic()
    return Invocation(
        owner=f"{context.aws_request_id}/{uuid.uuid4().hex}",  # a retried event has the same request id
        remaining=lambda: context.get_remaining_time_in_millis() / 1000,
        may_go_on=lambda: time.monotonic() - began < patience,
    )


_queue: Queue | None = None


@log.inject_lambda_context(clear_state=True, correlation_id_path=REQUEST_OR_EVENT)
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any] | None:
    """Entry of the Lambda function, for API Gateway, SageMaker's events and the schedule."""
    global _queue  # noqa: PLW0603  (kept between invocations of a warm process)
    _queue = _queue or Queue(Settings.from_environment())
    return _queue.handle(event, context)
