"""The waiting queues in simulated time: the jobs that a plan reads of them, and their order."""

from job_queue.scheduler import Order, Settings, WaitingJob
from job_queue.simulation.fleet.waiting_queues import WaitingQueues
from tests.builders import NOW, waiting

JOBS = (
    waiting("old", waited=900, expected=5000.0),
    waiting("new", waited=10, expected=10.0),
    waiting("urgent", priority=2, waited=5),
    waiting("other pool", {"p4": 1}),
)


def read(enough: int, *jobs: WaitingJob, removed: str | None = None, **settings: object) -> tuple[list[str], bool]:
    queues = WaitingQueues(Settings(**settings))  # type: ignore[arg-type]
    for job in jobs:
        queues.enter(job)
    if removed:
        queues.remove(removed)
    found, cut = queues.read(NOW, enough)
    limited = any(job.max_parallel for job in jobs)
    assert [job.name for job in found if job.more_wait] == [found[0].name] * (cut and not limited)
    return [job.name for job in found], cut


def test_the_first_of_each_queue_are_read_by_priority_and_submission() -> None:
    assert read(2, *JOBS) == (["urgent", "old", "other pool"], True)
    assert read(3, *JOBS) == (["urgent", "old", "new", "other pool"], False)


def test_a_removed_job_is_not_read() -> None:
    assert read(2, *JOBS, removed="urgent") == (["old", "new", "other pool"], False)


def test_the_first_in_serving_order_are_read_of_the_window() -> None:
    assert read(2, *JOBS, order=Order.SHORTEST) == (["urgent", "new", "other pool"], True)
    assert read(1, *JOBS, order=Order.SHORTEST, window=2, removed="urgent") == (["new", "other pool"], True)
    assert read(1, *JOBS, aging=60.0) == (["old", "other pool"], True)
    warm = waiting("warm", waited=1, warm=True)
    assert read(1, *JOBS, warm, removed="urgent") == (["warm", "other pool"], True)


def test_the_window_is_read_in_the_order_of_the_queue() -> None:
    assert read(5, *JOBS, window=2) == (["urgent", "old", "new", "other pool"], False)
    assert read(2, *JOBS, window=2, order=Order.SHORTEST) == (["urgent", "old", "other pool"], True)


def test_a_limited_group_takes_no_places_of_others_and_as_many_are_read_as_may_run() -> None:
    sweep = [waiting(f"trial{number}", waited=100 - number, group="sweep", max_parallel=3) for number in range(9)]
    first = ["trial0", "trial1", "trial2"]
    assert read(2, *sweep, waiting("behind", waited=1), window=5) == ([*first, "behind"], True)
    assert read(2, *sweep[:3], waiting("behind", waited=1)) == ([*first, "behind"], False)
    assert read(2, *sweep, window=2) == (first[:2], True)
