"""How the queue's records look in the API's answers."""

import json
from collections.abc import Iterable
from typing import Any

from job_queue.records import Job, JobRecord, waiting_position
from job_queue.scheduler.decisions import Hold, Plan, Reason
from job_queue.scheduler.model import JobState
from job_queue.world import World

Json = dict[str, Any]

_NOT_IN_LINE = frozenset({Reason.HELD_BY_USER, Reason.NO_SUCH_POOL, Reason.NEVER_FITS})


class Standing:
    """Where each waiting job stands, and why it waits, as the planner sees it now."""

    def __init__(self, decided: Plan) -> None:
        in_line = [hold.job for hold in decided.holds if hold.reason not in _NOT_IN_LINE]
        self._places = {job: place for place, job in enumerate(in_line, start=1)}
        self._holds: dict[str, Hold] = {hold.job: hold for hold in decided.holds}

    @classmethod
    def nowhere(cls) -> "Standing":
        """Of a job that does not wait."""
        return cls(Plan())

    def position(self, job: Job) -> int | None:
        """Its place among the jobs that wait, 1 is the next; None if it does not wait or is too far behind to say."""
        return self._places.get(job.name) if job.state.waits else None

    def never_starts(self, job: Job) -> str | None:
        """Why the job would wait for ever, if it would."""
        hold = self._holds.get(job.name)
        return hold.message if hold and hold.reason in (Reason.NEVER_FITS, Reason.NO_SUCH_POOL) else None

    def reason(self, job: Job) -> Json | None:
        """Why it waits, or why it ended; None where there is nothing to explain."""
        if job.state in (JobState.FAILED, JobState.STOPPED):
            return {"code": job.state.value.upper(), "message": job.reason or ""}
        if not job.state.waits:
            return None
        if hold := self._holds.get(job.name):
            message = f"{hold.message} (last: {job.reason})" if job.backoff_until and job.reason else hold.message
            return {"code": hold.reason.value, "message": message}
        return {"code": "STARTING_SOON", "message": "The next cycle will start it, in a minute at most."}


def summary(job: Job, standing: Standing) -> Json:
    """A job in a line."""
    return {
        "job": job.name,
        "state": job.state.value,
        "priority": job.priority,
        "project": job.project,
        "owner": job.owner,
        "instances": job.instances,
        "entryTime": job.entered,
        "stateSince": job.since,
        "attempt": job.attempt,
        "trainingJobName": job.launched,
        "position": standing.position(job),
        "reason": standing.reason(job),
        "cancelRequested": job.cancelled,
    }


def detail(record: JobRecord, standing: Standing) -> Json:
    """All that is known of a job."""
    job = record.job
    attempts = list(record.attempts)
    if job.state.holds_slots:
        attempts.append(
            {
                "attempt": job.attempt,
                "trainingJobName": job.launched,
                "started": job.started,
                "ended": None,
                "outcome": None,
            }
        )
    return {
        **summary(job, standing),
        "history": list(record.history),
        "attempts": [{"started": None, **attempt} for attempt in attempts],
        "request": json.loads(record.details),
    }


def queue_status(world: World, decided: Plan) -> Json:
    """Pools, who runs and who waits, in order."""
    standing = Standing(decided)
    snapshot = world.snapshot(0)
    pools = []
    for pool in world.policy.pools:
        used = stopping = 0
        for job in world.active.values():
            used += job.slots.get(pool.name, 0)
            stopping += job.slots.get(pool.name, 0) if job.state is JobState.STOPPING else 0
        external = snapshot.external.get(pool.name, 0)
        pools.append(
            {
                "name": pool.name,
                "capacity": pool.capacity,
                "used": used,
                "external": external,
                "stopping": stopping,
                "free": max(0, pool.capacity - used - external),
            }
        )
    waiting = [world.waiting[hold.job] for hold in decided.holds if hold.job in world.waiting]
    return {
        "pools": pools,
        "active": [summary(job, standing) for job in in_order(world.active.values())],
        "waiting": [summary(job, standing) for job in waiting],
    }


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """The article's order of a table: priority descending, then entry time, then name."""
    return sorted(jobs, key=order_of)


def order_of(job: Job) -> str:
    """Sort key of that order; also where a page of jobs goes on."""
    return waiting_position(job.priority, job.entered, job.name)
