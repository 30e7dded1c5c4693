"""A list of live jobs that is read while the jobs move."""

from collections.abc import Callable
from typing import Any

import pytest

from job_queue.listing import Listing, states_of
from job_queue.world import one_by_one
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


def listed_while(prepare: Callable[[Harness], Callable[[], Any]], query: int) -> list[str]:
    """The names that are listed if what `prepare` gives happens before that query of the listing."""
    tables = Interrupted()
    queue = Harness(slots=1, tables=tables)
    move = prepare(queue)
    tables.before[tables.queries + query] = move
    jobs, _ = Listing(queue.store, one_by_one).page(states_of("live"), 10, None)
    return [job.name for job in jobs]


def coming_back(queue: Harness) -> Callable[[], Any]:
    queue.submit("job")
    return lambda: queue.end("job-qstamp-1", "Failed", failure="CapacityError: none left")


def starting(queue: Harness) -> Callable[[], Any]:
    queue.accept("job")
    return queue.wake


@pytest.mark.parametrize("prepare", [coming_back, starting])
@pytest.mark.parametrize("query", range(1, 7))
def test_a_job_that_moves_meanwhile_is_listed_all_the_same(
    prepare: Callable[[Harness], Callable[[], Any]], query: int
) -> None:
    assert listed_while(prepare, query) == ["job"]
