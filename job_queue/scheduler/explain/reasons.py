"""Why a job that could be served waits: the first reason that applies (scheduling rules, section 6)."""

from collections import Counter

from job_queue.scheduler.candidates import Candidate
from job_queue.scheduler.fair_share import UNLIMITED, Bound, Queue
from job_queue.scheduler.model import Reason, Slots
from job_queue.scheduler.plan_state import PlanState


class Reasons:
    """Finds the reason of one candidate after the other; changes nothing."""

    def __init__(self, state: PlanState) -> None:
        self._state = state
        self._usage: Counter[str] = Counter()  # projected, of all projects
        for queue in state.queues.tops:
            self._usage.update(queue.projected)

    def of(self, candidate: Candidate, *, others_ahead: bool) -> Reason:
        """The reason.

        :param others_ahead: whether jobs of its project that come first and want the same pools lack slots, too.
        """
        state, needs = self._state, candidate.alternatives
        if candidate.name in state.reservations:
            return Reason.WAITING_FOR_STOPPING
        within_limits = [need for need in needs if self._within_limits(candidate, need)]
        if not within_limits:
            return Reason.OVER_LIMIT
        open_needs = [need for need in within_limits if state.within_quota(candidate, need)]
        if not open_needs:
            return Reason.OVER_QUOTA_NON_PREEMPTIBLE
        if any(self._fits_in_windows(candidate, need) for need in open_needs):
            return Reason.KEPT_FOR_PATIENT_JOB
        if all(self.at_its_share(candidate, need) for need in open_needs):
            return Reason.BEHIND_FAIR_SHARE
        return Reason.BEHIND_HIGHER_PRIORITY if others_ahead else Reason.WAITING_FOR_CAPACITY

    def at_its_share(self, candidate: Candidate, need: Slots) -> tuple[Queue, str] | None:
        """The queue on its path, and the pool, where it is at its entitlement and others hold slots."""
        for queue in candidate.project.path:
            for pool, count in need.items():
                usage = queue.projected[pool]
                if usage + count > queue.entitlement[pool] and self._usage[pool] > usage:
                    return queue, pool
        return None

    def at_its_limit(self, candidate: Candidate) -> tuple[Queue, str, int]:
        """The queue on its path, and the pool, whose limit its first alternative would exceed; what is held there."""
        for queue in candidate.project.path:
            for pool, count in candidate.alternatives[0].items():
                held = max(queue.current[pool], queue.projected[pool])
                if held + count > queue.limit.get(pool, UNLIMITED):
                    return queue, pool, held
        raise AssertionError("no limit stands in its way")

    def at_its_non_preemptible_quota(self, candidate: Candidate) -> tuple[Queue, str]:
        """The queue on its path, and the pool, whose quota would be exceeded by jobs that may not be stopped."""
        for need in candidate.alternatives:
            for queue in candidate.project.path:
                for pool, count in need.items():
                    if queue.non_preemptible[pool] + count > queue.quota.get(pool, 0):
                        return queue, pool
        raise AssertionError("no quota stands in its way")

    def _within_limits(self, candidate: Candidate, need: Slots) -> bool:
        return all(self._state.fits(candidate, need, bound) for bound in (Bound.LIMIT_NOW, Bound.LIMIT))

    def _fits_in_windows(self, candidate: Candidate, need: Slots) -> bool:
        """Whether nothing but the windows of others keeps it from starting on free slots."""
        now, name = self._state.now, candidate.name
        return all(count <= now(pool, name, through_windows=True) for pool, count in need.items()) and not all(
            count <= now(pool, name) for pool, count in need.items()
        )
