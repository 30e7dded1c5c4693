"""Random snapshots: one project, one or a few small pools, everything that the rules so far can meet.

Each job is made from one drawn number, digit by digit: that is some ten times faster than a draw for each field,
and the number still shrinks towards the plainest job.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from job_queue.scheduler.model import ActiveJob, JobState, Slots, Snapshot, WaitingJob
from tests.builders import NOW, PROJECT, a_policy

T = TypeVar("T")

POOLS = ("p5", "p4", "c6")
PRIORITIES = (1, 2, 3, 4)
AGES = (600.0, 0.0, 1200.0, 1800.0, 3000.0)
RARELY = (False,) * 7 + (True,)
STATES = (*(JobState.RUNNING,) * 4, JobState.STARTING, JobState.STOPPING)

numbers = st.integers(0, 2**64 - 1)


def snapshots(guarantees: bool = True, movers: bool = True) -> st.SearchStrategy[Snapshot]:
    """Snapshots; without guarantees nobody has a guaranteed runtime, without movers active jobs accept but what
    they hold.
    """
    jobs = st.lists(numbers, max_size=6)
    return st.builds(_snapshot, numbers, jobs, jobs, st.just(guarantees), st.just(movers))


class _Digits:
    """A number, taken apart by choosing."""

    def __init__(self, number: int) -> None:
        self._left = number

    def choose(self, options: Sequence[T]) -> T:
        self._left, place = divmod(self._left, len(options))
        return options[place]

    def slots(self, pools: Sequence[str]) -> Slots:
        slots = {self.choose(pools): self.choose((1, 2, 3, 4))}
        if self.choose((False, False, True)):
            slots[self.choose(pools)] = self.choose((1, 2))
        return slots


def _snapshot(
    number: int, active_numbers: list[int], waiting_numbers: list[int], guarantees: bool, movers: bool
) -> Snapshot:
    world = _Digits(number)
    pools = POOLS[: world.choose((1, 1, 2, 3))]
    capacities = {pool: world.choose((4, 1, 2, 3, 0, 5, 6)) for pool in pools}
    external = {pool: world.choose((0, 0, 0, 0, 1, 2)) for pool in pools}
    waiting = [_waiting(_Digits(code), f"w{place}", pools) for place, code in enumerate(waiting_numbers)]
    names = ["gone", *(job.name for job in waiting)]
    active = [_active(_Digits(code), f"r{place}", pools, names) for place, code in enumerate(active_numbers)]
    if not movers:
        active = [replace(job, demand=()) for job in active]
    if not world.choose(RARELY):  # rarely a pool was made smaller than what is in use
        active = _fitting(active, capacities)
    return Snapshot(
        policy=a_policy(capacities, min_runtime=world.choose((0, 0, 900)) if guarantees else 0),
        now=NOW,
        active=tuple(active),
        waiting=tuple(waiting),
        external=external,
        reserved={world.choose(names): world.slots(pools) for _ in range(world.choose((0, 0, 1, 2)))},
    )


def _waiting(digits: _Digits, name: str, pools: tuple[str, ...]) -> WaitingJob:
    if digits.choose(RARELY):
        pools = (*pools, "none")
    return WaitingJob(
        name=name,
        project=PROJECT,
        priority=digits.choose(PRIORITIES),
        demand=tuple(digits.slots(pools) for _ in range(digits.choose((1, 1, 2)))),
        entered=NOW - digits.choose(AGES),
        held=digits.choose(RARELY),
        backoff_until=NOW + digits.choose((0, 60)) if digits.choose(RARELY) else None,
    )


def _active(digits: _Digits, name: str, pools: tuple[str, ...], names: list[str]) -> ActiveJob:
    state, began = digits.choose(STATES), NOW - digits.choose(AGES)
    return ActiveJob(
        name=name,
        project=PROJECT,
        priority=digits.choose(PRIORITIES),
        slots=digits.slots(pools),
        state=state,
        entered=began - digits.choose((0, 600)),
        started=None if state is JobState.STARTING else began,
        preemptible=not digits.choose(RARELY),
        demand=tuple(digits.slots(pools) for _ in range(digits.choose((0, 0, 2)))),
        checkpoint=digits.choose((None, NOW - 60, NOW - 900)),
        reserved_for=digits.choose((None, *names)) if state is JobState.STOPPING else None,
    )


def _fitting(active: list[ActiveJob], capacities: dict[str, int]) -> list[ActiveJob]:
    left = dict(capacities)
    kept = []
    for job in active:
        if all(left[pool] >= count for pool, count in job.slots.items()):
            left.update({pool: left[pool] - count for pool, count in job.slots.items()})
            kept.append(job)
    return kept
