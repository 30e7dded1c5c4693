"""SageMaker's events: their content, and their delivery to the targets of the rules that match them.

ministack, the emulator of the other services, refuses PutEvents if the source is an AWS service. Therefore this module
asks ministack only whether a rule's pattern matches (TestEventPattern), and calls the targets itself. As on AWS, a call
that changes a job does not wait for the delivery of the job's events.
"""

import json
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from local_cloud.sagemaker.training_job import EmulatedTrainingJob

_log = logging.getLogger(__name__)

DETAIL_TYPE = "SageMaker Training Job State Change"
RULE_CACHE_SECONDS = 2.0  # the rules are read again after this time

_DETAIL_FIELDS = (
    "TrainingJobName",
    "TrainingJobArn",
    "TrainingJobStatus",
    "SecondaryStatus",
    "FailureReason",
    "HyperParameters",
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "StoppingCondition",
    "ModelArtifacts",
)
_TIME_FIELDS = ("CreationTime", "LastModifiedTime", "TrainingStartTime", "TrainingEndTime")

Event = dict[str, Any]
Target = dict[str, Any]


def state_change(job: EmulatedTrainingJob, region: str, account: str) -> Event:
    """Return the EventBridge event for the job's current state. Times in `detail` are epoch milliseconds."""
    described = job.describe()
    detail: dict[str, Any] = {field: described[field] for field in _DETAIL_FIELDS if field in described}
    detail |= {field: _milliseconds(described[field]) for field in _TIME_FIELDS if field in described}
    detail["SecondaryStatusTransitions"] = [
        {key: _milliseconds(value) if key in ("StartTime", "EndTime") else value for key, value in transition.items()}
        for transition in described["SecondaryStatusTransitions"]
    ]
    detail["Tags"] = dict(job.tags)
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": DETAIL_TYPE,
        "source": "aws.sagemaker",
        "account": account,
        "time": datetime.fromtimestamp(job.modified, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [job.arn],
        "detail": detail,
    }


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


class RuleTargets:
    """Delivery of events to the targets of every enabled rule that matches: Lambda functions, SQS queues and buses.

    :param eventbridge: a boto3 client.
    :param lambda_: a boto3 client of Lambda.
    :param sqs: a boto3 client. Without it, events for SQS queues are dropped with a warning.
    :param buses: the event buses of other sites: for each ARN a function that gets the event and the target. If the
        function raises PermissionError, the event goes to the target's dead-letter queue.
    """

    def __init__(
        self,
        eventbridge: Any,
        lambda_: Any,
        sqs: Any = None,
        buses: Mapping[str, Callable[[Event, Target], None]] | None = None,
    ) -> None:
        self._eventbridge = eventbridge
        self._lambda = lambda_
        self._sqs = sqs
        self._buses = buses or {}
        self._rules: list[tuple[str, list[Target]]] = []
        self._read_at = float("-inf")

    def deliver(self, event: Event) -> None:
        """Call the targets of all matching rules. If a target fails, log the error and call the other targets."""
        text = json.dumps(event)
        for pattern, targets in self._current_rules():
            if self._eventbridge.test_event_pattern(EventPattern=pattern, Event=text)["Result"]:
                for target in targets:
                    self._call(target, event, text)

    def _call(self, target: Target, event: Event, text: str) -> None:
        forward = self._buses.get(target["Arn"])
        is_queue = ":sqs:" in target["Arn"] and self._sqs is not None
        if ":lambda:" not in target["Arn"] and not is_queue and forward is None:
            _log.warning("The local cloud does not deliver SageMaker's events to %s", target["Arn"])
            return
        try:
            if forward:
                forward(event, target)
                return
            if is_queue:
                self._send(target["Arn"], target.get("Input", text))
                return
            self._lambda.invoke(FunctionName=target["Arn"], InvocationType="Event", Payload=target.get("Input", text))
        except Exception as error:
            _log.warning("An event could not be delivered to %s: %s", target["Arn"], error)
            if isinstance(error, PermissionError) and self._sqs and "DeadLetterConfig" in target:
                self._send(target["DeadLetterConfig"]["Arn"], text)

    def _send(self, queue_arn: str, text: str) -> None:
        url = self._sqs.get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]
        self._sqs.send_message(QueueUrl=url, MessageBody=text)

    def _current_rules(self) -> list[tuple[str, list[Target]]]:
        if time.monotonic() - self._read_at > RULE_CACHE_SECONDS:
            self._rules = [
                (rule["EventPattern"], self._eventbridge.list_targets_by_rule(Rule=rule["Name"])["Targets"])
                for rule in self._eventbridge.list_rules()["Rules"]
                if rule.get("State") == "ENABLED" and rule.get("EventPattern")
            ]
            self._read_at = time.monotonic()
        return self._rules


class EventWorker:
    """A thread that delivers events one after another, in the order in which they are due."""

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="sagemaker-events", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, event: Event, delay: float = 0.0) -> None:
        """Schedule the delivery of an event in `delay` seconds. Return at once."""
        if not delay:
            self._queue.put(event)
            return
        timer = threading.Timer(delay, self._queue.put, [event])
        timer.daemon = True
        timer.start()

    def stop(self, timeout: float) -> None:
        """Deliver the events that are due now, and wait at most `timeout` seconds for that. Delayed events are lost."""
        self._queue.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._deliver(event)
            except Exception as error:
                _log.warning("An event of %s was lost: %s", event["resources"], error)
