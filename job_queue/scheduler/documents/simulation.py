"""Plans carried out on a snapshot, in a world without news (scheduling rules, section 8)."""

from dataclasses import dataclass, replace

from job_queue.scheduler.model import ActiveJob, JobState, Plan, Snapshot, Start, WaitingJob


@dataclass
class Run:
    """A snapshot that plans are applied to, in a world without news: its time stands still."""

    snapshot: Snapshot

    def apply(self, decided: Plan) -> bool:
        """Carry out a plan: what was stopping is gone, what was starting runs, evicted jobs stop, new ones start.

        Gives whether anything changed.
        """
        before = self.snapshot
        evicted = {eviction.job for eviction in decided.evictions}
        waiting = {job.name: job for job in before.waiting}
        active = []
        for job in before.active:
            if job.state is not JobState.STOPPING:
                state = JobState.STOPPING if job.name in evicted else JobState.RUNNING
                started = before.now if job.started is None else job.started
                active.append(replace(job, state=state, started=started, comes_back=job.name in evicted))
            elif job.comes_back:
                waiting[job.name] = _preempted(job)
        active += [_starting(waiting.pop(start.job), start, before.now) for start in decided.starts]
        self.snapshot = replace(
            before,
            active=tuple(active),
            waiting=tuple(waiting.values()),
            reserved=decided.reservations,
        )
        return self.snapshot != before


def _preempted(job: ActiveJob) -> WaitingJob:
    return WaitingJob(
        name=job.name,
        project=job.project,
        priority=job.priority,
        demand=job.demand or (job.slots,),
        entered=job.entered,
        preemptible=job.preemptible,
        max_runtime=job.max_runtime,
    )


def _starting(job: WaitingJob, start: Start, now: float) -> ActiveJob:
    return ActiveJob(
        name=job.name,
        project=job.project,
        priority=job.priority,
        slots=start.slots,
        state=JobState.STARTING,
        entered=job.entered,
        started=now,
        preemptible=job.preemptible,
        demand=job.demand,
        max_runtime=job.max_runtime,
    )
