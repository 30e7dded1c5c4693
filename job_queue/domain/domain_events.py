"""Which event a recorded transition is to observers."""

from enum import StrEnum

from job_queue.domain.job import Job
from job_queue.domain.state_machine import Transition
from job_queue.scheduler import JobState


class DomainEvent(StrEnum):
    """The events of a job's life; the values are detail-types on EventBridge."""

    QUEUED = "Training Job Queued"
    STARTED = "Training Job Started"  # SageMaker accepted an attempt
    PREEMPTED = "Training Job Preempted"  # its attempt has ended to make room for another job, and it waits again
    RESUMED = "Training Job Resumed"  # SageMaker accepted another attempt of a job that was preempted or had failed
    EXPIRING = "Training Job Expiring"  # its training plan ends, and its instances are taken back
    UNSTOPPABLE = "Training Job Unstoppable"  # SageMaker denies the queue to stop its attempt
    BACKED_OFF = "Training Job Backed Off"  # a launch or an attempt failed, not by the job itself; it waits
    FINISHED = "Training Job Finished"


def domain_event(transition: Transition) -> DomainEvent | None:
    """The event of a transition; None: it has none."""
    old, new = transition.old, transition.new
    if new.state.finished:
        return DomainEvent.FINISHED
    if new.state is JobState.RUNNING:
        return _of_running(old, new)
    if new.retried > old.retried:
        return None  # its own failure is no backoff; its end is an event when no retries are left
    if old.state.holds_slots and new.state.waits:
        made_room = transition.ended is not None and transition.ended.outcome == "preempted"
        return DomainEvent.PREEMPTED if made_room else DomainEvent.BACKED_OFF
    return None


def _of_running(old: Job, new: Job) -> DomainEvent | None:
    if new.stop_denied not in (None, old.stop_denied):
        return DomainEvent.UNSTOPPABLE
    if old.state is not JobState.RUNNING:
        return DomainEvent.RESUMED if old.ran or old.retried else DomainEvent.STARTED
    return DomainEvent.EXPIRING if new.cut_off not in (None, old.cut_off) else None
