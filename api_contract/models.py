"""Requests and answers. The text below a field is its meaning; docs/openapi.yaml contains it."""

from collections.abc import Mapping
from typing import Annotated, Any, Optional, TypedDict, Union

from msgspec import UNSET, Meta, UnsetType

from api_contract.shape import Answer, Body, Count, JobName, Ordinal, Slots, Time, schema

MAX_PRIORITY = 999_999_999
"""The largest absolute value of a priority."""
CARRIER_PREFIX = "carrier--"
"""The beginning of the names of carriers: the queue's own jobs, whose instances members share."""
MAX_RETRIES = 10
MAX_PAGE = 500

WAITING = frozenset({"pending", "preempted"})
ACTIVE = frozenset({"starting", "running", "stopping"})
FINISHED = frozenset({"completed", "failed", "stopped"})

State = Annotated[str, schema(enum=sorted(WAITING | ACTIVE | FINISHED))]
Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]


# --- requests -----------------------------------------------------------------------------------------


class Tag(TypedDict):
    """A tag of a request."""

    Key: str
    Value: str


class _NeededOfRequest(TypedDict):
    TrainingJobName: JobName
    RoleArn: str
    OutputDataConfig: dict[str, Any]
    StoppingCondition: dict[str, Any]


class CreateTrainingJobRequest(_NeededOfRequest, total=False):
    """A request of SageMaker's CreateTrainingJob, with all its fields, of which a few are shown here.

    Tags whose key begins with `queue-` and names that end in `-qstamp-` and a number are the queue's own. `RoleArn` is
    one of the roles that the queue may pass on.
    """

    ResourceConfig: dict[str, Any]
    Tags: Annotated[list[Tag], schema(maxItems=50)]


TrainingJob = Annotated[Mapping[str, Any], schema(document=CreateTrainingJobRequest.__name__)]


class SubmitOptions(Body, frozen=True):
    """The query of `/add-job`."""

    preflight: bool = True
    """`false` makes a warning of what pre-flight has against the request, and takes it. What SageMaker would refuse is
    refused all the same."""


class JobFilter(Body, frozen=True):
    """The query of `/jobs`."""

    state: Annotated[str, schema(examples=["running,stopping"])] = "live"
    """`live` (not finished), `finished`, `all`, or states, separated by commas."""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    """Jobs in a page at most."""
    next: Union[str, UnsetType] = UNSET
    """The `next` of the page before."""


class JobSelection(Body, frozen=True):
    """The query of `/jobs/{name}`."""

    advice: bool = False
    """`true` also looks for what would let a waiting job start, and has the queue planned for it, which takes up to
    seconds. One such request of a caller is answered at a time."""


class JobChange(Body, frozen=True):
    """A change of a job. At least one field is required; the other ones stay unchanged."""

    priority: Union[Priority, UnsetType] = UNSET
    """The higher, the sooner the job starts."""
    held: Union[bool, UnsetType] = UNSET
    """`true`: hold it; `false`: release it."""


class PolicyChange(Body, frozen=True):
    """A policy that is to take the place of another."""

    policy: Annotated[Any, schema(document="Policy")]
    """The whole of it."""
    version: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    """Of the policy that was read and is to be replaced."""
    force: bool = False
    """Apply it although it drops projects or pools that live jobs use, or lowers a quota below running non-preemptible
    jobs."""


class PolicySelection(Body, frozen=True):
    """The query of `/policy`."""

    version: Union[Annotated[int, Meta(ge=0, le=1_000_000_000)], UnsetType] = UNSET
    """An earlier one, as `/policy/history` lists them; without it the present one."""


class PolicyRollback(Body, frozen=True):
    """An earlier version of the policy that is to hold again."""

    to: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    """The version to go back to; 0 is the default policy."""
    version: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    """Of the policy that was read and is to be replaced."""
    force: bool = False
    """Apply it although it drops projects or pools that live jobs use, or lowers a quota below running non-preemptible
    jobs."""


# --- jobs ---------------------------------------------------------------------------------------------


class Reason(Answer, frozen=True):
    """Why a job waits, or why it failed or was stopped."""

    code: Annotated[str, schema(examples=["WAITING_FOR_CAPACITY"])] = ""
    """For programs."""
    message: str = ""
    """A sentence for people."""


class Expectation(Answer, frozen=True):
    """When a waiting job is expected to start: the queue's own plan, carried on with likely runtimes and arrivals."""

    message: str = ""
    """A sentence for people: when, or why nobody can tell."""
    start: Optional[Time] = None
    """As likely earlier as later; null if nobody can tell."""
    not_after: Optional[Time] = None
    """Later only if something happens that was not to be expected: no promise. Null if nobody can tell."""
    doubt: Annotated[Optional[str], schema(examples=["SPREAD"])] = None
    """Why the start is no more than a guess, or why there is none; null where it is a good one:
    - `NEVER`: as things are, it never starts; its reason says why
    - `UNKNOWN_RUNTIMES`: too little is known of how long the jobs run that it waits for
    - `FAR`: in more than two days, if at all
    - `OUTRANKED`: most jobs that come to its project have a higher priority
    - `SPREAD`: likely runtimes and arrivals make for very different starts
    - `NO_TIME`: so many jobs wait that there was no time for more, or for any
    - `NOT_ALL_READ`: more jobs wait than were looked at
    - `REFUSED`: SageMaker refuses to launch it, such as beyond a quota of the account; its reason says why"""
    told_at: Optional[Time] = None
    """When the queue last looked ahead."""


class JobSummary(Answer, frozen=True):
    """A job as a line of the queue."""

    job: JobName
    """The TrainingJobName under which it was submitted."""
    state: State
    """- `pending`: waits, and was not preempted: it has not run yet, or is tried again
    - `starting`: is being launched
    - `running`: is a training job in SageMaker
    - `stopping`: its training job is being stopped
    - `preempted`: waits, after having run; it goes on from its checkpoint
    - `completed`, `failed`, `stopped`: finished"""
    priority: int = 0
    """The higher, the sooner it starts."""
    project: Optional[str] = None
    """Whom it counts for."""
    group: Optional[str] = None
    """Jobs that are listed and cancelled together, such as a sweep's, as the tag `group` names them."""
    owner: Optional[str] = None
    """ARN of the caller who submitted it."""
    instances: Ordinal = 1
    """That it uses, or asks for."""
    sizes: Annotated[tuple[Ordinal, ...], schema(examples=[[8, 4, 2]])] = ()
    """The numbers of instances that it accepts, best first, as its tag `instances` names them; empty: one alone."""
    entry_time: Optional[Time] = None
    """When it was submitted: its place among jobs of its priority."""
    state_since: Optional[Time] = None
    """When it came into its state."""
    attempt: Count = 0
    """Number of its SageMaker training job; of the next one while it waits."""
    training_job_name: Annotated[Optional[str], schema(examples=["job1-qstamp-1"])] = None
    """Name of the attempt's training job in SageMaker; null if none was launched."""
    position: Optional[Ordinal] = None
    """Its place among all jobs that wait, 1 is the next; null if it does not wait."""
    expected_start: Optional[Expectation] = None
    """When it is expected to start; null if it does not wait, or the queue has not looked ahead yet."""
    expected_end: Optional[Time] = None
    """When it is expected to end, by how long jobs like it have run; of one that waits, from its expected start on.
    Never in the past; null if nobody can tell, it is being stopped or has ended, or the queue has not looked ahead."""
    reason: Optional[Reason] = None
    """Why it waits or why it ended; null where there is nothing to explain."""
    cancel_requested: bool = False
    """It is live, and is going to be stopped because somebody cancelled it."""
    held: bool = False
    """It keeps its place, and does not start until it is released."""
    preemptible: bool = True
    """It may be stopped to make room; if not, it can use quota only."""
    interactive: bool = False
    """People work in it: within its project's quota it comes before the project's training jobs."""
    pools: tuple[str, ...] = ()
    """Pools that its tag names, best first; empty: those of its project."""
    slots: Slots = {}
    """What it holds now; empty while it waits."""
    last_slots: Slots = {}
    """What it held at its end; empty until then, where it ended while it waited, and in a list of ended jobs."""
    instance_types: Annotated[tuple[str, ...], schema(examples=[["ml.p5.48xlarge"]])] = ()
    """Those that it may run on, best first."""
    started: Optional[Time] = None
    """When its attempt was launched: the present one, or the one that ended it; null if there is none."""
    retries: Annotated[int, schema(minimum=0, maximum=MAX_RETRIES)] = 0
    """How often it is tried again after it failed by itself."""
    retried: Annotated[int, schema(minimum=0, maximum=MAX_RETRIES)] = 0
    """How often it was."""
    idle_since: Optional[Time] = None
    """Since when it holds instances whose GPUs do nothing, as CloudWatch tells, once that is so for as long as the
    stack's parameter `IdleMinutes` says; null if they work, or nobody knows."""
    cut_off: Optional[Time] = None
    """When SageMaker takes its instances back, as its training plan ends; null unless that is soon."""
    gpus: Annotated[Optional[float], schema(examples=[0.5])] = None
    """GPUs of an instance that it shares, as its tag `gpus` asks for them; null if it has whole instances."""
    carrier: Optional[str] = None
    """The job whose instance it shares; null if it does not run, or has whole instances."""
    carries: Optional[Ordinal] = None
    """GPUs of its instance, if it is a carrier: a job of the queue's own, for those that share an instance. Lists of
    jobs that have ended do not have it."""

    @property
    def is_carrier(self) -> bool:
        """Whether the job is a carrier, which the queue itself submitted: no other job has such a name."""
        return self.carries is not None or self.job.startswith(CARRIER_PREFIX)

    @property
    def finished(self) -> bool:
        """Whether the job is finished for good."""
        return self.state in FINISHED

    @property
    def waits(self) -> bool:
        """Whether the job waits to be started."""
        return self.state in WAITING


class Submission(JobSummary, frozen=True):
    """A submitted job, with warnings for its owner."""

    warnings: tuple[str, ...] = ()
    """What the owner may want to change, though the job was accepted."""
    known: bool = False
    """The very same request was there already."""


class Cancellation(JobSummary, frozen=True):
    """A cancelled job."""

    was_finished: bool = False
    """There was nothing left to cancel."""


class Attempt(Answer, frozen=True):
    """One SageMaker training job that was launched for a job."""

    attempt: Ordinal
    """Counts them."""
    training_job_name: Optional[str] = None
    """Its name in SageMaker."""
    started: Optional[Time] = None
    """When it was launched."""
    ended: Optional[Time] = None
    """When it ended; null while it lives."""
    outcome: Annotated[Optional[str], schema(enum=["preempted", "completed", "failed", "stopped", None])] = None
    """How it ended; null while it lives."""
    instances: Optional[Ordinal] = None
    """How many it has, or had; null if that is not known, or it shares one."""
    carrier: Optional[str] = None
    """The training job whose instance it shares, and in whose log its lines are; null if it shares none."""


class Transition(Answer, frozen=True):
    """One change of a job's state."""

    state: State
    """The state that it came into."""
    at: Optional[Time] = None
    """When."""
    attempt: Optional[int] = None
    """The one that it concerns; of a job that waits, the next."""
    cause: str = ""
    """Why; where it is tried again later, also when."""


class Why(Answer, frozen=True):
    """More about why a job waits."""

    ahead: tuple[JobName, ...] = ()
    """Waiting jobs that come first and want the same pools, the next one first; the first 20 of them."""
    blockers: tuple[JobName, ...] = ()
    """Jobs that hold what it needs."""
    advice: tuple[str, ...] = ()
    """What would let it start, each tried out; sentences for people. Empty unless the request asks for it."""


class JobDetail(JobSummary, frozen=True):
    """All that the queue knows of a job."""

    history: tuple[Transition, ...] = ()
    """Its transitions, the oldest first; of a very long history the latest 100 or so."""
    attempts: tuple[Attempt, ...] = ()
    """The training jobs launched for it, the oldest first."""
    request: TrainingJob = {}
    """As it was submitted."""
    why: Optional[Why] = None
    """More about why it waits; null if it does not."""
    ask_again_after: Optional[Ordinal] = None
    """Seconds for which programs that follow the job need not ask again, as it is far from its start; null if they
    decide themselves."""


class JobPage(Answer, frozen=True):
    """One page of a list of jobs."""

    jobs: tuple[JobSummary, ...]
    """Live ones in the order of the queue, then finished ones, the latest first."""
    next: Optional[str] = None
    """Asks for the following page; null at the end."""


class Eviction(Answer, frozen=True):
    """A job that would be stopped to make room."""

    job: JobName
    """Which one."""
    rule: Annotated[str, schema(enum=["preempt", "reclaim", "consolidate"])] = ""
    """- `preempt`: it has a lower priority in the same project
    - `reclaim`: its project holds more than it is entitled to
    - `consolidate`: it can go on in another pool"""


class PlanAnswer(Answer, frozen=True):
    """The plan for a job as if it were submitted now."""

    would_start: bool = False
    """It would start now, or as soon as those that it evicts have stopped."""
    slots: Optional[Slots] = {}
    """Where it would start; null if it would not, or would share an instance that is there."""
    evicts: tuple[Eviction, ...] = ()
    """Jobs that would be stopped for it and wait again."""
    position: Optional[Ordinal] = None
    """Its place among all jobs that wait; null if it would not wait."""
    expected_start: Optional[Expectation] = None
    """When it would be expected to start; null if it would not wait."""
    reason: Optional[Reason] = None
    """Why it would wait; null if it would not."""
    ahead: tuple[JobName, ...] = ()
    """Waiting jobs that come first and want the same pools, the next one first; the first 20 of them."""
    blockers: tuple[JobName, ...] = ()
    """Jobs that hold what it needs."""
    advice: tuple[str, ...] = ()
    """What would let it start, each tried out; sentences for people."""
    warnings: tuple[str, ...] = ()
    """What its owner may want to change, pre-flight's findings among them."""


# --- the fleet ----------------------------------------------------------------------------------------


class PoolStatus(Answer, frozen=True):
    """The instances of one pool, counted."""

    name: str
    """As the policy has it."""
    capacity: Count = 0
    """All of them that are there now; outside the time of a training plan none."""
    used: Count = 0
    """By jobs of the queue."""
    external: Count = 0
    """By training jobs that are not the queue's."""
    stopping: Count = 0
    """Those of the used ones that are being freed."""
    free: Count = 0
    """Those that nobody uses."""
    warm: Count = 0
    """Those of the free ones that SageMaker keeps after a job, for one that matches; they are released for another."""
    instance_type: Optional[str] = None
    """Null: any."""
    market: Annotated[str, schema(enum=["on_demand", "spot", "training_plan"])] = "on_demand"
    """How its instances are bought."""
    training_plan: Optional[str] = None
    """The name of its training plan; null where it has none."""
    opens: Optional[Time] = None
    """When its instances are there, or were: the plan's part that is under way, or else the next one, or the last. Null
    where they always are, or SageMaker has not told yet."""
    closes: Optional[Time] = None
    """When SageMaker takes them back, 30 minutes before the plan ends."""
    gpus: Optional[Count] = None
    """GPUs of all its instances together, where jobs may share them; else null."""
    gpus_used: float = 0.0
    """Those that jobs have, with whole instances or as parts of one; on a carrier others may be free."""


class DepartmentStatus(Answer, frozen=True):
    """The quota, limit, fair share and use of a department or project, by pool."""

    name: str
    """As the policy has it."""
    quota: Slots = {}
    """What it is entitled to."""
    limit: Slots = {}
    """The most that it may have; a pool that is not named has no limit."""
    share: Slots = {}
    """Its fair share at this moment."""
    used: Slots = {}
    """What its jobs hold."""
    waiting: Count = 0
    """Jobs that wait, of each waiting queue the policy's `window` at most."""
    more_waiting: bool = False
    """More jobs wait than `waiting` counts."""


class ProjectStatus(DepartmentStatus, frozen=True):
    """The quota, limit, fair share and use of a project, by pool."""

    department: Optional[str] = None
    """Of which it is a part."""


class ExternalJob(Answer, frozen=True):
    """A training job that was started outside the queue, by hand, by a tuner or by a pipeline, and uses instances.

    It counts where it runs and is left alone.
    """

    training_job_name: JobName
    """Its name in SageMaker."""
    slots: Slots = {}
    """Where it counts; under the instance type where no pool has it."""
    since: Optional[Time] = None
    """When the queue first saw it."""
    stopping: bool = False
    """It is an attempt of the queue that no job knows, and is stopped."""
    forged: bool = False
    """It has the queue's tags, and no proof that the queue launched it. It is left alone."""


class Pause(Answer, frozen=True):
    """A pool that backs off.

    SageMaker had no instances, counts ended instances late, or refuses what the policy puts into requests.
    """

    pool: str
    """Which one."""
    instance_type: Optional[str] = None
    """Which one, in a pool of any type; else null."""
    instances: Ordinal = 1
    """Jobs that ask for so many or more wait."""
    refusals: Ordinal = 1
    """In a row."""
    last_refusal: Optional[Time] = None
    """When."""
    until: Optional[Time] = None
    """When the next job is tried."""
    at_fault: Optional[str] = None
    """What SageMaker said, where it refuses the plan, market or type of the pool; else null."""
    quota_lag: Optional[str] = None
    """How many instances SageMaker still counts, where these are more than the queue knows of: instances of jobs that
    have ended. Null: the last refusal was no quota lag.
    """


class QueueStatus(Answer, frozen=True):
    """The queue as a whole."""

    pools: tuple[PoolStatus, ...] = ()
    """In the order of the policy."""
    active: tuple[JobSummary, ...] = ()
    """Jobs that hold instances, by priority and entry time."""
    waiting: tuple[JobSummary, ...] = ()
    """Jobs that wait, the next one first; of each waiting queue the first ones, as many as the policy's `window`.
    Where an answer would become too long, the last of them are left out."""
    more_waiting: bool = False
    """More jobs wait than are listed here; `/jobs` has them all."""
    more_active: bool = False
    """More jobs hold instances than are listed here; `/jobs` has them all."""
    more_external: bool = False
    """More training jobs were started outside the queue than are listed here; the pools count them all."""
    departments: tuple[DepartmentStatus, ...] = ()
    """In the order of the policy."""
    projects: tuple[ProjectStatus, ...] = ()
    """In the order of the policy."""
    policy_version: Optional[Count] = None
    """Of the policy by which this was planned; 0: nobody has applied one."""
    external: tuple[ExternalJob, ...] = ()
    """Training jobs that were started outside the queue."""
    pauses: tuple[Pause, ...] = ()
    """Pools that back off."""


class PolicyAnswer(Answer, frozen=True):
    """A version of the policy. Version 0 is the default policy, which was never applied."""

    version: Count
    """Counts the policies that were applied."""
    policy: Annotated[Mapping[str, Any], schema(document="Policy")] = {}
    """The whole of it."""
    applied_by: Optional[str] = None
    """ARN of who applied it."""
    applied_at: Optional[Time] = None
    """When."""
    warnings: tuple[str, ...] = ()
    """What its author may want to change."""


class PastPolicy(Answer, frozen=True):
    """A version of the policy."""

    version: Count
    """Counts the policies that were applied."""
    applied_by: Optional[str] = None
    """ARN of who applied it."""
    applied_at: Optional[Time] = None
    """When."""
    restored: Optional[Count] = None
    """The earlier version that it is, by a rollback; else null."""


class PolicyHistory(Answer, frozen=True):
    """The stored versions of the policy: by whom and when each was applied."""

    versions: tuple[PastPolicy, ...] = ()
    """The present one first; the latest 50."""


# --- the caller ---------------------------------------------------------------------------------------


class Identity(Answer, frozen=True):
    """The caller as the queue sees them, and the queue's settings that matter to clients."""

    owner: str
    """ARN of the caller, to whom the jobs that they submit belong."""
    admin: bool = False
    """They may cancel and change other people's jobs."""
    applies_policies: bool = False
    """They may apply a policy: administrators may, and nobody where the queue has none."""
    allowed_role_arns: tuple[str, ...] = ()
    """Execution roles that jobs may have; `*` stands for any characters."""
    carrier_owner: Optional[str] = None
    """The owner's part of the names of carriers: OWNER in examples/iam/training_shared.json."""
    queue_version: Optional[str] = None
    """Of the queue's code."""
