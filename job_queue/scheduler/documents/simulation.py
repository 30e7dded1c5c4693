"""Plans carried out on a snapshot, in a world without news (scheduling rules, section 8), and written down."""

from dataclasses import dataclass, replace
from typing import Any

from job_queue.scheduler.model import ActiveJob, JobState, Plan, Snapshot, Start, WaitingJob
from job_queue.scheduler.ordering import waiting_order
from job_queue.scheduler.planner import plan

ROUNDS = 50  # a run that is not stable by then is given up


@dataclass
class Run:
    """A snapshot that plans are applied to; its time stands still."""

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
                waiting[job.name] = WaitingJob(demand=job.demand or (job.slots,), **_common(job))
        for start in decided.starts:
            active.append(_starting(waiting.pop(start.job), start, before.now))
        self.snapshot = replace(
            before, active=tuple(active), waiting=tuple(waiting.values()), reserved=decided.reservations
        )
        return self.snapshot != before


def _starting(job: WaitingJob, start: Start, now: float) -> ActiveJob:
    return ActiveJob(slots=start.slots, state=JobState.STARTING, started=now, demand=job.demand, **_common(job))


def _common(job: ActiveJob | WaitingJob) -> dict[str, Any]:
    """The fields that a job has in either form."""
    names = ("name", "project", "priority", "entered", "preemptible", "max_runtime")
    return {name: getattr(job, name) for name in names}


def plan_to_document(decided: Plan) -> dict[str, Any]:
    """A plan as plain data."""
    return {
        "start": [{"job": start.job, "slots": dict(start.slots)} for start in decided.starts],
        "evict": [{"job": it.job, "for": it.claimant, "rule": it.rule.value} for it in decided.evictions],
        "hold": [{"job": it.job, "reason": it.reason.value, "message": it.message} for it in decided.holds],
        "shares": {pool: dict(shares) for pool, shares in decided.shares.items()},
    }


def run_until_stable(snapshot: Snapshot) -> dict[str, Any]:
    """Plan and apply until nothing changes, at most ROUNDS times: the rounds and where they led, as plain data."""
    run = Run(snapshot)
    rounds: list[dict[str, Any]] = []
    stable = False
    while not stable and len(rounds) < ROUNDS:
        decided = plan(run.snapshot)
        rounds.append(plan_to_document(decided))
        stable = not run.apply(decided)
    return {
        "rounds": rounds,
        "stable": stable,
        "active": {job.name: dict(job.slots) for job in sorted(run.snapshot.active, key=lambda job: job.name)},
        "waiting": [job.name for job in sorted(run.snapshot.waiting, key=waiting_order)],
        "slots": _slots_by_project(run.snapshot),
    }


def _slots_by_project(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    held: dict[str, dict[str, int]] = {project.name: {} for project in snapshot.policy.projects}
    for job in snapshot.active:
        for pool, count in job.slots.items():
            held[job.project][pool] = held[job.project].get(pool, 0) + count
    return {project: slots for project, slots in held.items() if slots}
