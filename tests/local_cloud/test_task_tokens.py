"""Task tokens of Step Functions in the local cloud end as they do on AWS."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_cloud.aws.stack import LocalCloud
from tests.waiting import until

pytestmark = pytest.mark.thorough

Json = dict[str, Any]


class Machine:
    """A state machine with one task, which sends its token to an SQS queue and waits."""

    def __init__(self, cloud: LocalCloud, **task: Any) -> None:
        self.states, self._sqs = cloud.client("stepfunctions"), cloud.client("sqs")
        self._url = self._sqs.create_queue(QueueName="tokens")["QueueUrl"]
        parameters = {"QueueUrl": self._url, "MessageBody": {"token.$": "$$.Task.Token"}}
        resource = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
        state = {"Type": "Task", "Resource": resource, "Parameters": parameters, "End": True, **task}
        definition = json.dumps({"StartAt": "Wait", "States": {"Wait": state}})
        name = f"machine-{time.monotonic_ns()}"
        arn = self.states.create_state_machine(name=name, definition=definition, roleArn=cloud.role)["stateMachineArn"]
        self.execution = self.states.start_execution(stateMachineArn=arn)["executionArn"]

    def token(self) -> str:
        """Return the next token that is sent."""

        def received() -> list[Json]:
            return list(self._sqs.receive_message(QueueUrl=self._url).get("Messages", []))

        (message,) = until(received)
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return str(json.loads(message["Body"])["token"])

    def ended(self) -> Json:
        """Wait until the execution has ended, and return its description."""

        def description() -> Json:
            found: Json = self.states.describe_execution(executionArn=self.execution)
            return {} if found["status"] == "RUNNING" else found

        return until(description)

    def refusals(self, token: str) -> set[str]:
        """Return the codes with which all calls with a token are refused."""
        states = self.states
        codes = set()
        for call, options in (
            (states.send_task_heartbeat, {}),
            (states.send_task_success, {"output": "{}"}),
            (states.send_task_failure, {}),
        ):
            with pytest.raises(ClientError) as refused:
                call(taskToken=token, **options)
            codes.add(refused.value.response["Error"]["Code"])
        return codes


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with LocalCloud() as cloud:
        yield cloud


def test_a_token_is_closed_by_its_answer(cloud: LocalCloud) -> None:
    machine = Machine(cloud)
    token = machine.token()
    machine.states.send_task_heartbeat(taskToken=token)
    machine.states.send_task_success(taskToken=token, output='{"answer": 42}')
    assert json.loads(machine.ended()["output"]) == {"answer": 42}
    assert machine.refusals(token) == {"TaskTimedOut"}


def test_the_tokens_of_a_stopped_execution_are_closed(cloud: LocalCloud) -> None:
    machine = Machine(cloud)
    token = machine.token()
    machine.states.stop_execution(executionArn=machine.execution)
    assert machine.refusals(token) == {"TaskTimedOut"}
    assert machine.ended()["status"] == "ABORTED"


def test_a_heartbeat_gives_a_task_the_whole_time_again(cloud: LocalCloud) -> None:
    for allowed in (3, 15, 75, 375):  # seconds: as many as this machine needs to send a heartbeat in time
        machine = Machine(cloud, HeartbeatSeconds=allowed)
        token = machine.token()
        time.sleep(allowed / 3)  # the time that the heartbeat gives back
        before = time.monotonic()
        if is_heard(machine, token):
            break
    ended = machine.ended()
    assert (ended["status"], ended["error"]) == ("FAILED", "States.HeartbeatTimeout")
    assert time.monotonic() - before >= allowed
    assert machine.refusals(token) == {"TaskTimedOut"}


def is_heard(machine: Machine, token: str) -> bool:
    """Send a heartbeat. Return False if the task has timed out before."""
    try:
        machine.states.send_task_heartbeat(taskToken=token)
    except machine.states.exceptions.TaskTimedOut:
        return False
    return True


def test_each_try_of_a_task_has_a_token_of_its_own(cloud: LocalCloud) -> None:
    retry = [{"ErrorEquals": ["Refused"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    machine = Machine(cloud, Retry=retry)
    first = machine.token()
    machine.states.send_task_failure(taskToken=first, error="Refused")
    second = machine.token()
    assert second != first
    assert machine.refusals(first) == {"TaskTimedOut"}
    machine.states.send_task_success(taskToken=second, output="{}")
    assert machine.ended()["status"] == "SUCCEEDED"
