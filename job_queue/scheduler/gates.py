"""Who may start: limits, quota for jobs that are not preemptible, entitlement (scheduling rules, sections 2 and 3)."""

from collections.abc import Mapping, Sequence

from job_queue.scheduler.draft import Draft
from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.model import Slots
from job_queue.scheduler.queues import Queue
from job_queue.scheduler.shares import UNLIMITED

Freed = Mapping[tuple[Queue, str], int]
"""What queues hold less, by pool, once somebody has given way."""

NOTHING: Freed = {}


class Gates:
    """Predicates on one alternative of a job, at its project and its department."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    def project(self, candidate: Candidate) -> Queue:
        """The job's project."""
        return self._draft.projects[candidate.name]

    def fixed_within_quota(self, candidate: Candidate, need: Slots) -> bool:
        """A job that may not be stopped uses nothing but quota."""
        if candidate.job.preemptible:
            return True
        own = self._draft.own(candidate)
        return all(
            queue.fixed[pool] - own.get(pool, 0) + count <= queue.quota.get(pool, 0)
            for queue in self.project(candidate).path
            for pool, count in need.items()
        )

    def within_limits_now(
        self, candidate: Candidate, need: Slots, freed: Freed = NOTHING, unused: Freed = NOTHING
    ) -> bool:
        """Stopping slots count until they are gone; so does what is set aside for others.

        :param freed: what will be held less once others have given way.
        :param unused: the part of it that is used less at once.
        """
        for queue in self.project(candidate).path:
            if queue.limit:
                for pool, count in need.items():
                    used = queue.used[pool] - unused.get((queue, pool), 0)
                    if used + count > queue.limit.get(pool, UNLIMITED):
                        return False
        return self.within_limits_soon(candidate, need, freed)

    def within_limits_soon(self, candidate: Candidate, need: Slots, freed: Freed = NOTHING) -> bool:
        """Once all stops are over."""
        own = self._draft.own(candidate)
        return all(
            queue.held[pool] - own.get(pool, 0) - freed.get((queue, pool), 0) + count
            <= queue.limit.get(pool, UNLIMITED)
            for queue in self.project(candidate).path
            if queue.limit
            for pool, count in need.items()
        )

    def may_start_once_stops_are_over(self, candidate: Candidate, need: Slots) -> bool:
        """Nothing but slots keeps it from starting."""
        return self.fixed_within_quota(candidate, need) and self.within_limits_soon(candidate, need)

    def within_entitlement(self, candidate: Candidate, need: Slots, freed: Freed = NOTHING) -> bool:
        """Its project and its department stay within what they are due."""
        own = self._draft.own(candidate)
        return all(
            queue.held[pool] - own.get(pool, 0) - freed.get((queue, pool), 0) + count <= queue.entitlement[pool]
            for queue in self.project(candidate).path
            for pool, count in need.items()
        )

    def within_entitlement_but_for_lower(self, candidate: Candidate, need: Slots) -> bool:
        """The same, what they hold with lower priorities of its own project that it may preempt not counted."""
        if self.within_entitlement(candidate, need):
            return True
        lower = self.lower(candidate, need)
        return bool(lower) and self.within_entitlement(candidate, need, lower)

    def project_within_entitlement(self, candidate: Candidate, need: Slots) -> bool:
        """Its project alone stays within what it is due, lower priorities that it may preempt not counted."""
        project, own = self.project(candidate), self._draft.own(candidate)
        over = [p for p, n in need.items() if project.held[p] - own.get(p, 0) + n > project.entitlement[p]]
        if not over:
            return True
        lower = self.lower(candidate, need)
        return all(
            project.held[pool] - own.get(pool, 0) - lower.get((project, pool), 0) + need[pool]
            <= project.entitlement[pool]
            for pool in over
        )

    def lower(self, candidate: Candidate, need: Slots) -> dict[tuple[Queue, str], int]:
        """What its project holds with lower priorities that it may preempt, withdraw or take over from."""
        project, priority, draft = self.project(candidate), candidate.job.priority, self._draft
        freed: dict[tuple[Queue, str], int] = {}
        for pool in need:
            count = draft.victims.below(project, priority, pool)
            count += sum(start.slots.get(pool, 0) for start in draft.withdrawable(candidate))
            count += sum(draft.own(holder).get(pool, 0) for holder in draft.lower_holders(candidate))
            if count:
                freed |= {(queue, pool): count for queue in project.path}
        return freed

    def entitlements(self, candidate: Candidate, need: Slots) -> dict[tuple[Queue, str], int]:
        """What the queues on its path are due in these pools."""
        return {(queue, pool): queue.entitlement[pool] for queue in self.project(candidate).path for pool in need}

    def claims_of(self, holders: Sequence[Candidate]) -> Freed:
        """What falls with these reservations."""
        freed: dict[tuple[Queue, str], int] = {}
        for holder in holders:
            for pool, count in self._draft.own(holder).items():
                for queue in self.project(holder).path:
                    freed[queue, pool] = freed.get((queue, pool), 0) + count
        return freed
