"""Construction of all parts of the queue, and the entry points of an invocation. No other module builds these parts."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import boto3
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.config import Config

from job_queue.adapters.carriers.agent_log import AgentLog
from job_queue.adapters.carriers.mailbox import Mailboxes
from job_queue.adapters.carriers.order_key import KmsOrderKey
from job_queue.adapters.carriers.training import Training
from job_queue.adapters.cloudwatch_metrics import Metric, QueueMetrics
from job_queue.adapters.dynamodb import DynamoDBTables, Tables
from job_queue.adapters.eventbridge import Notifier
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.lookups.checkpoint_lookup import NewestObject
from job_queue.adapters.lookups.failure_log import FailureLog
from job_queue.adapters.lookups.log_activity import LogActivity
from job_queue.adapters.lookups.utilization import GpuUtilization, InstanceMetrics
from job_queue.adapters.metadata import Policies
from job_queue.adapters.observers import log_event, notify_all
from job_queue.adapters.records.attempt_history import AttemptHistory
from job_queue.adapters.records.shared_reads import SharedReads
from job_queue.adapters.settings import DeploymentSettings
from job_queue.adapters.sites.clients import SiteClients
from job_queue.adapters.telemetry import log
from job_queue.api.pages import HistoryPages, JobPages
from job_queue.api.routes import build_api
from job_queue.controller.cycle import Controller, Invocation
from job_queue.domain.domain_events import Notify
from job_queue.domain.errors import QueueError
from job_queue.domain.fleet.sites import HomeSite, Origin, Site
from job_queue.domain.job import Job
from job_queue.domain.launching.launch_rate import CreateRate
from job_queue.services.drains import DrainService
from job_queue.services.dry_run import DryRun
from job_queue.services.job_commands import JobCommands, RemoteDebugService
from job_queue.services.outlook import OutlookService
from job_queue.services.policy_service import PolicyService
from job_queue.services.preview import PreviewService
from job_queue.services.queue_reader import QueueReader
from job_queue.services.submission import SubmissionService
from job_queue.services.watches.hangs import HangWatch, WroteCheckpoint
from job_queue.services.watches.idleness import IdleWatch
from job_queue.services.watches.measurement import Measurement
from job_queue.services.watches.unsaved_work import UnsavedWork

API_CYCLE_SECONDS = 10  # an API call starts no further cycle after this time, because the caller waits
CYCLE_SECONDS = 25  # any other invocation starts no further cycle after this time
WORKERS = 16  # threads for parallel AWS calls, and connections of each client with `with_retries` or `no_retries`
NOTIFYING_SECONDS = 4  # maximum wait for EventBridge at the end of an invocation; a call of PutEvents takes at most 3 s
LOOK_AHEAD_SECONDS = 15  # maximum time to compute the outlook
FLUSH_SECONDS = NOTIFYING_SECONDS + 4  # reserved at the end of an invocation for metrics and notifications
DAY_SECONDS = 24 * 3600


class App:
    """The queue on real AWS clients. Each Lambda process has one instance."""

    def __init__(self, settings: DeploymentSettings) -> None:
        pool = ThreadPoolExecutor(WORKERS)

        def parallel(calls: Sequence[Callable[[], Any]], /) -> list[Any]:
            if len(calls) == 1:
                return [calls[0]()]
            return [future.result() for future in [pool.submit(call) for call in calls]]

        with_retries = Config(
            retries={"mode": "standard", "max_attempts": 4},
            connect_timeout=2,
            read_timeout=5,
            max_pool_connections=WORKERS,
        )
        no_retries = Config(
            retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=8, max_pool_connections=WORKERS
        )
        brief = Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=2)
        clock = time.time
        self._metrics = QueueMetrics()
        self._notifier = Notifier(
            boto3.client("events", config=brief),
            ThreadPoolExecutor(1),
            lambda count: self._metrics.add(Metric.LOST_NOTIFICATIONS, count),
            settings.notice_after_minutes * 60,
        )
        notify = notify_all(log_event, self._metrics.notify, self._notifier.notify)
        dynamodb = boto3.client("dynamodb", config=with_retries)
        self._repository = _repository(DynamoDBTables(dynamodb), settings, notify)
        uncached = DynamoDBTables(dynamodb, consistent=False)
        shared = SharedReads(uncached, time.monotonic)
        shared_rows, uncached_rows = _repository(shared, settings), _repository(uncached, settings)
        clients = SiteClients(settings.satellite_external_id, time.monotonic)
        training = Training(
            boto3.client("sagemaker", config=with_retries),
            boto3.client("sagemaker", config=no_retries),
            time.sleep,
            self._mailboxes(settings, no_retries, with_retries) if settings.work_bucket else None,
            clients,
        )
        policies = self._policies = Policies(settings.max_capacity, may_share=bool(settings.work_bucket))

        def client_at(service: str, needed: object) -> Callable[[Site | None], Any]:
            """Return a function: site (None: the home site) -> the service's client for this site.

            The client for the home site is made now if `needed` is true. Otherwise the home site has no client, and the
            function returns None for it.
            """
            session: Any = boto3  # Any, because `boto3.client` has an overload for each literal service name
            home = session.client(service, config=brief) if needed else None
            return lambda site: clients.client(service, site) if site else home

        buckets_at = client_at("s3", settings.checkpoint_buckets)
        logs_at = client_at("logs", settings.failure_logs)
        metrics_at = client_at("cloudwatch", settings.idle_minutes)

        def newest_object_at(site: Site | None) -> NewestObject:
            return NewestObject(buckets_at(site), settings.checkpoint_buckets, clock)

        def checkpoints_at(site: Site | None) -> WroteCheckpoint:
            return newest_object_at(site).written_since

        self._controller = Controller(
            self._repository,
            training,
            policies,
            clock,
            parallel,
            newest_object_at if settings.checkpoint_buckets else None,
            FailureLog(logs_at, time.monotonic) if settings.failure_logs else None,
            create_rate=CreateRate(settings.create_rate, settings.create_burst),
            sleep=time.sleep,
            wake_up=self._notifier.wake_up,
        )
        shared_reader = QueueReader(
            shared_rows, policies, uncached_rows.last_cycle, clock, parallel, renew=shared.begin
        )
        own_reader = QueueReader(self._repository, policies, self._repository.last_cycle, clock, parallel)
        consistent_dry_run, dry_run = (
            DryRun(it, policies, clock, parallel) for it in (self._repository, uncached_rows)
        )
        idle_watch = measurement = hang_watch = None
        if settings.idle_minutes:
            idle_watch = IdleWatch(lambda site: GpuUtilization(metrics_at(site)), settings.idle_minutes, notify)
            measurement = Measurement(lambda site: InstanceMetrics(metrics_at(site)), self._repository.attempts, clock)
            if settings.failure_logs:
                hang_watch = HangWatch(self._repository, lambda site: LogActivity(logs_at(site)), checkpoints_at)
        unsaved_work = UnsavedWork(self._repository, checkpoints_at)
        self._outlook = OutlookService(
            self._repository, consistent_dry_run.cluster, clock, idle_watch, measurement, unsaved_work, hang_watch
        )
        self._invocation: Invocation | None = None
        commands = JobCommands(self._repository, policies, settings, clock)
        self._api = build_api(
            self._repository,
            SubmissionService(self._repository, training, policies, settings, clock, parallel),
            self._controller,
            shared_reader,
            own_reader,
            dry_run,
            JobPages(shared_rows, parallel),
            HistoryPages(shared_rows.attempts, clock),
            commands,
            RemoteDebugService(commands, self._repository, training, clock),
            PolicyService(self._repository, policies, consistent_dry_run.cluster, clock),
            DrainService(self._repository, consistent_dry_run.cluster, clock),
            PreviewService(policies, partial(dry_run.cluster, ahead=True), clock),
            settings,
            self._current,
        )

    def _mailboxes(self, settings: DeploymentSettings, no_retries: Config, with_retries: Config) -> Mailboxes:
        def carrier_named(name: str) -> Job | None:
            record = self._repository.record(name)
            return record.job if record else None

        orders = KmsOrderKey(boto3.client("kms", config=with_retries), settings.order_key)
        logs = AgentLog(boto3.client("logs", config=no_retries))
        bucket = boto3.client("s3", config=no_retries)
        return Mailboxes(bucket, settings.work_bucket, orders, logs.key_lines, carrier_named)

    def answer(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Answer a request of API Gateway."""
        self._invocation = _invocation(context, API_CYCLE_SECONDS)
        self._policies.home = HomeSite.of_function(context.invoked_function_arn)
        return self._api.resolve(event, context)

    def training_job_changed(
        self, detail: Mapping[str, Any], context: LambdaContext, origin: Origin | None = None
    ) -> None:
        """Apply an event of SageMaker. Run a cycle if the event may allow new decisions.

        :param detail: the detail of SageMaker's event "Training Job State Change".
        :param origin: the region and account of the event; None: those of the stack.
        """
        self._invocation = _invocation(context, CYCLE_SECONDS, may_wait=True)
        self._controller.training_job_changed(detail, self._invocation, origin)

    def mailboxes_changed(self, reported: Sequence[tuple[str, str | None]], context: LambdaContext) -> None:
        """Apply the reports that agents of carriers have written into their mailboxes.

        :param reported: see `adapters.carriers.mailbox.reported_attempts`.
        """
        self._invocation = _invocation(context, CYCLE_SECONDS, may_wait=True)
        self._controller.mailboxes_changed(reported, self._invocation)

    def tick(self, context: LambdaContext) -> None:
        """Reconcile with SageMaker, run a cycle and update the outlook. The schedule starts a tick each minute."""
        self._invocation = _invocation(context, CYCLE_SECONDS, may_wait=True)
        self._controller.tick(self._invocation)
        self._look_ahead(context)

    def _look_ahead(self, context: LambdaContext) -> None:
        """Compute and store the outlook. An error is only logged: readers then get the previous outlook."""
        began = time.monotonic()

        def may_go_on() -> bool:
            left = context.get_remaining_time_in_millis() / 1000
            return left > FLUSH_SECONDS and time.monotonic() - began < LOOK_AHEAD_SECONDS

        try:
            self._outlook.refresh(may_go_on)
        except Exception as error:
            log.exception("outlook not computed", exc_info=error)

    def woken(self, context: LambdaContext, by: str) -> None:
        """Run a cycle that another invocation has requested.

        :param by: the name of that invocation, for the log.
        """
        self._invocation = _invocation(context, CYCLE_SECONDS, may_wait=True, woken_by=by)
        self._controller.wake(self._invocation)

    def flush(self, context: LambdaContext) -> None:
        """Send metrics and notifications. If sending fails, the unsent ones are lost and the error is logged."""
        left = context.get_remaining_time_in_millis() / 1000 - 1
        try:
            self._notifier.flush(max(0, min(NOTIFYING_SECONDS, left)))
            self._metrics.flush()
        except Exception as error:  # the work of the invocation is done
            log.exception("metrics or notifications lost", exc_info=error)

    def _current(self) -> Invocation:
        if self._invocation is None:
            raise QueueError("No invocation is under way.")
        return self._invocation


def _repository(tables: Tables, settings: DeploymentSettings, notify: Notify = lambda event: None) -> JobRepository:
    return JobRepository(
        tables,
        settings.jobs_table,
        settings.lines_table,
        settings.finished_job_days * DAY_SECONDS,
        AttemptHistory(tables, settings.history_table, settings.attempt_history_days * DAY_SECONDS),
        notify,
    )


def _invocation(
    context: LambdaContext, seconds: float, *, may_wait: bool = False, woken_by: str | None = None
) -> Invocation:
    began = time.monotonic()
    return Invocation(
        holder=f"{context.aws_request_id}/{uuid.uuid4().hex}",  # a retried event has the same request id
        remaining=lambda: context.get_remaining_time_in_millis() / 1000,
        may_go_on=lambda: time.monotonic() - began < seconds,
        may_wait=may_wait,
        woken_by=woken_by,
    )
