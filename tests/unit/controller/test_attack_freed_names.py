"""Names of deleted attempts are free: copies of an attempt are left alone, and late calls launch nothing beside it."""

import pytest

from tests.fake_sagemaker import DELETION_SECONDS
from tests.queue_harness import Harness
from tests.unit.controller.test_attack_forged_attempts import forge

pytestmark = pytest.mark.attack

LATER = 2 * DELETION_SECONDS + 61  # more seconds than the clocks may differ by


def delete(queue: Harness, attempt: str) -> dict[str, str]:
    """Delete an attempt that has ended, and return the tags that it had."""
    tags = dict(queue.training.jobs[attempt].tags)
    assert queue.training.delete(attempt, keeps_trace=False)
    queue.now += LATER
    assert queue.training.known(attempt) is None
    return tags


def ticks(queue: Harness, number: int = 3) -> None:
    for _ in range(number):
        queue.tick()


def test_a_copy_of_an_attempt_that_has_ended_is_not_stopped() -> None:
    queue = Harness(slots=2)
    queue.submit("victim", 1)
    queue.end("victim-qstamp-1")
    forge(queue, "victim-qstamp-1", delete(queue, "victim-qstamp-1"))
    ticks(queue)
    assert queue.training.stopped == set()
    (external,) = queue.repository.external()
    assert (external.name, external.forged, external.orphan) == ("victim-qstamp-1", True, False)


def test_a_copy_of_an_attempt_that_ended_before_its_launch_was_heard_of_is_not_stopped() -> None:
    queue = Harness(slots=2)
    queue.training.script = ["lost"]
    queue.submit("victim", 1)
    assert queue.state("victim") == "starting"
    queue.end("victim-qstamp-1")
    forge(queue, "victim-qstamp-1", delete(queue, "victim-qstamp-1"))
    ticks(queue)
    assert (queue.state("victim"), queue.training.stopped) == ("completed", set())


def test_a_copy_of_an_attempt_whose_end_is_not_known_is_not_stopped() -> None:
    queue = Harness(slots=2)
    queue.submit("victim", 1)
    queue.training.end("victim-qstamp-1")
    forge(queue, "victim-qstamp-1", delete(queue, "victim-qstamp-1"))
    ticks(queue)
    assert (queue.state("victim"), queue.training.stopped) == ("running", set())


def test_an_attempt_that_was_deleted_is_not_asked_to_stop_again() -> None:
    queue = Harness(slots=2)
    queue.submit("victim", 1)
    queue.cancel("victim")
    queue.training.end("victim-qstamp-1", "Stopped")
    tags = delete(queue, "victim-qstamp-1")
    queue.tick()
    assert queue.job("victim").missing_since is not None
    forge(queue, "victim-qstamp-1", tags)
    ticks(queue)
    assert (queue.state("victim"), queue.training.stopped) == ("stopping", set())


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_late_call_that_launches_a_completed_attempt_again_is_stopped(state: str) -> None:
    queue = Harness(slots=2)
    queue.training.script = ["late", *(["lost"] if state == "starting" else [])]
    queue.submit("job", 1)
    queue.tick()
    assert queue.state("job") == state
    queue.end("job-qstamp-1")
    assert queue.state("job") == "completed"
    delete(queue, "job-qstamp-1")
    queue.training.land()
    ticks(queue)
    assert queue.training.stopped == {"job-qstamp-1"}


@pytest.mark.parametrize("status", ["Completed", "Failed"])
def test_an_attempt_that_was_launched_again_outlives_the_end_of_the_deleted_one(status: str) -> None:
    queue = Harness(slots=2)
    queue.training.script = ["lost"]
    queue.submit("job", 1, Tags=[{"Key": "priority", "Value": "1"}, {"Key": "retries", "Value": "1"}])
    queue.training.end("job-qstamp-1", status)
    late_event = queue.training.event("job-qstamp-1")
    delete(queue, "job-qstamp-1")
    queue.tick(1200)  # no earlier call can take effect any more
    assert queue.state("job") == "running"
    queue.controller.training_job_changed(late_event, queue.invocation())
    assert (queue.state("job"), queue.job("job").attempt) == ("running", 1)
    queue.end("job-qstamp-1")
    assert queue.state("job") == "completed"


def test_the_warm_pool_under_the_name_of_a_deleted_attempt_counts() -> None:
    queue = Harness(slots=2)
    queue.submit("victim", 1)
    queue.training.end("victim-qstamp-1")
    forge(queue, "victim-qstamp-1", delete(queue, "victim-qstamp-1"), KeepAlivePeriodInSeconds=3600)
    queue.training.end("victim-qstamp-1")
    ticks(queue)
    (external,) = queue.repository.external()
    assert external.name == "victim-qstamp-1"
    assert external.warm is not None
