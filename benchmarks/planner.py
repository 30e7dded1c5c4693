"""Time of one plan, by the size of the snapshot: `python benchmarks/planner.py [--quick] [--reclaim]`.

Every snapshot is created with a fixed seed. The tables have the processor time of one plan, the best of three tries.
The last table repeats the work of KAI-Scheduler's BenchmarkReclaimLargeJobs.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from job_queue.scheduler import (  # noqa: E402
    ActiveJob,
    Carrier,
    Department,
    GpuAllocation,
    JobState,
    Policy,
    Pool,
    Project,
    Settings,
    Snapshot,
    WaitingJob,
    plan,
)

NOW = 1_000_000.0


def plain(active: int, waiting: int, projects: int = 20) -> Snapshot:
    """Return a snapshot with one full pool and one-slot jobs of equal priority.

    One half of the projects hold twice their quota. The other half hold no slots.
    """
    holders = projects // 2
    return Snapshot(
        policy=Policy(
            pools=(Pool("p5", active),),
            projects=tuple(Project(f"p{n}", quota={"p5": active // projects}) for n in range(projects)),
        ),
        now=NOW,
        active=tuple(
            ActiveJob(f"a{n}", f"p{n % holders}", 1, {"p5": 1}, JobState.RUNNING, NOW - 9000 - n, NOW - 9000 - n)
            for n in range(active)
        ),
        waiting=tuple(WaitingJob(f"w{n}", f"p{n % projects}", 1, ({"p5": 1},), NOW - n / 10) for n in range(waiting)),
    )


def mixed(active: int, waiting: int, projects: int = 20, pools: int = 2) -> Snapshot:
    """Return a snapshot with several pools, gangs of 1 to 4 slots and four departments.

    Half of the jobs may use a second pool instead. Jobs have different priorities, and a tenth are not preemptible.
    """
    random = Random(1)
    names = [f"pool{n}" for n in range(pools)]
    used = dict.fromkeys(names, 0)

    def alternatives() -> list[dict[str, int]]:
        first, *others = random.sample(names, len(names))
        second = [{others[0]: random.randint(1, 4)}] if random.random() < 0.5 else []
        return [{first: random.randint(1, 4)}, *second]

    running = []
    for n in range(active):
        demand = alternatives()
        for pool, count in demand[0].items():
            used[pool] += count
        running.append(
            ActiveJob(
                name=f"a{n}",
                project=f"p{random.randrange(projects // 2)}",
                priority=random.randrange(5),
                slots=demand[0],
                state=JobState.RUNNING,
                entered=NOW - 20_000 - n,
                started=NOW - random.randint(100, 9000),
                preemptible=random.random() > 0.1,
                demand=tuple(demand),
            )
        )
    line = [
        WaitingJob(
            name=f"w{n}",
            project=f"p{random.randrange(projects)}",
            priority=random.randrange(5),
            demand=tuple(alternatives()),
            entered=NOW - random.randint(0, 9000),
            preemptible=random.random() > 0.1,
        )
        for n in range(waiting)
    ]
    quota = {pool: count // projects for pool, count in used.items()}
    owners = tuple(Project(f"p{n}", department=f"d{n % 4}", quota=quota) for n in range(projects))
    departments = tuple(
        Department(f"d{n}", {pool: count * len(owners[n::4]) for pool, count in quota.items()}) for n in range(4)
    )
    policy = Policy(tuple(Pool(name, count) for name, count in used.items()), owners, departments, Settings())
    return Snapshot(policy, NOW, tuple(running), tuple(line))


def shared(active: int, waiting: int, projects: int = 20) -> Snapshot:
    """Return a snapshot with carriers, each of which is filled by eight members of one GPU each.

    There are as many carriers as `active` members need. Members and jobs with whole instances wait.
    """
    random = Random(1)
    carriers = [
        Carrier(f"c{n:04}", "p5", f"p{n % projects}", "", 8, JobState.RUNNING, NOW - 9000) for n in range(active // 8)
    ]
    running = [
        ActiveJob(
            name=f"a{n}",
            project=carrier.project,
            priority=random.randrange(5),
            slots={},
            state=JobState.RUNNING,
            entered=NOW - 9000,
            started=NOW - 100 - n,
            allocation=GpuAllocation(carrier.name, (n % 8,)),
        )
        for n, carrier in enumerate(carriers[n // 8] for n in range(len(carriers) * 8))
    ]
    line = [
        WaitingJob(
            name=f"w{n}",
            project=f"p{random.randrange(projects)}",
            priority=random.randrange(5),
            demand=({"p5": 1},),
            entered=NOW - random.randint(0, 1700),
            gpus=random.choice([5, 10, 20, 40, None]),
        )
        for n in range(waiting)
    ]
    owners = tuple(Project(f"p{n}", quota={"p5": len(carriers) // projects}) for n in range(projects))
    policy = Policy((Pool("p5", len(carriers), gpus=8),), owners)
    return Snapshot(policy, NOW, tuple(running), tuple(line), carriers=tuple(carriers))


def reclaim(instances: int, gang: int, *, whole: bool = False) -> Snapshot:
    """Return a snapshot with full instances. A gang of another project reclaims some of these instances.

    This is the work of BenchmarkReclaimLargeJobs of KAI-Scheduler: one-GPU jobs fill all instances of eight GPUs.

    :param instances: the instances of the pool.
    :param gang: the whole instances that the gang needs.
    :param whole: whether each job has a whole instance; pool and gang then have eight times as many instances.
    """
    size, count = (8 * gang, 8 * instances) if whole else (gang, instances)
    projects = (Project("holder", quota={"p5": count - size}), Project("claimant", quota={"p5": size}))
    began, gpus = NOW - 9000, None if whole else 8
    carriers = tuple(
        Carrier(f"c{n:04}", "p5", "holder", "", 8, JobState.RUNNING, began) for n in range(0 if whole else instances)
    )
    running = tuple(
        ActiveJob(
            name=f"a{n}",
            project="holder",
            priority=1,
            slots={"p5": 1} if whole else {},
            state=JobState.RUNNING,
            entered=began,
            started=began + n / 10,
            allocation=None if whole else GpuAllocation(carriers[n // 8].name, (n % 8,)),
        )
        for n in range(8 * instances)
    )
    line = (WaitingJob("gang", "claimant", 1, ({"p5": size},), NOW - 60),)
    return Snapshot(Policy((Pool("p5", count, gpus=gpus),), projects), NOW, running, line, carriers=carriers)


def seconds(snapshot: Snapshot, tries: int) -> tuple[float, int, int]:
    """Return the processor seconds of the best try, and the plan's numbers of evictions and starts."""
    best = float("inf")
    for _ in range(tries):
        gc.collect()
        began = time.process_time()
        decided = plan(snapshot)
        best = min(best, time.process_time() - began)
    return best, len(decided.evictions), len(decided.starts)


def print_reclaim(tries: int) -> None:
    """Print the milliseconds of plans in which a gang of N/10 whole instances reclaims from N instances."""
    print("| N | shared instances, ms | whole instances, 8 N, ms |")
    print("|---|---|---|")
    for count in (10, 100, 200, 500, 1000):
        times = [1000 * seconds(reclaim(count, count // 10, whole=whole), tries)[0] for whole in (False, True)]
        print(f"| {count} | {times[0]:.1f} | {times[1]:.1f} |", flush=True)


def print_sizes(tries: int) -> None:
    """Print the table of plans by the size of the snapshot."""
    sizes = [(2000, 2000), (4000, 4000), (8000, 8000), (1000, 40_000)]
    groups: list[tuple[str, list[tuple[Callable[..., Snapshot], tuple[int, int], dict[str, int]]]]] = [
        ("one pool, 20 projects", [(plain, size, {}) for size in sizes]),
        ("two pools, gangs, alternatives, departments", [(mixed, size, {}) for size in sizes]),
        ("one pool, 10, 100, 1000 projects", [(plain, (4000, 4000), {"projects": n}) for n in (10, 100, 1000)]),
        ("two pools, 10, 100, 1000 projects", [(mixed, (4000, 4000), {"projects": n}) for n in (10, 100, 1000)]),
        ("six pools", [(mixed, size, {"pools": 6}) for size in sizes[:3]]),
        ("shared instances, 8 members each", [(shared, size, {}) for size in sizes[:3]]),
    ]
    print("| what | active + waiting | projects | seconds | growth | evictions | starts |")
    print("|---|---|---|---|---|---|---|")
    for title, runs in groups:
        first: float | None = None
        for make, (active, waiting), more in runs:
            time_taken, evictions, starts = seconds(make(active, waiting, **more), tries)
            first = first or time_taken
            projects = more.get("projects", 20)
            figures = f"{time_taken:.2f} | {time_taken / first:.1f} | {evictions} | {starts}"
            print(f"| {title} | {active} + {waiting} | {projects} | {figures} |", flush=True)
    print()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one try each")
    parser.add_argument("--reclaim", action="store_true", help="only the gangs that reclaim whole instances")
    options = parser.parse_args()
    tries = 1 if options.quick else 3
    if not options.reclaim:
        print_sizes(tries)
    print_reclaim(tries)


if __name__ == "__main__":
    main()
