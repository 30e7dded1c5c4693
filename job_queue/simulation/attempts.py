"""What becomes of a job, its attempts, and what a snapshot says of the time to come."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

from job_queue.scheduler import ActiveJob, Policy, Slots, Snapshot
from job_queue.simulation.workload import SimulatedJob


@dataclass(slots=True)
class JobRun:
    """What became of a job. Times are seconds since the simulation's beginning."""

    job: SimulatedJob
    ended: float | None = None  # None: it never was
    starts: list[float] = field(default_factory=list)  # of its attempts
    preemptions: int = 0
    done: float = 0  # seconds of its work that are not lost
    lost: float = 0  # seconds of work that had to be done again
    provisioned: float = 0  # seconds that its instances took to come for the first time
    restarts: float = 0  # seconds of stopping, and of provisioning again


@dataclass(eq=False, slots=True)
class Attempt:
    """One that holds slots."""

    run: JobRun
    slots: Slots
    launched: float
    trains: float  # when its instances are up
    stopping: bool = False
    expected: float | None = None  # seconds from the launch until its end
    seen: ActiveJob | None = None  # as it was in the snapshot that the simulation began with


def expiries(snapshot: Snapshot) -> list[float]:
    """When backoffs end and training plans begin."""
    times = [job.backoff_until for job in snapshot.waiting if job.backoff_until is not None]
    times += [paused.until for paused in snapshot.paused.values()]
    times += [calendar.opens for calendar in snapshot.calendars.values()]
    return [time for time in times if snapshot.now < time < inf]


def guarantees(policy: Policy) -> frozenset[float]:
    """The guaranteed runtimes that there are."""
    said = [pool.min_runtime for pool in policy.pools] + [project.min_runtime for project in policy.projects]
    return frozenset(seconds for seconds in (*said, policy.settings.min_runtime) if seconds)


def free_slots(world: Snapshot, now: float, attempts: Iterable[Attempt]) -> dict[str, int]:
    """The slots of each pool that nobody holds."""
    at_the_time = replace(world, now=now)
    free = {pool.name: at_the_time.capacity(pool) - world.external.get(pool.name, 0) for pool in world.policy.pools}
    for attempt in attempts:
        for pool, held in attempt.slots.items():
            free[pool] = free.get(pool, 0) - held
    return free
