"""The data of a job, of its record and of external jobs; the keys of waiting queues, and the order of jobs in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from job_queue.domain.backoff import LASTING_SECONDS
from job_queue.domain.fleet.sites import Site, key_of, name_in
from job_queue.domain.launching.numbers import Ranges
from job_queue.scheduler import DEFAULT, MAX_PRIORITY, GpuAllocation, JobState, is_limit_reached, recent_preemptions

PARKED = 7_000_000_000  # added to the end time of a parking; the sum is larger than each inverted priority
FOR_EVER = 2_999_999_999  # epoch seconds, for jobs that are parked until a change; the sum with PARKED has ten digits
PARKED_POSITION = f"{PARKED:010d}"  # all parked jobs come after this position

MANY_REFUSALS = 3  # refused launches of a job in a row, after which no other job is evicted for this job
STOP_DENIED_SECONDS = 15 * 60  # time after a denied stop in which no stop is requested, and the job is no victim

Demand = tuple[Mapping[str, int], ...]
"""Alternatives as submitted, best first, each {instance type: instances}."""


INTERRUPTED = frozenset(
    {"preempted", "requeued", "drained", "hung"}
)  # outcomes of attempts after which the job resumes its work

LAUNCHED = "Starting"  # the stage of each accepted attempt until SageMaker reports another one
STAGES = frozenset(
    {
        LAUNCHED,
        "LaunchingMLInstances",
        "PreparingTrainingStack",
        "Pending",
        "Downloading",
        "DownloadingTrainingImage",
        "Training",
        "Uploading",
        "Interrupted",
        "Restarting",
    }
)
"""The SecondaryStatus values of a training job in progress. A stop and an end are states of the job, not stages."""

MOST_PREEMPTIONS = 16  # largest number of preemptions whose times are in a job's row
LEAST_RUNTIME_SECONDS = 60  # smallest `max_total_runtime`, and shortest time limit that it gives an attempt
REASON_BYTES = 2000  # largest size of a job's reason, because the size of a row is limited


def clipped(text: str, most: int) -> str:
    """Return the beginning of a text, at most this many bytes."""
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= most else encoded[:most].decode(errors="ignore")


def _bounded(changes: dict[str, Any]) -> dict[str, Any]:
    reason = changes.get("reason")
    return {**changes, "reason": clipped(reason, REASON_BYTES)} if isinstance(reason, str) else changes


def iso(seconds: float) -> str:
    """Return a time as text: ISO 8601, UTC, microseconds. The texts sort in the order of their times."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def epoch(text: str) -> float:
    """Return the epoch seconds of an ISO 8601 time."""
    return datetime.fromisoformat(text).timestamp()


class StartByAction(StrEnum):
    """The action if a job has not started by its `start_by`. In each case, people are notified."""

    NOTIFY = "notify"  # nothing else
    CANCEL = "cancel"  # the job ends as stopped
    NEXT_POOL = "next_pool"  # the job may also run in the further pools of its project


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """A CreateTrainingJob call whose intent is recorded. SageMaker's answer is not recorded yet."""

    sent_at: int  # epoch seconds
    expires_at: int  # epoch seconds after which the call can no longer take effect


@dataclass(frozen=True, slots=True)
class LateLaunch:
    """An attempt that a late call could launch again. Such a call succeeds only if the attempt's name is free again.

    A name becomes free again when its training job has ended and is deleted in SageMaker.
    """

    attempt: int
    until: int  # epoch seconds after which no call for the attempt can take effect
    site: Site | None = None  # where the calls were sent; None: the home site


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that must end before another job may start."""

    job: str
    submission: str  # the submission of that job, because its name may be reused
    any_outcome: bool = False  # True: any outcome is accepted; False: the job must complete


@dataclass(frozen=True, slots=True)
class Portability:
    """The parts of a request that decide whether its job can run in other regions and accounts."""

    buckets: tuple[str, ...] = ()  # the buckets of all addresses in S3 in the request
    checkpoints: bool = False  # whether the job writes checkpoints, and so resumes only where its checkpoints are
    obstacle: str | None = None  # a field of the request with a resource of one region; None: there is none
    role: str | None = None  # ARN of the execution role at home; None: the job was accepted by an earlier version


@dataclass(frozen=True, slots=True)
class ReturnedGpu:
    """A GPU that a hardware failure names, and that other hardware failures named in the day before."""

    uuid: str
    failures: int  # number of these other failures
    latest: int  # epoch seconds of the latest other failure


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """The classified failure of an attempt, and the queue's action."""

    attempt: int
    failure_class: str  # a FailureClass; a text, so that rows of later versions can be read
    sentence: str  # for people; may contain output of the program
    action: str  # a FailureAction: the action that the queue has taken
    rule: str  # the rule that chose the action, or the reason why there is no retry
    rank: str | None = None  # the rank that failed first, if there are log lines
    lines: tuple[str, ...] = ()  # the last log lines of that rank
    exit_code: int | None = None
    fresh_instances: bool = False  # the next attempt must not reuse the instances
    early: bool = False  # the attempt failed soon after its start
    gpu_uuids: tuple[str, ...] = ()  # the GPUs that the log of a hardware failure names, suspects first
    returned_gpus: tuple[ReturnedGpu, ...] = ()  # the GPUs that other hardware failures named in the day before


@dataclass(frozen=True, slots=True)
class Job:
    """The data of a job for planning and launching. A Job is immutable: a transition makes a new Job.

    The new Job has the next version.
    """

    name: str
    submission: str  # random, one per accepted request
    state: JobState
    priority: int
    entered: str  # ISO time of the submission; orders jobs of one priority
    since: str  # ISO time of the last transition
    owner: str  # ARN of the caller, or of the role (identity.owner_of)
    demand: Demand
    waiting_queue: str  # key of the job's waiting queue
    version: int = 1
    project: str = DEFAULT
    group: str | None = None  # value of the tag `group`
    max_parallel: int | None = None  # jobs of the same owner, project and group that may be active at a time
    after: tuple[Dependency, ...] = ()  # dependencies that have not ended yet
    preemptible: bool = True
    interactive: bool = False  # a user works in the job, so it is not preemptible
    pools: tuple[str, ...] = ()  # pools that the tag `pools` names; empty: the project's pools
    held: bool = False  # on hold until a user releases the job
    attempt: int = 1  # number of the current attempt, or of the next attempt while the job waits
    launched: str | None = None  # name of the current attempt in SageMaker
    started: str | None = None  # ISO time at which the current attempt was accepted
    slots: Mapping[str, int] = field(default_factory=dict)  # held slots: pool -> instances
    last_slots: Mapping[str, int] = field(default_factory=dict)  # slots that the job held when it finished
    borrowed: int = 0  # slots beyond the project's quota when the job was started
    calls: tuple[LaunchCall, ...] = ()  # unanswered calls for the current attempt
    in_doubt: bool = False  # an earlier call or an unclear answer leaves open whether the attempt exists
    late: LateLaunch | None = None  # the current or an earlier attempt, if a late call could launch it again
    cancelled: bool = False  # a user, or for a carrier also the queue, has cancelled the job
    evicted_for: str | None = None  # the claimant for which the attempt is stopped
    evicted_by: str | None = None  # the rule of that eviction
    requeued_by: str | None = None  # ARN of the caller whose requeue stops the active attempt
    drained_by: str | None = None  # ARN of the admin whose drain stops the attempt
    preempted_in_all: int = 0  # preemptions since the submission; see `preemptions_in_all`
    max_preemptions: int | None = None  # value of the tag `max_preemptions`
    not_before: int | None = None  # epoch seconds before which the job does not start
    start_by: int | None = None  # epoch seconds by which the job should have started
    start_by_action: StartByAction = StartByAction.NOTIFY  # action if the job has not started by `start_by`
    start_missed: bool = False  # the job had not started at `start_by`, and the action was carried out
    max_total_runtime: int | None = None  # seconds that all attempts may run together
    run_seconds: int = 0  # seconds that the ended attempts had instances, together
    on_hang: str | None = None  # value of the tag `on_hang`, see `scheduler.OnHang`
    hung: int | None = None  # epoch seconds since which the current attempt has hung; None: no hang was noticed
    requeue_hung: bool = False  # the attempt hangs and will be stopped; the job then waits again
    hangs: int = 0  # attempts that were stopped because they hung
    preempted: tuple[int, ...] = ()  # epoch seconds of the preemptions in the last day, at most MOST_PREEMPTIONS
    left_idle: bool = False  # the job was evicted because its GPUs were idle, and has not run since
    backoff_until: int | None = None  # epoch seconds
    was_interrupted: bool = False  # an attempt was preempted, requeued, drained or stopped as hung
    tries: int = 0  # backoffs of the job itself in a row, after failed launches or attempts
    # Number of launches in a row that failed because of this job: SageMaker refused the launch, or the member's carrier
    # failed before its agent had started. A lasting refusal raises the number to MANY_REFUSALS at least.
    refusals: int = 0
    # Epoch seconds of the first and the last refusal in `refusals`; None: the last launch was not refused.
    refused: tuple[int, int] | None = None
    retries: int = 0  # allowed retries after failures of the job itself
    retried: int = 0  # retries so far
    free_retried: int = 0  # retries in a row that did not count
    failure: FailedAttempt | None = None  # the failure of the last failed attempt
    infra_check: bool = False  # the next attempt has a health check of its instances; see launching.instance_check
    missing_since: int | None = None  # epoch seconds since which SageMaker has not known the attempt
    stop_denied: int | None = None  # epoch seconds at which SageMaker denied a stop of the attempt
    max_runtime: int | None = None  # seconds
    cut_off: int | None = None  # epoch seconds at which SageMaker takes the instances back; None: not announced
    footprint: str | None = None  # digest of the properties that a warm pool must share
    keep_warm: int | None = None  # seconds for which the instances of the attempt are kept warm
    plans: tuple[str | None, ...] = ()  # training plan that each alternative names; empty: no alternative names one
    reason: str | None = None  # reason of the failure or the stop, or of the last backoff
    # Epoch seconds until which the job is last in its waiting queue; see `controller.waiting.parking`.
    parked: int | None = None
    parked_for: str | None = None  # reason for which the job was last parked
    stage: str | None = None  # SecondaryStatus of the current attempt, one of STAGES; None: unknown
    stage_at: int = 0  # epoch milliseconds since which SageMaker reports the stage; 0: since the launch
    secret: str | None = field(default=None, repr=False)  # key of the job's proofs; None: stored by an earlier version
    sent: int = 0  # CreateTrainingJob calls of this submission so far
    valid_proofs: Ranges = ()  # numbers of calls whose proofs are valid; see `launching.numbers`
    gpus: int | None = None  # for a member: tenths of GPUs of a shared instance
    kind: str | None = None  # for a member or carrier: only members of this kind share an instance; `carriers.members`
    allocation: GpuAllocation | None = None  # for an active member: its GPUs, and the name of its carrier's job
    carrier_attempt: str | None = None  # for an active member: name of its carrier's attempt in SageMaker
    carries: int | None = None  # for a carrier: the GPUs of its instance
    first_members: tuple[str, ...] = ()  # for a carrier: the members for which it was launched
    agent_key: str | None = None  # for a carrier: its agent's public number, hexadecimal; None: not published yet
    empty_since: int | None = None  # for a carrier: epoch seconds since which it has no members
    places: tuple[str, ...] = ()  # places in S3 to which the job writes, checkpoints first; see access.places
    site: Site | None = None  # site of the current attempt or its launch; None: the home site, or the job waits
    resumes_at: Site | None = None  # site of the latest attempt that had instances; None: home, or no such attempt
    portability: Portability | None = None  # None: not examined, so the job runs at the home site only

    @property
    def preemptions_in_all(self) -> int:
        """The number of preemptions since the submission. Rows of earlier versions count only the last day."""
        return max(self.preempted_in_all, len(self.preempted))

    @property
    def may_be_preempted(self) -> bool:
        """Whether the job is preemptible, and its preemptions have not reached its own `max_preemptions`."""
        return self.preemptible and not is_limit_reached(self.max_preemptions, self.preemptions_in_all)

    def is_late(self, now: float) -> bool:
        """Return whether the job waits, has never had instances, and its `start_by` has passed without an action."""
        if self.start_by is None or self.start_missed or not self.state.waits:
            return False
        return self.start_by <= now and self.run_seconds == 0

    @property
    def remaining_runtime(self) -> int | None:
        """The seconds that the next attempt, or the current one, may run within `max_total_runtime`.

        The number is at least `LEAST_RUNTIME_SECONDS`, because an attempt does nothing useful in a shorter time. None:
        there is no such limit.
        """
        if self.max_total_runtime is None:
            return None
        return max(LEAST_RUNTIME_SECONDS, self.max_total_runtime - self.run_seconds)

    @property
    def is_runtime_used_up(self) -> bool:
        """Whether the ended attempts have run for `max_total_runtime` together."""
        return self.max_total_runtime is not None and self.run_seconds >= self.max_total_runtime

    @property
    def attempt_limit(self) -> int | None:
        """The seconds that an attempt may run: the smaller of `max_runtime` and `remaining_runtime`; None: no limit."""
        limits = [limit for limit in (self.max_runtime, self.remaining_runtime) if limit is not None]
        return min(limits, default=None)

    def is_stop_denied(self, now: float) -> bool:
        """Return whether SageMaker denied a stop of the job's attempt in the last `STOP_DENIED_SECONDS`."""
        return self.stop_denied is not None and now < self.stop_denied + STOP_DENIED_SECONDS

    @property
    def is_refused_for_long(self) -> bool:
        """Whether the job waits, and SageMaker has refused each of its launches for `LASTING_SECONDS`."""
        return self.state.waits and self.refused is not None and self.refused[1] - self.refused[0] >= LASTING_SECONDS

    def refused_until(self, now: float) -> tuple[int, int]:
        """Return the value of `refused` after a refusal at `now`. The first refusal in a row keeps its time."""
        return (self.refused[0] if self.refused else int(now)), int(now)

    @property
    def is_interrupted(self) -> bool:
        """Whether the attempt is being stopped so that the job waits again: evicted, requeued, drained or hung."""
        causes = (self.evicted_for, self.requeued_by, self.drained_by)
        interrupted = self.requeue_hung or any(cause is not None for cause in causes)
        return self.state is JobState.STOPPING and interrupted

    @property
    def address(self) -> str | None:
        """The current attempt's name in SageMaker; for an active member `<carrier's attempt>/<member's attempt>`."""
        return f"{self.carrier_attempt}/{self.launched}" if self.carrier_attempt else self.launched

    @property
    def training_job(self) -> str | None:
        """The key of the current attempt as a training job: its name, and its site unless that is the home site."""
        return key_of(self.launched, self.site) if self.launched is not None else None

    @property
    def has_work(self) -> bool:
        """Whether the job has run and writes checkpoints, which are at its `work_site`."""
        has_run = self.was_interrupted or self.run_seconds > 0 or self.state in (JobState.RUNNING, JobState.STOPPING)
        return has_run and (self.portability is None or self.portability.checkpoints)

    @property
    def work_site(self) -> Site | None:
        """The site of the present attempt, else of the latest attempt with instances; None: the home site."""
        return self.site if self.state.holds_slots else self.resumes_at

    def preemptions(self, now: float) -> int:
        """Return how many preemptions count for the guaranteed runtime of the current attempt, or of a start now."""
        return recent_preemptions(self.preempted, epoch(self.started) if self.started else now)

    def with_preemption(self, now: float) -> tuple[int, ...]:
        """Return the times of the job's preemptions that still count, with one more preemption at `now`."""
        counted = (time for time in self.preempted if recent_preemptions([time], now))
        return (*counted, int(now))[-MOST_PREEMPTIONS:]

    @property
    def waiting_state(self) -> JobState:
        """The state that the job has when it waits again."""
        return JobState.PREEMPTED if self.was_interrupted else JobState.PENDING

    @property
    def instances(self) -> int:
        """The instances that the job holds; else those it held at its end; else those of its first alternative."""
        return sum((self.slots or self.last_slots).values()) or sum(self.demand[0].values())

    def alternative_of(self, count: int) -> Mapping[str, int]:
        """Return the first alternative with `count` instances, else the first one: instance type -> instances."""
        return next((choice for choice in self.demand if sum(choice.values()) == count), self.demand[0])

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of instances that the job accepts, best first; empty if the job accepts one number only."""
        first, *others = self.demand
        if not any(other.keys() == first.keys() for other in others):
            return ()
        return tuple(dict.fromkeys(sum(alternative.values()) for alternative in self.demand))

    def transition(self, at: float, state: JobState, **changes: Any) -> "Job":
        """Return the job in another state since `at` (epoch seconds)."""
        return replace(self, state=state, since=iso(at), version=self.version + 1, **_bounded(changes))

    def with_changes(self, **changes: Any) -> "Job":
        """Return the job with other attributes and the same state."""
        return replace(self, version=self.version + 1, **_bounded(changes))


def of_sizes(demand: Demand, sizes: Sequence[int]) -> Demand:
    """Return the alternatives in each of these sizes, the best size first. Without sizes, return the demand unchanged.

    If there are sizes, each alternative must have one instance type, and all must have the same number of instances.
    """
    if not sizes:
        return demand
    return tuple(dict.fromkeys(alternative, size) for size in sizes for alternative in demand)


def waiting_position(priority: int, entered: str, name: str) -> str:
    """Return the sort key in a waiting queue: highest priority first, then earliest entry, then name."""
    return f"{MAX_PRIORITY - priority:010d}#{entered}#{name}"


def live_position(job: Job) -> str:
    """Return the sort key of a waiting job. Parked jobs come last, sorted by the end of their parking."""
    if job.parked is None:
        return waiting_position(job.priority, job.entered, job.name)
    return f"{PARKED + min(job.parked, FOR_EVER):010d}#{job.entered}#{job.name}"


def waiting_queue(project: str, demand: Demand, pools: tuple[str, ...] = (), *, interactive: bool = False) -> str:
    """Return the key of the waiting queue for jobs with the same project, instance types and tag `pools`.

    The numbers of instances make no difference.

    A cycle reads only the first jobs of each waiting queue. Interactive jobs have separate waiting queues, so that a
    cycle reads them regardless of the number of training jobs that wait.
    """
    instance_types = "|".join(dict.fromkeys("+".join(sorted(alternative)) for alternative in demand))
    named = f"@{','.join(pools)}" if pools else ""
    return f"waiting#{project}#{instance_types}{named}" + ("#interactive" if interactive else "")


def project_of_waiting_queue(key: str) -> str:
    """Return the project of the waiting queue with this key."""
    return key.split("#", 2)[1]


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change of a job."""

    at: str  # ISO time
    state: str  # state after the change
    attempt: int
    cause: str


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt that has ended in SageMaker."""

    attempt: int
    training_job_name: str | None
    started: str | None  # ISO time
    ended: str  # ISO time
    outcome: str  # final state of the job; if the job waits again: one of INTERRUPTED, failed or stopped
    instances: int | None = None  # instances of the attempt; None: recorded by an earlier version, or on a carrier
    carrier: str | None = None  # the carrier's attempt
    failure_class: str | None = None  # None: the attempt did not fail, or an earlier version recorded it
    site: Site | None = None  # None: the home site


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with its request, its history and its ended attempts."""

    job: Job
    details: str  # the accepted request, as the stored JSON text
    history: tuple[HistoryEntry, ...] = ()  # oldest first
    attempts: tuple[EndedAttempt, ...] = ()  # oldest first
    expires: int | None = None  # epoch seconds at which the row of a finished job is deleted


@dataclass(frozen=True, slots=True)
class WarmPool:
    """Instances that are kept after the end of a training job, for the next training job that matches."""

    footprint: str  # digest of the properties that the next training job must share
    until: int  # epoch seconds until which SageMaker keeps the instances
    releasing: int | None = None  # epoch seconds of the last request to release the instances
    fixed: bool = False  # whether SageMaker denies the release
    pool: str | None = None  # pool of the attempt that had the instances; None: an external job had the instances


@dataclass(frozen=True, slots=True)
class ExternalTrainingJob:
    """A training job that uses capacity, and that no job of the queue records as its current attempt.

    A warm pool is stored as the training job that had its instances before. That training job has ended, and may have
    been an attempt of the queue.
    """

    name: str  # key of the training job: its name in SageMaker, and its site unless that is the home site
    instance_counts: Mapping[str, int]  # instance type -> instances
    since: str  # ISO time
    orphan: bool = False  # the queue launched the training job, but no job records it, so it will be stopped
    forged: bool = False  # the training job has the queue's tags without proof; it is counted, reported and left alone
    plan: str | None = None  # ARN of the training plan whose instances it has
    warm: WarmPool | None = None  # set if the training job has ended and its instances are kept
    site: Site | None = None  # None: the home site

    @property
    def training_job_name(self) -> str:
        """The name in SageMaker."""
        return name_in(self.name)
