"""The orders of the scheduler. Each ends in a name or a place, so it is total: equal snapshots give equal plans."""

from job_queue.scheduler.model import ActiveJob, WaitingJob

LineKey = tuple[int, float, str]
VictimKey = tuple[int, float, float, str]


def line_order(job: WaitingJob, now: float = 0, aging: float | None = None) -> LineKey:
    """Who of a project is served first: highest priority, then longest in the queue, then name.

    :param aging: seconds of waiting that raise its place by one priority. Only its place: preempting compares
        nominal priorities.
    """
    raised = int(max(0.0, now - job.entered) // aging) if aging else 0
    return (-job.priority - raised, job.entered, job.name)


def victim_order(job: ActiveJob, now: float) -> VictimKey:
    """Who leaves first: lowest priority, then least work lost, then latest entry, then name."""
    return (job.priority, work_lost(job, now), -job.entered, job.name)


def work_lost(job: ActiveJob, now: float) -> float:
    """Instance-seconds that a stop would throw away: what was done since the start, or the last checkpoint."""
    if job.started is None:
        return 0.0
    saved = max(job.started, job.checkpoint or job.started)
    return max(0.0, now - saved) * sum(job.slots.values())
