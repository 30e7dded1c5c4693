"""Simulated jobs and their attempts, converted from and to the jobs of a snapshot."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

from job_queue.scheduler import (
    ActiveJob,
    GpuAllocation,
    JobState,
    Policy,
    Slots,
    Snapshot,
    Spending,
    WaitingJob,
)
from job_queue.simulation.workload import Overheads, SimulatedJob

SHORTEST_TIMER = 60.0  # seconds between two timers for the decay of past use, at least
TIMERS_PER_HALF_LIFE = 50  # timers for the decay of past use


@dataclass(slots=True)
class JobRun:
    """The history of a job. Times are seconds since the beginning of the simulation."""

    job: SimulatedJob
    ended: float | None = None  # None: it has not finished
    starts: list[float] = field(default_factory=list)  # starts of its attempts
    preemptions: int = 0
    done: float = 0  # seconds of work that are done and not lost
    lost: float = 0  # seconds of work that preemptions lost
    provisioned: float = 0  # seconds of its first provisioning
    restarts: float = 0  # seconds of stopping, and of provisioning again
    trained: list[tuple[float, float]] = field(default_factory=list)  # begin and end, by ended attempt


@dataclass(eq=False, slots=True)
class SimulatedAttempt:
    """An attempt that holds slots, or an allocation on a carrier."""

    run: JobRun
    slots: Slots
    launched: float
    trains: float  # time at which its instances are up and it begins to train
    stopping: bool = False
    expected: float | None = None  # seconds from the launch until its end
    seen: ActiveJob | None = None  # the job in the first snapshot, if it was active there
    allocation: GpuAllocation | None = None  # a member has an allocation and no slots

    def as_active(self, checkpoint: float | None, *, at_first: bool) -> ActiveJob:
        """Return the attempt as the planner sees it.

        :param checkpoint: time of its last checkpoint; None: it has none.
        :param at_first: whether nothing has happened since the first snapshot.
        """
        job, seen = self.run.job, self.seen
        state = JobState.STOPPING if self.stopping else JobState.RUNNING
        if seen is not None:
            state = seen.state if at_first and not self.stopping else state
            saved = checkpoint if checkpoint is not None else seen.checkpoint
            comes_back = seen.comes_back if seen.state is JobState.STOPPING else self.stopping
            return replace(seen, state=state, checkpoint=saved, expected=self.expected, comes_back=comes_back)
        return ActiveJob(
            job.name,
            job.project,
            job.priority,
            self.slots,
            state,
            job.submitted,
            self.launched,
            preemptible=job.preemptible,
            interactive=job.interactive,
            demand=job.demand,
            checkpoint=checkpoint,
            max_runtime=job.max_runtime,
            expected=self.expected,
            comes_back=self.stopping,
            owner=job.owner,
            allocation=self.allocation,
            kind=job.kind,
        )


def expiries(snapshot: Snapshot) -> list[float]:
    """Return the future times at which backoffs end and training plans begin."""
    times = [job.backoff_until for job in snapshot.waiting if job.backoff_until is not None]
    times += [paused.until for paused in snapshot.paused.values()]
    times += [calendar.opens for calendar in snapshot.calendars.values()]
    return [time for time in times if snapshot.now < time < inf]


def use_timers(snapshot: Snapshot) -> list[float]:
    """Return the times at which past use may change a plan although no event happens.

    Shares change as past use decays, budgets are spent, and new budget periods begin.
    """
    times = list(Spending(snapshot).changes())
    half_life = snapshot.policy.settings.usage_half_life
    if half_life is not None and snapshot.active:
        times.append(snapshot.now + max(SHORTEST_TIMER, half_life / TIMERS_PER_HALF_LIFE))
    return times


def guarantees(policy: Policy) -> frozenset[float]:
    """Return the different guaranteed runtimes of the policy."""
    runtimes = [pool.min_runtime for pool in policy.pools] + [project.min_runtime for project in policy.projects]
    return frozenset(seconds for seconds in (*runtimes, policy.settings.min_runtime) if seconds)


def free_slots(world: Snapshot, now: float, held: Iterable[Slots]) -> dict[str, int]:
    """Return the slots of each pool that are not held; negative if more are held than there are."""
    at_the_time = replace(world, now=now)
    free = {pool.name: at_the_time.capacity(pool) - world.external.get(pool.name, 0) for pool in world.policy.pools}
    for slots in held:
        for pool, number in slots.items():
            free[pool] = free.get(pool, 0) - number
    return free


def waiting_job(job: SimulatedJob, expected: float | None) -> WaitingJob:
    """Return the job as it waits for the first time."""
    return WaitingJob(
        job.name,
        job.project,
        job.priority,
        job.demand,
        job.submitted,
        preemptible=job.preemptible,
        interactive=job.interactive,
        max_runtime=job.max_runtime,
        expected=expected,
        owner=job.owner,
        gpus=job.gpus,
        kind=job.kind,
    )


def simulated_job(job: WaitingJob | ActiveJob, runtime: float, overheads: Overheads) -> SimulatedJob:
    """Return a job of a snapshot as a simulated job.

    :param runtime: seconds from its start to its end.
    """
    if isinstance(job, WaitingJob):
        demand, gpus = job.demand, job.gpus
    else:
        demand, gpus = job.demand or (job.slots,), job.allocation.size if job.allocation else None
    named = (job.name, job.project, job.priority, demand, job.entered)
    found = SimulatedJob(
        *named,
        work=0.0,
        owner=job.owner,
        preemptible=job.preemptible,
        interactive=job.interactive,
        max_runtime=job.max_runtime,
        gpus=gpus,
        kind=job.kind,
    )
    return replace(found, work=max(0.0, runtime - overheads.starting(found)))
