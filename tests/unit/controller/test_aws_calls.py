"""What a submission costs: AWS calls one after the other, up to CreateTrainingJob, whatever the backlog."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from job_queue.adapters.items import job_item, live_key
from job_queue.adapters.metadata import Policies
from job_queue.controller.cycle import Controller
from tests.jobs import a_job
from tests.memory_tables import MemoryTables
from tests.queue_harness import Harness

MOST_IN_SEQUENCE = 8


class Meter:
    """Counts calls: all of them, and how many wait for one another."""

    def __init__(self, queue: Harness) -> None:
        self.total = self.depth = self.depth_at_create = self.rows = 0
        for verb in ("get", "query", "page", "update", "transact"):
            self._count(queue.tables, verb)
        for verb in ("create", "describe", "stop", "alive"):
            self._count(queue.training, verb)
        training: Any = queue.training
        policy = Policies(queue.settings.max_capacity)
        queue.controller = Controller(queue.repository, training, policy, queue.clock, self.parallel)

    def parallel(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        """Calls at the same time wait as long as the longest of them."""
        before, deepest, answers = self.depth, self.depth, []
        for call in calls:
            self.depth = before
            answers.append(call())
            deepest = max(deepest, self.depth)
        self.depth = deepest
        return answers

    def _count(self, owner: object, verb: str) -> None:
        original = getattr(owner, verb)

        def counted(*args: Any, **options: Any) -> Any:
            self.total += 1
            self.depth += 1
            if verb == "create":
                self.depth_at_create = self.depth
            answer = original(*args, **options)
            self.rows += len(answer) if verb == "query" else verb == "get"
            return answer

        setattr(owner, verb, counted)


class OneCallUpdates(MemoryTables):
    """An update is one call, as in DynamoDB, and not the transaction and the read that it is made of here."""

    def update(self, update: Any) -> Any:
        MemoryTables.transact(self, [update])
        return MemoryTables.get(self, update.table, update.key)


def submission_cost(backlog: int) -> Meter:
    queue = Harness(slots=1, tables=OneCallUpdates())
    queue.submit("first", 1)
    for number in range(backlog):
        job = a_job(f"waiting{number}", priority=0)
        key = live_key(job)
        assert key
        queue.tables.rows["sagemaker-queue-lines", key["line"], key["position"]] = {**key, **job_item(job)}
    queue.training.end("first-qstamp-1")
    queue.controller.reconciler.handle_event(queue.training.event("first-qstamp-1"))
    meter = Meter(queue)
    queue.submit("job1", 9)
    assert queue.state("job1") == "running"
    return meter


@pytest.mark.parametrize("backlog", [0, 1000])
def test_a_submission_takes_eight_calls_in_sequence_up_to_the_launch(backlog: int) -> None:
    assert submission_cost(backlog).depth_at_create <= MOST_IN_SEQUENCE


def test_its_calls_and_reads_do_not_grow_with_the_backlog() -> None:
    small, large = submission_cost(100), submission_cost(10_000)
    assert (small.total, small.rows) == (large.total, large.rows)
    assert small.rows > 100


def test_the_meter_sees_calls_that_wait_for_one_another() -> None:
    meter = submission_cost(0)
    assert 5 < meter.depth_at_create < meter.total
