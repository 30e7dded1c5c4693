"""Builders for the scheduler's tests: each has defaults for whatever a test does not care about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from job_queue.scheduler import (
    ActiveJob,
    Department,
    JobState,
    Policy,
    Pool,
    Project,
    Settings,
    Slots,
    Snapshot,
    WaitingJob,
)
from job_queue.scheduler.documents.scenario import with_stops_for

NOW = 1_000_000.0
POOL = "p5"
PROJECT = "a"

Need = int | Slots


def a_policy(
    pools: int | Mapping[str, int] = 2,
    projects: Sequence[str | Project] = (PROJECT,),
    departments: Sequence[Department] = (),
    **settings: Any,
) -> Policy:
    """A policy with these capacities; a number is the capacity of the one pool p5.

    A project given by its name has all of every pool as its quota.
    """
    capacities = {POOL: pools} if isinstance(pools, int) else pools
    return Policy(
        pools=tuple(Pool(name, capacity, f"ml.{name}.large") for name, capacity in capacities.items()),
        projects=tuple(Project(it, quota=dict(capacities)) if isinstance(it, str) else it for it in projects),
        departments=tuple(departments),
        settings=Settings(**settings),
    )


def project(name: str, quota: Need = 0, **fields: Any) -> Project:
    """A project with this quota; a number is one of p5."""
    if "limit" in fields:
        fields["limit"] = _slots(fields["limit"])
    return Project(name, quota=_slots(quota), **fields)


def department(name: str, quota: Need = 0, limit: Need | None = None) -> Department:
    """A department with this quota; a number is one of p5."""
    return Department(name, _slots(quota), {} if limit is None else _slots(limit))


def active(name: str, slots: Need = 1, priority: int = 1, ran: float = 3600, **fields: Any) -> ActiveJob:
    """A running job that was started `ran` seconds ago."""
    values: dict[str, Any] = {
        "project": PROJECT,
        "state": JobState.RUNNING,
        "entered": NOW - ran,
        "started": NOW - ran,
    }
    return ActiveJob(name=name, slots=_slots(slots), priority=priority, **{**values, **fields})


def starting(name: str, slots: Need = 1, priority: int = 1, **fields: Any) -> ActiveJob:
    """A job that is being launched."""
    return active(name, slots, priority, state=JobState.STARTING, started=None, **fields)


@dataclass(frozen=True)
class MakesRoom:
    """A job that was asked to stop, and for whom: the short form of scenario files."""

    job: ActiveJob
    reserved_for: str


def stopping(name: str, slots: Need = 1, priority: int = 1, **fields: Any) -> ActiveJob:
    """A job that was asked to stop."""
    return active(name, slots, priority, state=JobState.STOPPING, **fields)


def stopping_for(reserved_for: str, name: str, slots: Need = 1, **fields: Any) -> MakesRoom:
    """A job that was asked to stop to make room for another."""
    return MakesRoom(stopping(name, slots, **fields), reserved_for)


def waiting(name: str, *alternatives: Need, priority: int = 1, waited: float = 60, **fields: Any) -> WaitingJob:
    """A job that has waited `waited` seconds; without alternatives it needs one slot of p5."""
    return WaitingJob(
        name=name,
        priority=priority,
        demand=tuple(_slots(need) for need in alternatives or (1,)),
        entered=NOW - waited,
        **{"project": PROJECT, **fields},
    )


def many(count: int, prefix: str, **fields: Any) -> list[ActiveJob]:
    """One-slot jobs; the later ones have lost less work, so they leave first."""
    return [active(f"{prefix}{n}", ran=10_000 - n, **fields) for n in range(count)]


def line(count: int, prefix: str, **fields: Any) -> list[WaitingJob]:
    """Jobs that wait, in this order."""
    return [waiting(f"{prefix}{n}", waited=100 - n, **fields) for n in range(count)]


def a_snapshot(*jobs: object, policy: Policy | int = 2, **fields: Any) -> Snapshot:
    """A snapshot of these jobs; a number for the policy is the capacity of the one pool p5."""
    make_room = [it for it in jobs if isinstance(it, MakesRoom)]
    snapshot = Snapshot(
        policy=a_policy(policy) if isinstance(policy, int) else policy,
        now=NOW,
        active=(*(job for job in jobs if isinstance(job, ActiveJob)), *(it.job for it in make_room)),
        waiting=tuple(job for job in jobs if isinstance(job, WaitingJob)),
        **fields,
    )
    return with_stops_for(snapshot, {it.job.name: it.reserved_for for it in make_room})


def _slots(need: Need) -> Slots:
    return {POOL: need} if isinstance(need, int) else need
