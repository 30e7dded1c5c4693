"""The two orders of the scheduler. Each ends in a name, so it is total: equal snapshots give equal plans."""

from job_queue.scheduler.model import ActiveJob, WaitingJob


def line_order(job: WaitingJob) -> tuple[int, float, str]:
    """Who is served first: highest priority, then longest in the queue, then name."""
    return (-job.priority, job.entered, job.name)


def victim_order(job: ActiveJob, now: float) -> tuple[int, float, float, str]:
    """Who leaves first: lowest priority, then least work lost, then latest entry, then name."""
    return (job.priority, work_lost(job, now), -job.entered, job.name)


def work_lost(job: ActiveJob, now: float) -> float:
    """Instance-seconds that a stop would throw away: what was done since the start, or the last checkpoint."""
    if job.started is None:
        return 0.0
    saved = max(job.started, job.checkpoint or job.started)
    return max(0.0, now - saved) * sum(job.slots.values())
