"""A plan takes time that grows about as the number of jobs, whatever the machine: its function calls are counted."""

from dataclasses import replace

from benchmarks.planner import reclaim
from job_queue.scheduler import ActiveJob, Carrier, GpuAllocation, JobState, Pool, Snapshot, plan
from tests.builders import NOW, PROJECT, a_policy, a_snapshot, active, waiting
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


def test_a_gang_that_reclaims_from_twice_the_shared_instances_takes_little_more_than_twice_the_calls() -> None:
    small, large = reclaim(50, 5), reclaim(100, 10)
    decided, calls = counted(lambda: plan(small))
    assert len(decided.evictions) == 5
    _, more_calls = counted(lambda: plan(large))
    assert more_calls < 2.3 * calls


def half_empty_carriers(count: int) -> Snapshot:
    """Carriers with one member each, which could move to another, and a gang that needs two instances; none is free.

    No emptied carrier is enough for the gang.
    """
    policy = a_policy(count)
    carriers = [Carrier(f"c{n:03}", "p5", PROJECT, "", 8, JobState.RUNNING, NOW - 3600) for n in range(count)]
    members: list[ActiveJob] = [active(f"m{n}", {}, allocation=GpuAllocation(f"c{n:03}", (0,))) for n in range(count)]
    shared = replace(policy, pools=(Pool("p5", count, gpus=8),))
    return a_snapshot(*members, waiting("gang", 2), policy=shared, carriers=tuple(carriers))


def test_not_every_carrier_is_tried_for_a_job_that_gains_by_none() -> None:
    decided, calls = counted(lambda: plan(half_empty_carriers(30)))
    assert not decided.evictions
    _, more_calls = counted(lambda: plan(half_empty_carriers(60)))
    assert more_calls < 2.3 * calls
