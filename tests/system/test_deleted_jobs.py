"""DeleteTrainingJob on real parts: the end of a deleted attempt, and its name, which is free again."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from job_queue.adapters.sagemaker import CLOCK_SECONDS
from job_queue.domain.state_machine import MISSING_SECONDS
from local_cloud.aws.stack import LocalCloud
from local_cloud.sagemaker.events import RuleTargets
from tests.system.conftest import FOREVER, System, send
from tests.system.test_failures import stop_the_schedule


class Events:
    """Holds back the events that SageMaker sends."""

    def __init__(self) -> None:
        self.held: list[dict[str, Any]] = []

    def __call__(self, event: dict[str, Any]) -> None:
        self.held.append(event)

    def arrive(self, cloud: LocalCloud) -> None:
        """Deliver all of them."""
        targets = RuleTargets(cloud.client("events"), cloud.client("lambda"))
        while self.held:
            targets.deliver(self.held.pop(0))


@pytest.fixture(scope="module")
def events() -> Events:
    return Events()


@pytest.fixture(scope="module")
def shared_cloud(events: Events) -> Iterator[LocalCloud]:
    """A cloud whose events are held back, without the schedule."""
    with LocalCloud(slots=2, deliver=events) as cloud:
        stop_the_schedule(cloud)
        yield cloud


@pytest.fixture
def system(shared_system: System, events: Events) -> Iterator[System]:
    """Begin and end with an empty queue; the events of a test are lost unless it delivers them."""
    events.held.clear()
    yield shared_system
    shared_system.empty(shared_system.cloud.tick)


def status_of(system: System, attempt: str) -> str | None:
    """Return the status of a training job; None: SageMaker does not know it."""
    try:
        return str(system.sagemaker.describe_training_job(TrainingJobName=attempt)["TrainingJobStatus"])
    except ClientError:
        return None


def delete(system: System, attempt: str, status: str) -> None:
    """Wait until a training job has ended with this status, delete it, and wait until SageMaker does not know it."""
    system.wait(f"{attempt} to end", lambda: status_of(system, attempt) == status)
    system.sagemaker.delete_training_job(TrainingJobName=attempt)
    system.wait(f"{attempt} to be gone", lambda: status_of(system, attempt) is None)


def change(system: System, job: str, attribute: str, value: dict[str, str]) -> None:
    """Write an attribute of an active job in both of its rows, as if time had passed."""
    tables = system.cloud.client("dynamodb")
    rows = (
        ("sagemaker-queue", {"jobName": {"S": job}}),
        ("sagemaker-queue-lines", {"line": {"S": "active"}, "position": {"S": job}}),
    )
    for table, key in rows:
        tables.update_item(
            TableName=table,
            Key=key,
            UpdateExpression="SET #name = :value",
            ConditionExpression="attribute_exists(#name)",
            ExpressionAttributeNames={"#name": attribute},
            ExpressionAttributeValues={":value": value},
        )


def is_missing_for(system: System, job: str, seconds: float) -> None:
    change(system, job, "missingSince", {"N": str(int(time.time() - seconds))})


@pytest.mark.thorough
def test_an_event_that_comes_after_the_deletion_tells_the_end(system: System, events: Events) -> None:
    system.submit("done")
    system.wait(
        "the event of its end", lambda: "Completed" in [it["detail"]["TrainingJobStatus"] for it in events.held]
    )
    delete(system, "done-qstamp-1", "Completed")
    system.cloud.tick()
    assert system.state("done") == "running", "nothing tells how it ended"
    events.arrive(system.cloud)
    system.wait_state("done", "completed")


def test_without_an_event_the_job_is_stopped_and_another_training_job_may_have_the_name(system: System) -> None:
    system.submit("unknown")
    delete(system, "unknown-qstamp-1", "Completed")
    system.cloud.tick()
    is_missing_for(system, "unknown", MISSING_SECONDS)
    began = datetime.fromtimestamp(time.time() - CLOCK_SECONDS - 10, UTC).isoformat()
    change(system, "unknown", "started", {"S": began})
    theirs = {**system.request("unknown-qstamp-1", FOREVER), "Tags": []}
    system.sagemaker.create_training_job(**theirs)
    system.cloud.tick()
    job = system.job("unknown")
    assert job.state == "stopped"
    assert "was deleted in SageMaker before the queue knew its outcome" in str(job.reason)
    assert status_of(system, "unknown-qstamp-1") == "InProgress", "it is not the queue's"
    external = send(system, "GET", "/queue").json()["external"]
    assert [job["trainingJobName"] for job in external] == ["unknown-qstamp-1"]
    system.sagemaker.stop_training_job(TrainingJobName="unknown-qstamp-1")
    system.wait("its end", lambda: status_of(system, "unknown-qstamp-1") == "Stopped")
    system.cloud.tick()


@pytest.mark.thorough
def test_a_preempted_attempt_that_was_deleted_goes_on_as_the_next_one(system: System) -> None:
    system.run("low", instances=2)
    system.submit("high", FOREVER, priority=9, instances=2)
    assert system.state("low") == "stopping"
    delete(system, "low-qstamp-1", "Stopped")
    system.cloud.tick()
    is_missing_for(system, "low", MISSING_SECONDS)
    system.cloud.tick()
    assert system.state("high") == "running"
    system.queue.cancel("high")
    system.wait("low to run again", lambda: system.state("low") == "running", system.cloud.tick)
    assert system.job("low").training_job_name == "low-qstamp-2"
