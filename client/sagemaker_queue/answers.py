"""What the queue answers, as frozen dataclasses.

``from_json`` takes the API's JSON and ignores members it does not know, so that an older client
keeps working with a newer queue; ``to_json`` gives JSON of the same shape. Times are aware
datetimes in UTC.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Self

from sagemaker_queue.errors import QueueError

FINISHED = frozenset({"completed", "failed", "stopped"})


@dataclass(frozen=True)
class Answer:
    """One JSON object; the fields of a subclass are its members, in snake case."""

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read one object of the API; raises QueueError if it is none, or a needed member is missing."""
        if not isinstance(data, Mapping):
            raise QueueError(
                f"The queue answered {type(data).__name__} where {cls.__name__} was due; is the address right?"
            )
        values: dict[str, Any] = {}
        for member in fields(cls):
            value = data.get(_camel(member.name))
            if value is not None:
                values[member.name] = _convert(member.metadata, value)
            elif member.default is MISSING and member.default_factory is MISSING:
                raise QueueError(f"The queue's answer lacks {_camel(member.name)!r}; does this client need an upgrade?")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Return the object with the API's member names."""
        return {_camel(member.name): _plain(getattr(self, member.name)) for member in fields(self)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _convert(metadata: Mapping[str, Any], value: object) -> object:
    if "each" in metadata:
        convert: Callable[[object], object] = metadata["each"]
        if not isinstance(value, list):
            raise QueueError(f"The queue answered {value!r} where a list was due; does this client need an upgrade?")
        return tuple(convert(one) for one in value)
    return metadata["read"](value) if "read" in metadata else value


def _plain(value: object) -> object:
    if isinstance(value, Answer):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def _time(value: object) -> datetime:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise QueueError(
            f"The queue answered {value!r} where a time was due; does this client need an upgrade?"
        ) from error
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _optional_time() -> Any:
    return field(default=None, metadata={"read": _time})


def _list(convert: Callable[[object], object]) -> Any:
    return field(default=(), metadata={"each": convert})


@dataclass(frozen=True)
class Reason(Answer):
    """Why a job waits, or why it ended: a code for programs and a sentence for people."""

    code: str = ""
    message: str = ""


@dataclass(frozen=True)
class JobSummary(Answer):
    """A job as a line of the queue."""

    job: str
    state: str  # pending, starting, running, stopping, preempted, completed, failed or stopped
    priority: int = 0
    project: str | None = None
    owner: str | None = None  # ARN of who submitted it
    instances: int = 1
    entry_time: datetime | None = _optional_time()
    state_since: datetime | None = _optional_time()
    attempt: int = 0  # the latest one; 0 if none was launched yet
    training_job_name: str | None = None  # of the latest attempt, in SageMaker
    position: int | None = None  # among all that wait, 1 is next; None if it does not wait
    reason: Reason | None = field(default=None, metadata={"read": Reason.from_json})
    cancel_requested: bool = False  # while the job is live: it is being stopped for good

    @property
    def finished(self) -> bool:
        """True once nothing more will happen to the job."""
        return self.state in FINISHED


@dataclass(frozen=True)
class Submission(JobSummary):
    """What became of a submitted job, and what its owner may want to know about it."""

    warnings: tuple[str, ...] = _list(str)


@dataclass(frozen=True)
class Cancellation(JobSummary):
    """What became of a job that was cancelled."""

    was_finished: bool = False  # there was nothing left to cancel


@dataclass(frozen=True)
class Attempt(Answer):
    """One SageMaker training job that was launched for a job."""

    attempt: int
    training_job_name: str | None = None
    started: datetime | None = _optional_time()
    ended: datetime | None = _optional_time()
    outcome: str | None = None  # preempted, completed, failed or stopped; None while it lives


@dataclass(frozen=True)
class Transition(Answer):
    """One change of a job's state."""

    state: str
    at: datetime | None = _optional_time()
    attempt: int | None = None
    cause: str = ""


@dataclass(frozen=True)
class JobDetail(JobSummary):
    """All that the queue knows of a job."""

    history: tuple[Transition, ...] = _list(Transition.from_json)
    attempts: tuple[Attempt, ...] = _list(Attempt.from_json)
    request: Mapping[str, Any] = field(default_factory=dict)  # the CreateTrainingJob request


@dataclass(frozen=True)
class PoolStatus(Answer):
    """The instances of one pool: ``capacity`` in all, of which the others say what becomes."""

    name: str
    capacity: int = 0
    used: int = 0
    external: int = 0  # by training jobs that are not the queue's
    stopping: int = 0
    free: int = 0


@dataclass(frozen=True)
class QueueStatus(Answer):
    """The queue as a whole."""

    pools: tuple[PoolStatus, ...] = _list(PoolStatus.from_json)
    active: tuple[JobSummary, ...] = _list(JobSummary.from_json)
    waiting: tuple[JobSummary, ...] = _list(JobSummary.from_json)  # the next one first


@dataclass(frozen=True)
class JobPage(Answer):
    """One page of a list of jobs."""

    jobs: tuple[JobSummary, ...] = field(metadata={"each": JobSummary.from_json})
    next: str | None = None  # asks for the page that follows
