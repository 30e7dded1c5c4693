"""Decide which slots a waiting job gets: free slots, slots being freed, or slots of lower-priority jobs or victims.

The strategies are tried in order, least disruptive first. Each strategy returns whether the job now starts or has a
reservation. docs/developers/scheduling-rules.md has the rules, each with an example.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from job_queue.scheduler import preemption
from job_queue.scheduler.backfill import BackfillWindows, OnlyPoolClaims
from job_queue.scheduler.candidates import Candidate
from job_queue.scheduler.fair_share import Bound
from job_queue.scheduler.model import NOTHING, Slots, Snapshot, above_zero, covers
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.preemption import Migration, SlotClaim, VictimSearch

AvailableSlots = Callable[[str, str, int], int]
"""(pool, job, transferred slots) -> slots that are available to the job: a method of the plan state."""

# Victims of each size that are checked after an eviction; all are checked at the end of a plan.
MOST_CHECKED_VICTIMS = 20


class Admission:
    """Admission of waiting jobs, one by one, in two phases.

    The first phase admits only jobs that keep their project and department within their entitlements. The second phase
    tries all remaining jobs.

    :param candidates: the jobs that start as soon as there is room, in waiting order.
    """

    def __init__(self, snapshot: Snapshot, state: PlanState, candidates: Sequence[Candidate] = ()) -> None:
        self._state = state
        self._only_pool_claims = OnlyPoolClaims(state, candidates)
        self._windows = BackfillWindows(snapshot, state)
        self._migration = Migration(snapshot, state)
        self._is_first_phase = True
        self._passed_over: dict[str, int] = {}  # project -> highest rank that was not admitted in this phase
        # Alternatives of the job that is tried, each with its claim. Several searches use the same claim, because a
        # search without success does not change the plan:
        self._claims: list[tuple[Slots, SlotClaim]] = []

    def begin(self, *, is_first: bool) -> None:
        """Begin a phase. The first phase also closes all backfill windows and computes the claims again."""
        self._is_first_phase = is_first
        self._passed_over.clear()
        if is_first:
            self._windows.begin()
            self._only_pool_claims.begin()

    def admit(self, candidate: Candidate) -> bool:
        """Try to serve one job. Return whether the job starts, or waits with a reservation or a backfill window.

        After False, the caller skips jobs with the same equivalence key (demand and properties) and the same or a lower
        priority. Such jobs would not be served either.
        """
        self._only_pool_claims.end_claim(candidate)
        holds = bool(self._state.reserved_for(candidate))
        if candidate.backs_off:
            if holds:  # the job keeps its reservation, because other jobs were evicted for this reservation
                self._state.settle(candidate.name)
            return holds
        if not self._state.within_group(candidate):
            self._state.slots_came_free = self._state.slots_came_free or holds
            self._state.drop_reservation(candidate)
            return False
        if holds:
            admitted = self._admit_holder(candidate)
            if admitted is not None:
                return admitted
        if self._try_strategies(candidate):
            return True
        project, rank = candidate.job.project, candidate.rank
        self._passed_over[project] = max(rank, self._passed_over.get(project, rank))
        return self._is_first_phase and candidate.patient and self._windows.try_open(candidate)

    def _admit_holder(self, candidate: Candidate) -> bool | None:
        """Try to serve a job that has a reservation.

        Return None if the reservation was dropped. The job is then tried like a job without a reservation.
        """
        state, held = self._state, self._state.reserved_for(candidate)
        needs = [
            need
            for need in candidate.startable_alternatives(held)
            if state.within_quota(candidate, need) and state.fits(candidate, need, Bound.LIMIT)
        ]
        in_phase = [
            need
            for need in needs
            if not self._is_first_phase or covers(held, need) or self._within_entitlement(candidate, need)
        ]
        if self._try_holders_strategies(candidate, in_phase):
            return True
        if self._is_first_phase and needs and not in_phase:
            return False  # beyond the entitlement: the job is tried again in the second phase
        state.drop_reservation(candidate)
        state.slots_came_free = True
        return None

    def _try_strategies(self, candidate: Candidate) -> bool:
        """Try the strategies in order, each with all alternatives before the next strategy."""
        in_quota = [need for need in candidate.alternatives if self._state.within_quota(candidate, need)]
        if not in_quota:
            return False
        in_project_entitlement = in_entitlement = in_quota
        if self._is_first_phase:
            in_project_entitlement = [
                need for need in in_quota if self._within_entitlement(candidate, need, project_only=True)
            ]
            in_entitlement = [need for need in in_project_entitlement if self._within_entitlement(candidate, need)]
        # `in_quota` and `in_project_entitlement` contain alternatives beyond the entitlement. Migrating jobs of the
        # project, or reclaiming inside the department, may bring these alternatives within the entitlement.
        may_migrate = self._migration.is_possible()
        if not in_project_entitlement and not may_migrate:
            return False
        free_slots = in_entitlement
        in_quota = candidate.not_refused(in_quota)
        in_project_entitlement = candidate.not_refused(in_project_entitlement)
        in_entitlement = candidate.not_refused(in_entitlement)
        may_preempt = self._may_preempt(candidate)
        takes_from_lower = self._state.may_take_from_lower(candidate)
        self._claims.clear()
        return self._try(
            candidate,
            (self._start_on_free_slots, self._prefer_unclaimed(candidate, free_slots)),
            (self._start_on_a_transferred_reservation, free_slots if takes_from_lower else []),
            (self._withdraw_lower_starts, free_slots if takes_from_lower else []),
            (self._wait_for_stopping, in_entitlement),
            (self._wait_on_a_transferred_reservation, in_entitlement if takes_from_lower else []),
            (partial(self._evict, self._migration.search), in_quota if may_migrate else []),
            (self._reclaim, in_project_entitlement),
            (partial(self._evict, preemption.preempt), in_entitlement if may_preempt else []),
            (partial(self._evict, preemption.preempt_and_reclaim), in_project_entitlement if may_preempt else []),
            (self._wait_for_launches, in_entitlement),
        )

    def _try_holders_strategies(self, candidate: Candidate, needs: list[Slots]) -> bool:
        """Try only strategies without evictions: jobs evicted for this job's reservation may still be stopping."""
        state, waits_for = self._state, candidate.not_refused(needs)
        if self._try(candidate, (self._start_on_free_slots, needs), (self._start_on_a_transferred_reservation, needs)):
            return True
        if not any(covers(state.reserved_for(candidate), need) for need in needs):
            if self._try(
                candidate, (self._wait_for_stopping, waits_for), (self._wait_on_a_transferred_reservation, waits_for)
            ):
                return True
            if not needs or candidate.name not in state.awaiting_stops:
                return False
        state.settle(candidate.name)
        return True

    def _try(self, candidate: Candidate, *strategies: tuple[Callable[[Candidate, Slots], bool], list[Slots]]) -> bool:
        for strategy, needs in strategies:
            for need in needs:
                if strategy(candidate, need):
                    return True
        return False

    # --- admission checks -------------------------------------------------------------------------------

    def _within_entitlement(self, candidate: Candidate, need: Slots, *, project_only: bool = False) -> bool:
        """Return whether project and department stay within entitlement, not counting jobs that this job may preempt.

        :param project_only: whether to check only the project, and not its department.
        """
        state = self._state
        if state.fits(candidate, need, Bound.ENTITLEMENT, project_only=project_only):
            return True
        lower = self._lower_priority_slots(candidate, need)
        return bool(lower) and state.fits(candidate, need, Bound.ENTITLEMENT, lower, project_only=project_only)

    def _lower_priority_slots(self, candidate: Candidate, need: Slots) -> Slots:
        """Return the slots in the pools of `need` that the job may take from lower priorities in its project."""
        state = self._state
        if candidate.job.left_idle:
            return NOTHING
        planned: Counter[str] = Counter()  # slots of starts and reservations of this plan
        if state.may_take_from_lower(candidate):
            planned = self._total_reserved(state.lower_priority_holders(candidate))
            for start in state.withdrawable(candidate):
                planned.update(start.slots)
        below = state.victims.slots_below
        return above_zero({pool: planned[pool] + below(candidate.project, candidate.rank, pool) for pool in need})

    def _may_preempt(self, candidate: Candidate) -> bool:
        """Return whether the job may preempt jobs of lower priority, and its project has such jobs in its pools.

        A job that was evicted because its GPUs were idle may not preempt. In the first phase, a job may not preempt
        either if an earlier job of its project with a higher priority was not admitted.
        """
        state, rank = self._state, candidate.rank
        if candidate.job.left_idle:
            return False
        if self._is_first_phase and self._passed_over.get(candidate.job.project, rank) > rank:
            return False
        below = state.victims.slots_below
        return state.may_take_from_lower(candidate) or any(
            below(candidate.project, rank, pool) for pool in candidate.pools
        )

    # --- strategies: free slots -------------------------------------------------------------------------

    def _start_on_free_slots(self, candidate: Candidate, need: Slots) -> bool:
        """Start the job if its slots are free, or are kept in backfill windows whose slots the job may use."""
        state = self._state
        free = state.is_free(candidate, need)
        if not free and not (state.windows and state.is_free(candidate, need, include_windows=True)):
            return False
        if not state.within_limits(candidate, need) or not (free or self._windows.may_pass(candidate, need)):
            return False
        return self._start(candidate, need)

    def _prefer_unclaimed(self, candidate: Candidate, needs: list[Slots]) -> list[Slots]:
        """Return the alternatives, if possible beginning with a free one that takes no slots of `OnlyPoolClaims`.

        If the job accepts several sizes, the first free alternative gives way only to one of the same size. The second
        phase keeps the order, because all jobs with claims were tried in the first phase.
        """
        if len(needs) < 2 or not self._is_first_phase:
            return needs
        free = (need for need in needs if self._state.is_free(candidate, need))
        best = next(free, None)
        if best is None or self._only_pool_claims.leaves_claims(best):
            return needs
        has_sizes = len(candidate.smallest_alternatives()) < len(candidate.alternatives)
        for need in free:
            is_as_good = not has_sizes or sum(need.values()) == sum(best.values())
            if is_as_good and candidate.not_refused([need]) and self._only_pool_claims.leaves_claims(need):
                return [need, *needs]
        return needs

    def _start_on_a_transferred_reservation(self, candidate: Candidate, need: Slots) -> bool:
        """Start the job on free slots that are reserved for jobs of lower priority in its project."""
        if not self._state.fits(candidate, need, Bound.LIMIT_NOW):
            return False
        if not self._transfer(candidate, need, self._state.available_now):
            return False
        self._start(candidate, need)
        self._state.cancel_needless_evictions(tries=MOST_CHECKED_VICTIMS)
        return True

    def _withdraw_lower_starts(self, candidate: Candidate, need: Slots) -> bool:
        """Withdraw starts of jobs of lower priority, no more than needed, and start this job on the freed slots."""
        if not self._state.withdrawable(candidate):
            return False
        missing = {pool: count - self._state.available_now(pool, candidate.name) for pool, count in need.items()}
        found = preemption.withdraw(self._claim(candidate, need, missing))
        if found is None:
            return False
        freed = {pool: found.lost(candidate.project, pool) for pool in need}
        if not self._state.within_limits(candidate, need, freed):
            return False
        self._state.evict_or_withdraw(found.chosen, found.bounds, candidate)
        return self._start(candidate, need)

    def _start(self, candidate: Candidate, need: Slots) -> bool:
        self._state.start(candidate, need)
        self._windows.record_start(candidate, need)
        return True

    # --- strategies: slots being freed ------------------------------------------------------------------

    def _wait_for_stopping(self, candidate: Candidate, need: Slots) -> bool:
        """Reserve free slots and slots being freed for the job, if both together suffice."""
        state = self._state
        if any(count > state.available_soon(pool, candidate.name) for pool, count in need.items()):
            return False  # faster than the other checks
        if not state.fits(candidate, need, Bound.LIMIT):
            return False
        if any(count > self._available_soon(candidate, need, pool) for pool, count in need.items()):
            return False
        if state.fits(candidate, need, Bound.ENTITLEMENT):
            state.use_surplus(need)
        state.reserve(candidate, need)
        return True

    def _wait_on_a_transferred_reservation(self, candidate: Candidate, need: Slots) -> bool:
        """Wait for slots that are free or being freed, including slots reserved for jobs of lower priority."""
        if not self._transfer(candidate, need, self._state.available_soon):
            return False
        self._state.reserve(candidate, need)
        self._state.cancel_needless_evictions(tries=MOST_CHECKED_VICTIMS)
        return True

    def _wait_for_launches(self, candidate: Candidate, need: Slots) -> bool:
        """Reserve the available slots if the other slots are held by jobs being launched that can be evicted later.

        A job cannot be stopped before it runs. If another job started on the available slots now, that job would soon
        have to be evicted as well.
        """
        state = self._state
        if not state.victims.any_launching or not state.fits(candidate, need, Bound.LIMIT):
            return False
        claim = self._claim(candidate, need, self._missing(candidate, need), launching=True)
        found = preemption.reclaim(claim)
        if found is None and self._may_preempt(candidate):
            found = preemption.preempt(claim) or preemption.preempt_and_reclaim(claim)
        if found is None:
            return False
        for victim in found.chosen:
            state.victims.mark_evicted(victim)  # no other job may count on this victim in this plan
        there = above_zero(
            {pool: min(count, state.available_soon(pool, candidate.name)) for pool, count in need.items()}
        )
        if there:
            state.reserve(candidate, there)
        return bool(there)

    # --- strategies: evictions --------------------------------------------------------------------------

    def _evict(self, search: Callable[[SlotClaim], VictimSearch | None], candidate: Candidate, need: Slots) -> bool:
        """Evict victims, reserve their slots and the available slots for the job, and cancel needless evictions."""
        state = self._state
        found = search(self._claim_for_evictions(candidate, need))
        if found is None:
            return False
        before = {pool: state.available_soon(pool) for pool in state.free}
        state.evict_or_withdraw(found.chosen, found.bounds, candidate)
        if any(count > state.available_soon(pool, candidate.name) for pool, count in need.items()):
            state.transfer(candidate, self._fewest_holders(candidate, need, state.available_soon))
        state.reserve(candidate, need)
        state.cancel_needless_evictions(tries=MOST_CHECKED_VICTIMS)
        state.add_surplus(before)
        return True

    def _reclaim(self, candidate: Candidate, need: Slots) -> bool:
        if not self._state.fits(candidate, need, Bound.ENTITLEMENT, project_only=True):
            return False  # faster than the search, which begins with the same check
        return self._evict(preemption.reclaim, candidate, need)

    def _claim_for_evictions(self, candidate: Candidate, need: Slots) -> SlotClaim:
        for other, claim in self._claims:
            if other is need:
                return claim
        claim = self._claim(candidate, need, self._missing(candidate, need))
        self._claims.append((need, claim))
        return claim

    def _claim(self, candidate: Candidate, need: Slots, missing: Slots, *, launching: bool = False) -> SlotClaim:
        """Return the input of a search for victims.

        :param launching: whether jobs that are being launched may be victims. If so, the search withdraws no start.
        """
        state = self._state
        withdrawable = () if launching else state.withdrawable(candidate)
        reserved = state.reserved_for(candidate)
        return SlotClaim(
            project=candidate.project,
            rank=candidate.rank,
            need=need,
            reserved=reserved,
            missing=missing,
            victims=state.victims,
            withdrawable=withdrawable,
            launching=launching,
        )

    def _missing(self, candidate: Candidate, need: Slots) -> Slots:
        """Return the slots that other jobs would have to free. Slots of transferable reservations are not counted."""
        taken = NOTHING
        if lower := self._state.lower_priority_holders(candidate):
            freed = self._lower_priority_slots(candidate, need)
            if self._state.fits(candidate, need, Bound.ENTITLEMENT, freed):
                taken = self._total_reserved(lower)
        return {pool: n - self._available_soon(candidate, need, pool) - taken.get(pool, 0) for pool, n in need.items()}

    def _available_soon(self, candidate: Candidate, need: Slots, pool: str) -> int:
        """Return the slots free or being freed for the job. Surplus counts only for jobs within their entitlement."""
        soon, surplus = self._state.available_soon(pool, candidate.name), self._state.surplus(pool)
        if surplus and not self._within_entitlement(candidate, need):
            return soon - surplus
        return soon

    # --- reservation transfer ---------------------------------------------------------------------------

    def _transfer(self, candidate: Candidate, need: Slots, available: AvailableSlots) -> bool:
        """Transfer reservations of jobs of lower priority in the project, no more than the job needs for all its slots.

        Return False if these reservations do not suffice, or if the job would exceed its entitlement or its limits.
        """
        holders = self._fewest_holders(candidate, need, available)
        if not holders:
            return False
        freed, bounds = self._total_reserved(holders), (Bound.LIMIT, Bound.ENTITLEMENT)
        if not all(self._state.fits(candidate, need, bound, freed) for bound in bounds):
            return False
        self._state.transfer(candidate, holders)
        return True

    def _fewest_holders(self, candidate: Candidate, need: Slots, available: AvailableSlots) -> list[Candidate]:
        """Return the jobs whose reservations the candidate takes, last in waiting order first.

        The list has only jobs that are needed. The list is empty if all reservations together do not suffice.
        """
        lower = self._state.lower_priority_holders(candidate)

        def suffice(holders: Sequence[Candidate]) -> bool:
            taken = self._total_reserved(holders)
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

    def _total_reserved(self, holders: Sequence[Candidate]) -> Counter[str]:
        total: Counter[str] = Counter()
        for holder in holders:
            total.update(self._state.reserved_for(holder))
        return total
