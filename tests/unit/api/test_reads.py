"""What is read while the jobs move: lists of live jobs, and looks at the queue."""

from collections.abc import Callable
from typing import Any

import pytest

from job_queue.api.pages import JobPages, states_of
from job_queue.services.submission import one_by_one
from tests.memory_tables import MemoryTables
from tests.queue_harness import Harness


class Interrupted(MemoryTables):
    """Lets something happen before one of the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, Callable[[], Any]] = {}
        self.queries = 0

    def query(self, *args: Any, **options: Any) -> Any:
        self.queries += 1
        self.before.pop(self.queries, lambda: None)()
        return super().query(*args, **options)


def listed(queue: Harness) -> list[str]:
    jobs, _ = JobPages(queue.repository, one_by_one).page(states_of("live"), 10, None)
    return [job.name for job in jobs]


def looked_at(queue: Harness) -> list[str]:
    cluster, _ = queue.forecast()
    return [*cluster.active, *cluster.waiting]


def seen_while(
    prepare: Callable[[Harness], Callable[[], Any]], query: int, look: Callable[[Harness], list[str]]
) -> list[str]:
    """The names that are seen if what `prepare` gives happens before that query of the look."""
    tables = Interrupted()
    queue = Harness(slots=1, tables=tables)
    move = prepare(queue)
    tables.before[tables.queries + query] = move
    return look(queue)


def coming_back(queue: Harness) -> Callable[[], Any]:
    queue.submit("job")
    return lambda: queue.end("job-qstamp-1", "Failed", failure="CapacityError: none left")


def starting(queue: Harness) -> Callable[[], Any]:
    queue.accept("job")
    return queue.wake


@pytest.mark.parametrize("prepare", [coming_back, starting])
@pytest.mark.parametrize("look", [listed, looked_at])
def test_a_job_that_moves_meanwhile_is_seen_all_the_same(
    prepare: Callable[[Harness], Callable[[], Any]], look: Callable[[Harness], list[str]]
) -> None:
    for query in range(1, 7):
        assert seen_while(prepare, query, look) == ["job"], f"it moves before query {query}"
