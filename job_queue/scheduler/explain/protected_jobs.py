"""Why no active job makes room for a waiting one."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from job_queue.scheduler.candidates import Candidate
from job_queue.scheduler.explain.messages import NAMED, clock, join, of_pool
from job_queue.scheduler.fair_share import Queue
from job_queue.scheduler.model import ActiveJob, JobState, Snapshot
from job_queue.scheduler.ordering import Guarantees, victim_order
from job_queue.scheduler.plan_state import PlanState

Pools = frozenset[str]
NOT_ENOUGH = "stopping all that may be stopped would not free enough"


@dataclass(frozen=True, slots=True)
class _Holder:
    """Another project that holds slots of some pools."""

    project: Queue
    pool: str
    jobs: tuple[ActiveJob, ...]


class ProtectedJobs:
    """Which active jobs keep their slots against a waiting one, and by what right."""

    def __init__(self, snapshot: Snapshot, state: PlanState) -> None:
        self._now = snapshot.now
        self._protect_quota = snapshot.policy.settings.protect_project_quota
        self._guarantees = Guarantees(snapshot.policy)
        self._queues = state.queues
        self._active: dict[str, list[ActiveJob]] = defaultdict(list)
        for job in snapshot.active:
            if job.state is not JobState.STOPPING and job.name not in state.evicted:
                self._active[job.project].append(job)
        for jobs in self._active.values():
            jobs.sort(key=lambda active: victim_order(active, self._now))
        self._holders: dict[Pools, list[_Holder]] = {}
        self._own: dict[tuple[str, int, Pools], str] = {}
        self._others: dict[tuple[Queue, Pools], str] = {}

    def message(self, candidate: Candidate) -> str:
        """`No job of its project there has a lower priority than 3. Others keep theirs: nlp holds 2 and is due 2.`"""
        own = (candidate.job.project, candidate.priority, candidate.pools)
        others = (candidate.project, candidate.pools)
        if own not in self._own:
            self._own[own] = self._why_own(*own)
        if others not in self._others:
            self._others[others] = self._why_others(*others)
        return " ".join(filter(None, (self._own[own], self._others[others])))

    def _why_own(self, project: str, priority: int, pools: Pools) -> str:
        lower = [it for it in self._active[project] if it.priority < priority and it.slots.keys() & pools]
        if not lower:
            return f"No job of its project there has a lower priority than {priority}."
        return f"Of lower priority there: {self._protected(lower)}."

    def _why_others(self, project: Queue, pools: Pools) -> str:
        holders = [it for it in self._holders_of(pools) if it.project is not project]
        if not holders:
            return ""
        told = [self._right(holder, project) for holder in holders[:NAMED]]
        if (more := len(holders) - len(told)) > 0:
            told.append(f"and {more} more")
        return f"Other projects keep theirs: {'; '.join(told)}."

    def _holders_of(self, pools: Pools) -> Sequence[_Holder]:
        """Who holds most first."""
        if pools not in self._holders:
            found = []
            for name, active in self._active.items():
                project = self._queues.project(name)
                for pool in sorted(pools):
                    jobs = tuple(job for job in active if pool in job.slots)
                    if jobs:
                        found.append(_Holder(project, pool, jobs))
            found.sort(key=lambda holder: (-holder.project.projected[holder.pool], holder.project.place, holder.pool))
            self._holders[pools] = found
        return self._holders[pools]

    def _right(self, holder: _Holder, claimant: Queue) -> str:
        """By what right a project keeps what it holds: compared where the two paths part."""
        project, pool = holder.project, holder.pool
        side = project if project.parent is claimant.parent else project.top
        holds = f"{side.name} holds {side.projected[pool]}{of_pool(pool)}"
        if side.projected[pool] <= side.entitlement[pool]:
            return f"{holds} and is due {side.entitlement[pool]}"
        if self._protect_quota and project.projected[pool] <= project.quota.get(pool, 0):
            return f"{project.name} holds {project.projected[pool]}{of_pool(pool)}, which is its quota"
        return f"{holds} and is due {side.entitlement[pool]}, but {self._protected(holder.jobs)}"

    def _protected(self, jobs: Iterable[ActiveJob]) -> str:
        """`a and b may not be stopped; c is still being launched`."""
        by_right: dict[str, list[str]] = defaultdict(list)
        for job in jobs:
            by_right[self._protection(job)].append(job.name)
        return "; ".join(f"{join(names)} ({right})" for right, names in by_right.items())

    def _protection(self, active: ActiveJob) -> str:
        if not active.preemptible:
            return "may not be stopped"
        if active.state is JobState.STARTING:
            return "still being launched"
        until = self._guarantees.ends(active, self._now)
        if until > self._now:
            return f"guaranteed to run until {clock(until)}"
        return NOT_ENOUGH
