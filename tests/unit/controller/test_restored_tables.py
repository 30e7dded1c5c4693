"""Tables restored to an earlier time: each kind of job does what docs/operate/upgrade-backup-restore.md says."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.queue_harness import Harness


@contextmanager
def forgotten(queue: Harness) -> Iterator[None]:
    """What happens meanwhile is lost from the tables, and stays in SageMaker."""
    kept = copy.deepcopy(queue.tables.rows)
    yield
    queue.tables.rows = kept
    queue.now += 3600


def test_an_attempt_that_ended_since_is_taken_in() -> None:
    queue = Harness(slots=1)
    queue.submit("job1")
    with forgotten(queue):
        queue.end("job1-qstamp-1")
    assert queue.state("job1") == "running"
    queue.tick()
    assert queue.state("job1") == "completed"


def test_an_attempt_that_was_started_since_is_adopted() -> None:
    queue = Harness(slots=1)
    queue.submit("first")
    queue.submit("second")
    with forgotten(queue):
        queue.end("first-qstamp-1")
        assert queue.state("second") == "running"
    queue.tick()
    assert (queue.state("first"), queue.state("second")) == ("completed", "running")
    assert queue.training.in_use() == 1


def test_an_attempt_that_was_started_and_ended_since_is_not_run_again() -> None:
    queue = Harness(slots=1)
    queue.submit("first")
    queue.submit("second")
    with forgotten(queue):
        queue.end("first-qstamp-1")
        queue.end("second-qstamp-1")
    queue.tick()
    queue.tick()
    assert (queue.state("first"), queue.state("second")) == ("completed", "completed")
    assert sorted(queue.training.jobs) == ["first-qstamp-1", "second-qstamp-1"]


def test_a_job_that_was_preempted_since_ends_as_stopped_by_hand() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    with forgotten(queue):
        queue.submit("high", 2)
        queue.end("low-qstamp-1", "Stopped")
    queue.tick()
    assert queue.state("low") == "stopped"
    assert "outside the queue" in str(queue.job("low").reason)


def submitted(queue: Harness) -> None:
    queue.submit("new")


def submitted_and_waiting(queue: Harness) -> None:
    queue.submit("old")
    queue.submit("new")


@pytest.mark.parametrize("meanwhile", [submitted, submitted_and_waiting])
def test_a_job_that_was_submitted_since_is_unknown_and_its_attempt_counts_as_forged(
    meanwhile: Callable[[Harness], None],
) -> None:
    queue = Harness(slots=1)
    with forgotten(queue):
        meanwhile(queue)
    queue.tick()
    assert queue.repository.record("new") is None
    assert queue.training.stopped == set()
    assert {job.name for job in queue.repository.external() if job.forged} == set(queue.training.jobs)
    for attempt in list(queue.training.jobs):
        queue.end(attempt, "Stopped")
    queue.submit("new")  # its old attempt's name is taken: the next number
    assert queue.state("new") == "running"


def test_a_job_that_was_cancelled_since_comes_back() -> None:
    queue = Harness(slots=1)
    queue.submit("first")
    queue.submit("second")
    with forgotten(queue):
        queue.cancel("second")
    queue.tick()
    assert queue.state("second") == "pending"


def test_draining_by_a_capacity_of_zero_lets_run_what_runs_and_starts_nothing() -> None:
    queue = Harness(slots=1)
    queue.submit("runs", 1)
    queue.submit("waits", 2)
    queue.end("runs-qstamp-1", "Stopped")
    drained = Harness(slots=0, tables=queue.tables)
    drained.training = queue.training
    drained.now = queue.now
    drained.controller = drained.new_controller(queue.training)  # type: ignore[arg-type]
    drained.tick()
    assert drained.states() == {"waits": "running", "runs": "preempted"}
    drained.end("waits-qstamp-1")
    drained.tick()
    assert drained.states() == {"runs": "preempted"}
