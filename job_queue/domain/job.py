"""A job of the queue, its record with history and attempts, and a training job that is not the queue's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from job_queue.domain.backoff import LASTING_SECONDS
from job_queue.domain.launching.numbers import Ranges
from job_queue.scheduler import DEFAULT, JobState, Seat

MAX_PRIORITY = 999_999_999  # either way; the inverted priority then has ten digits

PARKED = 7_000_000_000  # added to the time until which a job is parked; above all inverted priorities
FOR_EVER = 2_999_999_999  # epoch seconds, of what is parked until somebody changes it; ten digits with the above
PARKED_POSITION = f"{PARKED:010d}"  # all parked jobs are behind it

MANY_REFUSALS = 3  # of a job's launch in a row, after which nobody is stopped for it
STOP_DENIED_SECONDS = 15 * 60  # in which an attempt that cannot be stopped is no victim, and no stop is asked for

Demand = tuple[Mapping[str, int], ...]
"""Alternatives as submitted, best first, each {instance type: instances}."""


REASON_BYTES = 2000  # of a job's reason: a row has a bound


def clipped(text: str, most: int) -> str:
    """The beginning of a text, of so many bytes at most."""
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= most else encoded[:most].decode(errors="ignore")


def _bounded(changes: dict[str, Any]) -> dict[str, Any]:
    reason = changes.get("reason")
    return {**changes, "reason": clipped(reason, REASON_BYTES)} if isinstance(reason, str) else changes


def iso(seconds: float) -> str:
    """A time as text: ISO 8601, UTC, microseconds. Such texts sort as their times do."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def epoch(text: str) -> float:
    """Seconds since the epoch of such a time."""
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """A CreateTrainingJob call that is decided and whose answer is not recorded."""

    sent_at: int  # epoch seconds
    expires_at: int  # epoch seconds after which it can no longer take effect


@dataclass(frozen=True, slots=True)
class LateLaunch:
    """An attempt that has ended, and that a late call would launch again if somebody deleted it."""

    attempt: int
    until: int  # epoch seconds after which no call for it can take effect any more


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another job that has to end before a job may start."""

    job: str
    submission: str  # of that job: its name may be another's later
    any_outcome: bool = False  # however it ends; else it has to complete


@dataclass(frozen=True, slots=True)
class Job:
    """What planning and launching need of a job. Immutable: a transition makes a new one with the next version."""

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
    group: str | None = None  # jobs that people treat as one, as its tag names it
    max_parallel: int | None = None  # jobs of its owner and group in its project that may be active at a time
    after: tuple[Dependency, ...] = ()  # that it still waits for
    preemptible: bool = True
    interactive: bool = False  # people work in it; it is not preemptible then
    pools: tuple[str, ...] = ()  # that it may run in, as its tag names them; empty: its project's
    held: bool = False  # on hold until its user releases it
    attempt: int = 1  # of the current launch, or of the next one while it waits
    launched: str | None = None  # name of the current attempt in SageMaker
    started: str | None = None  # ISO time of the current attempt's launch
    slots: Mapping[str, int] = field(default_factory=dict)  # held, pool -> instances
    last_slots: Mapping[str, int] = field(default_factory=dict)  # that it held at its end, once it has ended
    borrowed: int = 0  # of them, beyond its project's quota when it was started
    calls: tuple[LaunchCall, ...] = ()  # unanswered launches of the current attempt
    in_doubt: bool = False  # one of them was followed by another call: the attempt may exist unseen
    late: LateLaunch | None = None  # of its current attempt, or of an earlier one that has ended
    cancelled: bool = False  # its user has cancelled it
    evicted_for: str | None = None  # it was asked to stop to make room for this job
    evicted_by: str | None = None  # ... by this rule
    left_idle: bool = False  # it made room as its GPUs did nothing, and has not run since
    backoff_until: int | None = None  # epoch seconds
    ran: bool = False  # it was preempted before
    tries: int = 0  # failed launches in a row, those for lack of capacity not counted
    refusals: int = 0  # launches in a row that SageMaker refused for this job's own sake
    refused: tuple[int, int] | None = None  # epoch seconds of the first of them and of the last
    retries: int = 0  # how often it is tried again after it failed by itself
    retried: int = 0  # ... and how often it was
    missing_since: int | None = None  # epoch seconds; SageMaker did not know the attempt
    stop_denied: int | None = None  # epoch seconds; SageMaker denied the queue to stop its attempt
    max_runtime: int | None = None  # seconds
    cut_off: int | None = None  # epoch seconds; it was told that its instances are taken back then
    footprint: str | None = None  # what it must have in common with a warm pool
    keep_warm: int | None = None  # seconds that the queue has its attempt's instances kept warm
    plans: tuple[str | None, ...] = ()  # the training plan that each alternative names; empty: none does
    reason: str | None = None  # why it failed or was stopped, or what it last backed off from
    parked: int | None = None  # epoch seconds until which it is behind all others of its waiting queue; see `parking`
    parked_for: str | None = None  # why, when it was parked last
    secret: str | None = field(default=None, repr=False)  # proves its attempts; None: an earlier version stored it
    sent: int = 0  # CreateTrainingJob calls of this submission so far
    unheard: Ranges = ()  # numbers of those for the current attempt that may have taken effect, see `launching.numbers`
    gpus: int | None = None  # of a member: tenths of GPUs of an instance that it shares
    kind: str | None = None  # of a member and a carrier: who may share an instance, see `carriers.members`
    seat: Seat | None = None  # of a member that is active; its carrier's name is a job's
    on_board: str | None = None  # ... the attempt of its carrier, in SageMaker
    carries: int | None = None  # of a carrier: the GPUs of its instance
    founders: tuple[str, ...] = ()  # ... members for whom it was launched
    agent_key: str | None = None  # ... its agent's public number, in hexadecimal; None: not heard of yet
    empty_since: int | None = None  # ... epoch seconds; nobody was on it since
    places: tuple[str, ...] = ()  # in S3 that it writes to, its checkpoints first; see access.places

    def is_stop_denied(self, now: float) -> bool:
        """Whether its attempt cannot be stopped, as SageMaker has said a short while ago."""
        return self.stop_denied is not None and now < self.stop_denied + STOP_DENIED_SECONDS

    @property
    def is_refused_for_long(self) -> bool:
        """Return whether it waits, and SageMaker has refused each of its launches for `LASTING_SECONDS`."""
        return self.state.waits and self.refused is not None and self.refused[1] - self.refused[0] >= LASTING_SECONDS

    def refused_until(self, now: float) -> tuple[int, int]:
        """Return the times of the first refusal in a row and of one that comes now, in epoch seconds."""
        return (self.refused[0] if self.refused else int(now)), int(now)

    @property
    def address(self) -> str | None:
        """Where its current attempt is found: its name in SageMaker, after that of its carrier where it has one."""
        return f"{self.on_board}/{self.launched}" if self.on_board else self.launched

    @property
    def waiting_state(self) -> JobState:
        """Its state when it goes back to its waiting queue."""
        return JobState.PREEMPTED if self.ran else JobState.PENDING

    @property
    def instances(self) -> int:
        """Instances of the alternative it holds, or held at its end, or of the first that it asks for."""
        return sum((self.slots or self.last_slots).values()) or sum(self.demand[0].values())

    def alternative_of(self, count: int) -> Mapping[str, int]:
        """Return the first alternative with so many instances, else the first one: instance type -> instances."""
        return next((choice for choice in self.demand if sum(choice.values()) == count), self.demand[0])

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of instances that it accepts, best first, where its tag names several; else none."""
        first, *others = self.demand
        if not any(other.keys() == first.keys() for other in others):
            return ()
        return tuple(dict.fromkeys(sum(alternative.values()) for alternative in self.demand))

    def transition(self, at: float, state: JobState, **changes: Any) -> "Job":
        """The job in another state since that time (epoch seconds)."""
        return replace(self, state=state, since=iso(at), version=self.version + 1, **_bounded(changes))

    def with_changes(self, **changes: Any) -> "Job":
        """The job with other attributes and the same state."""
        return replace(self, version=self.version + 1, **_bounded(changes))


def of_sizes(demand: Demand, sizes: Sequence[int]) -> Demand:
    """Alternatives in each of these sizes, the best size first; as they are if there is none.

    Each is of one instance type, and all are of the same number.
    """
    if not sizes:
        return demand
    return tuple(dict.fromkeys(alternative, size) for size in sizes for alternative in demand)


def waiting_position(priority: int, entered: str, name: str) -> str:
    """Sort key in a waiting queue: highest priority first, then longest waiting, then name."""
    return f"{MAX_PRIORITY - priority:010d}#{entered}#{name}"


def live_position(job: Job) -> str:
    """Sort key of a waiting job in its waiting queue: those that are parked come last, the first to come back first."""
    if job.parked is None:
        return waiting_position(job.priority, job.entered, job.name)
    return f"{PARKED + min(job.parked, FOR_EVER):010d}#{job.entered}#{job.name}"


def waiting_queue(project: str, demand: Demand, pools: tuple[str, ...] = (), *, interactive: bool = False) -> str:
    """Key of the waiting queue for jobs of a project that ask for the same instance types, in whatever number.

    A cycle reads the first jobs of each queue. Interactive jobs have queues of their own, so that it sees them however
    many training jobs wait.
    """
    instance_types = "|".join(dict.fromkeys("+".join(sorted(alternative)) for alternative in demand))
    named = f"@{','.join(pools)}" if pools else ""
    return f"waiting#{project}#{instance_types}{named}" + ("#interactive" if interactive else "")


def project_of_waiting_queue(key: str) -> str:
    """The project whose jobs wait in the queue with this key."""
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
    """An attempt that SageMaker has ended."""

    attempt: int
    training_job_name: str | None
    started: str | None  # ISO time
    ended: str  # ISO time
    outcome: str  # the job's final state, or preempted, failed or stopped where it waits again
    instances: int | None = None  # that it had; None: an earlier version recorded it, or it was on a carrier
    carrier: str | None = None  # the carrier's attempt


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with its request and its past."""

    job: Job
    details: str  # the accepted request, as the text that is stored
    history: tuple[HistoryEntry, ...] = ()  # oldest first
    attempts: tuple[EndedAttempt, ...] = ()  # oldest first
    expires: int | None = None  # epoch seconds; a finished job only


@dataclass(frozen=True, slots=True)
class WarmPool:
    """Instances that are kept after a training job has ended, for the next one that matches."""

    footprint: str  # what that one must have in common with it
    until: int  # epoch seconds; SageMaker keeps them no longer
    releasing: int | None = None  # epoch seconds at which it was last asked to end it
    fixed: bool = False  # it refuses to
    pool: str | None = None  # the pool of the attempt that was there; None: an external job was


@dataclass(frozen=True, slots=True)
class ExternalJob:
    """A training job that uses capacity and is not, or not known to be, an attempt of a job of the queue.

    Also one that has ended and whose instances are kept warm, whoever started it.
    """

    name: str  # in SageMaker
    instance_counts: Mapping[str, int]  # instance type -> instances
    since: str  # ISO time
    orphan: bool = False  # the queue launched it, but no job records it: to be stopped
    forged: bool = False  # carries the queue's tags without proof: counted, told of and left alone
    plan: str | None = None  # ARN of the training plan that it runs on
    warm: WarmPool | None = None  # it has ended, and its instances are kept
