"""What cycles publish for readers: when it is written, by whom, and what a failure means."""

from typing import Any

import pytest

from job_queue.adapters.dynamodb import Update
from job_queue.adapters.records.packed_json import LARGEST
from job_queue.adapters.records.published_plan import PUBLISHED, to_stored
from job_queue.controller.part import Backend
from job_queue.controller.publication import PAUSE_SECONDS, Publication
from job_queue.domain.errors import Unavailable
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.scheduler import Hold, WaitReason
from tests.memory_tables import MemoryTables
from tests.queue_harness import Harness

ROW = ("sagemaker-queue-lines", PUBLISHED, "latest")


class Written(MemoryTables):
    """Counts the writes of the published plan, and refuses them where a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[dict[str, Any]] = []
        self.fails = False

    def update(self, update: Update) -> Any:
        if update.key["line"] == PUBLISHED:
            if self.fails:
                raise Unavailable("The table is throttled.")
            self.times.append(dict(update.set))
        return super().update(update)


def a_queue() -> tuple[Harness, Written]:
    tables = Written()
    return Harness(slots=1, tables=tables), tables


def waits(queue: Harness) -> dict[str, WaitReason]:
    return {hold.job: hold.reason for hold in queue.repository.published.latest().holds}


def test_a_cycle_publishes_what_it_has_decided() -> None:
    queue, _ = a_queue()
    queue.submit("runs")
    queue.submit("waits")
    _, decided = queue.forecast()
    assert queue.repository.published.latest().holds == decided.holds
    assert waits(queue) == {"waits": WaitReason.WAITING_FOR_CAPACITY}


def test_a_plan_that_tells_the_same_is_not_written_again() -> None:
    queue, tables = a_queue()
    queue.submit("runs")
    queue.submit("waits")
    before = len(tables.times)
    for _ in range(5):
        queue.tick()
    assert len(tables.times) == before
    plan = queue.repository.published.latest().read(queue.repository.last_cycle(), queue.now)
    assert plan.confirmed >= queue.now, "readers know that the last cycle decided the same"
    queue.cancel("waits")
    assert (len(tables.times), waits(queue)) == (before + 1, {})


def test_a_process_writes_again_after_another_one_ran_cycles() -> None:
    """What the other process published is not known here, and may differ."""
    queue, tables = a_queue()
    queue.submit("runs")
    queue.submit("waits")
    other = queue.new_controller(queue._service())
    other.wake(queue.invocation())
    tables.rows.pop(ROW)  # what the other process has written is lost
    queue.tick()
    assert waits(queue) == {"waits": WaitReason.WAITING_FOR_CAPACITY}


def test_no_cycle_fails_where_its_plan_cannot_be_published() -> None:
    queue, tables = a_queue()
    tables.fails = True
    queue.submit("runs")
    queue.submit("waits")
    assert queue.states() == {"runs": "running", "waits": "pending"}
    assert ROW not in tables.rows
    cluster, decided = queue.forecast()
    lease = queue.repository.acquire("a process", queue.now)
    publication = Publication(
        Backend(queue.repository, queue.training, queue.policies, queue.clock, queue.parallel)  # type: ignore[arg-type]
    )
    publication.prepare(0, lease, cluster, decided, queue.now)  # type: ignore[arg-type]
    publication.publish(is_last=True)
    queue.repository.release(lease)  # type: ignore[arg-type]
    tables.fails = False
    queue.tick()
    assert waits(queue) == {"waits": WaitReason.WAITING_FOR_CAPACITY}, "the next cycle tries again"


def test_a_late_write_does_not_replace_a_later_plan() -> None:
    queue, _ = a_queue()
    later = to_stored(PublishedPlan(at=2.0, window=7))
    queue.repository.published.replace(later, 20)
    queue.repository.published.replace(to_stored(PublishedPlan(at=1.0, window=5)), 19)
    assert queue.repository.published.latest().window == 7


def test_cycles_that_follow_each_other_write_now_and_then_and_the_last_one_always() -> None:
    queue, tables = a_queue()
    queue.submit("runs")
    lease = queue.repository.acquire("a process", queue.now)
    publication = Publication(
        Backend(queue.repository, queue.training, queue.policies, queue.clock, queue.parallel)  # type: ignore[arg-type]
    )
    before, began = len(tables.times), queue.now
    for number in range(20):
        lease.fencing_token += 1  # type: ignore[union-attr]
        cluster, decided = queue.forecast()
        publication.prepare(0, lease, cluster, decided, queue.now + number)  # type: ignore[arg-type]
        publication.publish(is_last=number == 19)
        queue.accept(f"job{number}")  # the next plan differs
    assert queue.now - began == 20
    assert len(tables.times) - before <= 20 / PAUSE_SECONDS + 1
    assert len(waits(queue)) == 19, "the last plan is the published one"


@pytest.mark.parametrize("jobs", [500, 20_000])
def test_the_plan_of_many_jobs_fits_in_a_row(jobs: int) -> None:
    queue = Harness()
    names = [f"{number:05}-{'x' * 57}" for number in range(jobs)]
    holds = tuple(
        Hold(
            name,
            WaitReason.WAITING_FOR_CAPACITY,
            f"{number} are free.",
            tuple(names[:20]),
            ("a", "b"),
        )
        for number, name in enumerate(names)
    )
    plan = PublishedPlan(1.0, holds, dict.fromkeys(names, 3), frozenset({"s"}), {"p5": {"vision": 2}}, 100)
    row = to_stored(plan)
    assert len(row.content) <= LARGEST
    queue.repository.published.replace(row, 1)
    found = queue.repository.published.latest()
    assert found.holds == holds[: len(found.holds)]
    assert len(found.holds) == jobs or (found.left_out and len(found.holds) >= 1000)
    assert (found.shares, found.starting, found.window) == (plan.shares, plan.starting, 100)


@pytest.mark.parametrize(
    "damage",
    [
        {"content": "no packed text"},
        {"content": ""},
        {"content": to_stored(PublishedPlan()).content[:-9]},
        {"at": "yesterday"},
        {"content": 7},
    ],
)
def test_a_row_that_cannot_be_read_counts_as_none_and_the_next_cycle_replaces_it(damage: dict[str, Any]) -> None:
    queue, tables = a_queue()
    queue.submit("runs")
    queue.submit("waits")
    tables.rows[ROW] |= damage
    assert queue.repository.published.latest() == PublishedPlan()
    queue.submit("another")
    assert set(waits(queue)) == {"waits", "another"}
