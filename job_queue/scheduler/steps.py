"""The steps by which a job comes to its slots, least disruptive first (scheduling rules, section 4)."""

from collections import Counter
from collections.abc import Sequence

from job_queue.scheduler import eviction
from job_queue.scheduler.consolidation import Movers
from job_queue.scheduler.decisions import Rule
from job_queue.scheduler.draft import Draft
from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.gates import Gates
from job_queue.scheduler.model import Slots, Snapshot
from job_queue.scheduler.patience import Patience
from job_queue.scheduler.search import Claim, Leaver, Search, Withdrawable
from job_queue.scheduler.takeover import NEEDLESS, TakeOver
from job_queue.scheduler.victims import Victim


class Pass:
    """The pass that is under way."""

    def __init__(self) -> None:
        self.first = True
        self._passed_over: dict[str, int] = {}  # project -> highest priority that was not served in this pass

    def begin(self, *, first: bool) -> None:
        """Begin a pass."""
        self.first = first
        self._passed_over.clear()

    def passes_over(self, candidate: Candidate) -> None:
        """This job was not served."""
        project, priority = candidate.job.project, candidate.job.priority
        self._passed_over[project] = max(priority, self._passed_over.get(project, priority))

    def has_passed_over_a_higher_priority(self, candidate: Candidate) -> bool:
        """Whether a higher priority of its project was not served."""
        return self._passed_over.get(candidate.job.project, candidate.job.priority) > candidate.job.priority


class Steps:
    """Each step gives whether it led to a start, or to slots that are set aside for one."""

    def __init__(self, snapshot: Snapshot, draft: Draft, gates: Gates, patience: Patience, under_way: Pass) -> None:
        self._draft = draft
        self._ledger = draft.ledger
        self._gates = gates
        self._patience = patience
        self._pass = under_way
        self._take_over = TakeOver(draft, gates)
        self._movers = Movers(snapshot, draft)
        self._protect_quota = snapshot.policy.settings.protect_project_quota

    def start_on_free_slots(self, candidate: Candidate, need: Slots) -> bool:
        """Start where all that it needs is free for it."""
        if not self._gates.within_limits_now(candidate, need) or not self._free_now(candidate, need):
            return False
        self._start(candidate, need)
        return True

    def start_on_slots_of_a_lower_reservation(self, candidate: Candidate, need: Slots) -> bool:
        """Start on free slots that are set aside for lower priorities of its project."""
        return self._take_over.attempt(candidate, need, self._ledger.now, self._gates.within_limits_now, self._start)

    def withdraw_lower_starts(self, candidate: Candidate, need: Slots) -> bool:
        """Withdraw starts of this same plan, no more than needed, and start instead."""
        lower = self._draft.withdrawable(candidate)
        if not lower:
            return False
        missing = {pool: count - self._ledger.now(pool, candidate.name) for pool, count in need.items()}
        claim = self._claim(candidate, need, missing=missing, withdrawable=lower)
        found = eviction.withdraw(claim)
        if found is None or not self._gates.within_limits_now(candidate, need, found.lost, found.lost):
            return False
        for start in found.chosen:
            if isinstance(start, Withdrawable):
                self._draft.withdraw(start)
        self._start(candidate, need)
        return True

    def wait_for_stopping(self, candidate: Candidate, need: Slots) -> bool:
        """Set aside what is free or being freed, where that is all it needs."""
        gates = self._gates
        if not gates.within_limits_soon(candidate, need):
            return False
        if any(count > self._soon(candidate, need, pool) for pool, count in need.items()):
            return False
        if gates.within_entitlement(candidate, need):
            self._ledger.use_surplus(need)
        self._draft.set_aside(candidate, need)
        return True

    def take_over_a_reservation(self, candidate: Candidate, need: Slots) -> bool:
        """The same with what is set aside for lower priorities of its project."""
        return self._take_over.attempt(
            candidate, need, self._ledger.soon, self._gates.within_limits_soon, self._draft.set_aside
        )

    def consolidate(self, candidate: Candidate, need: Slots) -> bool:
        """Move jobs to other pools that they accept."""
        moves = self._movers.search(self._claim(candidate, need))
        if not moves:
            return False
        before = {pool: self._ledger.soon(pool) for pool in self._ledger.free}
        for victim, place in moves:
            self._draft.move(victim, place, candidate)
        self._draft.rely_on(self._gates.entitlements(candidate, need))
        self._set_aside_after_evictions(candidate, need, before, [victim for victim, _ in moves])
        return True

    def reclaim(self, candidate: Candidate, need: Slots) -> bool:
        """Evict jobs of other projects, by share."""
        claim = self._claim(candidate, need)
        return self._evict(candidate, need, eviction.reclaim(claim, self._draft.victims, self._protect_quota))

    def preempt(self, candidate: Candidate, need: Slots) -> bool:
        """Evict lower priorities of its own project."""
        if self._would_preempt_past_a_higher_priority(candidate):
            return False
        claim = self._claim(candidate, need, withdrawable=self._draft.withdrawable(candidate))
        return self._evict(candidate, need, eviction.preempt(claim, self._draft.victims))

    def preempt_and_reclaim(self, candidate: Candidate, need: Slots) -> bool:
        """Evict own lower priorities until it is within its entitlement, the rest by reclaim."""
        if self._would_preempt_past_a_higher_priority(candidate):
            return False
        claim = self._claim(candidate, need, withdrawable=self._draft.withdrawable(candidate))
        found = eviction.preempt_and_reclaim(claim, self._draft.victims, self._protect_quota)
        return self._evict(candidate, need, found)

    def wait_for_launches(self, candidate: Candidate, need: Slots) -> bool:
        """Set aside what is there, where only jobs that are still being launched would have to leave for the rest.

        They can be stopped once they run. Whoever started on these slots meanwhile would soon be evicted with them.
        """
        victims = self._draft.victims
        if not victims.launching or not self._gates.within_limits_soon(candidate, need):
            return False
        claim = self._claim(candidate, need, launching=True)
        found = eviction.reclaim(claim, victims, self._protect_quota)
        if found is None and not self._would_preempt_past_a_higher_priority(candidate):
            found = eviction.preempt(claim, victims)
            found = found or eviction.preempt_and_reclaim(claim, victims, self._protect_quota)
        if found is None:
            return False
        for victim in found.chosen:
            if isinstance(victim, Victim):
                victims.take(victim)  # nobody else may count on it in this plan
        there = {pool: min(count, self._ledger.soon(pool, candidate.name)) for pool, count in need.items()}
        if all(count <= 0 for count in there.values()):
            return False
        self._draft.set_aside(candidate, {pool: count for pool, count in there.items() if count > 0})
        return True

    def wait_for_surplus(self, candidate: Candidate, need: Slots) -> bool:
        """Set aside the free part, where the rest is what this plan's victims free beyond the need of others.

        In this plan that is not for it, in the next it may be; whoever of lower priority started on the free part
        would then be evicted again, so such starts are withdrawn.
        """
        soon, surplus = self._ledger.soon, self._ledger.surplus
        if self._pass.first or not any(surplus(pool) for pool in need):
            return False
        missing = {pool: count - soon(pool, candidate.name) for pool, count in need.items()}
        lower = self._draft.withdrawable(candidate)
        found = eviction.preempt(self._claim(candidate, need, missing=missing, withdrawable=lower), self._draft.victims)
        if found is None:
            return False
        for leaver in found.chosen:
            if isinstance(leaver, Withdrawable):
                self._draft.withdraw(leaver)
        there = {pool: min(count, soon(pool, candidate.name) - surplus(pool)) for pool, count in need.items()}
        if all(count <= 0 for count in there.values()):
            return False
        self._draft.set_aside(candidate, {pool: count for pool, count in there.items() if count > 0})
        return True

    # --- what the steps have in common -------------------------------------------------------------

    def _free_now(self, candidate: Candidate, need: Slots) -> bool:
        """Whether all of an alternative is free for it, or kept for others that it may pass."""
        now, name = self._ledger.now, candidate.name
        if all(count <= now(pool, name) for pool, count in need.items()):
            return True
        if not self._ledger.kept or any(count > now(pool, name, passing=True) for pool, count in need.items()):
            return False
        return self._patience.may_pass(candidate, need)

    def _soon(self, candidate: Candidate, need: Slots, pool: str) -> int:
        """Slots free or being freed for it. What victims free beyond the need is for who stays within entitlement."""
        soon, surplus = self._ledger.soon(pool, candidate.name), self._ledger.surplus(pool)
        if surplus and not self._gates.within_entitlement_but_for_lower(candidate, need):
            return soon - surplus
        return soon

    def _missing(self, candidate: Candidate, need: Slots) -> dict[str, int]:
        """Slots that others would have to free for it; what it may take over is not missing."""
        taken: Counter[str] = Counter()
        if lower := self._draft.lower_holders(candidate):
            freed = self._gates.lower(candidate, need)
            if self._gates.within_entitlement(candidate, need, freed):
                taken = self._take_over.set_aside_for(lower)
        return {pool: count - self._soon(candidate, need, pool) - taken[pool] for pool, count in need.items()}

    def _claim(
        self,
        candidate: Candidate,
        need: Slots,
        *,
        missing: dict[str, int] | None = None,
        withdrawable: tuple[Withdrawable, ...] = (),
        launching: bool = False,
    ) -> Claim:
        return Claim(
            project=self._gates.project(candidate),
            priority=candidate.job.priority,
            need=need,
            own=self._draft.own(candidate),
            missing=missing or self._missing(candidate, need),
            withdrawable=withdrawable,
            launching=launching,
        )

    def _would_preempt_past_a_higher_priority(self, candidate: Candidate) -> bool:
        return self._pass.first and self._pass.has_passed_over_a_higher_priority(candidate)

    def _start(self, candidate: Candidate, need: Slots) -> None:
        self._draft.start(candidate, need)
        self._patience.started(candidate, need)

    def _evict(self, candidate: Candidate, need: Slots, found: Search | None) -> bool:
        if found is None:
            return False
        project = self._gates.project(candidate)
        before = {pool: self._ledger.soon(pool) for pool in self._ledger.free}
        for leaver in found.chosen:
            if isinstance(leaver, Withdrawable):
                self._draft.withdraw(leaver)
            else:
                rule = Rule.PREEMPT if leaver.project is project else Rule.RECLAIM
                self._draft.evict(leaver, candidate, rule)
        self._draft.rely_on(found.bounds)
        self._set_aside_after_evictions(candidate, need, before, found.chosen)
        return True

    def _set_aside_after_evictions(
        self, candidate: Candidate, need: Slots, before: dict[str, int], leavers: Sequence[Leaver]
    ) -> None:
        """Set aside what victims free and what was counted on beside; needless victims are given back."""
        draft, soon = self._draft, self._ledger.soon
        if any(count > soon(pool, candidate.name) for pool, count in need.items()):
            self._take_over.take_from(candidate, need, self._take_over.fewest(candidate, need, soon), soon)
        draft.set_aside(candidate, need)
        draft.spare_needless(tries=NEEDLESS)
        for pool, count in before.items():
            if (beyond := soon(pool) - max(0, count)) > 0:
                self._ledger.beyond_need[pool] += beyond
                draft.released = True
                draft.relieved.update(leaver.project for leaver in leavers)
