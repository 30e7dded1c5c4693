"""Taking over reservations: only from the same project, by a higher priority, that stays within its entitlement."""

from collections import Counter
from collections.abc import Callable, Sequence

from job_queue.scheduler.draft import Draft
from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.gates import Freed, Gates
from job_queue.scheduler.model import Slots

Available = Callable[[str, str, int], int]
"""Slots of a pool for a job, with so many taken over: now, or soon (see Ledger)."""

NEEDLESS = 20  # victims of a size that are looked at after each eviction; at the end of the plan all are


class TakeOver:
    """Takes over as few reservations as leave nothing missing, the least valuable first."""

    def __init__(self, draft: Draft, gates: Gates) -> None:
        self._draft = draft
        self._gates = gates

    def attempt(
        self,
        candidate: Candidate,
        need: Slots,
        available: Available,
        within_limits: Callable[[Candidate, Slots, Freed], bool],
        then: Callable[[Candidate, Slots], None],
    ) -> bool:
        """Take over as few lower reservations as leave nothing missing."""
        holders = self.fewest(candidate, need, available)
        if not holders:
            return False
        freed = self._gates.claims_of(holders)
        if not within_limits(candidate, need, freed) or not self._gates.within_entitlement(candidate, need, freed):
            return False
        self.take_from(candidate, need, holders, available)
        then(candidate, need)
        self._draft.spare_needless(tries=NEEDLESS)  # what was evicted for the former holder may not be needed
        return True

    def take_from(
        self,
        candidate: Candidate,
        need: Slots,
        holders: Sequence[Candidate],
        available: Available,
    ) -> None:
        """These reservations fall to this job. What it does not need of them is free for others."""
        draft, name = self._draft, candidate.name
        for pool, gained in self.set_aside_for(holders).items():
            if pool not in need or gained > max(0, need[pool] - available(pool, name, 0)):
                draft.released = True
        draft.take_over(candidate, holders)

    def fewest(self, candidate: Candidate, need: Slots, available: Available) -> list[Candidate]:
        """Whose reservations it needs to have its slots, the least valuable first; none where all do not suffice."""
        lower = self._draft.lower_holders(candidate)

        def suffice(holders: Sequence[Candidate]) -> bool:
            taken = self.set_aside_for(holders)
            return all(count <= available(pool, candidate.name, taken.get(pool, 0)) for pool, count in need.items())

        if not lower or not suffice(lower):
            return []
        holders: list[Candidate] = []
        for holder in reversed(lower):
            if suffice(holders):
                break
            holders.append(holder)
        for holder in reversed(holders):
            others = [other for other in holders if other is not holder]
            if suffice(others):
                holders = others
        return holders

    def set_aside_for(self, holders: Sequence[Candidate]) -> Counter[str]:
        """What these hold together."""
        total: Counter[str] = Counter()
        for holder in holders:
            total.update(self._draft.own(holder))
        return total
