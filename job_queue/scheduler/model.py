"""What the scheduler reads and what it decides: a frozen snapshot of pools, projects and jobs, and a plan.

Everything is immutable. Times are seconds since the epoch (UTC), durations are seconds,
sizes are slots: one slot is one instance of a pool.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from job_queue.scheduler.carriers.seats import Carrier, Launch, Seat, SitDown
from job_queue.scheduler.sharing.budget import Budget, PastUse

Slots = Mapping[str, int]
"""Pool name -> number of instances."""

NOTHING: Slots = {}

UNLIMITED = 1 << 60
"""A limit or a capacity where there is none."""


def covers(have: Slots, need: Slots) -> bool:
    """Whether `have` holds all of `need`."""
    return all(have.get(pool, 0) >= count for pool, count in need.items())


def is_larger(one: Slots, other: Slots) -> bool:
    """Whether an alternative is another one with more instances: the same pools, nowhere fewer."""
    return one.keys() == other.keys() and one != other and covers(one, other)


def above_zero(slots: Slots) -> Slots:
    """The pools of which there is something."""
    return {pool: count for pool, count in slots.items() if count > 0}


DEFAULT = "default"
"""The name of the one pool and the one project that exist while no policy is applied."""


class JobState(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"  # waits, has never run
    STARTING = "starting"  # holds its slots; the launch is intended, SageMaker's answer not recorded
    RUNNING = "running"  # SageMaker has accepted the current attempt
    STOPPING = "stopping"  # the attempt was asked to stop; holds its slots until SageMaker says it ended
    PREEMPTED = "preempted"  # waits, has run before
    COMPLETED = "completed"  # finished: SageMaker said Completed
    FAILED = "failed"  # finished: SageMaker said Failed, or refused the request
    STOPPED = "stopped"  # finished: cancelled, stopped by hand, or out of its runtime

    @property
    def waits(self) -> bool:
        """True while the job stands in a waiting queue."""
        return self in (JobState.PENDING, JobState.PREEMPTED)

    @property
    def holds_slots(self) -> bool:
        """True while the job is active."""
        return self in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)

    @property
    def finished(self) -> bool:
        """True once nothing more will happen to the job."""
        return not self.waits and not self.holds_slots


@dataclass(frozen=True, slots=True)
class OnDemand:
    """Instances are taken as SageMaker has them."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Jobs run as managed spot training."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Jobs run on the capacity that a training plan has bought."""

    arn: str  # put into the requests that run here

    @property
    def name(self) -> str:
        """What people call it."""
        return self.arn.rpartition("/")[-1]


Market = OnDemand | Spot | TrainingPlan
"""How the instances of a pool are bought."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Instances of one type under one cap."""

    name: str
    capacity: int = UNLIMITED  # of a training plan's: a ceiling, which it need not have
    instance_type: str | None = None  # None: any type
    market: Market = OnDemand()
    min_runtime: float | None = None
    keep_warm: float | None = None  # seconds that instances are kept for the next job that matches
    gpus: int | None = None  # of each instance, which members may share; None: instances are whole


@dataclass(frozen=True, slots=True)
class Department:
    """A parent of projects."""

    name: str
    quota: Slots = field(default_factory=dict)
    limit: Slots = field(default_factory=dict)  # a pool that is not named has no limit


@dataclass(frozen=True, slots=True)
class Project:
    """An owner of jobs. Without a department it stands under the root."""

    name: str
    department: str | None = None
    quota: Slots = field(default_factory=dict)
    limit: Slots = field(default_factory=dict)
    over_quota: float | None = None  # weight; None: the quota, or 1 where the quota is 0
    pools: tuple[str, ...] = ()  # allowed pools, in order of preference; empty: all
    interactive_pools: tuple[str, ...] = ()  # of interactive jobs, instead of `pools`; empty: `pools`
    training_pools: tuple[str, ...] = ()  # of all other jobs, instead of `pools`; empty: `pools`
    min_runtime: float | None = None
    members: tuple[str, ...] = ()  # ARN patterns of who may submit to it; empty: everybody
    admins: tuple[str, ...] = ()  # ARN patterns of who may cancel and change its jobs, and submit to it
    roles: tuple[str, ...] = ()  # ARN patterns of execution roles that its jobs may have; empty: any
    buckets: tuple[str, ...] = ()  # where its jobs' addresses in S3 must lie: names or patterns; empty: anywhere
    priority_ceiling: int | None = None  # the highest priority that its jobs may have
    budget: Budget | None = None  # of all its jobs together
    owner_budget: Budget | None = None  # of the jobs of each owner in it
    owners_share: bool = False  # whether members of several owners may be on one carrier

    def pools_for(self, *, interactive: bool) -> tuple[str, ...]:
        """Return the allowed pools of one kind of job, in order of preference; empty: all."""
        return (self.interactive_pools if interactive else self.training_pools) or self.pools


class Order(StrEnum):
    """Which of a project's jobs of one priority is served first."""

    SUBMISSION = "submission"  # who has waited longest
    SHORTEST = "shortest"  # who is expected to run for the shortest time, as far as `stretch` lets it pass others


class Backfill(StrEnum):
    """By what it is known who may use the free slots that are kept for a patient job."""

    BOUNDED = "bounded"  # MaxRuntimeInSeconds: who cannot end later than the patient job can start
    PREDICTED = "predicted"  # expected runtimes: who is expected to end before it is expected to start


@dataclass(frozen=True, slots=True)
class Settings:
    """Knobs of the scheduler (scheduling rules, section 8)."""

    min_runtime: float = 0  # guaranteed seconds before an eviction
    patience: float | None = 1800  # seconds of waiting until free slots are reserved in a backfill window; None: never
    aging: float | None = None  # seconds of waiting per step of priority in the waiting order
    order: Order = Order.SUBMISSION
    stretch: float = 20  # by order of shortest: for how many times its expected runtime others may pass a job
    backfill: Backfill = Backfill.BOUNDED
    usage_half_life: float | None = None  # seconds until use counts for half in who comes next; None: it does not count
    idle_after: float | None = None  # seconds after which a job whose GPUs do nothing leaves first; None: never
    protect_project_quota: bool = True
    allow_oversubscription: bool = False
    window: int = 100  # waiting jobs read per waiting queue in one cycle
    max_waiting: int = 1000  # jobs of one owner that may wait at a time


@dataclass(frozen=True, slots=True)
class Interactive:
    """How interactive jobs are treated."""

    first: bool = True  # within quota, they come before the training jobs of their project; False: by priority alone
    max_per_owner: int | None = 1  # active at a time, where they come first; None: any number
    idle_end: float = 3600  # seconds without a session after which a job that only waits for sessions ends


@dataclass(frozen=True, slots=True)
class Prices:
    """What an instance of a type costs an hour, by market; None: nobody has said. No plan looks at it."""

    on_demand: float | None = None
    spot: float | None = None
    training_plan: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """How the fleet is shared. Order matters: it breaks ties."""

    pools: tuple[Pool, ...]
    projects: tuple[Project, ...]
    departments: tuple[Department, ...] = ()
    settings: Settings = Settings()
    interactive: Interactive = Interactive()
    prices: Mapping[str, Prices] = field(default_factory=dict)  # by instance type


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job in a waiting queue."""

    name: str
    project: str
    priority: int
    demand: tuple[Slots, ...]  # alternatives, best first; a gang takes all of one or nothing
    entered: float
    preemptible: bool = True
    interactive: bool = False  # people work in it; it is not preemptible then
    held: bool = False
    backoff_until: float | None = None
    max_runtime: float | None = None
    expected: float | None = None  # seconds from its next start until it ends, as far as anybody can tell
    warm: bool = False  # fits instances that are kept warm: goes first among those of its project and priority
    kinds: tuple[str, ...] = ()  # in a pool of any type: the instance types of each alternative
    refusal: str | None = None  # why SageMaker refused its last launch, where that was for its own sake
    on_free_slots_only: bool = False  # refused so often that nobody is stopped for it
    left_idle: bool = False  # it made room as its GPUs did nothing: it preempts nobody until it has run again
    more_wait: bool = False  # behind it in its waiting queue, beyond those that were read
    owner: str = ""
    after: tuple[tuple[str, bool], ...] = ()  # jobs that have to end first, and whether it does not matter how
    group: str | None = None  # of its owner's jobs in its project
    max_parallel: int | None = None  # jobs of its group that may be active at a time
    gpus: int | None = None  # of a member: tenths of GPUs of one instance; its demand is one instance then
    kind: str = ""  # of a member: with whom it may share an instance


@dataclass(frozen=True, slots=True)
class ActiveJob:
    """A job that holds slots."""

    name: str
    project: str
    priority: int
    slots: Slots
    state: JobState
    entered: float
    started: float | None = None  # of the current attempt
    preemptible: bool = True
    interactive: bool = False  # people work in it; it is not preemptible then
    demand: tuple[Slots, ...] = ()  # all it would accept; empty: only its slots
    checkpoint: float | None = None  # when it last wrote one, where known
    max_runtime: float | None = None
    expected: float | None = None  # seconds from `started` until it ends, as far as anybody can tell
    idle_since: float | None = None  # its GPUs have done nothing since; None: they work, or nobody knows
    stop_denied: bool = False  # SageMaker does not let the queue stop it
    comes_back: bool = False  # stopping to make room: it will wait again, so it still asks for its share
    owner: str = ""
    group: str | None = None
    max_parallel: int | None = None
    seat: Seat | None = None  # of a member, which holds no slots but this; the instance is its carrier's
    kind: str = ""
    lost: float | None = None  # instance-seconds that a stop would throw away, where others say so
    held_since: float | None = None  # since when its slots are held, where that is not since `started`

    @property
    def charged_since(self) -> float | None:
        """Return since when its slots are charged, in seconds since the epoch; None: not known."""
        return self.started if self.held_since is None else self.held_since


@dataclass(frozen=True, slots=True)
class PausedPool:
    """A pool that has refused launches: it is left alone until then, and after that tried carefully.

    Of a pool of any type, one kind of instances.
    """

    until: float
    instances: int = 1  # the fewest that were refused: it is paused for who asks for so many or more
    at_fault: str | None = None  # what SageMaker said, where it refuses what the pool puts into requests
    lag: str | None = None  # what SageMaker still counts, where it counts more instances than the queue


@dataclass(frozen=True, slots=True)
class Calendar:
    """When the instances of a training plan are there: its part that is under way, or else the next one, or the last.

    Of one that SageMaker has not told of yet, both times are infinite.
    """

    instances: int
    opens: float  # epoch seconds
    closes: float  # epoch seconds at which SageMaker takes the instances back, before the plan ends

    def is_open(self, now: float) -> bool:
        """Whether the instances are there."""
        return self.opens <= now < self.closes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a plan depends on. `active` and `waiting` may come in any order."""

    policy: Policy
    now: float
    active: tuple[ActiveJob, ...] = ()
    waiting: tuple[WaitingJob, ...] = ()
    external: Slots = field(default_factory=dict)  # used by training jobs that are not the queue's
    reserved: Mapping[str, Slots] = field(default_factory=dict)  # waiting job -> slots set aside for it
    paused: Mapping[str, PausedPool] = field(default_factory=dict)  # by `<pool>`, of any type `<pool>/<kind>`
    calendars: Mapping[str, Calendar] = field(default_factory=dict)  # pool -> when it has instances; else always
    past_use: Mapping[str, PastUse] = field(default_factory=dict)  # by project, as of `now`; none: nothing was used
    carriers: tuple[Carrier, ...] = ()

    def capacity(self, pool: Pool) -> int:
        """The instances that a pool has now."""
        calendar = self.calendars.get(pool.name)
        return self.size(pool) if calendar is None or calendar.is_open(self.now) else 0

    def size(self, pool: Pool) -> int:
        """The instances that a pool has while it has any."""
        calendar = self.calendars.get(pool.name)
        return pool.capacity if calendar is None else min(pool.capacity, calendar.instances)


# --- decisions -----------------------------------------------------------------------------------------


class Reason(StrEnum):
    """Why a job waits. Where several apply, the first in this order is given."""

    HELD_BY_USER = "HELD_BY_USER"
    DEPENDENCY = "DEPENDENCY"  # jobs that it is to run after have not ended
    BACKOFF = "BACKOFF"
    NO_SUCH_POOL = "NO_SUCH_POOL"
    NEVER_FITS = "NEVER_FITS"  # asks for more than its pool has at all
    OUTSIDE_TRAINING_PLAN = "OUTSIDE_TRAINING_PLAN"  # its plan has not begun, is over, or would cut it off
    OVER_BUDGET = "OVER_BUDGET"  # its project's budget, or its owner's in it, is spent for the present period
    GROUP_LIMIT = "GROUP_LIMIT"  # as many jobs of its group are active as may be at a time
    OVER_LIMIT = "OVER_LIMIT"
    OVER_QUOTA_NON_PREEMPTIBLE = "OVER_QUOTA_NON_PREEMPTIBLE"
    OWNER_LIMIT = "OWNER_LIMIT"  # its owner has as many interactive jobs as the policy allows at a time
    WAITING_FOR_STOPPING = "WAITING_FOR_STOPPING"  # slots being freed are set aside for it
    KEPT_FOR_PATIENT_JOB = "KEPT_FOR_PATIENT_JOB"
    BEHIND_FAIR_SHARE = "BEHIND_FAIR_SHARE"
    BEHIND_HIGHER_PRIORITY = "BEHIND_HIGHER_PRIORITY"  # a job ahead of it in its project lacks slots too
    WAITING_FOR_CAPACITY = "WAITING_FOR_CAPACITY"


class Rule(StrEnum):
    """By which rule a job is made to leave."""

    PREEMPT = "preempt"  # a higher priority of its own project
    RECLAIM = "reclaim"  # another project's share
    CONSOLIDATE = "consolidate"  # it can run in another pool, the claimant cannot


@dataclass(frozen=True, slots=True)
class Start:
    """Launch this waiting job on these slots."""

    job: str
    slots: Slots


@dataclass(frozen=True, slots=True)
class Evict:
    """Stop this active job so that the claimant can start."""

    job: str
    claimant: str
    rule: Rule
    idle: bool = False  # it goes first as its GPUs do nothing


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave this job waiting, and why: a code for machines, a sentence for people."""

    job: str
    reason: Reason
    message: str
    ahead: tuple[str, ...] = ()  # waiting jobs that come first and want the same pools; the first 20 of them
    blockers: tuple[str, ...] = ()  # active jobs that hold what it needs


@dataclass(frozen=True, slots=True)
class Plan:
    """One cycle's decisions. Holds stand in the order in which their jobs would be served."""

    starts: tuple[Start, ...] = ()
    evictions: tuple[Evict, ...] = ()
    holds: tuple[Hold, ...] = ()
    reservations: Mapping[str, Slots] = field(default_factory=dict)  # all that stand after this plan
    shares: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # pool -> queue -> fair share
    capacities: Slots = field(default_factory=dict)  # what each pool has now
    calendars: Mapping[str, Calendar] = field(default_factory=dict)  # pool -> when it has instances; else always
    seats: tuple[SitDown, ...] = ()
    launches: tuple[Launch, ...] = ()
    closes: tuple[str, ...] = ()  # empty carriers whose instances are wanted, or that were kept for long enough

    @property
    def begins(self) -> dict[str, Slots]:
        """Who starts, and on what: members on nothing, but for the first of a carrier that is launched for some."""
        members = {name: NOTHING for launch in self.launches for name in launch.members}
        first = {launch.members[0]: launch.slots for launch in self.launches}
        seated = {it.job: NOTHING for it in self.seats}
        return {**{start.job: start.slots for start in self.starts}, **seated, **members, **first}
