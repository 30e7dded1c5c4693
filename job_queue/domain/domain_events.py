"""What a recorded transition means to those who look on."""

from enum import StrEnum

from job_queue.domain.state_machine import Transition
from job_queue.scheduler.model import JobState


class DomainEvent(StrEnum):
    """What is worth telling of a job's life; the values are detail-types on EventBridge."""

    QUEUED = "Training Job Queued"
    STARTED = "Training Job Started"  # SageMaker accepted an attempt
    PREEMPTED = "Training Job Preempted"  # its attempt has ended to make room for another job, and it waits again
    RESUMED = "Training Job Resumed"  # SageMaker accepted another attempt of a job that was preempted or had failed
    BACKED_OFF = "Training Job Backed Off"  # its launch or its attempt came to nothing, and it waits for another try
    FINISHED = "Training Job Finished"


def domain_event(move: Transition) -> DomainEvent | None:
    """What a transition means; None: nothing to tell."""
    old, new = move.old, move.new
    if new.state.finished:
        return DomainEvent.FINISHED
    if new.state is JobState.RUNNING and old.state is not JobState.RUNNING:
        return DomainEvent.RESUMED if old.ran or old.retried else DomainEvent.STARTED
    if new.retried > old.retried:
        return None  # its own failure is no backoff; its end is told when no retries are left
    if old.state.holds_slots and new.state.waits:
        made_room = move.ended is not None and move.ended["outcome"] == "preempted"
        return DomainEvent.PREEMPTED if made_room else DomainEvent.BACKED_OFF
    return None
