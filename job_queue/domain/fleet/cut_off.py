"""Announcements to jobs that SageMaker takes back their instances, because a training plan ends."""

from job_queue.domain.job import Job
from job_queue.domain.state_machine import Transition
from job_queue.scheduler import clock


def announce_cut_off(job: Job, at: int, plan: str, now: float) -> Transition:
    """Announce to a running job that its instances are taken back at that time, because its training plan ends."""
    cause = f"told: SageMaker takes its instances back at {clock(at)}, before the training plan {plan} ends"
    return Transition(job, job.with_changes(cut_off=at), cause, now)


def announce_extension(job: Job, now: float) -> Transition:
    """Announce to a running job that its instances are not taken back yet."""
    return Transition(job, job.with_changes(cut_off=None), "told: its training plan was extended", now)
