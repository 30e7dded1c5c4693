"""A job as the tables keep it, and where it stands.

The same small set of attributes stands in the job's row (`sagemaker-queue`) and in its line row
(`sagemaker-queue-lines`); the job's row has the request, the history and the attempts besides.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from job_queue.scheduler import DEFAULT, JobState

MAX_PRIORITY = 999_999_999  # either way; the inverted priority then has ten digits
HISTORY_KEPT = 100  # transitions and attempts kept in a job's row, the latest

ACTIVE_LINE = "active"
EXTERNAL_LINE = "external"
CONTROL = "control"

Item = dict[str, Any]
Demand = tuple[Mapping[str, int], ...]
"""Alternatives as submitted, best first, each {instance type: instances}."""


def iso(seconds: float) -> str:
    """A time as the tables and the API show it: ISO 8601, UTC, microseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def epoch(text: str) -> float:
    """Seconds since the epoch of such a time."""
    return datetime.fromisoformat(text).timestamp()


@dataclass(frozen=True, slots=True)
class Call:
    """A CreateTrainingJob that has been decided on and whose answer is not recorded."""

    asked: int  # epoch seconds
    dead: int  # epoch seconds after which it can no longer take effect

    def item(self) -> Item:
        """As the tables keep it."""
        return {"asked": self.asked, "dead": self.dead}


@dataclass(frozen=True, slots=True)
class Job:
    """What planning and launching need of a job. Immutable: a transition makes a new one with the next version."""

    name: str
    submission: str  # random, one per accepted request
    state: JobState
    priority: int
    entered: str  # ISO time; its place among equals
    since: str  # ISO time of the last transition
    owner: str  # ARN of the caller
    demand: Demand
    line: str  # the waiting line it stands in whenever it waits
    version: int = 1
    project: str = DEFAULT
    group: str | None = None  # jobs that people treat as one, as its tag names it
    preemptible: bool = True
    pools: tuple[str, ...] = ()  # that it may run in, as its tag names them; empty: its project's
    held: bool = False  # its user wants it to wait
    attempt: int = 1  # of the current launch, or of the next one while it waits
    launched: str | None = None  # name of the current attempt in SageMaker
    started: str | None = None  # ISO time of the current attempt's launch
    slots: Mapping[str, int] = field(default_factory=dict)  # held, pool -> instances
    calls: tuple[Call, ...] = ()  # unanswered launches of the current attempt
    cancelled: bool = False  # the user does not want it any more
    evicted_for: str | None = None  # it was asked to stop to make room for this job
    evicted_by: str | None = None  # ... by this rule
    backoff_until: int | None = None  # epoch seconds
    ran: bool = False  # it was preempted before
    tries: int = 0  # launches in a row that came to nothing, for a reason that is not its pool's
    retries: int = 0  # how often it is tried again after it failed by itself
    retried: int = 0  # ... and how often it was
    missing_since: int | None = None  # epoch seconds; SageMaker did not know the attempt
    max_runtime: int | None = None  # seconds
    reason: str | None = None  # why it failed or was stopped, or what it last backed off from

    @property
    def waiting_state(self) -> JobState:
        """What it is called when it goes back to its waiting line."""
        return JobState.PREEMPTED if self.ran else JobState.PENDING

    @property
    def instances(self) -> int:
        """Instances of the alternative it holds, or of the first that it asks for."""
        return sum(self.slots.values()) or sum(self.demand[0].values())

    def then(self, at: float, state: JobState, **changes: Any) -> "Job":
        """The job after a transition at that time."""
        return replace(self, state=state, since=iso(at), version=self.version + 1, **changes)

    def touched(self, **changes: Any) -> "Job":
        """The job with something noted, its state unchanged."""
        return replace(self, version=self.version + 1, **changes)


def place(job: Job) -> tuple[str, str] | None:
    """The line and the position in which a job stands; a finished one stands in none."""
    if job.state.waits:
        return job.line, waiting_position(job.priority, job.entered, job.name)
    return (ACTIVE_LINE, job.name) if job.state.holds_slots else None


def waiting_position(priority: int, entered: str, name: str) -> str:
    """Sort key of a waiting line: highest priority first, then longest waiting, then name."""
    return f"{MAX_PRIORITY - priority:010d}#{entered}#{name}"


def waiting_line(project: str, demand: Demand, pools: tuple[str, ...] = ()) -> str:
    """Key of the line for jobs of a project that ask for the same kinds of instances, in whatever number."""
    asked = "|".join("+".join(sorted(alternative)) for alternative in demand)
    return f"waiting#{project}#{asked}" + (f"@{','.join(pools)}" if pools else "")


def project_of_line(line: str) -> str:
    """Whose jobs wait in the line."""
    return line.split("#", 2)[1]


_ATTRIBUTES = {
    "name": "jobName",
    "submission": "submission",
    "state": "jobState",
    "priority": "priority",
    "entered": "entryTime",
    "since": "stateSince",
    "owner": "owner",
    "demand": "demand",
    "line": "waitingLine",
    "version": "version",
    "project": "project",
    "group": "group",
    "preemptible": "preemptible",
    "pools": "pools",
    "held": "held",
    "attempt": "attempt",
    "launched": "trainingJobName",
    "started": "started",
    "slots": "slots",
    "calls": "calls",
    "cancelled": "cancelRequested",
    "evicted_for": "evictedFor",
    "evicted_by": "evictedBy",
    "backoff_until": "backoffUntil",
    "ran": "ran",
    "tries": "tries",
    "retries": "retries",
    "retried": "retried",
    "missing_since": "missingSince",
    "max_runtime": "maxRuntime",
    "reason": "reason",
}


def job_item(job: Job) -> Item:
    """The attributes of a job; what is None is left out."""
    item = {attribute: getattr(job, name) for name, attribute in _ATTRIBUTES.items()}
    item["jobState"] = job.state.value
    item["demand"] = [dict(alternative) for alternative in job.demand]
    item["slots"] = dict(job.slots)
    item["calls"] = [call.item() for call in job.calls]
    item["pools"] = list(job.pools)
    item["instances"] = job.instances  # for readers of the table and of the index
    return {attribute: content for attribute, content in item.items() if content is not None}


def job_from(item: Mapping[str, Any]) -> Job:
    """A job from its row or its line row."""
    values = {name: item[attribute] for name, attribute in _ATTRIBUTES.items() if attribute in item}
    values["state"] = JobState(values["state"])
    values["demand"] = tuple(item["demand"])
    values["pools"] = tuple(item.get("pools", ()))
    values["calls"] = tuple(Call(**call) for call in item.get("calls", ()))
    return Job(**values)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job's whole row."""

    job: Job
    details: str  # the accepted request, JSON text
    history: tuple[Item, ...] = ()  # {at, state, attempt, cause}, oldest first
    attempts: tuple[Item, ...] = ()  # {attempt, trainingJobName, started, ended, outcome} that have ended
    expires: int | None = None  # epoch seconds; a finished job only

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> "JobRecord":
        """From the row of the jobs table."""
        return cls(
            job=job_from(item),
            details=item["jobDetails"],
            history=tuple(item["history"]),
            attempts=tuple(item["attempts"]),
            expires=item.get("expires"),
        )


@dataclass(frozen=True, slots=True)
class ExternalJob:
    """A training job that uses capacity and is not, or not known to be, an attempt of a job of the queue."""

    name: str  # in SageMaker
    demand: Mapping[str, int]  # instance type -> instances
    since: str
    orphan: bool = False  # carries the queue's tags, but no job records it: to be stopped

    def item(self) -> Item:
        """Its row in the external line."""
        return {
            "line": EXTERNAL_LINE,
            "position": self.name,
            "demand": dict(self.demand),
            "since": self.since,
            "orphan": self.orphan,
        }

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> "ExternalJob":
        """From its row."""
        return cls(name=item["position"], demand=item["demand"], since=item["since"], orphan=item["orphan"])
