"""Rows that somebody makes as large as they can: they stay writable, and one that is not holds nobody up."""

from dataclasses import replace

import pytest

from job_queue.adapters.job_repository import HISTORY_BYTES
from job_queue.adapters.sagemaker import LaunchResult
from job_queue.domain.domain_events import DomainEvent, UnrecordedJob
from job_queue.domain.job import REASON_BYTES
from job_queue.services.job_commands import JobCommands
from local_cloud.dynamodb.units import size_of
from tests.jobs import OWNER
from tests.memory_tables import MAX_ROW
from tests.queue_harness import Harness

pytestmark = pytest.mark.attack


class Told:
    """Keeps the names of jobs that cannot be recorded."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def notify(self, event: DomainEvent) -> None:
        if isinstance(event, UnrecordedJob):
            self.names.append(event.job)


def commands(queue: Harness) -> JobCommands:
    return JobCommands(queue.repository, queue.policies, queue.settings, queue.clock)


def large(size: int) -> dict[str, str]:
    return {f"k{number}": "x" * 2400 for number in range(size // 2420)}


def test_changes_without_end_do_not_fill_a_row() -> None:
    queue = Harness(slots=1)
    queue.submit("first", 5)
    queue.submit("huge", 1, HyperParameters=large(200_000))
    for number in range(400):
        commands(queue).change("huge", OWNER, priority=number % 2 + 2)
    assert len(queue.record("huge").history) <= 101
    queue.end("first-qstamp-1")
    assert queue.state("huge") == "running"


def test_long_causes_are_bounded_in_bytes() -> None:
    queue = Harness(slots=1)
    queue.submit("huge", 1, HyperParameters=large(240_000))
    for number in range(1, 150):
        queue.end(f"huge-qstamp-{number}", "Failed", failure="InternalServerError: " + "\N{GRINNING FACE}" * 1000)
        assert len((queue.job("huge").reason or "").encode()) <= REASON_BYTES
        queue.tick(3600)
    size = sum(len(entry.cause.encode()) for entry in queue.record("huge").history)
    assert size <= HISTORY_BYTES + 1000
    assert queue.state("huge") == "running"


def test_a_refusal_that_repeats_the_request_is_cut() -> None:
    queue = Harness(slots=1)
    queue.training.script = [(LaunchResult.NOT_NOW, "AccessDenied: " + "x" * 300_000)]
    queue.submit("huge", 1, HyperParameters=large(240_000))
    assert queue.state("huge") == "pending"
    queue.tick(60)
    assert queue.state("huge") == "running"


def bloated(queue: Harness, name: str) -> None:
    """A row as an earlier version has let it grow, or somebody has by hand."""
    row = queue.tables.rows["sagemaker-queue", name]
    row["jobDetails"] += " " * (MAX_ROW - size_of(row) - 10)


def test_a_job_that_cannot_be_recorded_holds_nobody_up_and_is_told_of() -> None:
    told = Told()
    queue = Harness(slots=1, notify=told.notify)
    queue.accept("huge", 1000)
    bloated(queue, "huge")
    queue.submit("honest", 1)
    assert queue.states() == {"huge": "pending", "honest": "running"}
    assert told.names == ["huge"]
    queue.end("honest-qstamp-1")
    queue.submit("next", 1)
    assert queue.state("next") == "running"
    assert told.names == ["huge"], "not tried again before its time"


def test_an_attempt_whose_job_cannot_be_recorded_is_no_victim() -> None:
    queue = Harness(slots=2, notify=Told().notify)
    queue.submit("huge", 1)
    queue.submit("small", 2)
    bloated(queue, "huge")
    queue.submit("urgent", 1000)
    queue.end("small-qstamp-1", "Stopped")
    assert queue.states() == {"huge": "running", "urgent": "running", "small": "preempted"}


def test_a_row_that_history_has_filled_can_be_cancelled() -> None:
    queue = Harness(slots=1)
    queue.submit("first", 5)
    queue.submit("huge", 1, HyperParameters=large(240_000))
    row = queue.tables.rows["sagemaker-queue", "huge"]
    entry = {**row["history"][0], "cause": "y" * 480}
    while size_of(row) < MAX_ROW - 600:
        row["history"].append(entry)
    commands(queue).cancel("huge", OWNER)
    assert queue.state("huge") == "stopped"


def test_two_jobs_differ_in_nothing_but_their_reasons() -> None:
    job = replace(Harness().accept("job1", 1).record.job, reason=None)
    assert job.with_changes(reason="x").reason == "x"
    assert job.with_changes(reason=None).reason is None
