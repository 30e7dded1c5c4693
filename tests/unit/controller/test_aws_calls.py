"""What a submission costs: AWS calls one after the other, up to CreateTrainingJob, whatever the backlog."""

from collections.abc import Callable, Sequence
from typing import Any

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
        for verb in ("create", "describe", "stop", "page"):
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


def test_a_submission_takes_eight_calls_in_sequence_up_to_the_launch_whatever_the_backlog() -> None:
    none, some, many = (submission_cost(backlog) for backlog in (0, 100, 10_000))
    assert max(meter.depth_at_create for meter in (none, some, many)) <= MOST_IN_SEQUENCE
    assert 5 < none.depth_at_create < none.total, "the meter sees which calls wait for one another"
    assert (some.total, some.rows) == (many.total, many.rows)
    assert some.rows > 100
