"""`retries=N`: what a job's own failures cost it, and what is not its failure."""

from typing import Any

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from tests.queue_harness import Harness

FAILURE = "AlgorithmError: ExecuteUserScriptError: exit code 1"


def tags(retries: int | str, priority: int = 1) -> dict[str, Any]:
    return {"Tags": [{"Key": "priority", "Value": str(priority)}, {"Key": "retries", "Value": str(retries)}]}


def fail(queue: Harness, attempt: int, why: str = FAILURE) -> None:
    queue.end(f"job1-qstamp-{attempt}", "Failed", failure=why)


def test_it_is_tried_again_until_its_retries_are_used() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", **tags(2))
    entered = queue.job("job1").entered
    for attempt in (1, 2):
        fail(queue, attempt)
        job = queue.job("job1")
        assert (job.state, job.attempt, job.retried, job.entered) == ("running", attempt + 1, attempt, entered)
    fail(queue, 3)
    assert (queue.state("job1"), queue.job("job1").reason) == ("failed", FAILURE)
    record = queue.record("job1")
    assert [attempt.outcome for attempt in record.attempts] == ["failed"] * 3
    causes = [entry.cause for entry in record.history if "failed" in entry.cause]
    assert causes == [
        f"failed, retry 1 of 2: {FAILURE}",
        f"failed, retry 2 of 2: {FAILURE}",
        f"failed after 2 of 2 retries: {FAILURE}",
    ]


@pytest.mark.parametrize(
    ("status", "secondary", "failure", "state", "retried"),
    [
        ("Failed", "Failed", FAILURE, "running", 1),
        ("Failed", "Failed", "ClientError: no such bucket", "failed", 0),
        ("Failed", "Failed", None, "running", 1),
        ("Failed", "Failed", "InternalServerError: try again", "pending", 0),
        ("Failed", "Failed", "CapacityError: no p5 left", "pending", 0),
        ("Stopped", "MaxRuntimeExceeded", None, "stopped", 0),
        ("Stopped", "Stopped", None, "stopped", 0),
        ("Completed", "Completed", None, "completed", 0),
    ],
)
def test_only_a_failure_of_its_own_uses_a_retry(
    status: str, secondary: str, failure: str | None, state: str, retried: int
) -> None:
    queue = Harness(slots=1)
    queue.submit("job1", **tags(3))
    queue.end("job1-qstamp-1", status, secondary, failure)
    assert (queue.state("job1"), queue.job("job1").retried) == (state, retried)


def test_an_eviction_is_no_retry() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", **tags(1))
    queue.submit("high", 9)
    queue.end("job1-qstamp-1", "Stopped")
    queue.end("high-qstamp-1")
    assert (queue.job("job1").retried, queue.job("job1").launched) == (0, "job1-qstamp-2")
    fail(queue, 2)
    assert (queue.state("job1"), queue.job("job1").retried) == ("running", 1)
    fail(queue, 3)
    assert queue.state("job1") == "failed"


def test_a_cancelled_job_is_not_tried_again() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", **tags(3))
    queue.cancel("job1")
    fail(queue, 1)
    assert queue.state("job1") == "stopped"


def test_a_request_that_sagemaker_refuses_is_not_tried_again() -> None:
    queue = Harness(slots=1)
    queue.training.script = [LaunchResult.REFUSED]
    queue.submit("job1", **tags(3))
    assert (queue.state("job1"), queue.job("job1").reason) == ("failed", "REFUSED: scripted")
    assert queue.record("job1").history[-1].cause == "refused by SageMaker: REFUSED: scripted"
