"""How the queue's records look in the API's answers."""

import json
from collections.abc import Container, Iterable, Sequence
from typing import Any

from job_queue.adapters.items import attempt_item, history_item
from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.job import ExternalJob, Job, JobRecord, iso, waiting_position
from job_queue.domain.policy import AppliedPolicy, slots_of
from job_queue.scheduler import Department, Hold, JobState, Plan, Policy, Pool, Project, Reason

Json = dict[str, Any]

_NOT_IN_LINE = frozenset({Reason.HELD_BY_USER, Reason.NO_SUCH_POOL, Reason.NEVER_FITS})


class QueuePosition:
    """Where each waiting job stands, and why it waits, as the planner sees it now."""

    def __init__(self, decided: Plan, *, window: int = 0, cut: Container[str] = ()) -> None:
        in_line = [hold.job for hold in decided.holds if hold.reason not in _NOT_IN_LINE]
        self._places = {job: place for place, job in enumerate(in_line, start=1)}
        self._holds: dict[str, Hold] = {hold.job: hold for hold in decided.holds}
        self._starts = {start.job for start in decided.starts}
        self._window = window
        self._cut = cut

    @classmethod
    def in_queue(cls, cluster: ClusterState, decided: Plan) -> "QueuePosition":
        """Of the jobs of a cluster that was planned with."""
        return cls(decided, window=cluster.policy.settings.window, cut=cluster.cut)

    @classmethod
    def nowhere(cls) -> "QueuePosition":
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
            message = (
                f"{hold.message} (last: {job.reason})" if hold.reason is Reason.BACKOFF and job.reason else hold.message
            )
            return {"code": hold.reason.value, "message": message}
        if job.waiting_queue in self._cut and job.name not in self._starts:
            ahead = f"the first {self._window} jobs" if self._window > 1 else "the first job"
            message = f"Waits behind {ahead} of its line: a cycle looks no further (the policy's window)."
            return {"code": "BEYOND_WINDOW", "message": message}
        return {"code": "STARTING_SOON", "message": "The next cycle will start it, in a minute at most."}

    def why(self, job: Job, advice: Sequence[str]) -> Json | None:
        """What is ahead of a waiting job, who blocks it, and what would change that."""
        hold = self._holds.get(job.name) if job.state.waits else None
        if hold is None:
            return None
        return {"ahead": list(hold.ahead), "blockers": list(hold.blockers), "advice": list(advice)}


def summary(job: Job, standing: QueuePosition) -> Json:
    """A job in a line."""
    return {
        "job": job.name,
        "state": job.state.value,
        "priority": job.priority,
        "project": job.project,
        "group": job.group,
        "owner": job.owner,
        "instances": job.instances,
        "entryTime": job.entered,
        "stateSince": job.since,
        "attempt": job.attempt,
        "trainingJobName": job.launched,
        "position": standing.position(job),
        "reason": standing.reason(job),
        "cancelRequested": job.cancelled,
        "held": job.held,
        "preemptible": job.preemptible,
        "pools": list(job.pools),
        "slots": dict(job.slots),
        "retries": job.retries,
        "retried": job.retried,
    }


def detail(record: JobRecord, standing: QueuePosition, advice: Sequence[str]) -> Json:
    """All that is known of a job."""
    job = record.job
    attempts = [attempt_item(attempt) for attempt in record.attempts]
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
        "why": standing.why(job, advice),
        "history": [history_item(entry) for entry in record.history],
        "attempts": attempts,
        "request": json.loads(record.details),
    }


def queue_status(cluster: ClusterState, decided: Plan) -> Json:
    """Pools, departments, projects, who runs and who waits, in order."""
    standing, policy = QueuePosition.in_queue(cluster, decided), cluster.policy
    external = cluster.external_slots()
    children = {
        department.name: {project.name for project in policy.projects if project.department == department.name}
        for department in policy.departments
    }
    return {
        "policyVersion": cluster.applied.version,
        "pauses": [_backoff_status(backoff, policy) for backoff in cluster.metadata.capacity_backoffs.values()],
        "external": [_external_status(job, policy) for job in cluster.external],
        "pools": [_pool_status(pool, cluster, external.get(pool.name, 0)) for pool in policy.pools],
        "departments": [
            _owner_status(department, children[department.name], cluster, decided) for department in policy.departments
        ],
        "projects": [
            {**_owner_status(project, {project.name}, cluster, decided), "department": project.department}
            for project in policy.projects
        ],
        "active": [summary(job, standing) for job in in_order(cluster.active.values())],
        "waiting": [summary(cluster.waiting[hold.job], standing) for hold in decided.holds],
        "moreWaiting": bool(cluster.cut),
    }


def _pool_status(pool: Pool, cluster: ClusterState, external: int) -> Json:
    holders = [job for job in cluster.active.values() if pool.name in job.slots]
    used = sum(job.slots[pool.name] for job in holders)
    return {
        "name": pool.name,
        "instanceType": pool.instance_type,
        "capacity": pool.capacity,
        "used": used,
        "external": external,
        "stopping": sum(job.slots[pool.name] for job in holders if job.state is JobState.STOPPING),
        "free": max(0, pool.capacity - used - external),
    }


def _backoff_status(backoff: CapacityBackoff, policy: Policy) -> Json:
    pool, kind = backoff.capacity_key, None
    if policy.pools[0].instance_type is None:
        pool, _, kind = backoff.capacity_key.rpartition("/")
    return {
        "pool": pool,
        "instanceType": kind,
        "instances": backoff.instances,
        "refusals": backoff.failures,
        "lastRefusal": iso(backoff.since),
        "until": iso(backoff.until),
    }


def _external_status(job: ExternalJob, policy: Policy) -> Json:
    return {
        "trainingJobName": job.name,
        "slots": slots_of(job.instance_counts, policy),
        "since": job.since,
        "stopping": job.orphan,
    }


def _owner_status(owner: Project | Department, projects: set[str], cluster: ClusterState, decided: Plan) -> Json:
    used: dict[str, int] = {}
    for job in cluster.active.values():
        for pool, count in job.slots.items() if job.project in projects else ():
            used[pool] = used.get(pool, 0) + count
    return {
        "name": owner.name,
        "quota": dict(owner.quota),
        "limit": dict(owner.limit),
        "share": {pool: shares[owner.name] for pool, shares in decided.shares.items() if shares.get(owner.name)},
        "used": used,
        "waiting": sum(job.project in projects for job in cluster.waiting.values()),
        "moreWaiting": cluster.more_wait(projects),
    }


def policy_view(applied: AppliedPolicy) -> Json:
    """The policy with its version."""
    return {
        "version": applied.version,
        "policy": applied.document,
        "appliedBy": applied.applied_by,
        "appliedAt": applied.applied_at,
    }


def trial_view(job: Job, decided: Plan, advice: Sequence[str]) -> Json:
    """What a plan would do with one waiting job, and to whom."""
    standing = QueuePosition(decided)
    start = next((start for start in decided.starts if start.job == job.name), None)
    evictions = [evict for evict in decided.evictions if evict.claimant == job.name]
    why = standing.why(job, advice) or {"ahead": [], "blockers": [], "advice": []}
    slots = start.slots if start else decided.reservations.get(job.name) if evictions else None
    return {
        "wouldStart": slots is not None,  # now, or as soon as those that it evicts have stopped
        "slots": dict(slots) if slots else None,
        "evicts": [{"job": evict.job, "rule": evict.rule.value} for evict in evictions],
        "position": standing.position(job),
        "reason": None if start else standing.reason(job),
        **why,
    }


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """The article's order of a table: priority descending, then entry time, then name."""
    return sorted(jobs, key=order_of)


def order_of(job: Job) -> str:
    """Sort key of that order; also where a page of jobs goes on."""
    return waiting_position(job.priority, job.entered, job.name)
