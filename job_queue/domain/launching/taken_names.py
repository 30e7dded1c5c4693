"""Transitions after SageMaker refused a launch because its name is taken, if the owner of the name is not clear.

The refused call can no longer take effect, so it is removed from the calls. Another call follows in a minute, and its
answer decides.
"""

from job_queue.domain import state_machine
from job_queue.domain.job import Job
from job_queue.domain.state_machine import Transition


def name_is_unclear(job: Job, now: float) -> Transition:
    """Wait: a training job has the attempt's name and no proof, and an earlier call may have created it.

    The training job may be the attempt, without its tags. So no other attempt is launched while it is alive.
    """
    why = (
        f"{job.launched} is alive in SageMaker without this queue's proof in its tags. It may be this job's attempt, "
        "so the next one is launched when it has ended."
    )
    later = int(now) + state_machine.ASK_AGAIN_SECONDS
    new = state_machine.without_effect(job).with_changes(
        calls=job.calls[:-1], in_doubt=True, backoff_until=later, reason=why
    )
    return Transition(job, new, None if job.reason == why else why, now)


def name_is_taken_unseen(job: Job, now: float) -> Transition:
    """Wait: a training job has the attempt's name, and SageMaker does not describe it."""
    later = int(now) + state_machine.ASK_AGAIN_SECONDS
    new = state_machine.without_effect(job).with_changes(calls=job.calls[:-1], in_doubt=True, backoff_until=later)
    return Transition(job, new, None, now)


def missing_at_launch(job: Job, sent_at: int, now: float) -> Transition:
    """Wait: SageMaker refuses the name and has no such training job. The call sent at that time has no effect."""
    calls = tuple(call for call in job.calls if call.sent_at != sent_at)
    missing_since = job.missing_since or int(now)
    later = int(now) + state_machine.ASK_AGAIN_SECONDS
    new = state_machine.without_effect(job).with_changes(
        calls=calls, in_doubt=True, missing_since=missing_since, backoff_until=later
    )
    return Transition(job, new, None, now)
