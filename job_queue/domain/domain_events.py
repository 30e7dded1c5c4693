"""Domain events for observers (log, metrics, EventBridge), and the choice of a job's event for a transition."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from job_queue.domain.cluster_state import ProjectLoad
from job_queue.domain.job import Job
from job_queue.domain.policy import StoredPolicy
from job_queue.domain.state_machine import JobTransition, new_failure
from job_queue.scheduler import Drain, JobState, Plan


@dataclass(frozen=True, slots=True)
class JobQueued:
    """The event that a new job is stored."""

    job: Job


@dataclass(frozen=True, slots=True)
class CycleEnded:
    """The event that a cycle has ended."""

    plan: Plan
    loads: Mapping[str, ProjectLoad]  # project -> numbers of its live jobs after the cycle
    seconds: float  # duration of the cycle
    lasting_refusals: int  # number of jobs and capacity keys that SageMaker has refused for `LASTING_SECONDS`


@dataclass(frozen=True, slots=True)
class ComparisonAge:
    """The age of the last successful comparison with SageMaker's list, sent once per tick."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SilentSites:
    """The number of other sites whose events do not arrive, sent once per tick.

    At such a site the comparison has found ended attempts that no event had reported.
    """

    count: int


@dataclass(frozen=True, slots=True)
class IdleInstances:
    """The event that idle jobs were looked up."""

    counts: Mapping[str, int]  # pool -> instances of idle jobs, for pools with jobs that were looked up


@dataclass(frozen=True, slots=True)
class UnsavedJob:
    """The event that a preemptible job has run for an hour without a checkpoint, sent once for each attempt."""

    job: Job
    has_folder: bool  # whether the job has a checkpoint folder
    at: float  # epoch seconds


@dataclass(frozen=True, slots=True)
class PolicyApplied:
    """The event that a new policy is in force."""

    policy: StoredPolicy
    restored: int | None  # the earlier version that was restored; None: a new document


@dataclass(frozen=True, slots=True)
class PoolDrained:
    """The event that a pool is drained, now or at a time."""

    pool: str
    drain: Drain


@dataclass(frozen=True, slots=True)
class PoolUndrained:
    """The event that the drain of a pool was ended."""

    pool: str
    drain: Drain  # the ended drain
    by: str  # ARN of the admin who ended the drain


@dataclass(frozen=True, slots=True)
class ForgedAttempt:
    """The event that a training job has the queue's tags, and no proof that the queue launched it."""

    training_job: str
    claimed: str  # the job that the tags name


@dataclass(frozen=True, slots=True)
class UnrecordedJob:
    """The event that a transition of a job cannot be recorded, so that plans leave the job out for a while."""

    job: str


@dataclass(frozen=True, slots=True)
class LeaseConflict:
    """The event that an invocation could not run a cycle, because another invocation holds the lease."""


DomainEvent = (
    JobQueued
    | JobTransition  # a transition of a job, after it is recorded
    | CycleEnded
    | ComparisonAge
    | SilentSites
    | IdleInstances
    | UnsavedJob
    | PolicyApplied
    | PoolDrained
    | PoolUndrained
    | ForgedAttempt
    | UnrecordedJob
    | LeaseConflict
)
Notify = Callable[[DomainEvent], None]


class JobEvent(StrEnum):
    """The events of a job's life. The values are detail-types on EventBridge."""

    QUEUED = "Training Job Queued"
    STARTED = "Training Job Started"  # SageMaker accepted an attempt
    PREEMPTED = "Training Job Preempted"  # the attempt made room or its training plan ended, and the job waits again
    REQUEUED = "Training Job Requeued"  # the attempt was stopped at a user's request, and the job waits again
    DRAINED = "Training Job Drained"  # the attempt was stopped by a drain of the pool, and the job waits again
    HANGS = "Training Job Hangs"  # no log line, no checkpoint and idle GPUs for long; once for each attempt
    HUNG = "Training Job Hung"  # the attempt was stopped because it hung, and the job waits again
    RESUMED = "Training Job Resumed"  # SageMaker accepted another attempt of a job that was interrupted or retried
    EXPIRING = "Training Job Expiring"  # the training plan ends soon, so SageMaker will take the instances back
    UNSTOPPABLE = "Training Job Unstoppable"  # SageMaker denied a request to stop the attempt
    LATE = "Training Job Late"  # the job waits, and has not started by its `start_by`
    BACKED_OFF = "Training Job Backed Off"  # a launch or an attempt failed, not by the job's fault; the job waits again
    UNSAVED = "Training Job Unsaved"  # a preemption would lose more than an hour of the work of the attempt
    GPU_RETURNED = "Training Job GPU Returned"  # a retry after a hardware failure; other failures named the same GPU
    FINISHED = "Training Job Finished"


_INTERRUPTIONS = {
    "preempted": JobEvent.PREEMPTED,
    "requeued": JobEvent.REQUEUED,
    "drained": JobEvent.DRAINED,
    "hung": JobEvent.HUNG,
}
"""The events of attempts that were interrupted, by outcome."""


def job_event(transition: JobTransition) -> JobEvent | None:
    """Return the event of a transition, or None if the transition has no event."""
    old, new = transition.old, transition.new
    if new.state.finished:
        return JobEvent.FINISHED
    if new.start_missed and not old.start_missed:
        return JobEvent.LATE
    if new.state is JobState.RUNNING:
        return _of_running(old, new)
    failure = new_failure(transition)
    if failure is not None and new.tries == 0:
        # A retry without a backoff has no event, unless other failures named the same GPU. A job without a
        # retry is finished (see above).
        return JobEvent.GPU_RETURNED if failure.returned_gpus else None
    if old.state.holds_slots and new.state.waits:
        outcome = transition.ended.outcome if transition.ended is not None else None
        return _INTERRUPTIONS.get(outcome or "", JobEvent.BACKED_OFF)
    return None


def _of_running(old: Job, new: Job) -> JobEvent | None:
    if new.stop_denied not in (None, old.stop_denied):
        return JobEvent.UNSTOPPABLE
    if old.state is not JobState.RUNNING:
        return JobEvent.RESUMED if old.was_interrupted or old.retried or old.free_retried else JobEvent.STARTED
    if new.hung is not None and old.hung is None:
        return JobEvent.HANGS
    return JobEvent.EXPIRING if new.cut_off not in (None, old.cut_off) else None
