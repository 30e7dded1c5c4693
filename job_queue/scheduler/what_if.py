"""Advice: changes that would let a waiting job start, each verified by a plan with only that change."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from job_queue.scheduler.candidates import smallest_alternatives
from job_queue.scheduler.carriers.shared_plan import plan
from job_queue.scheduler.documents.policy_schema import MAX_PRIORITY, Department, Policy, Project
from job_queue.scheduler.fair_share import oversubscriptions
from job_queue.scheduler.model import ActiveJob, Carrier, JobState, Snapshot, WaitingJob

Figure = Literal["limit", "quota"]


class OutOfTimeError(Exception):
    """A search for advice ends: `may_go_on` returned False, so there is no time for another plan."""


@dataclass(frozen=True, slots=True)
class WhatIfOutcome:
    """The outcome of a change that helps: the job would start, or have slots reserved."""

    at_once: bool  # whether the job would start in this plan
    after: tuple[str, ...] = ()  # jobs that would be stopped for this job first; empty: no further stops


@dataclass(frozen=True, slots=True)
class RaisedAmount:
    """A higher limit or quota of one project or department in one pool."""

    queue: str  # name of the project or department
    pool: str
    now: int
    needed: int


class WhatIf:
    """Plans of a snapshot with one change each.

    :param snapshot: the snapshot in which the job waits; never changed.
    :param job: the waiting job to find changes for.
    :param may_go_on: called before each plan; returns whether there is time for one more plan.
    """

    def __init__(self, snapshot: Snapshot, job: WaitingJob, may_go_on: Callable[[], bool] = lambda: True) -> None:
        self._may_go_on = may_go_on
        self._snapshot = snapshot
        self._job = job
        self._others = tuple(other for other in snapshot.waiting if other.name != job.name)
        self._project = next(project for project in snapshot.policy.projects if project.name == job.project)

    # --- plans ------------------------------------------------------------------------------------------

    def with_job_changes(self, **changes: Any) -> WhatIfOutcome | None:
        """Return the outcome if the job had these fields, or None if it would still wait.

        :raises OutOfTimeError: `may_go_on` returned False.
        """
        return self._outcome(replace(self._snapshot, waiting=(*self._others, replace(self._job, **changes))))

    def if_resubmitted(self, **changes: Any) -> WhatIfOutcome | None:
        """Return the outcome if the job were submitted again now with these fields, or None if it would still wait."""
        return self.with_job_changes(entered=self._snapshot.now, **changes)

    def under_policy(self, policy: Policy) -> WhatIfOutcome | None:
        """Return the outcome under another policy, or None if the job would still wait."""
        return self._outcome(replace(self._snapshot, policy=policy))

    def _outcome(self, snapshot: Snapshot) -> WhatIfOutcome | None:
        if not self._may_go_on():
            raise OutOfTimeError
        decided, name = plan(snapshot, explained=False), self._job.name
        if name in decided.started:
            return WhatIfOutcome(at_once=True)
        after = tuple(evict.job for evict in decided.evictions if evict.claimant == name)
        return WhatIfOutcome(False, after) if after or name in decided.reservations else None

    # --- changes to try ---------------------------------------------------------------------------------

    def priorities(self) -> list[int]:
        """Return the priorities, lowest first, that would bring the job past another job of its project."""
        jobs: tuple[ActiveJob | WaitingJob, ...] = (*self._snapshot.active, *self._others)
        rivals = {job.priority for job in jobs if job.project == self._job.project}
        # At equal priority an earlier job stays ahead, so the next higher priority is tried as well.
        higher = rivals | {priority + 1 for priority in rivals}
        ceiling = MAX_PRIORITY if self._project.priority_ceiling is None else self._project.priority_ceiling
        return sorted(level for level in higher if self._job.priority < level <= ceiling)

    def pools(self) -> Sequence[str]:
        """Return the pools that the project has for jobs like this one, interactive or not; by default all pools."""
        own = self._project.pools_for(interactive=self._job.interactive)
        return own or [pool.name for pool in self._snapshot.policy.pools]

    def policy_with_room(self, figure: Figure) -> tuple[Policy, list[RaisedAmount]]:
        """Return a policy whose limits or quotas leave room for the job, and the raised limits or quotas.

        The list is empty if nothing needs to be raised, or if the raised quotas would exceed a capacity or the
        department's quota.
        """
        policy, raises = self._snapshot.policy, list[RaisedAmount]()
        departments = [parent for parent in policy.departments if parent.name == self._project.department]
        path: list[Project | Department] = [self._project, *departments]
        for holder in path:
            figures = dict(holder.limit if figure == "limit" else holder.quota)
            for pool, count in smallest_alternatives(self._job.demand)[0].items():
                needed, now = self._held(holder, pool, figure) + count, figures.get(pool, 0)
                if now < needed and (figure == "quota" or pool in figures):
                    figures[pool] = needed
                    raises.append(RaisedAmount(holder.name, pool, now, needed))
            changed: Any = replace(holder, limit=figures) if figure == "limit" else replace(holder, quota=figures)
            policy = replace(
                policy,
                projects=tuple(changed if project is holder else project for project in policy.projects),
                departments=tuple(changed if parent is holder else parent for parent in policy.departments),
            )
        if figure == "quota" and not policy.settings.allow_oversubscription and any(oversubscriptions(policy)):
            return policy, []
        return policy, raises

    def _held(self, holder: Project | Department, pool: str, figure: Figure) -> int:
        """Return the slots in use, without those of stopping jobs, that count against a limit or quota of the holder.

        If the job is not preemptible, only other jobs and carriers that are not preemptible count against the quota.
        """
        projects = self._snapshot.policy.projects
        names = {project.name for project in projects if holder.name in (project.name, project.department)}
        counts_all = figure == "limit" or self._job.preemptible

        def counts(active: ActiveJob | Carrier) -> bool:
            is_stopping = active.state is JobState.STOPPING
            return active.project in names and not is_stopping and (counts_all or not active.preemptible)

        jobs, carriers = filter(counts, self._snapshot.active), filter(counts, self._snapshot.carriers)
        return sum(job.slots.get(pool, 0) for job in jobs) + sum(carrier.pool == pool for carrier in carriers)
