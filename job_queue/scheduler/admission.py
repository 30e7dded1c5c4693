"""Admission: one job's turn. Each strategy gives whether it led to a start, or to slots that are set aside for one.

The strategies are tried in order, least disruptive first (scheduling rules, sections 3 and 4).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum

from job_queue.scheduler import preemption
from job_queue.scheduler.backfill import BackfillWindows
from job_queue.scheduler.candidates import Candidate
from job_queue.scheduler.fair_share import Bound, fits
from job_queue.scheduler.migration import Migration
from job_queue.scheduler.model import NOTHING, Rule, Slots, Snapshot, above_zero, covers
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.preemption import Claim, Search, Victim

Available = Callable[[str, str, int], int]
"""Slots of a pool for a job, with so many transferred to it: `now` or `soon` of the plan state."""

NEEDLESS = 20  # victims of a size that are looked at after each eviction; at the end of the plan all are


class Outcome(Enum):
    """What came of a job's turn."""

    ADMITTED = "admitted"  # it starts, or waits with something set aside
    WINDOW = "window"  # it has a backfill window; it is tried again in the second phase
    FAILED = "failed"


class Admission:
    """Admits one job after the other, in two phases.

    First phase: only jobs with which their project and department stay within entitlement. Second: everybody else.
    """

    def __init__(self, snapshot: Snapshot, state: PlanState) -> None:
        self._state = state
        self._windows = BackfillWindows(snapshot, state)
        self._migration = Migration(snapshot, state)
        self._protect_quota = snapshot.policy.settings.protect_project_quota
        self._first = True
        self._passed_over: dict[str, int] = {}  # project -> highest priority that was not admitted in this phase

    def begin(self, *, first: bool) -> None:
        """Begin a phase."""
        self._first = first
        self._passed_over.clear()
        if first:
            self._windows.begin()

    def admit(self, candidate: Candidate) -> Outcome:
        """One job's turn."""
        if candidate.backs_off:
            return self._keep_reservation(candidate)
        if self._state.reserved_for(candidate):
            outcome = self._admit_holder(candidate)
            if outcome is not None:
                return outcome
        if self._try_strategies(candidate):
            return Outcome.ADMITTED
        project, priority = candidate.job.project, candidate.priority
        self._passed_over[project] = max(priority, self._passed_over.get(project, priority))
        opens_window = self._first and candidate.patient and self._windows.open(candidate)
        return Outcome.WINDOW if opens_window else Outcome.FAILED

    def _keep_reservation(self, candidate: Candidate) -> Outcome:
        """What is being freed for a job is not for others while it backs off: its victims would leave for nothing."""
        if not self._state.reserved_for(candidate):
            return Outcome.FAILED
        self._state.confirm(candidate)
        return Outcome.ADMITTED

    def _admit_holder(self, candidate: Candidate) -> Outcome | None:
        """The turn of a job with a reservation; None: the reservation falls, and its turn is as any other's."""
        state = self._state
        needs = [need for need in candidate.alternatives if state.may_start_once_stops_are_over(candidate, need)]
        in_phase = self._in_phase(candidate, needs)
        if self._try_holders_strategies(candidate, in_phase):
            return Outcome.ADMITTED
        if self._first and needs and not in_phase:
            return Outcome.FAILED  # beyond its entitlement: its turn is in the second phase
        state.drop(candidate)
        state.released = True
        return None

    def _try_strategies(self, candidate: Candidate) -> bool:
        """Each strategy is tried over all alternatives, in order, before the next strategy."""
        possible = [need for need in candidate.alternatives if self._state.within_quota(candidate, need)]
        if not possible:
            return False
        own_share = in_share = possible
        if self._first:
            own_share = [need for need in possible if self._project_within_entitlement(candidate, need)]
            in_share = [need for need in own_share if self._within_entitlement_but_for_lower(candidate, need)]
        # Migrating own jobs, or reclaiming inside its department, may be what leaves these within their entitlement.
        free_slots = in_share
        possible, own_share, in_share = (candidate.not_refused(needs) for needs in (possible, own_share, in_share))
        strategies: Sequence[tuple[Callable[[Candidate, Slots], bool], list[Slots]]] = (
            (self._start_on_free_slots, free_slots),
            (self._start_on_a_transferred_reservation, free_slots),
            (self._withdraw_lower_starts, free_slots),
            (self._wait_for_stopping, in_share),
            (self._wait_on_a_transferred_reservation, in_share),
            (self._migrate, possible),
            (self._reclaim, own_share),
            (self._preempt, in_share),
            (self._preempt_and_reclaim, own_share),
            (self._wait_for_launches, in_share),
        )
        return any(strategy(candidate, need) for strategy, needs in strategies for need in needs)

    def _try_holders_strategies(self, candidate: Candidate, needs: list[Slots]) -> bool:
        """Of a job with a reservation: nobody else is evicted for it while a stop may be under way."""
        for strategy in (self._start_on_free_slots, self._start_on_a_transferred_reservation):
            if any(strategy(candidate, need) for need in needs):
                return True
        if any(covers(self._state.reserved_for(candidate), need) for need in needs):
            self._state.confirm(candidate)
            return True
        for strategy in (self._wait_for_stopping, self._wait_on_a_transferred_reservation):
            if any(strategy(candidate, need) for need in candidate.not_refused(needs)):
                return True
        if needs and candidate.name in self._state.promised:
            self._state.confirm(candidate)
            return True
        return False

    # --- admission checks -------------------------------------------------------------------------------

    def _in_phase(self, candidate: Candidate, needs: list[Slots]) -> list[Slots]:
        """The alternatives that are set aside for it already, or that this phase is for."""
        held = self._state.reserved_for(candidate)
        return [
            need
            for need in needs
            if not self._first or covers(held, need) or self._within_entitlement_but_for_lower(candidate, need)
        ]

    def _within_limits_now(
        self, candidate: Candidate, need: Slots, freed: Slots = NOTHING, unused: Slots = NOTHING
    ) -> bool:
        """Whether it stays within the limits. Stopping slots count until they are gone; so do reservations of others.

        :param freed: what will be held less once others of its project have given way.
        :param unused: the part of it that is used less at once.
        """
        fits_in = self._state.fits
        return fits_in(candidate, need, Bound.LIMIT_NOW, unused) and fits_in(candidate, need, Bound.LIMIT, freed)

    def _within_entitlement_but_for_lower(self, candidate: Candidate, need: Slots) -> bool:
        """Within entitlement, what lower priorities of its project hold that it may preempt not counted."""
        state = self._state
        if state.fits(candidate, need, Bound.ENTITLEMENT):
            return True
        lower = state.lower(candidate, need)
        return bool(lower) and state.fits(candidate, need, Bound.ENTITLEMENT, lower)

    def _project_within_entitlement(self, candidate: Candidate, need: Slots) -> bool:
        """The same for its project alone, whatever its department holds."""
        own = self._state.reserved_for(candidate)
        if fits(candidate.project, need, Bound.ENTITLEMENT, own):
            return True
        lower = Counter(self._state.lower(candidate, need)) + Counter(own)
        return fits(candidate.project, need, Bound.ENTITLEMENT, lower)

    def _may_preempt(self, candidate: Candidate) -> bool:
        """In the first phase nobody preempts past a higher priority of its project that was not admitted."""
        project, priority = candidate.job.project, candidate.priority
        return not self._first or self._passed_over.get(project, priority) <= priority

    # --- strategies: free slots -------------------------------------------------------------------------

    def _start_on_free_slots(self, candidate: Candidate, need: Slots) -> bool:
        """Start where all that it needs is free for it."""
        if not self._within_limits_now(candidate, need) or not self._free_now(candidate, need):
            return False
        self._start(candidate, need)
        return True

    def _start_on_a_transferred_reservation(self, candidate: Candidate, need: Slots) -> bool:
        """Start on free slots that are set aside for lower priorities of its project."""
        if not self._transfer(candidate, need, self._state.now, self._within_limits_now):
            return False
        self._start(candidate, need)
        self._state.give_back_needless(tries=NEEDLESS)
        return True

    def _withdraw_lower_starts(self, candidate: Candidate, need: Slots) -> bool:
        """Withdraw starts of this same plan, no more than needed, and start instead."""
        if not self._state.withdrawable(candidate):
            return False
        missing = {pool: count - self._state.now(pool, candidate.name) for pool, count in need.items()}
        found = preemption.withdraw(self._claim(candidate, need, missing=missing))
        if found is None:
            return False
        freed = {pool: found.lost.get((candidate.project, pool), 0) for pool in need}
        if not self._within_limits_now(candidate, need, freed, freed):
            return False
        for start in found.chosen:
            self._state.withdraw(start)
        self._start(candidate, need)
        return True

    # --- strategies: slots being freed ------------------------------------------------------------------

    def _wait_for_stopping(self, candidate: Candidate, need: Slots) -> bool:
        """Set aside what is free or being freed, where that is all it needs."""
        state = self._state
        if not state.fits(candidate, need, Bound.LIMIT):
            return False
        if any(count > self._soon(candidate, need, pool) for pool, count in need.items()):
            return False
        if state.fits(candidate, need, Bound.ENTITLEMENT):
            state.use_surplus(need)
        state.set_aside(candidate, need)
        return True

    def _wait_on_a_transferred_reservation(self, candidate: Candidate, need: Slots) -> bool:
        """The same with what is set aside for lower priorities of its project."""
        state = self._state

        def within_limits(candidate: Candidate, need: Slots, freed: Slots) -> bool:
            return state.fits(candidate, need, Bound.LIMIT, freed)

        if not self._transfer(candidate, need, state.soon, within_limits):
            return False
        state.set_aside(candidate, need)
        state.give_back_needless(tries=NEEDLESS)
        return True

    def _wait_for_launches(self, candidate: Candidate, need: Slots) -> bool:
        """Set aside what is there, where only jobs that are still being launched would have to leave for the rest.

        They can be stopped once they run. Whoever started on these slots meanwhile would soon be evicted with them.
        """
        state = self._state
        if not state.victims.any_launching or not state.fits(candidate, need, Bound.LIMIT):
            return False
        claim = self._claim(candidate, need, withdrawable=False, launching=True)
        found = preemption.reclaim(claim, state.victims, self._protect_quota)
        if found is None and self._may_preempt(candidate):
            found = preemption.preempt(claim, state.victims)
            found = found or preemption.preempt_and_reclaim(claim, state.victims, self._protect_quota)
        if found is None:
            return False
        state.count_on(found.chosen)
        there = above_zero({pool: min(count, state.soon(pool, candidate.name)) for pool, count in need.items()})
        if there:
            state.set_aside(candidate, there)
        return bool(there)

    # --- strategies: evictions --------------------------------------------------------------------------

    def _migrate(self, candidate: Candidate, need: Slots) -> bool:
        """Migrate jobs to other pools that they accept."""
        found = self._migration.search(self._claim(candidate, need, withdrawable=False))
        if found is None:
            return False
        search, places = found
        self._make_leave(candidate, need, search, lambda victim: self._state.migrate(victim, places[victim], candidate))
        return True

    def _reclaim(self, candidate: Candidate, need: Slots) -> bool:
        """Evict jobs of other projects, by share."""
        claim = self._claim(candidate, need, withdrawable=False)
        return self._evict(candidate, need, preemption.reclaim(claim, self._state.victims, self._protect_quota))

    def _preempt(self, candidate: Candidate, need: Slots) -> bool:
        """Evict lower priorities of its own project."""
        if not self._may_preempt(candidate):
            return False
        return self._evict(candidate, need, preemption.preempt(self._claim(candidate, need), self._state.victims))

    def _preempt_and_reclaim(self, candidate: Candidate, need: Slots) -> bool:
        """Evict own lower priorities until it is within its entitlement, the rest by reclaim."""
        if not self._may_preempt(candidate):
            return False
        claim, victims = self._claim(candidate, need), self._state.victims
        return self._evict(candidate, need, preemption.preempt_and_reclaim(claim, victims, self._protect_quota))

    def _evict(self, candidate: Candidate, need: Slots, found: Search | None) -> bool:
        if found is None:
            return False

        def leave(victim: Victim) -> None:
            if victim.job is None:
                self._state.withdraw(victim)
            else:
                rule = Rule.PREEMPT if victim.project is candidate.project else Rule.RECLAIM
                self._state.evict(victim, candidate, rule)

        self._make_leave(candidate, need, found, leave)
        return True

    def _make_leave(self, candidate: Candidate, need: Slots, found: Search, leave: Callable[[Victim], None]) -> None:
        """Set aside what victims free and what was counted on beside; needless victims are given back."""
        state = self._state
        before = {pool: state.soon(pool) for pool in state.free}
        for victim in found.chosen:
            leave(victim)
        state.rely_on(found.bounds)
        if any(count > state.soon(pool, candidate.name) for pool, count in need.items()):
            state.transfer(candidate, self._fewest_holders(candidate, need, state.soon))
        state.set_aside(candidate, need)
        state.give_back_needless(tries=NEEDLESS)
        state.count_surplus(before)

    # --- reservation transfer ---------------------------------------------------------------------------

    def _transfer(
        self,
        candidate: Candidate,
        need: Slots,
        available: Available,
        within_limits: Callable[[Candidate, Slots, Slots], bool],
    ) -> bool:
        """Transfer as few reservations of lower priorities of its project as leave nothing missing.

        Only to a job that stays within its entitlement.
        """
        holders = self._fewest_holders(candidate, need, available)
        if not holders:
            return False
        freed = self._set_aside_for(holders)
        if not within_limits(candidate, need, freed):
            return False
        if not self._state.fits(candidate, need, Bound.ENTITLEMENT, freed):
            return False
        self._state.transfer(candidate, holders)
        return True

    def _fewest_holders(self, candidate: Candidate, need: Slots, available: Available) -> list[Candidate]:
        """Whose reservations it needs to have its slots, the least valuable first; none where all do not suffice."""
        lower = self._state.lower_holders(candidate)

        def suffice(holders: Sequence[Candidate]) -> bool:
            taken = self._set_aside_for(holders)
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

    def _set_aside_for(self, holders: Sequence[Candidate]) -> Slots:
        total: Counter[str] = Counter()
        for holder in holders:
            total.update(self._state.reserved_for(holder))
        return total

    # --- what the strategies have in common -------------------------------------------------------------

    def _free_now(self, candidate: Candidate, need: Slots) -> bool:
        """Whether all of an alternative is free for it, or in the windows of others that it may pass."""
        now, name = self._state.now, candidate.name
        if all(count <= now(pool, name) for pool, count in need.items()):
            return True
        if not self._state.windows or any(n > now(pool, name, through_windows=True) for pool, n in need.items()):
            return False
        return self._windows.may_pass(candidate, need)

    def _soon(self, candidate: Candidate, need: Slots, pool: str) -> int:
        """Slots free or being freed for it. What victims free beyond the need is for who stays within entitlement."""
        soon, surplus = self._state.soon(pool, candidate.name), self._state.surplus(pool)
        if surplus and not self._within_entitlement_but_for_lower(candidate, need):
            return soon - surplus
        return soon

    def _missing(self, candidate: Candidate, need: Slots) -> dict[str, int]:
        """Slots that others would have to free for it; what may be transferred to it is not missing."""
        taken = NOTHING
        if lower := self._state.lower_holders(candidate):
            freed = self._state.lower(candidate, need)
            if self._state.fits(candidate, need, Bound.ENTITLEMENT, freed):
                taken = self._set_aside_for(lower)
        return {pool: n - self._soon(candidate, need, pool) - taken.get(pool, 0) for pool, n in need.items()}

    def _claim(
        self,
        candidate: Candidate,
        need: Slots,
        *,
        missing: dict[str, int] | None = None,
        withdrawable: bool = True,
        launching: bool = False,
    ) -> Claim:
        return Claim(
            project=candidate.project,
            priority=candidate.priority,
            need=need,
            own=self._state.reserved_for(candidate),
            missing=missing or self._missing(candidate, need),
            withdrawable=self._state.withdrawable(candidate) if withdrawable else (),
            launching=launching,
        )

    def _start(self, candidate: Candidate, need: Slots) -> None:
        self._state.start(candidate, need)
        self._windows.started(candidate, need)
