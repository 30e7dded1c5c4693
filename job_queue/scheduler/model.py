"""The planner's input, a snapshot of jobs and pools, and its output: starts, evictions, and reasons to wait.

Everything is immutable. Times are seconds since the epoch (UTC), durations are seconds,
sizes are slots: one slot is one instance of a pool.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from job_queue.scheduler.carriers.allocations import GpuAllocation, GpuAssignment, Launch
from job_queue.scheduler.documents.policy_schema import Policy, Pool

Slots = Mapping[str, int]
"""Pool name -> number of instances."""

NOTHING: Slots = {}


def covers(have: Slots, need: Slots) -> bool:
    """Return whether `have` contains all slots of `need`."""
    return all(have.get(pool, 0) >= count for pool, count in need.items())


def is_larger(one: Slots, other: Slots) -> bool:
    """Return whether `one` has the same pools as `other`, more instances in at least one pool, and fewer in none."""
    return one.keys() == other.keys() and one != other and covers(one, other)


def above_zero(slots: Slots) -> Slots:
    """Return the pools with a positive number of slots."""
    return {pool: count for pool, count in slots.items() if count > 0}


DEFAULT = "default"
"""The name of the only pool and the only project while no policy is applied."""
UNKNOWN_RUNTIME = 24 * 3600.0
"""SageMaker's default MaxRuntimeInSeconds, assumed if no runtime is known."""


class JobState(StrEnum):
    """State of a job."""

    PENDING = "pending"  # waits, and was not preempted: has never run, or is tried again after a failure
    STARTING = "starting"  # holds its slots; the intent is recorded, but SageMaker's answer is not
    RUNNING = "running"  # SageMaker has accepted the current attempt
    STOPPING = "stopping"  # a stop was requested; holds its slots until SageMaker says that the attempt has ended
    PREEMPTED = "preempted"  # waits again: evicted, requeued, stopped by a drain, or cut off by its training plan
    COMPLETED = "completed"  # finished: SageMaker said Completed
    FAILED = "failed"  # finished: SageMaker said Failed, or refused the request
    STOPPED = "stopped"  # finished: cancelled, stopped by hand or at a time limit, or deleted in SageMaker

    @property
    def waits(self) -> bool:
        """True while the job is in a waiting queue."""
        return self in (JobState.PENDING, JobState.PREEMPTED)

    @property
    def holds_slots(self) -> bool:
        """True while the job is active."""
        return self in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)

    @property
    def finished(self) -> bool:
        """True once the job's state is final."""
        return not self.waits and not self.holds_slots


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job in a waiting queue."""

    name: str
    project: str
    priority: int
    demand: tuple[Slots, ...]  # alternatives, best first; a job takes all slots of one alternative, or none
    entered: float
    preemptible: bool = True
    interactive: bool = False  # a user works in the job, in a shell or a notebook; never preemptible
    held: bool = False
    backoff_until: float | None = None
    max_runtime: float | None = None
    expected: float | None = None  # expected seconds from the job's next start to its end; None: not known
    warm: bool = False  # matches a warm pool, so the job precedes otherwise equal jobs that were submitted earlier
    kinds: tuple[str, ...] = ()  # the instance type of each alternative, if the job's pool allows any type
    refusal: str | None = None  # SageMaker's message about the last launch, if the job itself was refused
    on_free_slots_only: bool = False  # launches were refused so often that no other job is stopped for this job
    left_idle: bool = False  # was evicted because its GPUs were idle; may not preempt until it has run again
    more_wait: bool = False  # the waiting queue has more jobs than were read
    owner: str = ""
    after: tuple[tuple[str, bool], ...] = ()  # jobs that must end first; True: with any outcome, False: as completed
    group: str | None = None  # name that the owner gave to a group of jobs in the project
    max_parallel: int | None = None  # number of jobs of the group that may be active at a time
    gpus: int | None = None  # for a member: tenths of GPUs on one instance; a member's demand is one instance
    kind: str = ""  # for a member: only members of the same kind share an instance
    preemptions: int = 0  # within the last day
    preempted_in_all: int = 0  # since the submission; at least `preemptions`
    max_preemptions: int | None = None  # the job's own limit; a job that has reached it is planned as not preemptible
    not_before: float | None = None  # the job does not start earlier
    unusable: str | None = None  # a sentence about a pool that the job cannot use, added to the message of its hold


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """A job that holds slots."""

    name: str
    project: str
    priority: int
    slots: Slots
    state: JobState
    entered: float
    started: float | None = None  # start of the current attempt
    preemptible: bool = True
    interactive: bool = False  # a user works in the job, in a shell or a notebook; never preemptible
    demand: tuple[Slots, ...] = ()  # all alternatives that the job accepts; empty: only its present slots
    checkpoint: float | None = None  # time of the last checkpoint, if known
    max_runtime: float | None = None
    expected: float | None = None  # expected seconds from `started` to the end; None: not known
    idle_since: float | None = None  # time since which the GPUs have been idle; None: they are busy, or not known
    stop_denied: bool = False  # cannot be evicted: SageMaker has just denied a stop, or no stop can be recorded
    comes_back: bool = False  # is stopping and then waits for slots again, so the job still counts for fair shares
    owner: str = ""
    group: str | None = None
    max_parallel: int | None = None
    allocation: GpuAllocation | None = None  # for a member: its GPUs; the slot is held by the carrier
    kind: str = ""
    lost: float | None = None  # instance-seconds of work that a stop would lose; None: computed from the times above
    held_since: float | None = None  # time since which the slots are held, if not since `started`
    preemptions: int = 0  # within the day before the start
    preempted_in_all: int = 0  # since the submission; at least `preemptions`
    max_preemptions: int | None = None  # the job's own limit; a job that has reached it is planned as not preemptible
    is_kept: bool = False  # cannot be evicted: preempted as often as the policy's or the job's `max_preemptions` allows

    @property
    def charged_since(self) -> float | None:
        """The time since which the job's slots are charged, in seconds since the epoch, or None if not known."""
        return self.started if self.held_since is None else self.held_since


@dataclass(frozen=True, slots=True)
class Carrier:
    """A training job that the queue launches for itself on one instance, to run members side by side (a pilot job)."""

    name: str
    pool: str
    project: str
    kind: str  # only members of this kind may join the carrier
    gpus: int
    state: JobState
    started: float
    empty_since: float | None = None  # time since which the carrier has no members
    preemptible: bool = True
    owner: str = ""  # the owner to whom the carrier is charged
    stop_denied: bool = False  # SageMaker denied the queue's last request to stop the carrier, a short while ago
    ready: bool = True  # the carrier's agent has reported that it runs, so members can be assigned

    @property
    def takes_members(self) -> bool:
        """Whether a member can be assigned now."""
        return self.ready and self.state is JobState.RUNNING


@dataclass(frozen=True, slots=True)
class PausedPool:
    """The backoff of a pool after a refused launch.

    Before `until`, no job that needs `instances` or more is launched. Later, one such job at a time is tried. If the
    pool allows any instance type, only the refused type backs off.
    """

    until: float
    instances: int = 1  # jobs that need this number of instances or more wait; 1 during quota lag
    at_fault: str | None = None  # SageMaker's message, if it refused a value that the pool adds to requests
    lag: str | None = None  # message about the instances that SageMaker counts, during quota lag
    unreachable: str | None = None  # message, if the pool's region or account did not respond


@dataclass(frozen=True, slots=True)
class Calendar:
    """The period in which a training plan has its instances: the current period, else the next, else the last.

    For a plan that SageMaker has not described yet, both times are infinite.
    """

    instances: int
    opens: float  # epoch seconds
    closes: float  # epoch seconds at which SageMaker takes the instances back, before the plan ends
    for_others: tuple[str, ...] = ()  # the resources that may use the plan, if training jobs are not among them

    def is_open(self, now: float) -> bool:
        """Return whether the plan's instances are available at `now`."""
        return self.opens <= now < self.closes


class DrainStops(StrEnum):
    """The running jobs that a drain stops once it is in force."""

    NONE = "none"  # all jobs run to their ends
    PREEMPTIBLE = "preemptible"  # jobs that are not preemptible, such as interactive jobs, run to their ends
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Drain:
    """An admin's order to empty a pool: from `at` on, no job starts there, and running jobs are stopped (`stops`)."""

    at: int  # epoch seconds from which the drain is in force
    by: str = ""  # ARN of the admin
    reason: str = ""
    stops: DrainStops = DrainStops.PREEMPTIBLE
    requested: int = 0  # epoch seconds of the request

    def is_in_force(self, now: float) -> bool:
        """Return whether the drain is in force at `now`."""
        return self.at <= now

    def allows_start(self, now: float, max_runtime: float | None) -> bool:
        """Return whether a job may start in the pool at `now`: its MaxRuntimeInSeconds must be over by `at`."""
        return now + (UNKNOWN_RUNTIME if max_runtime is None else max_runtime) <= self.at and not self.is_in_force(now)

    def stops_job(self, now: float, *, preemptible: bool) -> bool:
        """Return whether the drain stops a running job of the pool at `now`."""
        return self.is_in_force(now) and (
            self.stops is DrainStops.ALL or (preemptible and self.stops is DrainStops.PREEMPTIBLE)
        )


Drains = Mapping[str, Drain]
"""Pool -> its drain."""


def stopping_drain(drains: Drains, pools: Iterable[str], now: float, *, preemptible: bool) -> tuple[str, Drain] | None:
    """Return the first of these pools whose drain stops a running job, and this drain; None if there is none."""
    for pool in pools if drains else ():
        if pool in drains and drains[pool].stops_job(now, preemptible=preemptible):
            return pool, drains[pool]
    return None


@dataclass(frozen=True, slots=True)
class PastUse:
    """Use by a project's finished attempts, in instance-seconds."""

    lately: Mapping[str, float] = field(default_factory=dict)  # by pool; halved by each `usage_half_life` that passes
    lately_by_owner: Mapping[str, float] = field(default_factory=dict)  # by owner, over all pools; halved likewise
    spent: float = 0.0  # in the present period of the project's budget
    # by owner, in the present period of the owner's budget
    spent_by_owner: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All input of a plan. `active` and `waiting` may come in any order."""

    policy: Policy
    now: float
    active: tuple[ActiveJob, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    external: Slots = field(default_factory=dict)  # slots used by external jobs
    reserved: Mapping[str, Slots] = field(default_factory=dict)  # waiting or moving job -> slots reserved for it
    paused: Mapping[str, PausedPool] = field(default_factory=dict)  # by pool, or `<pool>/<type>` in a pool of any type
    calendars: Mapping[str, Calendar] = field(default_factory=dict)  # by pool; a missing pool is always open
    drains: Drains = field(default_factory=dict)  # by pool; a missing pool is not drained
    past_use: Mapping[str, PastUse] = field(default_factory=dict)  # by project, as of `now`; missing: no past use
    carriers: tuple[Carrier, ...] = ()

    def capacity(self, pool: Pool) -> int:
        """Return the number of instances that a pool has now; 0 while it is drained or its training plan is closed."""
        if pool.name in self.drains and self.drains[pool.name].is_in_force(self.now):
            return 0
        calendar = self.calendars.get(pool.name)
        return self.size(pool) if calendar is None or calendar.is_open(self.now) else 0

    def is_unreachable(self, slots: Slots) -> bool:
        """Return whether the region or account of these slots does not respond now."""
        pauses = (self.paused[pool] for pool in slots if pool in self.paused)
        return any(pause.unreachable and pause.until > self.now for pause in pauses)

    def size(self, pool: Pool) -> int:
        """Return the capacity of a pool; with a training plan, at most the plan's number of instances."""
        calendar = self.calendars.get(pool.name)
        return pool.capacity if calendar is None else min(pool.capacity, calendar.instances)


# --- decisions -----------------------------------------------------------------------------------------


class WaitReason(StrEnum):
    """The reason why a job waits. If several reasons apply, one is given, usually the first in this order."""

    HELD_BY_USER = "HELD_BY_USER"
    NOT_BEFORE = "NOT_BEFORE"  # the job's `not_before` is in the future
    DEPENDENCY = "DEPENDENCY"  # a job on which this job depends has not ended
    BACKOFF = "BACKOFF"
    REGION_UNREACHABLE = "REGION_UNREACHABLE"  # the region or account of its pools does not respond
    NO_SUCH_POOL = "NO_SUCH_POOL"
    NEVER_FITS = "NEVER_FITS"  # needs more instances than the pool has in all
    OUTSIDE_TRAINING_PLAN = "OUTSIDE_TRAINING_PLAN"  # the training plan has not begun, is over, or would end too early
    DRAINED = "DRAINED"  # an admin drains the pool, now or before the job's MaxRuntimeInSeconds would be over
    OVER_BUDGET = "OVER_BUDGET"  # the budget of the project, or of the owner in it, is spent for this period
    GROUP_LIMIT = "GROUP_LIMIT"  # the job's group has as many active jobs as it may have
    OVER_LIMIT = "OVER_LIMIT"
    OVER_QUOTA_NON_PREEMPTIBLE = "OVER_QUOTA_NON_PREEMPTIBLE"
    OWNER_LIMIT = "OWNER_LIMIT"  # the owner has as many interactive jobs as the policy allows at a time
    WAITING_FOR_STOPPING = "WAITING_FOR_STOPPING"  # slots that are being freed are reserved for the job
    KEPT_FOR_PATIENT_JOB = "KEPT_FOR_PATIENT_JOB"
    BEHIND_FAIR_SHARE = "BEHIND_FAIR_SHARE"
    BEHIND_HIGHER_PRIORITY = "BEHIND_HIGHER_PRIORITY"  # a job of higher priority in the project also lacks slots
    BEHIND_OTHERS = "BEHIND_OTHERS"  # a job of the same priority precedes this job in the project and also lacks slots
    WAITING_FOR_CAPACITY = "WAITING_FOR_CAPACITY"


REMEDIES: Mapping[WaitReason, str] = {
    WaitReason.NO_SUCH_POOL: (
        "Submit it again with an instance type of its project's pools, or ask an admin to change the policy."
    ),
    WaitReason.NEVER_FITS: "Submit it again with fewer instances, or ask an admin to raise the pool's capacity.",
}
"""The reasons of jobs that never start under the policy in force, with remedies."""
NOTHING_TO_DO: Mapping[WaitReason, str] = {
    WaitReason.NOT_BEFORE: "Nothing to do: it may start from that time on. To start it sooner, submit it again.",
    WaitReason.DEPENDENCY: "Nothing to do: it continues when these jobs have ended as requested.",
    WaitReason.BACKOFF: "Nothing to do: the queue tries again.",
    WaitReason.REGION_UNREACHABLE: "Nothing to do: the queue tries again, and starts it when the region responds.",
    WaitReason.WAITING_FOR_STOPPING: (
        "Nothing to do: it starts when the jobs that make room have stopped, within a few minutes."
    ),
}
"""The advice for reasons that pass by themselves."""
LAST_RESORT: Mapping[WaitReason, str] = {
    **REMEDIES,
    WaitReason.OUTSIDE_TRAINING_PLAN: "Wait until the plan begins, or use a pool without a training plan.",
    WaitReason.DRAINED: "Wait until an admin ends the drain (smq undrain), or use a pool that is not drained.",
    WaitReason.GROUP_LIMIT: "Wait until a job of its group ends.",
    WaitReason.OWNER_LIMIT: "End the other interactive job, or submit the work as a training job.",
    WaitReason.OVER_LIMIT: "Wait until jobs of its project end, or ask an admin to raise the limit.",
    WaitReason.OVER_QUOTA_NON_PREEMPTIBLE: "Wait until such jobs end, or ask an admin to raise the quota.",
    WaitReason.KEPT_FOR_PATIENT_JOB: "Wait: it starts after the job for which the instances are kept.",
    WaitReason.BEHIND_FAIR_SHARE: "Wait: it starts when jobs of its project end, or when other projects need less.",
    WaitReason.BEHIND_HIGHER_PRIORITY: "Wait: it starts when the jobs ahead of it have their instances.",
    WaitReason.BEHIND_OTHERS: "Wait: it starts when the jobs ahead of it have their instances.",
    WaitReason.WAITING_FOR_CAPACITY: "Wait: it starts when enough of the jobs that block it have ended.",
}
"""The advice for the other reasons, shown after the changes that would let the job start."""
UNTIL_POLICY_CHANGES = frozenset(REMEDIES)
UNTIL_OTHERS_END = frozenset({WaitReason.DEPENDENCY, WaitReason.GROUP_LIMIT, WaitReason.OWNER_LIMIT})
"""Reasons that last until another job ends: a dependency, or a job of the same group or owner."""
WITHOUT_POSITION = (
    UNTIL_POLICY_CHANGES
    | UNTIL_OTHERS_END
    | {WaitReason.HELD_BY_USER, WaitReason.NOT_BEFORE, WaitReason.DRAINED, WaitReason.OVER_BUDGET}
)
"""Reasons of jobs that have no position among the jobs that wait for slots."""


class Rule(StrEnum):
    """Rule by which a job is evicted."""

    PREEMPT = "preempt"  # for a higher priority of the same project
    RECLAIM = "reclaim"  # for another project's share
    CONSOLIDATE = "consolidate"  # moved to another pool that the job accepts, because the claimant needs this pool


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a waiting job on these slots."""

    job: str
    slots: Slots


@dataclass(frozen=True, slots=True)
class Evict:
    """The stop of an active job so that the claimant can start."""

    job: str
    claimant: str
    rule: Rule
    idle: bool = False  # whether the job was chosen first because its GPUs are idle


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason why a job waits, as a code for programs and a message for people."""

    job: str
    reason: WaitReason
    message: str
    ahead: tuple[str, ...] = ()  # the first 20 waiting jobs that come before this job and need one of its pools
    # jobs that hold or get slots of this job's pools; for a limit of group or owner, the jobs that count for the limit
    blockers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions of one cycle. Holds are in the order in which their jobs would be served."""

    starts: tuple[Start, ...] = ()
    evictions: tuple[Evict, ...] = ()
    holds: tuple[Hold, ...] = ()
    reservations: Mapping[str, Slots] = field(default_factory=dict)  # all reservations after this plan
    shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # pool -> project or department -> fair share
    capacities: Slots = field(default_factory=dict)  # instances that each pool has now
    calendars: Mapping[str, Calendar] = field(default_factory=dict)  # by pool; a missing pool is always open
    allocations: tuple[GpuAssignment, ...] = ()
    launches: tuple[Launch, ...] = ()
    carriers_to_close: tuple[str, ...] = ()  # empty; their instances are needed, or `keep_warm` is over

    @property
    def started(self) -> dict[str, Slots]:
        """The slots of each job that starts.

        The first member of a new carrier has the carrier's slot. All other members have no slots.
        """
        members = {name: NOTHING for launch in self.launches for name in launch.members}
        first = {launch.members[0]: launch.slots for launch in self.launches}
        assigned = {it.job: NOTHING for it in self.allocations}
        return {**{start.job: start.slots for start in self.starts}, **assigned, **members, **first}
