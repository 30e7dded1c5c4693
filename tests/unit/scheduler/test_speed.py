"""A plan takes time that grows about as the number of jobs, whatever the machine: its function calls are counted."""

from job_queue.scheduler import Snapshot, plan
from tests.builders import a_policy, a_snapshot, active, waiting
from tests.counting import counted


def a_full_fleet(size: int) -> Snapshot:
    """So many jobs run, and four times as many wait."""
    running = [active(f"r{number}", 1 + number % 3, priority=1 + number % 5, ran=number) for number in range(size)]
    queue = [
        waiting(f"w{number}", 1 + number % 4, {"p4": 1 + number % 3}, priority=1 + number % 7, waited=number % 997)
        for number in range(4 * size)
    ]
    return a_snapshot(*running, *queue, policy=a_policy({"p5": 2 * size + size // 10, "p4": size // 20}))


def test_twice_the_jobs_take_little_more_than_twice_the_calls() -> None:
    small, large = a_full_fleet(500), a_full_fleet(1000)
    decided, calls = counted(lambda: plan(small))
    assert decided.starts
    assert decided.evictions
    assert len(decided.starts) + len(decided.holds) == 2000
    _, more_calls = counted(lambda: plan(large))
    assert more_calls < 2.5 * calls
    assert more_calls < 500 * 5000, "five hundred for each job"
