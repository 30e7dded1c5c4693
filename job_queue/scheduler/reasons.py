"""Why a job that could be served waits: the first reason that applies (scheduling rules, section 6)."""

from collections import Counter

from job_queue.scheduler.decisions import Reason
from job_queue.scheduler.draft import Draft
from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.gates import Gates
from job_queue.scheduler.model import Slots
from job_queue.scheduler.queues import Queue
from job_queue.scheduler.shares import UNLIMITED


class Reasons:
    """Tells it of one candidate after the other, from the finished draft."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._gates = Gates(draft)
        self._held: Counter[str] = Counter()  # by all projects
        for queue in draft.queues.tops:
            self._held.update(queue.held)

    def of(self, candidate: Candidate, *, others_ahead: bool) -> Reason:
        """The reason.

        :param others_ahead: whether jobs of its project that come first and want the same pools lack slots, too.
        """
        if candidate.name in self._draft.ledger.claims:
            return Reason.WAITING_FOR_STOPPING
        gates, needs = self._gates, candidate.alternatives
        within_limits = [need for need in needs if gates.within_limits_now(candidate, need)]
        if not within_limits:
            return Reason.OVER_LIMIT
        open_needs = [need for need in within_limits if gates.fixed_within_quota(candidate, need)]
        if not open_needs:
            return Reason.OVER_QUOTA_NON_PREEMPTIBLE
        if any(self._fits_in_kept_slots(candidate, need) for need in open_needs):
            return Reason.KEPT_FOR_PATIENT_JOB
        if all(self.at_its_share(candidate, need) for need in open_needs):
            return Reason.BEHIND_FAIR_SHARE
        return Reason.BEHIND_HIGHER_PRIORITY if others_ahead else Reason.WAITING_FOR_CAPACITY

    def at_its_share(self, candidate: Candidate, need: Slots) -> "tuple[Queue, str] | None":
        """The queue on its path, and the pool, where it is at what it is due and others hold slots."""
        for queue in self._gates.project(candidate).path:
            for pool, count in need.items():
                if queue.held[pool] + count > queue.entitlement[pool] and self._held[pool] > queue.held[pool]:
                    return queue, pool
        return None

    def at_its_limit(self, candidate: Candidate) -> tuple[Queue, str, int]:
        """The queue on its path, and the pool, whose limit its first alternative would exceed; what is held there."""
        for queue in self._gates.project(candidate).path:
            for pool, count in candidate.alternatives[0].items():
                held = max(queue.used[pool], queue.held[pool])
                if held + count > queue.limit.get(pool, UNLIMITED):
                    return queue, pool, held
        raise AssertionError("no limit stands in its way")

    def at_its_fixed_quota(self, candidate: Candidate) -> tuple[Queue, str]:
        """The queue on its path, and the pool, whose quota would be exceeded by jobs that may not be stopped."""
        for need in candidate.alternatives:
            for queue in self._gates.project(candidate).path:
                for pool, count in need.items():
                    if queue.fixed[pool] + count > queue.quota.get(pool, 0):
                        return queue, pool
        raise AssertionError("no quota stands in its way")

    def _fits_in_kept_slots(self, candidate: Candidate, need: Slots) -> bool:
        now, name = self._draft.ledger.now, candidate.name
        return all(count <= now(pool, name, passing=True) for pool, count in need.items()) and not all(
            count <= now(pool, name) for pool, count in need.items()
        )
