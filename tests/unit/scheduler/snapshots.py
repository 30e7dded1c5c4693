"""Random snapshots: pools, departments, projects and jobs, with everything that the rules can meet.

Each thing is made from one drawn number, digit by digit: that is some ten times faster than a draw for each field,
and the number still shrinks towards the plainest thing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from hypothesis import strategies as st

from job_queue.scheduler import (
    ActiveJob,
    Backfill,
    Department,
    JobState,
    Order,
    PausedPool,
    Policy,
    Pool,
    Project,
    Settings,
    Slots,
    Snapshot,
    WaitingJob,
)
from job_queue.scheduler.documents.scenario import with_stops_for
from tests.builders import NOW

T = TypeVar("T")

POOLS = ("p5", "p4", "c6", "g6", "g5", "t1")
PROJECTS = tuple("abcdefghijkl")
DEPARTMENTS = ("x", "y", "z")
PRIORITIES = (1, 2, 3, 4)
AGES = (600.0, 0.0, 1200.0, 1800.0, 3000.0)
RARELY = (False,) * 7 + (True,)
STATES = (*(JobState.RUNNING,) * 5, JobState.STARTING, JobState.STOPPING)

numbers = st.integers(0, 2**96 - 1)
worlds = st.integers(0, 2**640 - 1)


@dataclass(frozen=True)
class Kind:
    """What snapshots may contain beside the plain."""

    pools: int = 6
    projects: int = 12
    departments: int = 3
    jobs: int = 30  # active, and as many waiting
    guarantees: bool = True
    movers: bool = True
    patience: bool = True
    stops: bool = True  # starting and stopping jobs, reservations
    fixed: bool = True  # jobs that are not preemptible
    oversubscribed: bool = True
    aging: bool = True
    alternatives: bool = True
    external: bool = True
    pauses: bool = True  # pools that have refused launches
    shrunk: bool = True  # pools may have less than what is in use: external jobs came, or rarely the policy changed


SMALL = Kind(pools=2, projects=4, departments=2, jobs=7)


def shuffled(snapshot: Snapshot, random: Random) -> Snapshot:
    """The same jobs in another order."""
    return replace(
        snapshot,
        active=tuple(random.sample(snapshot.active, len(snapshot.active))),
        waiting=tuple(random.sample(snapshot.waiting, len(snapshot.waiting))),
    )


def snapshots(kind: Kind = SMALL) -> st.SearchStrategy[Snapshot]:
    """Snapshots of a kind."""
    jobs = st.lists(numbers, max_size=kind.jobs)
    return st.builds(make, worlds, jobs, jobs, st.just(kind))


def drawn(random: Random, kind: Kind) -> Snapshot:
    """One of them, for samples that are counted: hypothesis looks for the extreme, this for the usual."""

    def jobs() -> list[int]:
        return [
            random.getrandbits(96) >> random.choice((0, 0, 40, 60, 80)) for _ in range(random.randint(0, kind.jobs))
        ]

    return make(random.getrandbits(640), jobs(), jobs(), kind)


class Digits:
    """A number, taken apart by choosing."""

    def __init__(self, number: int) -> None:
        self._left = number

    def choose(self, options: Sequence[T]) -> T:
        self._left, place = divmod(self._left, len(options))
        return options[place]

    def slots(self, pools: Sequence[str]) -> Slots:
        slots = {self.choose(pools): self.choose((1, 1, 2, 3, 4))}
        if self.choose((False, False, False, True)):
            slots[self.choose(pools)] = self.choose((1, 2))
        return slots


def make(number: int, active_numbers: list[int], waiting_numbers: list[int], kind: Kind) -> Snapshot:
    world = Digits(number)
    policy = _policy(world, kind)
    pools = tuple(pool.name for pool in policy.pools)
    capacities = {pool.name: pool.capacity for pool in policy.pools}
    projects = tuple(project.name for project in policy.projects)
    external = {pool: world.choose((0, 0, 0, 0, 1, 2)) if kind.external else 0 for pool in pools}
    waiting = [_waiting(Digits(code), f"w{place}", pools, projects, kind) for place, code in enumerate(waiting_numbers)]
    names = ["gone", *(job.name for job in waiting)]
    drawn_active = [
        _active(Digits(code), f"r{place}", pools, projects, names, kind) for place, code in enumerate(active_numbers)
    ]
    active = [job for job, _ in drawn_active]
    if not kind.shrunk:
        active = _fitting(active, {pool: max(0, count - external[pool]) for pool, count in capacities.items()})
    elif not world.choose(RARELY):
        active = _fitting(active, capacities)
    reservations = world.choose((0, 0, 1, 2)) if kind.stops else 0
    reserved = {world.choose(names): world.slots(pools) for _ in range(reservations)}
    paused = {pool: _pause(world) for pool in pools if world.choose(RARELY)} if kind.pauses else {}
    order, backfill = world.choose((Order.SUBMISSION, Order.SHORTEST)), world.choose(tuple(Backfill))
    snapshot = Snapshot(
        policy=replace(policy, settings=replace(policy.settings, order=order, backfill=backfill)),
        now=NOW,
        active=tuple(active),
        waiting=tuple(waiting),
        external=external,
        reserved=reserved,
        paused=paused,
    )
    standing = {job.name for job in active}
    return with_stops_for(snapshot, {job.name: it for job, it in drawn_active if it and job.name in standing})


def _pause(world: Digits) -> PausedPool:
    return PausedPool(until=NOW + world.choose((60, 0)), instances=world.choose((1, 1, 2, 4)))


def _policy(world: Digits, kind: Kind) -> Policy:
    pools = POOLS[: 1 + world.choose(range(kind.pools))]
    departments = DEPARTMENTS[: world.choose(range(kind.departments + 1))]
    capacities = {pool: world.choose((4, 1, 2, 3, 0, 6, 9)) for pool in pools}
    over = kind.oversubscribed and world.choose(RARELY)
    left = dict(capacities)
    projects = []
    of_department = {name: dict.fromkeys(pools, 0) for name in departments}
    for name in PROJECTS[: 1 + world.choose(range(kind.projects))]:
        department = world.choose((None, *departments))
        quota = {}
        for pool in pools[:3]:
            count = world.choose((1, 0, 2, 3))
            quota[pool] = count if over else min(count, left[pool])
            left[pool] -= quota[pool]
            if department is not None:
                of_department[department][pool] += quota[pool]
        limit = {pools[0]: max(quota[pools[0]], world.choose((1, 2, 3)))} if world.choose(RARELY) else {}
        projects.append(
            Project(
                name,
                department=department,
                quota=quota,
                limit=limit,
                over_quota=world.choose((None, None, 0, 1, 3)),
                min_runtime=world.choose((None, None, None, 900)) if kind.guarantees else None,
            )
        )
    return Policy(
        pools=tuple(Pool(name, capacity, f"ml.{name}.large") for name, capacity in capacities.items()),
        projects=tuple(projects),
        departments=tuple(
            Department(name, quota, {pools[0]: quota[pools[0]] + 1} if world.choose(RARELY) else {})
            for name, quota in of_department.items()
        ),
        settings=Settings(
            min_runtime=world.choose((0, 0, 900)) if kind.guarantees else 0,
            preempted_min_runtime=800 if kind.guarantees else 0,
            preempted_min_runtime_limit=2000,
            patience=world.choose((None, 1000.0)) if kind.patience else None,
            aging=world.choose((None, None, 600.0)) if kind.aging else None,
            protect_project_quota=world.choose((True, True, False)),
        ),
    )


def _waiting(digits: Digits, name: str, pools: tuple[str, ...], projects: tuple[str, ...], kind: Kind) -> WaitingJob:
    project = digits.choose(projects)
    if digits.choose(RARELY):
        pools = (*pools, "none")
    return WaitingJob(
        name=name,
        project=project,
        priority=digits.choose(PRIORITIES),
        demand=tuple(digits.slots(pools) for _ in range(digits.choose((1, 1, 2) if kind.alternatives else (1,)))),
        entered=NOW - digits.choose(AGES),
        preemptible=not (kind.fixed and digits.choose(RARELY)),
        held=digits.choose(RARELY),
        backoff_until=NOW + digits.choose((0, 60)) if digits.choose(RARELY) else None,
        max_runtime=digits.choose((None, 1200.0, 86400.0)),
        expected=digits.choose((None, 300.0, 4000.0)),
        preemptions=digits.choose((0, 0, 1)),
    )


def _active(
    digits: Digits, name: str, pools: tuple[str, ...], projects: tuple[str, ...], names: list[str], kind: Kind
) -> tuple[ActiveJob, str | None]:
    """A job, and for whom it stops."""
    project = digits.choose(projects)
    state = digits.choose(STATES) if kind.stops else JobState.RUNNING
    began = NOW - digits.choose(AGES)
    slots = digits.slots(pools)
    others = tuple(digits.slots(pools) for _ in range(digits.choose((0, 0, 1, 2)))) if kind.movers else ()
    job = ActiveJob(
        name=name,
        project=project,
        priority=digits.choose(PRIORITIES),
        slots=slots,
        state=state,
        entered=began - digits.choose((0, 600)),
        started=None if state is JobState.STARTING else began,
        preemptible=not (kind.fixed and digits.choose(RARELY)),
        demand=(slots, *others) if others else (),
        checkpoint=digits.choose((None, NOW - 60, NOW - 900)),
        max_runtime=digits.choose((None, 1800.0, 86400.0)),
    )
    makes_room_for = digits.choose((None, *names)) if state is JobState.STOPPING else None
    expected, preemptions = digits.choose((None, 1800.0, 9000.0)), digits.choose((0, 0, 0, 1, 2, 3))
    return replace(job, expected=expected, preemptions=preemptions), makes_room_for


def _fitting(active: list[ActiveJob], capacities: Mapping[str, int]) -> list[ActiveJob]:
    left = dict(capacities)
    kept = []
    for job in active:
        if all(left[pool] >= count for pool, count in job.slots.items()):
            left.update({pool: left[pool] - count for pool, count in job.slots.items()})
            kept.append(job)
    return kept
