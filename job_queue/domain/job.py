"""The data of a job, of its record and of external jobs; the keys of waiting queues and the order of jobs in them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from job_queue.domain.backoff import LASTING_SECONDS
from job_queue.domain.launching.numbers import Ranges
from job_queue.scheduler import DEFAULT, MAX_PRIORITY, GpuAllocation, JobState, recent_preemptions

PARKED = 7_000_000_000  # added to the time until which a job is parked, to get a position above all inverted priorities
FOR_EVER = 2_999_999_999  # epoch seconds, for jobs that are parked until a change; the sum with PARKED has ten digits
PARKED_POSITION = f"{PARKED:010d}"  # all parked jobs come after this position

MANY_REFUSALS = 3  # refused launches of a job in a row, after which no other job is evicted for it
STOP_DENIED_SECONDS = 15 * 60  # time in which an attempt that cannot be stopped is no victim, and no stop is requested

Demand = tuple[Mapping[str, int], ...]
"""Alternatives as submitted, best first, each {instance type: instances}."""


MOST_PREEMPTIONS = 16  # times of preemptions in a job's row
REASON_BYTES = 2000  # maximum of a job's reason, as the size of a row is limited


def clipped(text: str, most: int) -> str:
    """Return the beginning of a text, at most this many bytes."""
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= most else encoded[:most].decode(errors="ignore")


def _bounded(changes: dict[str, Any]) -> dict[str, Any]:
    reason = changes.get("reason")
    return {**changes, "reason": clipped(reason, REASON_BYTES)} if isinstance(reason, str) else changes


def iso(seconds: float) -> str:
    """Return a time as text: ISO 8601, UTC, microseconds. Such texts sort in the order of their times."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def epoch(text: str) -> float:
    """Return the epoch seconds of an ISO 8601 time."""
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """An unanswered call: a CreateTrainingJob call whose intent is recorded, and whose answer is not."""

    sent_at: int  # epoch seconds
    expires_at: int  # epoch seconds after which it can no longer take effect


@dataclass(frozen=True, slots=True)
class LateLaunch:
    """An attempt that a late call could launch again, if SageMaker accepts its name again after a deletion."""

    attempt: int
    until: int  # epoch seconds after which no call for it can take effect


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job that must end before another job may start."""

    job: str
    submission: str  # submission of that job, because its name may be reused
    any_outcome: bool = False  # accept any outcome; otherwise the job must complete


@dataclass(frozen=True, slots=True)
class Job:
    """The data of a job for planning and launching. Immutable: a transition makes a new one with the next version."""

    name: str
    submission: str  # random, one per accepted request
    state: JobState
    priority: int
    entered: str  # ISO time of its submission; orders jobs of one priority
    since: str  # ISO time of the last transition
    owner: str  # ARN of the caller, or of the role (identity.owner_of)
    demand: Demand
    waiting_queue: str  # the key of its waiting queue
    version: int = 1
    project: str = DEFAULT
    group: str | None = None  # jobs that people treat as one, from its tag
    max_parallel: int | None = None  # jobs of its owner and group in its project that may be active at a time
    after: tuple[Dependency, ...] = ()  # remaining dependencies
    preemptible: bool = True
    interactive: bool = False  # people work in it, so it is not preemptible
    pools: tuple[str, ...] = ()  # pools of its tag; empty: its project's pools
    held: bool = False  # on hold until its user releases it
    attempt: int = 1  # number of the current launch, or of the next one while it waits
    launched: str | None = None  # name of the current attempt in SageMaker
    started: str | None = None  # ISO time of the current attempt's launch
    slots: Mapping[str, int] = field(default_factory=dict)  # held, pool -> instances
    last_slots: Mapping[str, int] = field(default_factory=dict)  # slots that it held at its end
    borrowed: int = 0  # slots beyond its project's quota when it was started
    calls: tuple[LaunchCall, ...] = ()  # unanswered launches of the current attempt
    in_doubt: bool = False  # more than one call was sent: the attempt may exist unseen
    late: LateLaunch | None = None  # its current or an earlier attempt, if a late call could launch it again
    cancelled: bool = False  # its user has cancelled it
    evicted_for: str | None = None  # the job for which it was asked to stop
    evicted_by: str | None = None  # the rule of that eviction
    preempted: tuple[int, ...] = ()  # epoch seconds of its preemptions in the last day, the last MOST_PREEMPTIONS
    left_idle: bool = False  # it was evicted because its GPUs were idle, and has not run since
    backoff_until: int | None = None  # epoch seconds
    ran: bool = False  # it was preempted before
    tries: int = 0  # failed launches in a row, without those for lack of capacity
    refusals: int = 0  # launches in a row that SageMaker refused because of this job
    refused: tuple[int, int] | None = None  # epoch seconds of the first and the last of these refusals
    retries: int = 0  # allowed retries after failures of its own
    retried: int = 0  # retries so far
    missing_since: int | None = None  # epoch seconds since which SageMaker has not known the attempt
    stop_denied: int | None = None  # epoch seconds at which SageMaker denied a stop of its attempt
    max_runtime: int | None = None  # seconds
    cut_off: int | None = None  # epoch seconds at which its instances are taken back, as announced to it
    footprint: str | None = None  # properties that it must share with a warm pool
    keep_warm: int | None = None  # seconds for which the instances of its attempt are kept warm
    plans: tuple[str | None, ...] = ()  # training plan that each alternative names; empty: none of them does
    reason: str | None = None  # why it failed or was stopped, or what it last backed off from
    parked: int | None = None  # epoch seconds until which it is behind all others of its waiting queue; see `parking`
    parked_for: str | None = None  # reason for which it was last parked
    secret: str | None = field(default=None, repr=False)  # key of its proofs; None: an earlier version stored the job
    sent: int = 0  # CreateTrainingJob calls of this submission so far
    unheard: Ranges = ()  # numbers of calls for the current attempt that may have taken effect, see `launching.numbers`
    gpus: int | None = None  # of a member: tenths of GPUs of an instance that it shares
    kind: str | None = None  # of a member and a carrier: the kind that may share an instance, see `carriers.members`
    allocation: GpuAllocation | None = None  # of an active member: its GPUs, and the name of its carrier's job
    carrier_attempt: str | None = None  # of an active member: name of its carrier's attempt in SageMaker
    carries: int | None = None  # of a carrier: the GPUs of its instance
    first_members: tuple[str, ...] = ()  # of a carrier: members for which it was launched
    agent_key: str | None = None  # of a carrier: its agent's public number, hexadecimal; None: not published yet
    empty_since: int | None = None  # of a carrier: epoch seconds since which it has no members
    places: tuple[str, ...] = ()  # places in S3 that it writes to, its checkpoints first; see access.places

    def is_stop_denied(self, now: float) -> bool:
        """Return whether SageMaker has lately denied a stop of the job's attempt."""
        return self.stop_denied is not None and now < self.stop_denied + STOP_DENIED_SECONDS

    @property
    def is_refused_for_long(self) -> bool:
        """Whether the job waits, and SageMaker has refused each of its launches for `LASTING_SECONDS`."""
        return self.state.waits and self.refused is not None and self.refused[1] - self.refused[0] >= LASTING_SECONDS

    def refused_until(self, now: float) -> tuple[int, int]:
        """Return the times of the first refusal in a row and of a refusal now, in epoch seconds."""
        return (self.refused[0] if self.refused else int(now)), int(now)

    @property
    def address(self) -> str | None:
        """The address of the current attempt: its name in SageMaker, after the carrier's attempt if it is on one."""
        return f"{self.carrier_attempt}/{self.launched}" if self.carrier_attempt else self.launched

    def preemptions(self, now: float) -> int:
        """Return how many preemptions count for the guaranteed runtime of the current attempt, or of a start now."""
        return recent_preemptions(self.preempted, epoch(self.started) if self.started else now)

    def with_preemption(self, now: float) -> tuple[int, ...]:
        """Return the times of its preemptions that still count, and of one more."""
        counted = (time for time in self.preempted if recent_preemptions([time], now))
        return (*counted, int(now))[-MOST_PREEMPTIONS:]

    @property
    def waiting_state(self) -> JobState:
        """The state to which the job returns in its waiting queue."""
        return JobState.PREEMPTED if self.ran else JobState.PENDING

    @property
    def instances(self) -> int:
        """The number of instances that the job holds, else held at its end, else wants in its first alternative."""
        return sum((self.slots or self.last_slots).values()) or sum(self.demand[0].values())

    def alternative_of(self, count: int) -> Mapping[str, int]:
        """Return the first alternative with so many instances, else the first one: instance type -> instances."""
        return next((choice for choice in self.demand if sum(choice.values()) == count), self.demand[0])

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of instances that the job accepts, best first; empty unless its tag names several."""
        first, *others = self.demand
        if not any(other.keys() == first.keys() for other in others):
            return ()
        return tuple(dict.fromkeys(sum(alternative.values()) for alternative in self.demand))

    def transition(self, at: float, state: JobState, **changes: Any) -> "Job":
        """Return the job in another state since that time (epoch seconds)."""
        return replace(self, state=state, since=iso(at), version=self.version + 1, **_bounded(changes))

    def with_changes(self, **changes: Any) -> "Job":
        """Return the job with other attributes and the same state."""
        return replace(self, version=self.version + 1, **_bounded(changes))


def of_sizes(demand: Demand, sizes: Sequence[int]) -> Demand:
    """Return the alternatives in each of these sizes, the best size first; without sizes, the alternatives as they are.

    Each alternative must have one instance type, and all must have the same number of instances.
    """
    if not sizes:
        return demand
    return tuple(dict.fromkeys(alternative, size) for size in sizes for alternative in demand)


def waiting_position(priority: int, entered: str, name: str) -> str:
    """Return the sort key in a waiting queue: highest priority first, then longest waiting, then name."""
    return f"{MAX_PRIORITY - priority:010d}#{entered}#{name}"


def live_position(job: Job) -> str:
    """Return the sort key of a waiting job. Parked jobs come last, in the order of their return."""
    if job.parked is None:
        return waiting_position(job.priority, job.entered, job.name)
    return f"{PARKED + min(job.parked, FOR_EVER):010d}#{job.entered}#{job.name}"


def waiting_queue(project: str, demand: Demand, pools: tuple[str, ...] = (), *, interactive: bool = False) -> str:
    """Return the key of the waiting queue for jobs of a project with the same instance types, in any number.

    A cycle reads only the first jobs of each waiting queue. Interactive jobs have their own waiting queues, so that a
    cycle reads them no matter how many training jobs wait.
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
    state: str  # after the change
    attempt: int
    cause: str


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt that has ended in SageMaker."""

    attempt: int
    training_job_name: str | None
    started: str | None  # ISO time
    ended: str  # ISO time
    outcome: str  # the job's final state; or preempted, failed or stopped if it waits again
    instances: int | None = None  # instances that it had; None: recorded by an earlier version, or on a carrier
    carrier: str | None = None  # the carrier's attempt


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with its request, its history and its ended attempts."""

    job: Job
    details: str  # the accepted request, as the stored text
    history: tuple[HistoryEntry, ...] = ()  # oldest first
    attempts: tuple[EndedAttempt, ...] = ()  # oldest first
    expires: int | None = None  # epoch seconds; a finished job only


@dataclass(frozen=True, slots=True)
class WarmPool:
    """Instances that are kept after the end of a training job, for the next training job that matches."""

    footprint: str  # properties that the next training job must share
    until: int  # epoch seconds until which SageMaker keeps them
    releasing: int | None = None  # epoch seconds of the last request to release it
    fixed: bool = False  # SageMaker denies the release
    pool: str | None = None  # the pool of the attempt that had the instances; None: an external job had them


@dataclass(frozen=True, slots=True)
class ExternalTrainingJob:
    """A training job that uses capacity, and that no job of the queue has recorded as its current attempt.

    A warm pool is also stored as one: an ended training job, possibly an attempt, whose instances are kept warm.
    """

    name: str  # in SageMaker
    instance_counts: Mapping[str, int]  # instance type -> instances
    since: str  # ISO time
    orphan: bool = False  # the queue launched it, but no job records it: to be stopped
    forged: bool = False  # has the queue's tags without proof: counted, reported and left alone
    plan: str | None = None  # ARN of the training plan that it runs on
    warm: WarmPool | None = None  # present if it has ended and its instances are kept
