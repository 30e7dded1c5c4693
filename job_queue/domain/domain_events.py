"""Domain events for observers (log, metrics, EventBridge), and the choice of the job's event for a transition."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from job_queue.domain.cluster_state import ProjectLoad
from job_queue.domain.job import Job
from job_queue.domain.policy import StoredPolicy
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState, Plan


@dataclass(frozen=True, slots=True)
class JobQueued:
    """A new job is stored."""

    job: Job


@dataclass(frozen=True, slots=True)
class CycleEnded:
    """A cycle has ended."""

    plan: Plan
    loads: Mapping[str, ProjectLoad]  # project -> its live jobs after the cycle
    seconds: float  # duration of the cycle
    lasting_refusals: int  # number of jobs and pools that SageMaker has refused for long


@dataclass(frozen=True, slots=True)
class ComparisonAge:
    """The age of the last successful comparison with SageMaker's list, once per tick."""

    seconds: float


@dataclass(frozen=True, slots=True)
class IdleInstances:
    """Idle jobs were looked up."""

    counts: Mapping[str, int]  # pool -> idle instances of jobs, for pools with jobs that were looked up


@dataclass(frozen=True, slots=True)
class PolicyApplied:
    """A new policy is in force."""

    policy: StoredPolicy
    restored: int | None  # the earlier version that was restored; None: a new document


@dataclass(frozen=True, slots=True)
class ForgedAttempt:
    """A training job has the queue's tags and no proof that the queue launched it."""

    training_job: str
    claimed: str  # the job that its tags name


@dataclass(frozen=True, slots=True)
class UnrecordedJob:
    """A job cannot be recorded, and plans leave it out for a while."""

    job: str


@dataclass(frozen=True, slots=True)
class LeaseConflict:
    """An invocation could not run a cycle, because another one holds the lease."""


DomainEvent = (
    JobQueued
    | JobTransition  # of a job, once it is recorded
    | CycleEnded
    | ComparisonAge
    | IdleInstances
    | PolicyApplied
    | ForgedAttempt
    | UnrecordedJob
    | LeaseConflict
)
Notify = Callable[[DomainEvent], None]


class JobEvent(StrEnum):
    """The events of a job's life; the values are detail-types on EventBridge."""

    QUEUED = "Training Job Queued"
    STARTED = "Training Job Started"  # SageMaker accepted an attempt
    PREEMPTED = "Training Job Preempted"  # its attempt has ended to make room for another job, and it waits again
    RESUMED = "Training Job Resumed"  # SageMaker accepted another attempt of a job that was preempted or had failed
    EXPIRING = "Training Job Expiring"  # its training plan ends, and its instances are taken back
    UNSTOPPABLE = "Training Job Unstoppable"  # SageMaker denies a request to stop its attempt
    BACKED_OFF = "Training Job Backed Off"  # a launch or an attempt failed without the job's fault; it waits
    FINISHED = "Training Job Finished"


def job_event(transition: JobTransition) -> JobEvent | None:
    """Return the event of a transition; None if it has none."""
    old, new = transition.old, transition.new
    if new.state.finished:
        return JobEvent.FINISHED
    if new.state is JobState.RUNNING:
        return _of_running(old, new)
    if new.retried > old.retried:
        return None  # a failure of the job itself is no backoff; its end is an event when no retries are left
    if old.state.holds_slots and new.state.waits:
        made_room = transition.ended is not None and transition.ended.outcome == "preempted"
        return JobEvent.PREEMPTED if made_room else JobEvent.BACKED_OFF
    return None


def _of_running(old: Job, new: Job) -> JobEvent | None:
    if new.stop_denied not in (None, old.stop_denied):
        return JobEvent.UNSTOPPABLE
    if old.state is not JobState.RUNNING:
        return JobEvent.RESUMED if old.ran or old.retried else JobEvent.STARTED
    return JobEvent.EXPIRING if new.cut_off not in (None, old.cut_off) else None
