"""Simulated jobs and their attempts, and their conversion from and to the jobs of a snapshot."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

from job_queue.scheduler import (
    ActiveJob,
    GpuAllocation,
    JobState,
    Slots,
    Snapshot,
    Spending,
    WaitingJob,
)
from job_queue.simulation.workload import Overheads, SimulatedJob

SHORTEST_TIMER = 60.0  # minimum seconds between two timers for the decay of past use
TIMERS_PER_HALF_LIFE = 50  # number of timers in a half-life of past use


@dataclass(slots=True)
class JobRun:
    """The history of a simulated job. Times are on the simulator's clock (`Simulator.now`)."""

    job: SimulatedJob
    ended: float | None = None  # None: the job has not finished
    starts: list[float] = field(default_factory=list)  # starts of the attempts
    preemptions: int = 0  # all stops of attempts: evictions, stops by drains, and ends of training plans
    evictions: list[float] = field(default_factory=list)  # times of evictions, which raise the guaranteed runtime
    done: float = 0  # seconds of work that are done and not lost
    lost: float = 0  # seconds of work that preemptions lost
    provisioned: float = 0  # seconds of the first provisioning
    restarts: float = 0  # seconds of stopping, and of repeated provisioning
    training_periods: list[tuple[float, float]] = field(
        default_factory=list
    )  # begin and end of training, by ended attempt


@dataclass(eq=False, slots=True)
class SimulatedAttempt:
    """An attempt that holds slots, or an allocation on a carrier."""

    run: JobRun
    slots: Slots
    launched: float
    training_begins: float  # time at which the instances are up and the training begins
    stopping: bool = False
    expected: float | None = None  # expected seconds from the launch to the end
    original: ActiveJob | None = None  # the job in the first snapshot, if it was active there
    allocation: GpuAllocation | None = None  # for a member, which has no slots
    preemptions: int = 0  # evictions of the job within the day before the launch
    preempted_in_all: int = 0  # evictions of the job since its submission
    guaranteed: float = 0.0  # guaranteed seconds from the launch

    def as_active(self, checkpoint: float | None, *, at_first: bool) -> ActiveJob:
        """Return the attempt as a job for the planner.

        :param checkpoint: time of the last checkpoint; None: there is none.
        :param at_first: whether the simulated time is still the time of the first snapshot.
        """
        job, original = self.run.job, self.original
        state = JobState.STOPPING if self.stopping else JobState.RUNNING
        if original is not None:
            state = original.state if at_first and not self.stopping else state
            saved = checkpoint if checkpoint is not None else original.checkpoint
            comes_back = original.comes_back if original.state is JobState.STOPPING else self.stopping
            return replace(original, state=state, checkpoint=saved, expected=self.expected, comes_back=comes_back)
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
            preemptions=self.preemptions,
            preempted_in_all=self.preempted_in_all,
            max_preemptions=job.max_preemptions,
            group=job.group,
            max_parallel=job.max_parallel,
        )


def expiries(snapshot: Snapshot) -> list[float]:
    """Return the future times at which backoffs end, training plans begin, and jobs may start (`not_before`)."""
    times = [job.backoff_until for job in snapshot.waiting if job.backoff_until is not None]
    times += [job.not_before for job in snapshot.waiting if job.not_before is not None]
    times += [paused.until for paused in snapshot.paused.values()]
    times += [calendar.opens for calendar in snapshot.calendars.values()]
    return [time for time in times if snapshot.now < time < inf]


def evictions_before(job: ActiveJob | WaitingJob, last: float) -> list[float]:
    """Return invented times of a job's earlier preemptions, because a snapshot has only their numbers.

    The times reproduce these numbers: `preemptions` within the day before `last`, and `preempted_in_all`.
    """
    return [-inf] * (max(job.preempted_in_all, job.preemptions) - job.preemptions) + [last] * job.preemptions


def use_timers(snapshot: Snapshot) -> list[float]:
    """Return the times at which past use may change a plan without any event.

    A plan may change when past use has decayed, when a budget is spent, and when a new budget period begins.
    """
    times = list(Spending(snapshot).changes())
    half_life = snapshot.policy.settings.usage_half_life
    if half_life is not None and snapshot.active:
        times.append(snapshot.now + max(SHORTEST_TIMER, half_life / TIMERS_PER_HALF_LIFE))
    return times


def guarantee_ends(attempts: Iterable[SimulatedAttempt]) -> list[float]:
    """Return the times at which the guaranteed runtimes of attempts, and of the carriers of members, are over."""
    ends: list[float] = []
    carriers: dict[str, tuple[float, float]] = {}  # carrier -> latest launch, longest guarantee of members
    for it in attempts:
        if it.guaranteed:
            ends.append(it.launched + it.guaranteed)
        if it.allocation is not None:
            launched, guaranteed = carriers.get(it.allocation.carrier, (0.0, 0.0))
            carriers[it.allocation.carrier] = max(launched, it.launched), max(guaranteed, it.guaranteed)
    return ends + [launched + guaranteed for launched, guaranteed in carriers.values() if guaranteed]


def free_slots(constants: Snapshot, now: float, held: Iterable[Slots]) -> dict[str, int]:
    """Return the free slots of each pool; negative if more slots are taken than the pool has.

    :param held: the slots of each attempt and each carrier. Slots of external jobs are in `constants`.
    """
    at_the_time = replace(constants, now=now)
    free = {
        pool.name: at_the_time.capacity(pool) - constants.external.get(pool.name, 0) for pool in constants.policy.pools
    }
    for slots in held:
        for pool, number in slots.items():
            free[pool] = free.get(pool, 0) - number
    return free


def waiting_job(job: SimulatedJob, expected: float | None) -> WaitingJob:
    """Return a simulated job as a job that waits for the first time."""
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
        max_preemptions=job.max_preemptions,
        group=job.group,
        max_parallel=job.max_parallel,
    )


def simulated_job(job: WaitingJob | ActiveJob, runtime: float, overheads: Overheads) -> SimulatedJob:
    """Return a job of a snapshot as a simulated job.

    :param runtime: seconds from the job's start to its end.
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
        max_preemptions=job.max_preemptions,
        group=job.group,
        max_parallel=job.max_parallel,
    )
    return replace(found, work=max(0.0, runtime - overheads.starting(found)))
