"""The policy as a document: how the fleet is shared. docs/scheduling.md explains it.

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
    """Instances of a type."""

    name: Name
    """A tag's value, too."""
    capacity: Union[Instances, msgspec.UnsetType] = msgspec.UNSET
    """How many there are. A pool with a training plan has what the plan has at the time, and at most this; only such a
    pool may leave it out."""
    instance_type: Optional[InstanceType] = None
    """Only a pool that is alone may leave it out."""
    training_plan: Optional[TrainingPlan] = None
    """ARN, put into the requests that run here; not together with `spot`."""
    spot: bool = False
    """Jobs run here as spot training; without this and `training_plan`, on demand."""
    min_runtime: Optional[Seconds] = None
    """Seconds after its start in which a job is not evicted: the project's, else the pool's, else the settings'."""
    keep_warm: Optional[Annotated[int, Meta(ge=0, le=3600)]] = None
    """Seconds that SageMaker keeps a job's instances after it has ended, if jobs that match are waiting when it starts;
    not together with `spot`. Of a shared pool also for how long a carrier is kept that nobody is on."""
    shared: bool = False
    """Jobs may have GPUs of an instance (tag `gpus`) and share it; not together with `spot` or `training_plan`."""
    gpus: Optional[Annotated[int, Meta(ge=1, le=64)]] = None
    """Of each instance, where it is shared and the queue does not know its type."""


class Department(_Part, frozen=True):
    """Projects that share a quota."""

    name: Name
    """A project names it."""
    quota: Share = {}
    """What it is entitled to."""
    limit: Share = {}
    """The most that it may have; a pool that is not named has no limit."""


class Budget(_Part, frozen=True):
    """Instance-hours in a period. What runs goes on when it is spent."""

    instance_hours: Annotated[float, Meta(gt=0, le=1_000_000_000)]
    """Hours that jobs run, times their instances, of whatever type: as in `smq usage`."""
    period: Union[Literal["day", "week", "month"], Annotated[int, Meta(ge=1, le=366)]]
    """A number is one of days. In UTC; weeks begin on Monday, and so do periods of several days: the first was
    1970-01-05."""
    kind: Literal["hard", "soft"] = "hard"
    """What becomes of jobs that wait once it is spent: hard: none starts before the next period; soft: they come after
    all others, and get beyond quota what nobody else wants."""


class Project(_Part, frozen=True):
    """Whom jobs count for."""

    name: Name
    """A job's tag `project` names it."""
    department: Optional[Text] = None
    """One of the policy's."""
    quota: Share = {}
    """What it is entitled to."""
    limit: Share = {}
    """The most that it may have; a pool that is not named has no limit."""
    over_quota: Union[Literal["none", "low", "medium", "high"], Weight, None] = None
    """Its weight in sharing what quotas leave over: none 0, low 1, medium 2, high 3, or a number. Without it, its
    quota, or 1 where that is 0."""
    pools: tuple[Text, ...] = ()
    """Pools that its jobs may use, best first; without it all. A job is tried in those of the instance type that its
    request names. A pool of another type takes the tag `pools`, or `InstancePreferences` in the request."""
    interactive_pools: tuple[Text, ...] = ()
    """Pools of its interactive jobs, in place of `pools`."""
    training_pools: tuple[Text, ...] = ()
    """Pools of all other jobs of it, in place of `pools`."""
    min_runtime: Optional[Seconds] = None
    """Seconds after its start in which a job is not evicted: the project's, else the pool's, else the settings'."""
    members: tuple[Text, ...] = ()
    """ARN patterns of who may submit to it; without it everybody. `*` crosses neither `/` nor `:`, in all patterns."""
    admins: tuple[Text, ...] = ()
    """ARN patterns of who may cancel and change its jobs; they may submit to it, too."""
    roles: tuple[Text, ...] = ()
    """ARN patterns of the execution roles that its jobs may have; without it any that the queue may pass on."""
    buckets: tuple[Text, ...] = ()
    """Where all addresses in S3 of its jobs' requests lie: names of buckets, or a name and folders (`shared/vision`);
    without it anywhere."""
    priority_ceiling: Optional[PriorityCeiling] = None
    """The highest priority that its jobs may have."""
    budget: Optional[Budget] = None
    """Of all its jobs together."""
    owner_budget: Optional[Budget] = None
    """Of the jobs of each owner in it."""
    owners_share: bool = False
    """Whether jobs of several owners in it may share an instance (docs/sharing.md)."""


class Settings(_Part, frozen=True):
    """What holds for all."""

    min_runtime: Optional[Seconds] = None
    """Seconds after its start in which a job is not evicted: the project's, else the pool's, else the settings'."""
    patience: Optional[Seconds] = 1800
    """Seconds until free slots are kept for a job that smaller ones pass; null: never."""
    aging: Optional[Aging] = None
    """Seconds of waiting that count as one step of priority; null: none do."""
    order: Literal["submission", "shortest"] = "submission"
    """Which of a project's jobs of one priority goes first: who has waited longest, or who is expected to run for the
    shortest time."""
    stretch: Stretch = 20
    """With `order: shortest`: a job is passed by nobody who comes later than so many times its expected runtime."""
    backfill: Literal["bounded", "predicted"] = "bounded"
    """Who may use slots that are kept for a patient job: who has to end before it can start, by MaxRuntimeInSeconds; or
    who is expected to, and then nothing is kept for a job of which nobody knows when it could start."""
    usage_half_life: Optional[HalfLife] = None
    """Seconds after which use counts for half: who has used less lately comes first among projects, in what is over
    quota, and among the owners of a project's jobs of one priority; null: only what is held now counts."""
    idle_after: Optional[Seconds] = None
    """Seconds after which a job whose GPUs do nothing is the first that has to make room, among those that may be
    asked; null: what its GPUs do does not count."""
    protect_project_quota: bool = True
    """A project at or under its quota loses nothing to others, even if its department is over its own."""
    allow_oversubscription: bool = False
    """Quotas may add up to more than there is, and a quota may be lowered below running non-preemptible jobs."""
    window: Annotated[int, Meta(ge=1, le=10_000)] = 100
    """Waiting jobs read of each waiting queue in one cycle."""
    max_waiting: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """Jobs of one owner that may wait at a time; a job that is preempted waits again in any case."""


class Interactive(_Part, frozen=True):
    """How interactive jobs are treated."""

    first: bool = True
    """Within quota they come before the training jobs of their project; false: they go by priority alone."""
    max_per_owner: Optional[Annotated[int, Meta(ge=1)]] = 1
    """Interactive jobs that one owner may have active at a time, where they come first; null: any number."""
    idle_end: Seconds = 3600
    """Seconds without a session after which a job ends that is kept for shells."""


class Prices(_Part, frozen=True):
    """What an instance costs an hour, by the market of its pool."""

    on_demand: Optional[Price] = None
    """Neither of the others."""
    spot: Optional[Price] = None
    """As spot training, on average."""
    training_plan: Optional[Price] = None
    """As part of a training plan."""


class Policy(_Part, frozen=True):
    """How the fleet is shared. It has at most 500 departments and projects together, and 200 KB as JSON."""

    pools: Annotated[tuple[Pool, ...], Meta(min_length=1, max_length=100)]
    """The instances."""
    projects: Annotated[tuple[Project, ...], Meta(min_length=1, max_length=500)]
    """Who shares them."""
    departments: tuple[Department, ...] = ()
    """Who shares them above the projects."""
    settings: Union[Settings, msgspec.UnsetType] = msgspec.UNSET
    """What holds for all."""
    interactive: Union[Interactive, msgspec.UnsetType] = msgspec.UNSET
    """How interactive jobs are treated."""
    prices: Annotated[Mapping[InstanceType, Union[Price, Prices]], Meta(max_length=500)] = {}
    """By instance type, in one currency; a number is the price in every market. `smq usage` counts by them, no plan
    does."""
