"""What is read while the jobs move: lists of live jobs, and looks at the queue."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from api_contract.models import MAX_PAGE, JobSummary, Reason
from job_queue.api.pages import JobPages, states_of
from job_queue.api.responses import MOST_BYTES, queue_status
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
    cluster, _ = queue.dry_run.forecast()
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


def test_an_answer_about_very_many_jobs_is_no_longer_than_lambda_may_answer() -> None:
    queue = Harness(slots=2)
    for number in range(6):
        queue.submit(f"job{number}")
    cluster, decided = queue.dry_run.forecast()
    whole = queue_status(cluster, decided)
    assert (len(whole.active), len(whole.waiting), whole.more_waiting) == (2, 4, False)
    sizes = [len(msgspec.json.encode(job)) for job in (*whole.active, *whole.waiting)]
    for shown in range(7):
        part = queue_status(cluster, decided, sum(sizes[:shown]) + 10)
        assert [*part.active, *part.waiting] == [*whole.active, *whole.waiting][:shown]
        assert part.more_waiting is (shown < 6)


def test_the_longest_page_of_jobs_is_no_longer_than_lambda_may_answer() -> None:
    longest = JobSummary(
        job="x" * 63,
        state="preempted",
        project="x" * 63,
        group="x" * 256,
        owner=f"arn:aws:sts::123456789012:assumed-role/{'x' * 64}/{'x' * 64}",
        training_job_name="x" * 63,
        reason=Reason("KEPT_FOR_PATIENT_JOB", "x" * 2048),
        pools=("x" * 63,) * 4,
        slots={f"{number}{'x' * 62}": 1_000_000 for number in range(5)},
    )
    assert MAX_PAGE * len(msgspec.json.encode(longest)) < MOST_BYTES
