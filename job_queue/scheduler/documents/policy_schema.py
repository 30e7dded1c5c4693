"""The schema of the policy: pools, the departments and projects that share them, and the rules of sharing.

The type of a field states its bounds, and the text below a field states its meaning. `policy_document.py` reads a
document by this schema, and `domain/policy_validation.py` has the rules across fields. docs/openapi.yaml and
docs/reference/policy.md are generated from this schema.

`extra` of a type has words for error messages. `fault` is the end of a message that begins with the field's name. A
type without `fault` may have `below` and `above`, for values below and above the bounds. `expected` names the possible
values.
`content` names the keys and values of a mapping, and `entry` names one entry of a mapping.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta

UNLIMITED = 1 << 60
"""The limit or capacity of an unlimited pool, project or department."""

MOST_POOLS = 100
MOST_QUOTA_HOLDERS = 500  # departments and projects together; planning time grows with them
MOST_INSTANCES = 1_000_000  # also the maximum of a project's weight
MOST_PRICES = 500
MOST_PREEMPTIONS = 1000  # largest `max_preemptions`
MOST_FAILURE_RULES = 50  # for the policy, and for each project; every rule is compared with log lines
HIGHEST_PRICE = 1_000_000  # price of an hour, in any currency
MAX_PRIORITY = 999_999_999  # largest absolute value; sort keys have MAX_PRIORITY - priority, of ten digits
MOST_WAITING = 100_000
WIDEST_WINDOW = 10_000

_MOST_SECONDS = 10 * 365 * 24 * 3600
_LONGEST_WARM_SECONDS = 3600  # SageMaker's maximum for warm instances
_MOST_BUDGET_HOURS = 1_000_000_000
_LONGEST_PERIOD_DAYS = 366
HOUR = 3600
_NAMED_PERIODS: Mapping[str, int | None] = {"day": 1, "week": 7, "month": None}
_OVER_QUOTA_WEIGHTS: Mapping[str, float] = {"none": 0, "low": 1, "medium": 2, "high": 3}
_TEN_YEARS = {"above": f"may be at most {_MOST_SECONDS} seconds, ten years"}

# Names become values of tags, parts of keys in the tables, and items of lists that are separated by commas and spaces.
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/=@-]{0,62}$",
        extra={
            "fault": "is not a name: it has up to 63 letters (a to z), digits and _ . : / = @ -, and begins with a "
            "letter or digit"
        },
    ),
]
Text = Annotated[str, Meta(min_length=1)]
TrainingPlanArn = Annotated[
    str,
    Meta(
        pattern=r"^arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:training-plan/[A-Za-z0-9-]{1,64}$",
        extra={"fault": "is not the ARN of a training plan"},
    ),
]
InstanceType = Annotated[
    str,
    Meta(
        pattern=r"^ml\.[a-z0-9-]{1,40}\.[a-z0-9]{1,20}$",
        extra={"fault": "is not a SageMaker instance type, such as ml.p5.48xlarge"},
    ),
]
Region = Annotated[
    str,
    Meta(
        pattern=r"^[a-z]{2,8}(-[a-z]{2,16}){1,3}-[0-9]{1,2}$",
        extra={"fault": "is not the name of a region, such as us-east-2"},
    ),
]
RoleArn = Annotated[
    str,
    Meta(
        pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]{1,512}$",
        extra={"fault": "is not the ARN of a role"},
    ),
]
Instances = Annotated[int, Meta(ge=0, le=MOST_INSTANCES)]
Share = Annotated[
    Mapping[str, Instances], Meta(examples=[{"p5": 2}], extra={"content": "pools to numbers of instances"})
]
BucketByRegion = Annotated[
    Mapping[Region, Text],
    Meta(examples=[{"us-east-1": "team", "us-east-2": "team-ohio"}], extra={"content": "regions to buckets"}),
]
Seconds = Annotated[float, Meta(ge=0, le=_MOST_SECONDS, extra=_TEN_YEARS)]
Aging = Annotated[
    float, Meta(ge=1, le=_MOST_SECONDS, extra={**_TEN_YEARS, "below": "must be at least 1 second, or null"})
]
HalfLife = Annotated[
    float, Meta(ge=60, le=_MOST_SECONDS, extra={**_TEN_YEARS, "below": "must be at least 60 seconds, or null"})
]
WarmSeconds = Annotated[
    float,
    Meta(
        ge=0,
        le=_LONGEST_WARM_SECONDS,
        multiple_of=1,
        extra={"fault": f"must be a whole number of seconds, at most {_LONGEST_WARM_SECONDS}"},
    ),
]
Silence = Annotated[
    float, Meta(ge=10, le=_MOST_SECONDS, extra={**_TEN_YEARS, "below": "must be at least 10 seconds, or null"})
]
Weight = Annotated[
    float, Meta(ge=0, le=MOST_INSTANCES, extra={"expected": "none, low, medium, high or a number from 0"})
]
PriorityCeiling = Annotated[
    int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, extra={"fault": f"must be from -{MAX_PRIORITY} to {MAX_PRIORITY}"})
]
Price = Annotated[float, Meta(ge=0, le=HIGHEST_PRICE, extra={"above": f"is above {HIGHEST_PRICE} an hour"})]
InstanceHours = Annotated[
    float,
    Meta(
        gt=0,
        le=_MOST_BUDGET_HOURS,
        extra={
            "fault": f"must be above 0, and at most {_MOST_BUDGET_HOURS}; a project that is to have nothing has a "
            "limit of 0"
        },
    ),
]
Days = Annotated[
    int,
    Meta(
        ge=1,
        le=_LONGEST_PERIOD_DAYS,
        extra={
            "expected": "day, week, month or a number of days",
            "above": f"may be at most {_LONGEST_PERIOD_DAYS} days",
        },
    ),
]
Period = Literal["day", "week", "month"] | Days
MaxPreemptions = Annotated[
    int, Meta(ge=0, le=MOST_PREEMPTIONS, extra={"below": "must be at least 0, or null for any number"})
]
MaxPerOwner = Annotated[int, Meta(ge=1, extra={"fault": "must be at least 1, or null for any number"})]


class Order(StrEnum):
    """Order of a project's jobs of the same priority."""

    SUBMISSION = "submission"  # the job with the longest wait first
    SHORTEST = "shortest"  # the shortest expected runtime first, within the bounds of `stretch`


class Backfill(StrEnum):
    """The runtimes that decide whether a job may use the free slots that are kept for a patient job."""

    BOUNDED = "bounded"  # MaxRuntimeInSeconds: the job must end before the patient job can start
    PREDICTED = "predicted"  # expected runtimes: the job is expected to end before the patient job is expected to start


class OnHang(StrEnum):
    """The queue's action when a job hangs."""

    NOTIFY = "notify"  # a notice to people
    REQUEUE = "requeue"  # a notice, and the attempt is stopped and the job waits again


class BudgetKind(StrEnum):
    """The effect of a spent budget on waiting jobs. Running jobs continue in both cases."""

    HARD = "hard"  # no job starts before the next period
    SOFT = "soft"  # the jobs come after all others; beyond quota they get only slots that no other job needs


class FailureClass(StrEnum):
    """The cause of a failed attempt, in one or two words."""

    USER_ERROR = "user_error"
    GPU_MEMORY = "gpu_memory"
    MEMORY = "memory"
    DISK_FULL = "disk_full"
    COMMUNICATION = "communication"
    HARDWARE = "hardware"
    MISSING_DATA = "missing_data"
    ACCESS_DENIED = "access_denied"
    INTERNAL = "internal"
    CAPACITY = "capacity"
    QUOTA = "quota"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class FailureAction(StrEnum):
    """The action of the queue after a failed attempt."""

    FAIL = "fail"  # the job fails
    RETRY = "retry"  # another attempt, counted against the job's `retries`
    RETRY_FREE = "retry free"  # another attempt, not counted


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A rule for failed attempts. Each of `match`, `exit_code` and `failure_class` that the rule has must apply."""

    action: FailureAction
    """The action after the failure: `fail` ends the job, `retry` uses one of the job's retries, and `retry free` uses
    none. The queue ends a job with too many early failures in any case."""
    match: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """A text that the FailureReason or one of the last log lines contains, in upper or lower case; `*` matches any
    characters."""
    exit_code: Annotated[int, Meta(ge=-255, le=255)] | None = None
    """The exit code of the program."""
    failure_class: FailureClass | None = None
    """The class of the failure."""
    fresh_instances: bool = False
    """True if the next attempt must not reuse the instances, if they are kept warm."""


FailureRules = Annotated[tuple[FailureRule, ...], Meta(max_length=MOST_FAILURE_RULES)]


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of instances."""

    name: Name
    """The name, which is also a value of the tag `pools`."""
    capacity: Instances = field(default_factory=lambda: UNLIMITED)
    """The number of instances. With a training plan, the capacity is the plan's current number of instances, but at
    most this number. Only a pool with a training plan may omit it."""
    instance_type: InstanceType | None = None
    """The instance type. Only the single pool of a policy may omit it."""
    training_plan: TrainingPlanArn | None = None
    """The ARN of a training plan, which is added to the requests that run here; not together with `spot`."""
    spot: bool = False
    """True to run jobs here as spot training. Without `spot` and `training_plan`, jobs run on demand."""
    min_runtime: Seconds | None = None
    """The seconds after a job's start in which the job is not evicted. The project's value takes precedence over the
    pool's, and the pool's over that of the settings."""
    keep_warm: WarmSeconds | None = None
    """The seconds for which SageMaker keeps a job's instances after its end, if matching jobs wait when the job starts;
    not together with `spot`. In a shared pool, a carrier without members is kept for the same time."""
    shared: bool = False
    """True if jobs may request GPUs of an instance (tag `gpus`) and share it; not together with `spot` or
    `training_plan`."""
    gpus: Annotated[int, Meta(ge=1, le=64)] | None = None
    """The GPUs of each instance, if the pool is shared and the queue does not know its instance type."""
    region: Region | None = None
    """The region of the instances, if it is not the queue's region; not together with `shared`."""
    role: RoleArn | None = None
    """The ARN of the role that the queue assumes to launch jobs here, for a pool of another account or region; not
    together with `shared`."""

    @property
    def market(self) -> str:
        """The purchase option of the instances: `on_demand`, `spot` or `training_plan`."""
        return "training_plan" if self.training_plan else "spot" if self.spot else "on_demand"

    @property
    def plan_name(self) -> str:
        """The name of the training plan, which is the last part of its ARN; empty without a plan."""
        return (self.training_plan or "").rpartition("/")[-1]


@dataclass(frozen=True, slots=True)
class Department:
    """A group of projects that share a quota."""

    name: Name
    """The name, by which projects refer to the department."""
    quota: Share = field(default_factory=dict)
    """The slots that the department is entitled to."""
    limit: Share = field(default_factory=dict)
    """The largest number of slots that the department may hold; a pool that is not named has no limit."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A number of instance-hours in a period. Running jobs continue when the budget is spent."""

    instance_hours: InstanceHours
    """The hours that jobs run, times their instances, of any instance type, as in `smq usage`."""
    period: Period
    """The period; a number is a number of days. Periods begin in UTC, weeks on Monday. Periods of several days are
    counted from Monday 1970-01-05."""
    kind: BudgetKind = BudgetKind.HARD
    """The effect of a spent budget on waiting jobs. With `hard`, no job starts before the next period. With `soft`, the
    jobs come after all others, and beyond quota they get only slots that no other job needs."""

    @property
    def seconds(self) -> float:
        """The budget in instance-seconds."""
        return self.instance_hours * HOUR

    @property
    def days(self) -> int | None:
        """The length of a period in days, or None for a calendar month."""
        return _NAMED_PERIODS[self.period] if isinstance(self.period, str) else self.period

    @property
    def period_name(self) -> str:
        """The period in words: `month`, `week`, `day`, or `14 days`."""
        return next((name for name, days in _NAMED_PERIODS.items() if days == self.days), f"{self.days} days")


@dataclass(frozen=True, slots=True)
class Project:
    """A project, to which jobs belong: its shares of the pools and the permissions of its users."""

    name: Name
    """The name, which is the value of a job's tag `project`."""
    department: Text | None = None
    """The name of a department of the policy."""
    quota: Share = field(default_factory=dict)
    """The slots that the project is entitled to."""
    limit: Share = field(default_factory=dict)
    """The largest number of slots that the project may hold; a pool that is not named has no limit."""
    over_quota: Literal["none", "low", "medium", "high"] | Weight | None = None
    """The weight in the sharing of slots beyond all quotas: none 0, low 1, medium 2, high 3, or a number. By default
    the weight is the project's quota, or 1 if the quota is 0."""
    pools: tuple[Text, ...] = ()
    """The pools that the project's jobs may use, in order of preference; by default all. A job is tried in the pools of
    its request's instance type. For a pool of another type, the job needs the tag `pools`, or `InstancePreferences` in
    its request."""
    interactive_pools: tuple[Text, ...] = ()
    """The pools of the project's interactive jobs, in place of `pools`."""
    training_pools: tuple[Text, ...] = ()
    """The pools of the project's jobs that are not interactive, in place of `pools`."""
    min_runtime: Seconds | None = None
    """The seconds after a job's start in which the job is not evicted. The project's value takes precedence over the
    pool's, and the pool's over that of the settings."""
    max_preemptions: MaxPreemptions | None = None
    """The largest number of times that a job of the project is evicted; null: the value of the settings applies."""
    members: tuple[Text, ...] = ()
    """ARN patterns of the callers who may submit jobs to the project; by default all callers. In all patterns, `*`
    matches neither `/` nor `:`."""
    admins: tuple[Text, ...] = ()
    """ARN patterns of the callers who may cancel and change the project's jobs; they may also submit jobs to it."""
    roles: tuple[Text, ...] = ()
    """ARN patterns of the execution roles that the project's jobs may have; by default all roles that the queue may
    pass on."""
    buckets: tuple[Text, ...] = ()
    """The permitted locations of all S3 addresses in requests of the project's jobs: names of buckets, or a name and
    folders (`shared/vision`); by default all locations."""
    bucket_by_region: BucketByRegion = field(default_factory=dict)
    """The project's bucket in each region, including the queue's region. In a pool of another region, the bucket of
    that region replaces the bucket of the queue's region in all S3 addresses of a job."""
    checkpoints_replicated: bool = False
    """True if checkpoints in one bucket of `bucket_by_region` are soon copied to the others. A preempted job may then
    resume in another region."""
    priority_ceiling: PriorityCeiling | None = None
    """The highest priority that the project's jobs may have."""
    budget: Budget | None = None
    """The budget of all jobs of the project together."""
    owner_budget: Budget | None = None
    """The budget of each owner's jobs in the project."""
    failure_rules: FailureRules = ()
    """Rules for failed attempts of the project's jobs, before those of the policy. The first rule that applies
    decides."""
    silent: Silence | None = None
    """The seconds of silence after which a job of the project hangs, in place of the settings' value."""
    on_hang: OnHang | None = None
    """The action when a job of the project hangs, in place of the settings' value."""
    owners_share: bool = False
    """True if jobs of different owners in the project may share an instance."""

    @property
    def weight(self) -> float | None:
        """The weight beyond all quotas as a number, or None for the default: the quota, or 1 if the quota is 0."""
        return _OVER_QUOTA_WEIGHTS[self.over_quota] if isinstance(self.over_quota, str) else self.over_quota

    def pools_for(self, *, interactive: bool) -> tuple[str, ...]:
        """Return the pools that jobs of the project may use, in order of preference. Empty means all pools."""
        return (self.interactive_pools if interactive else self.training_pools) or self.pools


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings for all pools, departments and projects."""

    window: Annotated[int, Meta(ge=1, le=WIDEST_WINDOW)] = 100
    """The number of waiting jobs that a cycle reads of each waiting queue."""
    max_waiting: Annotated[int, Meta(ge=1, le=MOST_WAITING)] = 1000
    """The largest number of waiting jobs of one owner. A preempted job waits again in any case."""
    min_runtime: Seconds | None = None
    """The seconds after a job's start in which the job is not evicted. The project's value takes precedence over the
    pool's, and the pool's over that of the settings."""
    preempted_min_runtime: Seconds = 2100
    """The seconds after a job's start in which the job is not evicted if it was preempted once in the day before that
    start. Each further preemption within that day doubles the seconds. A longer `min_runtime` takes precedence. If
    this setting is 0, preemptions do not count."""
    preempted_min_runtime_limit: Seconds = 14_400
    """The largest number of seconds to which preemptions can raise `preempted_min_runtime`."""
    max_preemptions: MaxPreemptions | None = None
    """The largest number of times that a job is evicted, counted since its submission; null: any number. After that
    number, the job is never evicted again. The project's value takes precedence. A job can have a smaller number (tag
    `max_preemptions`)."""
    patience: Seconds | None = 1800
    """The seconds of waiting after which free slots are kept for a job that smaller jobs pass; null: never."""
    aging: Aging | None = None
    """The seconds of waiting that count as one step of priority; null: waiting does not count."""
    order: Order = Order.SUBMISSION
    """The order of a project's jobs of equal priority: the longest wait first, or the shortest expected runtime
    first."""
    stretch: Annotated[float, Meta(gt=0, le=10_000)] = 20
    """With `order: shortest`: a shorter job passes another job only if it is submitted within `stretch` times the other
    job's expected runtime after that job."""
    backfill: Backfill = Backfill.PREDICTED
    """The jobs that may use slots that are kept for a patient job. With `bounded`: jobs whose MaxRuntimeInSeconds ends
    before the patient job can start. With `predicted`: also jobs that are expected to end before that start, and no
    slots are kept for a patient job whose start is unknown."""
    usage_half_life: HalfLife | None = None
    """The seconds after which past use counts half. Beyond quota, the project with less past use comes first. Among a
    project's jobs of equal priority, the owner with less past use comes first. Null: only current use counts."""
    idle_after: Seconds | None = None
    """The seconds after which a job with idle GPUs is evicted first, among the jobs that may be evicted; null: idle
    GPUs do not count."""
    silent: Silence | None = 1800
    """The seconds without any log line, checkpoint or GPU use after which a job hangs; null: hangs are not looked for.
    The time is never shorter than the stack's parameter `IdleMinutes`."""
    on_hang: OnHang = OnHang.NOTIFY
    """The action when a job hangs: a notice, or a notice and another attempt from the checkpoint. A job's tag `on_hang`
    takes precedence."""
    protect_project_quota: bool = True
    """True if a project at or under its quota loses nothing to other projects, even if its department is over quota."""
    allow_oversubscription: bool = False
    """True if quotas may add up to more than the capacity, and a quota may be lowered below running non-preemptible
    jobs."""


@dataclass(frozen=True, slots=True)
class Interactive:
    """Settings for interactive jobs."""

    first: bool = True
    """True if interactive jobs within quota come before the training jobs of their project; false if only priority
    counts."""
    max_per_owner: MaxPerOwner | None = 1
    """The largest number of active interactive jobs of one owner, if `first` is true; null: any number."""
    idle_end: Seconds = 3600
    """The seconds without a session after which a job that is kept for shells ends."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of an instance hour, by the market of its pool."""

    on_demand: Price | None = None
    """The price on demand."""
    spot: Price | None = None
    """The average price as spot training."""
    training_plan: Price | None = None
    """The price as part of a training plan."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules by which the fleet is shared: at most 500 departments and projects together, and 200 KB as JSON."""

    pools: Annotated[tuple[Pool, ...], Meta(min_length=1, max_length=MOST_POOLS)]
    """The pools of instances."""
    projects: Annotated[tuple[Project, ...], Meta(min_length=1, max_length=MOST_QUOTA_HOLDERS)]
    """The projects that share the pools."""
    departments: tuple[Department, ...] = ()
    """The departments, which group projects."""
    settings: Settings = field(default_factory=Settings)
    """Settings for all pools, departments and projects."""
    interactive: Interactive = field(default_factory=Interactive)
    """Settings for interactive jobs."""
    failure_rules: FailureRules = ()
    """Rules for failed attempts, after those of the job's tag `retry_on` and of its project, and before the built-in
    actions. The first rule that applies decides."""
    prices: Annotated[
        Mapping[InstanceType, Price | Prices],
        Meta(max_length=MOST_PRICES, extra={"content": "instance types to prices an hour", "entry": "a price of"}),
    ] = field(default_factory=dict)
    """The price of an instance hour by instance type, in one currency; a number applies to every market. `smq usage`
    shows costs by these prices. The prices have no effect on plans."""
