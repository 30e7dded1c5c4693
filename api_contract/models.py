"""Requests and answers of the API, such as the jobs that the client returns, with their properties.

The text below a field is its description in docs/openapi.yaml.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Optional, TypedDict, Union, get_args

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

DrainedJobs = Literal["none", "preemptible", "all"]
"""The running jobs that a drain stops."""
INTERRUPTED = ("preempted", "requeued", "drained", "hung")
"""Outcomes of attempts that the queue stops, so that their jobs wait again."""
OUTCOMES = (*INTERRUPTED, "completed", "failed", "stopped")
"""All outcomes of attempts."""

State = Annotated[str, schema(enum=sorted(WAITING | ACTIVE | FINISHED))]
"""The state of a job: pending, starting, running, stopping, preempted, completed, failed or stopped."""
Priority = Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
"""The priority of a job, a whole number. Jobs with a higher number start sooner."""


# --- requests -----------------------------------------------------------------------------------------


class Tag(TypedDict):
    """A tag of a request."""

    Key: str
    Value: str


class _RequiredRequestFields(TypedDict):
    TrainingJobName: JobName
    RoleArn: str
    OutputDataConfig: dict[str, Any]
    StoppingCondition: dict[str, Any]


class CreateTrainingJobRequest(_RequiredRequestFields, total=False):
    """A request of SageMaker's CreateTrainingJob. All fields of the call are accepted; only some are listed here.

    The queue reserves tags whose key begins with `queue-`, and names that end in `-qstamp-` and a number. `RoleArn`
    must be a role that the queue may pass to SageMaker.
    """

    ResourceConfig: dict[str, Any]
    Tags: Annotated[list[Tag], schema(maxItems=50)]


TrainingJob = Annotated[Mapping[str, Any], schema(document=CreateTrainingJobRequest.__name__)]
"""A CreateTrainingJob request of SageMaker."""


class SubmitOptions(Body, frozen=True):
    """The query of `/add-job`."""

    preflight: bool = True
    """`false` turns the errors of pre-flight into warnings and accepts the request. A request that SageMaker itself
    would refuse is still refused."""


class JobFilter(Body, frozen=True):
    """The query of `/jobs`."""

    state: Annotated[str, schema(examples=["running,stopping"])] = "live"
    """`live` (not finished), `finished`, `all` or a state, or several of these, separated by commas."""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    """The largest number of jobs in a page."""
    next: Union[str, UnsetType] = UNSET
    """The `next` of the previous page."""


class JobSelection(Body, frozen=True):
    """The query of `/jobs/{name}`."""

    advice: bool = False
    """`true` also looks for changes that would let a waiting job start. A plan is made to test each of them, so the
    answer can take seconds. Only one such request of a caller is answered at a time."""


class JobChange(Body, frozen=True):
    """A change of a job. At least one field is required; the other ones stay unchanged."""

    priority: Union[Priority, UnsetType] = UNSET
    """The new priority. Jobs of a higher priority start sooner."""
    held: Union[bool, UnsetType] = UNSET
    """`true` puts the job on hold; `false` releases it."""
    now: bool = False
    """`true` with `held: true` also stops the job's attempt, if it has one, as `requeue` does."""
    requeue: bool = False
    """`true` stops the job's attempt as a preemption does. The job then waits again in its old position, and resumes
    from its checkpoint."""
    remote_debug: bool = False
    """`true` enables SageMaker's remote debugging in the job's running attempt, for a shell. No other field may be
    set in the same request."""


class PolicyChange(Body, frozen=True):
    """A new policy, and the version that it replaces."""

    policy: Annotated[Any, schema(document="Policy")]
    """The complete new policy."""
    version: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    """The version of the policy that was read and is to be replaced."""
    force: bool = False
    """Apply the policy even if it conflicts with live jobs. Conflicts are removed projects and pools in use, changed
    buckets, training plans and roles in use, and quotas lowered below the slots of running non-preemptible jobs."""


class PolicySelection(Body, frozen=True):
    """The query of `/policy`."""

    version: Union[Annotated[int, Meta(ge=0, le=1_000_000_000)], UnsetType] = UNSET
    """An earlier version, from `/policy/history`; without it, the policy in force is returned."""


class PolicyRollback(Body, frozen=True):
    """The restoration of an earlier version of the policy."""

    to: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    """The version to go back to; 0 is the default policy."""
    version: Annotated[int, Meta(ge=0, le=1_000_000_000)]
    """The version of the policy that was read and is to be replaced."""
    force: bool = False
    """Apply the policy even if it conflicts with live jobs. Conflicts are removed projects and pools in use, changed
    buckets, training plans and roles in use, and quotas lowered below the slots of running non-preemptible jobs."""


class DrainRequest(Body, frozen=True):
    """The drain of a pool."""

    pool: Annotated[str, Meta(min_length=1, max_length=63)]
    """The name of the pool in the policy."""
    at: Union[datetime, UnsetType] = UNSET
    """The time from which no job starts in the pool; by default now."""
    reason: Annotated[str, Meta(max_length=300)] = ""
    """The reason, for people; on one line."""
    stops: DrainedJobs = "preemptible"
    """The running jobs that are stopped at the time `at`."""


class DrainEnd(Body, frozen=True):
    """The end of a drain."""

    pool: Annotated[str, Meta(min_length=1, max_length=63)]
    """The name of the pool."""


# --- jobs ---------------------------------------------------------------------------------------------


class Reason(Answer, frozen=True):
    """The reason why a job waits, failed or was stopped."""

    code: Annotated[str, schema(examples=["WAITING_FOR_CAPACITY"])] = ""
    """A code for programs."""
    message: str = ""
    """A sentence for people."""


class GpuReturn(Answer, frozen=True):
    """A GPU of a hardware failure that other hardware failures named in the day before."""

    uuid: Annotated[str, schema(examples=["GPU-5a1f0c6e-8c54-4a57-9c1c-0d4f5e9d8a11"])]
    """The UUID of the GPU."""
    failures: Count = 0
    """The number of these other failures, of any job."""
    latest: Optional[Time] = None
    """The end of the latest attempt with such a failure."""


class JobFailure(Answer, frozen=True):
    """The failure of the last failed attempt of a job.

    The texts come from SageMaker and from the job's program. Callers who may not see the job's values get neither the
    sentence nor the lines.
    """

    failure_class: Annotated[str, schema(examples=["user_error"])] = "unknown"
    """The class of the failure; docs/reference/failures.md lists the classes."""
    attempt: Count = 0
    """The number of the failed attempt."""
    sentence: str = ""
    """The cause as a sentence for people."""
    remedy: str = ""
    """A sentence for people: what to do."""
    rank: Optional[str] = None
    """The rank that failed first, such as `algo-2` or `algo-2 rank 3`; null if there are no log lines."""
    lines: Annotated[tuple[str, ...], schema(maxItems=5)] = ()
    """The last log lines of that rank."""
    exit_code: Optional[int] = None
    """The exit code of the program; null if SageMaker does not report one."""
    action: Annotated[str, schema(enum=["fail", "retry", "retry free"])] = "fail"
    """The queue's action: the job failed, was tried again, or was tried again without using one of its retries."""
    rule: str = ""
    """The rule that chose the action, such as `retry_on: 137=retry`, or the reason why no retry was left."""
    fresh_instances: bool = False
    """True if the next attempt does not reuse the instances of the failed attempt, even if they are kept warm."""
    instance_check: bool = False
    """True if the queue asks SageMaker to check the instances of the next attempt (InfraCheckConfig). The queue does so
    only for instance types with NVIDIA GPUs."""
    gpu_uuids: Annotated[tuple[str, ...], schema(maxItems=16)] = ()
    """The UUIDs of GPUs that the log of a hardware failure names, those in lines about the error first."""
    returned_gpus: Annotated[tuple[GpuReturn, ...], schema(maxItems=16)] = ()
    """The GPUs of this failure that other hardware failures named in the day before."""
    action_now: Annotated[Optional[str], schema(enum=["fail", "retry", "retry free", None])] = None
    """The action for such a failure by the rules in force now; null if an older queue does not say."""
    rule_now: Optional[str] = None
    """The rule that chooses that action."""


class Expectation(Answer, frozen=True):
    """The expected start of a waiting job, from simulations of the queue with likely runtimes and arrivals.

    The interval from `earliest` to `latest` comes from the errors of past estimates. `level` is the share of such
    intervals that contain the actual start. Without enough past estimates, `level` is null and the interval is the
    range of the simulations.
    """

    message: str = ""
    """A sentence for people: the expected start, or the reason why it is unknown."""
    start: Optional[Time] = None
    """The median start of the simulations. Null if it is unknown. `likely` is better if past estimates were wrong."""
    earliest: Optional[Time] = None
    """The start of the interval. Null if it is unknown."""
    likely: Optional[Time] = None
    """The time before which and after which the actual start is equally likely. Null if it is unknown."""
    latest: Optional[Time] = None
    """The end of the interval. Null if it is unknown."""
    level: Annotated[Optional[float], schema(examples=[0.8])] = None
    """The share of such intervals that contain the actual start. Null if there are too few past estimates: then the
    interval is only a guess."""
    looks: Count = 0
    """The number of past looks at the queue, at most one every three hours, whose estimates can be compared with actual
    starts."""
    not_after: Optional[Time] = None
    """A time by which 19 of 20 such jobs start, though this is no promise. Null if it is unknown."""
    doubt: Annotated[Optional[str], schema(examples=["SPREAD"])] = None
    """The reason why `start` is only a guess, or is unknown; null if the interval is narrow:
    - `NEVER`: the job never starts unless something changes; its reason says why
    - `UNKNOWN_RUNTIMES`: the runtimes of the jobs that it waits for are not known well enough
    - `FAR`: the job starts in more than two days, if at all
    - `SPREAD`: the interval is wide, or unknown
    - `NO_TIME`: so many jobs wait that there was no time for an estimate
    - `REFUSED`: SageMaker refuses to launch the job, for example beyond a quota of the account; its reason says why"""
    told_at: Optional[Time] = None
    """The time of the estimate."""


class JobSummary(Answer, frozen=True):
    """A job as a line of the queue."""

    job: JobName
    """The TrainingJobName under which the job was submitted."""
    state: State
    """- `pending`: waits for its first attempt, or for another attempt after a failure
    - `starting`: is being launched
    - `running`: is a training job in SageMaker
    - `stopping`: its training job is being stopped
    - `preempted`: waits after an attempt was interrupted; it resumes from its checkpoint
    - `completed`, `failed`, `stopped`: finished"""
    priority: int = 0
    """The priority. Jobs of a higher priority start sooner."""
    project: Optional[str] = None
    """The project that the job counts for."""
    group: Optional[str] = None
    """The name of a group of jobs that are listed and cancelled together, such as a sweep: the tag `group`."""
    owner: Optional[str] = None
    """The ARN of the caller who submitted the job."""
    instances: Ordinal = 1
    """The number of instances that the job uses or requests."""
    sizes: Annotated[tuple[Ordinal, ...], schema(examples=[[8, 4, 2]])] = ()
    """The numbers of instances that the job accepts, in order of preference, from its tag `instances`; empty if it
    accepts only one number."""
    entry_time: Optional[Time] = None
    """The time of submission, which orders jobs of equal priority."""
    state_since: Optional[Time] = None
    """The time of the last change of state."""
    attempt: Count = 0
    """The number of the current attempt or, while the job waits, of the next one."""
    training_job_name: Annotated[Optional[str], schema(examples=["job1-qstamp-1"])] = None
    """The name of the attempt's training job in SageMaker; null if none was launched."""
    position: Optional[Ordinal] = None
    """The position among the jobs that wait for slots, from 1. Null if the job does not wait, waits for another reason
    (such as a hold or a dependency), or is not in the last plan."""
    expected_start: Optional[Expectation] = None
    """The expected start; null if the job does not wait or there is no estimate yet."""
    expected_end: Optional[Time] = None
    """The expected end, from the runtimes of similar jobs. The expected end of a waiting job is based on its expected
    start. The expected end is never in the past. The value is null if the end is unknown or not estimated yet, and if
    the job is being stopped or has finished."""
    reason: Optional[Reason] = None
    """The reason why the job waits or has ended; null if there is nothing to explain."""
    cancel_requested: bool = False
    """True if the job is live and is going to be stopped, because a user cancelled it."""
    held: bool = False
    """True if the job is on hold: it keeps its entry time and does not start until it is released."""
    preemptible: bool = True
    """True if the job may be stopped to make room. A job that is not preemptible can use only its project's quota."""
    interactive: bool = False
    """True for a job in which people work. Within its project's quota, such a job comes before the project's training
    jobs."""
    pools: tuple[str, ...] = ()
    """The pools that the job's tag names, in order of preference; empty if the pools of its project apply."""
    slots: Slots = {}
    """The slots that the job holds now; empty while it waits."""
    last_slots: Slots = {}
    """The slots that the job held at its end. Empty before its end, if it ended while it waited, and in lists of
    finished jobs."""
    instance_types: Annotated[tuple[str, ...], schema(examples=[["ml.p5.48xlarge"]])] = ()
    """The instance types that the job can run on, in order of preference."""
    started: Optional[Time] = None
    """The launch of the current attempt, or of the last one of a finished job; null if there is none."""
    secondary_status: Annotated[Optional[str], schema(examples=["Downloading"])] = None
    """The progress of a running attempt in SageMaker: its SecondaryStatus, such as `Starting` (SageMaker gets the
    instances), `Downloading`, `Training` or `Uploading`. Null if the job does not run, shares an instance, or its
    status is not known."""
    secondary_status_since: Optional[Time] = None
    """The time since which SageMaker reports this status."""
    retries: Annotated[int, schema(minimum=0, maximum=MAX_RETRIES)] = 0
    """The number of times that the job may be tried again after failures of its own."""
    retried: Annotated[int, schema(minimum=0, maximum=MAX_RETRIES)] = 0
    """The number of retries that the job has used. Free retries do not count."""
    free_retries: Count = 0
    """The number of retries in a row that did not count, because the failures were not the job's own."""
    failure_class: Annotated[Optional[str], schema(examples=["user_error"])] = None
    """The class of the failure of the job's last failed attempt; null if no attempt has failed."""
    on_hang: Annotated[Optional[str], schema(enum=["notify", "requeue", None])] = None
    """The action when the job hangs, from its tag `on_hang`; null if the policy decides."""
    hung_since: Optional[Time] = None
    """The time since which the running attempt hangs: it has written no log line and no checkpoint, and its GPUs have
    been idle. Null if no hang was noticed, and while the GPUs work again."""
    hangs: Count = 0
    """The number of the job's attempts that the queue stopped because they hung."""
    idle_since: Optional[Time] = None
    """The time since which the GPUs have been idle while the job holds instances, from CloudWatch's metrics. Null if
    the idle time is shorter than the stack's parameter `IdleMinutes`, and if the GPUs work or there are no metrics."""
    unsaved_since: Optional[Time] = None
    """The launch of the current attempt, if the job is preemptible and has run for an hour without a checkpoint. Null
    if there is a checkpoint, or if the queue may not list the bucket."""
    cut_off: Optional[Time] = None
    """The time at which SageMaker takes the instances back, because their training plan ends; null if the queue has
    announced no such time."""
    gpus: Annotated[Optional[float], schema(examples=[0.5])] = None
    """The GPUs that the job requests of a shared instance, from its tag `gpus`; null if it has whole instances."""
    carrier: Optional[str] = None
    """The job whose instance the job shares; null if it does not run or has whole instances."""
    carries: Optional[Ordinal] = None
    """The GPUs of the instance, if the job is a carrier: a job of the queue itself, whose instance other jobs share.
    Null for other jobs, and in lists of finished jobs."""

    not_before: Optional[Time] = None
    """The time before which the job does not start: its tag `not_before`."""
    start_by: Optional[Time] = None
    """The time by which the job is to start: its tag `start_by`."""
    start_by_action: Optional[Annotated[str, schema(examples=["cancel"])]] = None
    """The action if the job has not started in time: `notify`, `cancel` (it is stopped) or `next_pool` (it may run in
    the further pools of its project). Null without `start_by`."""
    start_missed: bool = False
    """True if the job had not started by `start_by`, and the action was carried out."""
    max_total_runtime: Optional[Ordinal] = None
    """The largest total of seconds that all attempts may run: the tag `max_total_runtime`. The time of each attempt
    counts from the arrival of its instances."""
    run_seconds: Count = 0
    """The total of seconds that the ended attempts ran, each from the arrival of its instances."""
    max_preemptions: Optional[Count] = None
    """The number of preemptions after which the job is planned as not preemptible: its tag `max_preemptions`."""
    preemptions: Count = 0
    """The number of times that the job was stopped to make room."""
    region: Optional[str] = None
    """The region of the attempt's training job; null if it is the queue's region, or none was launched."""
    account: Optional[str] = None
    """The account of the attempt's training job; null if it is the queue's account, or none was launched."""

    @property
    def is_carrier(self) -> bool:
        """Whether the job is a carrier, which the queue itself submitted: no other job has such a name."""
        return self.carries is not None or self.job.startswith(CARRIER_PREFIX)

    @property
    def may_be_preempted(self) -> bool:
        """Whether the job is preemptible and was not preempted as often as its own `max_preemptions` allows."""
        return self.preemptible and (self.max_preemptions is None or self.preemptions < self.max_preemptions)

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
    """Warnings for the owner about an accepted job."""
    known: bool = False
    """True if an identical request had been submitted before."""


class Cancellation(JobSummary, frozen=True):
    """A cancelled job."""

    was_finished: bool = False
    """True if the job had already finished, so that there was nothing to cancel."""


class Attempt(Answer, frozen=True):
    """One SageMaker training job that was launched for a job."""

    attempt: Ordinal
    """The number of the attempt, from 1."""
    training_job_name: Optional[str] = None
    """The name of the training job in SageMaker."""
    started: Optional[Time] = None
    """The time of the launch."""
    ended: Optional[Time] = None
    """The end of the attempt; null while it is live."""
    outcome: Annotated[Optional[str], schema(enum=[*OUTCOMES, None])] = None
    """The outcome of the attempt; null while it is live."""
    instances: Optional[Ordinal] = None
    """The number of the attempt's instances; null if it is unknown or the attempt shares an instance."""
    carrier: Optional[str] = None
    """The training job whose instance the attempt shares, and whose log contains its lines; null if it shares none."""
    failure_class: Annotated[Optional[str], schema(examples=["user_error"])] = None
    """The class of the attempt's failure; null if it did not fail, or an earlier version recorded it."""
    region: Optional[str] = None
    """The region of the training job; null if it is the queue's region."""
    account: Optional[str] = None
    """The account of the training job; null if it is the queue's account."""


class Transition(Answer, frozen=True):
    """One change of a job's state."""

    state: State
    """The new state."""
    at: Optional[Time] = None
    """The time of the change."""
    attempt: Optional[int] = None
    """The number of the attempt concerned or, for a waiting job, of the next one."""
    cause: str = ""
    """The cause of the change and, if the job is tried again later, the time of the next try."""


class Why(Answer, frozen=True):
    """Details of the reason why a job waits."""

    ahead: tuple[JobName, ...] = ()
    """The first 20 waiting jobs that are ahead of this job and need the same pools, in the order of the queue."""
    blockers: tuple[JobName, ...] = ()
    """The jobs that hold the slots that the job needs."""
    advice: tuple[str, ...] = ()
    """Changes that would let the job start, each of them tested; sentences for people. Empty unless the request asks
    for advice."""


class JobDetail(JobSummary, frozen=True):
    """All that the queue knows of a job."""

    history: tuple[Transition, ...] = ()
    """The transitions of the job, the oldest first. A very long history has only the latest 100 or so."""
    attempts: tuple[Attempt, ...] = ()
    """The attempts of the job, the oldest first."""
    request: TrainingJob = {}
    """The request as it was submitted."""
    why: Optional[Why] = None
    """Details of the reason why the job waits; null if the job does not wait or has no reason in the last plan."""
    failure: Optional[JobFailure] = None
    """The failure of the job's last failed attempt; null if no attempt has failed."""
    ask_again_after: Optional[Ordinal] = None
    """The seconds after which a program that follows the job should ask again, if the start is distant. Null if the
    program may choose the interval."""


class JobPage(Answer, frozen=True):
    """One page of a list of jobs."""

    jobs: tuple[JobSummary, ...]
    """Live jobs in the order of the queue, then finished jobs, the latest first."""
    next: Optional[str] = None
    """The parameter `next` for the following page; null on the last page."""


class Eviction(Answer, frozen=True):
    """A job that would be stopped to make room."""

    job: JobName
    """The name of the job."""
    rule: Annotated[str, schema(enum=["preempt", "reclaim", "consolidate"])] = ""
    """- `preempt`: the job has a lower priority in the same project
    - `reclaim`: the job's project holds more than its entitlement
    - `consolidate`: the job can continue in another pool"""


class PlanAnswer(Answer, frozen=True):
    """The plan for a job as if it were submitted now."""

    would_start: bool = False
    """True if the job would start now, or as soon as the jobs that it evicts have stopped."""
    slots: Optional[Slots] = {}
    """The slots in which the job would start; null if it would not start, or would share an existing instance."""
    evicts: tuple[Eviction, ...] = ()
    """The jobs that would be stopped for this job and wait again."""
    position: Optional[Ordinal] = None
    """The position among the jobs that wait for slots; null if the job would not be one of them."""
    expected_start: Optional[Expectation] = None
    """The expected start; null if the job would start now or there is no estimate."""
    reason: Optional[Reason] = None
    """The reason why the job would wait; null if the job would start now."""
    ahead: tuple[JobName, ...] = ()
    """The first 20 waiting jobs that are ahead of this job and need the same pools, in the order of the queue."""
    blockers: tuple[JobName, ...] = ()
    """The jobs that hold the slots that the job needs."""
    advice: tuple[str, ...] = ()
    """Changes that would let the job start, each of them tested; sentences for people."""
    warnings: tuple[str, ...] = ()
    """Warnings for the owner, including the findings of pre-flight."""
    bucket_by_region: Mapping[str, str] = {}
    """The bucket of the job's project in each region; empty if the policy names none."""


# --- the fleet ----------------------------------------------------------------------------------------


class PoolDrain(Answer, frozen=True):
    """The order of an admin to empty a pool: from `at` on, no job starts there, and running jobs are stopped."""

    at: Time
    """The time from which the drain is in force. Earlier, a job starts only if its MaxRuntimeInSeconds ends by then."""
    in_force: bool = False
    """Whether the drain is in force now."""
    by: str = ""
    """The ARN of the admin."""
    requested: Optional[Time] = None
    """The time of the request."""
    reason: str = ""
    """The reason, for people."""
    stops: Annotated[str, schema(enum=list(get_args(DrainedJobs)))] = "preemptible"
    """The running jobs that are stopped at `at`."""


class DrainAnswer(Answer, frozen=True):
    """A pool and its drain."""

    pool: str
    """The name of the pool."""
    drain: Optional[PoolDrain] = None
    """The drain; null if the pool is not drained any more."""
    was_drained: bool = False
    """Whether the pool was drained before the request."""
    stopping: Count = 0
    """The number of active jobs in the pool that the drain stops when it takes effect."""
    staying: Count = 0
    """The number of active jobs in the pool that run to their ends."""


class PoolStatus(Answer, frozen=True):
    """The instances of one pool, counted."""

    name: str
    """The name in the policy."""
    capacity: Count = 0
    """The number of instances that exist now; 0 outside the time of a training plan, and while the pool is drained."""
    used: Count = 0
    """The number of instances in use by jobs of the queue."""
    external: Count = 0
    """The number of instances in use by training jobs outside the queue."""
    stopping: Count = 0
    """The number of `used` instances that are being freed."""
    free: Count = 0
    """The number of instances that are not in use."""
    warm: Count = 0
    """The number of `free` instances in warm pools, which SageMaker keeps for a matching job. The queue releases warm
    pools if another job needs the capacity."""
    instance_type: Optional[str] = None
    """The instance type; null for a pool of any type."""
    market: Annotated[str, schema(enum=["on_demand", "spot", "training_plan"])] = "on_demand"
    """The market in which the instances are bought."""
    training_plan: Optional[str] = None
    """The name of the training plan; null if there is none."""
    opens: Optional[Time] = None
    """The start of the training plan's current, next or last period: the first of these that exists. Null if the
    instances are always available, or the period is not known yet."""
    closes: Optional[Time] = None
    """The time at which SageMaker takes the instances back, 30 minutes before the plan ends."""
    gpus: Optional[Count] = None
    """The GPUs of all instances together, if jobs may share the instances; else null."""
    gpus_used: float = 0.0
    """The GPUs in use, as whole instances or as parts of a shared one. Further GPUs of a carrier's instance may be
    free."""
    drain: Optional[PoolDrain] = None
    """The drain, scheduled or in force; null if there is none."""
    region: Optional[str] = None
    """The region of the instances; null if it is the queue's region."""
    account: Optional[str] = None
    """The account of the instances; null if it is the queue's account."""


class DepartmentStatus(Answer, frozen=True):
    """The quota, limit, fair share and use of a department or project, by pool."""

    name: str
    """The name in the policy."""
    quota: Slots = {}
    """The slots that the jobs of the department or project are sure to get when the jobs need them."""
    limit: Slots = {}
    """The largest number of slots that the department or project may hold; a pool that is not named has no limit."""
    share: Slots = {}
    """The current fair share."""
    used: Slots = {}
    """The slots that the jobs of the department or project hold."""
    waiting: Count = 0
    """The number of waiting jobs, counting at most the policy's `window` of each waiting queue."""
    more_waiting: bool = False
    """True if more jobs wait than `waiting` counts."""


class ProjectStatus(DepartmentStatus, frozen=True):
    """The quota, limit, fair share and use of a project, by pool."""

    department: Optional[str] = None
    """The department that contains the project."""


class ExternalJob(Answer, frozen=True):
    """A training job that was started outside the queue, by hand, by a tuner or by a pipeline, and uses instances.

    The instances of an external job count as used. The queue leaves the job alone.
    """

    training_job_name: JobName
    """The name of the training job in SageMaker."""
    slots: Slots = {}
    """The slots that the training job uses, by pool, or by instance type if no pool has the type."""
    since: Optional[Time] = None
    """The time at which the queue first saw the training job."""
    stopping: bool = False
    """True for an attempt of the queue that belongs to no known job and is being stopped."""
    forged: bool = False
    """True for a training job that has the queue's tags but no proof that the queue launched it. The queue does not
    stop such a training job."""
    region: Optional[str] = None
    """The region of the training job; null if it is the queue's region."""
    account: Optional[str] = None
    """The account of the training job; null if it is the queue's account."""


class Pause(Answer, frozen=True):
    """A pool that backs off.

    SageMaker had no instances for the pool, still counts instances of ended jobs, or refuses a field that the policy
    adds to requests. A pool also backs off while its region or account does not respond.
    """

    pool: str
    """The name of the pool."""
    instance_type: Optional[str] = None
    """The instance type, in a pool of any type; else null."""
    instances: Ordinal = 1
    """The smallest number of instances to which the backoff applies: jobs that request fewer can start."""
    refusals: Count = 1
    """The number of refusals in a row; 0 while only ended jobs are still counted."""
    last_refusal: Optional[Time] = None
    """The time of the last refusal."""
    until: Optional[Time] = None
    """The time at which the next job is tried."""
    at_fault: Optional[str] = None
    """SageMaker's message, if it refuses the plan, market or type of the pool; else null."""
    quota_lag: Optional[str] = None
    """A sentence for people: SageMaker still counts instances of ended jobs, and so more instances than the queue knows
    of. Null if the last refusal had another reason."""
    unreachable: bool = False
    """Whether the region or account of the pool does not respond."""


class QueueStatus(Answer, frozen=True):
    """The queue as a whole."""

    pools: tuple[PoolStatus, ...] = ()
    """The pools, in the order of the policy."""
    active: tuple[JobSummary, ...] = ()
    """Jobs that hold instances, by priority and entry time."""
    waiting: tuple[JobSummary, ...] = ()
    """Waiting jobs, the next one first, at most the policy's `window` of each waiting queue. If the answer would be too
    long, the last jobs are left out."""
    more_waiting: bool = False
    """True if more jobs wait than are listed; `/jobs` lists them all."""
    more_active: bool = False
    """True if more jobs hold instances than are listed; `/jobs` lists them all."""
    more_external: bool = False
    """True if there are more training jobs outside the queue than are listed; the pools count them all."""
    departments: tuple[DepartmentStatus, ...] = ()
    """The departments, in the order of the policy."""
    projects: tuple[ProjectStatus, ...] = ()
    """The projects, in the order of the policy."""
    policy_version: Optional[Count] = None
    """The version of the policy in force; 0 is the default policy, if none was applied."""
    external: tuple[ExternalJob, ...] = ()
    """Training jobs that were started outside the queue."""
    pauses: tuple[Pause, ...] = ()
    """The pools that back off."""


class PolicyAnswer(Answer, frozen=True):
    """A version of the policy. Version 0 is the default policy, which was never applied."""

    version: Count
    """The version, from 1 for the first policy that was applied."""
    policy: Annotated[Mapping[str, Any], schema(document="Policy")] = {}
    """The complete policy."""
    applied_by: Optional[str] = None
    """The ARN of the caller who applied the policy."""
    applied_at: Optional[Time] = None
    """The time at which the policy was applied."""
    warnings: tuple[str, ...] = ()
    """Warnings for the author of the policy."""


class PastPolicy(Answer, frozen=True):
    """A version of the policy."""

    version: Count
    """The version, from 1 for the first policy that was applied."""
    applied_by: Optional[str] = None
    """The ARN of the caller who applied the policy."""
    applied_at: Optional[Time] = None
    """The time at which the policy was applied."""
    restored: Optional[Count] = None
    """The earlier version that was restored, if this version is a rollback; else null."""


class PolicyHistory(Answer, frozen=True):
    """The stored versions of the policy, with the author and the time of each."""

    versions: tuple[PastPolicy, ...] = ()
    """The latest 50 versions, the policy in force first."""


# --- the caller ---------------------------------------------------------------------------------------


class Identity(Answer, frozen=True):
    """The caller's identity and rights, and the queue's settings that matter to clients."""

    owner: str
    """The ARN of the caller, which becomes the owner of the jobs that the caller submits."""
    admin: bool = False
    """True if the caller may cancel and change the jobs of other users."""
    applies_policies: bool = False
    """True if the caller may apply a policy. Administrators may; without administrators, no caller may."""
    allowed_role_arns: tuple[str, ...] = ()
    """Execution roles that jobs may have; `*` stands for any characters."""
    carrier_owner: Optional[str] = None
    """The part of carriers' names that identifies the caller as owner: OWNER in examples/iam/training_shared.json."""
    queue_version: Optional[str] = None
    """The version of the queue's code."""
