"""The policy as a document: the rules by which the fleet is shared. docs/scheduling.md explains the rules.

This module only describes the document. The queue reads it in `job_queue.scheduler.documents.policy_document`, which
names every fault.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Optional, Union

import msgspec
from msgspec import Meta

_MOST_INSTANCES = 1_000_000
_MOST_SECONDS = 315_360_000

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/=@-]{0,62}$")]
Text = Annotated[str, Meta(min_length=1)]
Instances = Annotated[int, Meta(ge=0, le=_MOST_INSTANCES)]
Share = Annotated[Mapping[str, Instances], Meta(examples=[{"p5": 2}])]
Seconds = Annotated[float, Meta(ge=0, le=_MOST_SECONDS)]


TrainingPlan = Annotated[
    str, Meta(pattern=r"^arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:training-plan/[A-Za-z0-9-]{1,64}$")
]
InstanceType = Annotated[str, Meta(pattern=r"^ml\.[a-z0-9-]{1,40}\.[a-z0-9]{1,20}$")]
Weight = Annotated[float, Meta(ge=0, le=_MOST_INSTANCES)]
PriorityCeiling = Annotated[int, Meta(ge=-999_999_999, le=999_999_999)]
Price = Annotated[float, Meta(ge=0, le=1_000_000)]
Aging = Annotated[float, Meta(ge=1, le=_MOST_SECONDS)]
Stretch = Annotated[float, Meta(gt=0, le=10_000)]


HalfLife = Annotated[float, Meta(ge=60, le=_MOST_SECONDS)]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of the document; its fields are in snake case."""


class Pool(_Part, frozen=True):
    """A pool of instances."""

    name: Name
    """The name, which is also a value of the tag `pools`."""
    capacity: Union[Instances, msgspec.UnsetType] = msgspec.UNSET
    """The number of instances. With a training plan, the capacity is the plan's current number of instances and at most
    this number. Only a pool with a training plan may omit it."""
    instance_type: Optional[InstanceType] = None
    """The instance type. Only the single pool of a policy may omit it."""
    training_plan: Optional[TrainingPlan] = None
    """The ARN of a training plan, which is added to the requests that run here; not together with `spot`."""
    spot: bool = False
    """True to run jobs here as spot training. Without `spot` and `training_plan`, jobs run on demand."""
    min_runtime: Optional[Seconds] = None
    """The seconds after its start in which a job is not evicted. The project's value takes precedence over the pool's,
    and the pool's over that of the settings."""
    keep_warm: Optional[Annotated[int, Meta(ge=0, le=3600)]] = None
    """The seconds for which SageMaker keeps a job's instances after its end, if matching jobs wait when it starts; not
    together with `spot`. In a shared pool, a carrier without members is kept for the same time."""
    shared: bool = False
    """True if jobs may request GPUs of an instance (tag `gpus`) and share it; not together with `spot` or
    `training_plan`."""
    gpus: Optional[Annotated[int, Meta(ge=1, le=64)]] = None
    """The GPUs of each instance, if the pool is shared and the queue does not know its instance type."""


class Department(_Part, frozen=True):
    """Projects that share a quota."""

    name: Name
    """The name, by which projects refer to the department."""
    quota: Share = {}
    """The slots that the department is entitled to."""
    limit: Share = {}
    """The largest number of slots that it may hold; a pool that is not named has no limit."""


class Budget(_Part, frozen=True):
    """A number of instance-hours in a period. Running jobs continue when the budget is spent."""

    instance_hours: Annotated[float, Meta(gt=0, le=1_000_000_000)]
    """The hours that jobs run, times their instances, of any instance type, as in `smq usage`."""
    period: Union[Literal["day", "week", "month"], Annotated[int, Meta(ge=1, le=366)]]
    """The period; a number is a number of days. Periods begin in UTC, weeks on Monday. Periods of several days are
    counted from Monday 1970-01-05."""
    kind: Literal["hard", "soft"] = "hard"
    """The effect of a spent budget on waiting jobs. With `hard`, no job starts before the next period. With `soft`, the
    jobs come after all others, and beyond quota they get only what no other job needs."""


class Project(_Part, frozen=True):
    """A project, which jobs count for: its shares of the pools and the permissions of its users."""

    name: Name
    """The name, which is the value of a job's tag `project`."""
    department: Optional[Text] = None
    """The name of a department of the policy."""
    quota: Share = {}
    """The slots that the project is entitled to."""
    limit: Share = {}
    """The largest number of slots that it may hold; a pool that is not named has no limit."""
    over_quota: Union[Literal["none", "low", "medium", "high"], Weight, None] = None
    """The weight in the sharing of slots beyond all quotas: none 0, low 1, medium 2, high 3, or a number. By default
    the weight is the project's quota, or 1 if the quota is 0."""
    pools: tuple[Text, ...] = ()
    """The pools that its jobs may use, in order of preference; by default all. A job is tried in the pools of its
    request's instance type. For a pool of another type, the job needs the tag `pools`, or `InstancePreferences` in its
    request."""
    interactive_pools: tuple[Text, ...] = ()
    """The pools of its interactive jobs, in place of `pools`."""
    training_pools: tuple[Text, ...] = ()
    """The pools of all its other jobs, in place of `pools`."""
    min_runtime: Optional[Seconds] = None
    """The seconds after its start in which a job is not evicted. The project's value takes precedence over the pool's,
    and the pool's over that of the settings."""
    members: tuple[Text, ...] = ()
    """ARN patterns of the callers who may submit jobs to the project; by default all callers. In all patterns, `*`
    matches neither `/` nor `:`."""
    admins: tuple[Text, ...] = ()
    """ARN patterns of the callers who may cancel and change its jobs; they may also submit jobs to it."""
    roles: tuple[Text, ...] = ()
    """ARN patterns of the execution roles that its jobs may have; by default all roles that the queue may pass on."""
    buckets: tuple[Text, ...] = ()
    """The permitted locations of all S3 addresses in its jobs' requests: names of buckets, or a name and folders
    (`shared/vision`); by default all locations."""
    priority_ceiling: Optional[PriorityCeiling] = None
    """The highest priority that its jobs may have."""
    budget: Optional[Budget] = None
    """The budget of all its jobs together."""
    owner_budget: Optional[Budget] = None
    """The budget of the jobs of each owner in it."""
    owners_share: bool = False
    """True if jobs of different owners in it may share an instance (docs/sharing.md)."""


class Settings(_Part, frozen=True):
    """Settings for all pools, departments and projects."""

    min_runtime: Optional[Seconds] = None
    """The seconds after its start in which a job is not evicted. The project's value takes precedence over the pool's,
    and the pool's over that of the settings."""
    patience: Optional[Seconds] = 1800
    """The seconds of waiting after which free slots are kept for a job that smaller jobs pass; null: never."""
    aging: Optional[Aging] = None
    """The seconds of waiting that count as one step of priority; null: waiting does not count."""
    order: Literal["submission", "shortest"] = "submission"
    """The order of a project's jobs of equal priority: the longest wait first, or the shortest expected runtime
    first."""
    stretch: Stretch = 20
    """With `order: shortest`: a job that comes later than `stretch` times a waiting job's expected runtime does not
    pass that job."""
    backfill: Literal["bounded", "predicted"] = "bounded"
    """The jobs that may use slots that are kept for a patient job. With `bounded`: jobs that must end before it can
    start, by MaxRuntimeInSeconds. With `predicted`: also jobs that are expected to end before; nothing is kept for a
    patient job with an unknown start."""
    usage_half_life: Optional[HalfLife] = None
    """The seconds after which past use counts half. Beyond quota, the project with less past use comes first. Among a
    project's jobs of equal priority, the owner with less past use comes first. Null: only current use counts."""
    idle_after: Optional[Seconds] = None
    """The seconds after which a job with idle GPUs is evicted first, among the jobs that may be evicted; null: idle
    GPUs do not count."""
    protect_project_quota: bool = True
    """True if a project at or under its quota loses nothing to other projects, even if its department is over quota."""
    allow_oversubscription: bool = False
    """True if quotas may add up to more than the capacity, and a quota may be lowered below running non-preemptible
    jobs."""
    window: Annotated[int, Meta(ge=1, le=10_000)] = 100
    """The number of waiting jobs that a cycle reads of each waiting queue."""
    max_waiting: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """The largest number of waiting jobs of one owner. A preempted job waits again in any case."""


class Interactive(_Part, frozen=True):
    """Settings for interactive jobs."""

    first: bool = True
    """True if interactive jobs within quota come before the training jobs of their project; false if only priority
    counts."""
    max_per_owner: Optional[Annotated[int, Meta(ge=1)]] = 1
    """The largest number of active interactive jobs of one owner, if they come first; null: any number."""
    idle_end: Seconds = 3600
    """The seconds without a session after which a job that is kept for shells ends."""


class Prices(_Part, frozen=True):
    """The price of an instance hour, by the market of its pool."""

    on_demand: Optional[Price] = None
    """The price on demand."""
    spot: Optional[Price] = None
    """The average price as spot training."""
    training_plan: Optional[Price] = None
    """The price as part of a training plan."""


class Policy(_Part, frozen=True):
    """The rules by which the fleet is shared: at most 500 departments and projects together, and 200 KB as JSON."""

    pools: Annotated[tuple[Pool, ...], Meta(min_length=1, max_length=100)]
    """The pools of instances."""
    projects: Annotated[tuple[Project, ...], Meta(min_length=1, max_length=500)]
    """The projects that share the pools."""
    departments: tuple[Department, ...] = ()
    """The departments, which group projects."""
    settings: Union[Settings, msgspec.UnsetType] = msgspec.UNSET
    """Settings for all pools, departments and projects."""
    interactive: Union[Interactive, msgspec.UnsetType] = msgspec.UNSET
    """Settings for interactive jobs."""
    prices: Annotated[Mapping[InstanceType, Union[Price, Prices]], Meta(max_length=500)] = {}
    """The price of an instance hour by instance type, in one currency; a number applies to every market. `smq usage`
    shows costs by these prices. The prices have no effect on plans."""
