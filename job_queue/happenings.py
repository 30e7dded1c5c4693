"""What a recorded transition means to those who look on."""

from enum import StrEnum

from job_queue.lifecycle import Move
from job_queue.scheduler import JobState


class Happening(StrEnum):
    """What is worth telling of a job's life; the values are detail-types on EventBridge."""

    QUEUED = "Training Job Queued"
    STARTED = "Training Job Started"  # SageMaker accepted an attempt
    PREEMPTED = "Training Job Preempted"  # its attempt has ended to make room for another job, and it waits again
    RESUMED = "Training Job Resumed"  # SageMaker accepted another attempt of a job that was preempted or had failed
    BACKED_OFF = "Training Job Backed Off"  # its launch or its attempt came to nothing, and it waits for another try
    FINISHED = "Training Job Finished"


def happening(move: Move) -> Happening | None:
    """What a transition means; None: nothing to tell."""
    old, new = move.old, move.new
    if new.state.finished:
        return Happening.FINISHED
    if new.state is JobState.RUNNING and old.state is not JobState.RUNNING:
        return Happening.RESUMED if old.ran or old.retried else Happening.STARTED
    if new.retried > old.retried:
        return None  # its own failure is no backoff; its end is told when no retries are left
    if old.state.holds_slots and new.state.waits:
        made_room = move.ended is not None and move.ended["outcome"] == "preempted"
        return Happening.PREEMPTED if made_room else Happening.BACKED_OFF
    return None
