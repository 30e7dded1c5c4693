"""Plans carried out on a snapshot, in a world without news (scheduling rules, section 8)."""

from dataclasses import dataclass, field, replace

from job_queue.scheduler.decisions import Plan, Start
from job_queue.scheduler.eligibility import makes_room
from job_queue.scheduler.model import ActiveJob, JobState, Snapshot, WaitingJob


@dataclass
class Run:
    """A snapshot that plans are applied to, in a world without news: its time stands still."""

    snapshot: Snapshot
    _coming_back: set[str] = field(default_factory=set, init=False)  # stopping to make room, not for good

    def __post_init__(self) -> None:
        self._coming_back.update(job.name for job in self.snapshot.active if makes_room(job))

    def apply(self, decided: Plan) -> bool:
        """Carry out a plan: what was stopping is gone, what was starting runs, evicted jobs stop, new ones start.

        Gives whether anything changed.
        """
        before = self.snapshot
        evicted = {eviction.job for eviction in decided.evictions}
        self._coming_back |= evicted
        waiting = {job.name: job for job in before.waiting}
        active = []
        for job in before.active:
            if job.state is not JobState.STOPPING:
                state = JobState.STOPPING if job.name in evicted else JobState.RUNNING
                started = before.now if job.started is None else job.started
                active.append(replace(job, state=state, started=started, comes_back=job.name in evicted))
            elif job.name in self._coming_back:
                waiting[job.name] = _preempted(job)
        active += [_starting(waiting.pop(start.job), start, before.now) for start in decided.starts]
        self.snapshot = replace(
            before,
            active=tuple(replace(job, reserved_for=None) for job in active),  # the plan's reservations tell all
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
