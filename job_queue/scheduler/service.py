"""Serving the lines: one job's turn after the other, in two passes."""

from collections.abc import Callable, Sequence
from enum import Enum

from job_queue.scheduler.draft import Draft
from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.gates import Gates
from job_queue.scheduler.ledger import covers
from job_queue.scheduler.model import Slots, Snapshot
from job_queue.scheduler.patience import Patience
from job_queue.scheduler.steps import Pass, Steps


class Outcome(Enum):
    """What came of a job's turn."""

    SERVED = "served"  # it starts, or waits with something set aside
    KEPT = "kept"  # slots are kept for it; it is tried again in the second pass
    FAILED = "failed"


class Service:
    """Serves one job after the other, each by the least disruptive step that leads to its start."""

    def __init__(self, snapshot: Snapshot, draft: Draft) -> None:
        self._draft = draft
        self._gates = Gates(draft)
        self._patience = Patience(snapshot, draft.ledger)
        self._pass = Pass()
        self._steps = Steps(snapshot, draft, self._gates, self._patience, self._pass)

    def begin(self, *, first: bool) -> None:
        """Begin a pass."""
        self._pass.begin(first=first)
        if first:
            self._patience.begin()

    def serve(self, candidate: Candidate) -> Outcome:
        """One job's turn."""
        if candidate.paused:
            return self._serve_paused(candidate)
        if self._draft.own(candidate):
            needs = self._needs_of_holder(candidate)
            if self._serve_holder(candidate, self._within_shares(candidate, needs)):
                return Outcome.SERVED
            if self._pass.first and needs and not self._within_shares(candidate, needs):
                return Outcome.FAILED  # beyond its entitlement: its turn is in the second pass
            self._draft.released = bool(self._draft.drop(candidate)) or self._draft.released
        if self._serve_by_steps(candidate):
            return Outcome.SERVED
        self._pass.passes_over(candidate)
        if self._pass.first and candidate.patient and self._patience.keep(candidate, self._gates.project(candidate)):
            return Outcome.KEPT
        return Outcome.FAILED

    def _serve_paused(self, candidate: Candidate) -> Outcome:
        """What is being freed for a job is not for others meanwhile, else its victims would have left for nothing."""
        if not self._draft.own(candidate):
            return Outcome.FAILED
        self._draft.keep_standing(candidate)
        return Outcome.SERVED

    # --- a turn -----------------------------------------------------------------------------------

    def _serve_by_steps(self, candidate: Candidate) -> bool:
        """Each step is tried over all alternatives, in order, before the next step."""
        possible = [need for need in candidate.alternatives if self._gates.fixed_within_quota(candidate, need)]
        needs = in_shares = possible
        if self._pass.first:
            needs = [need for need in needs if self._gates.project_within_entitlement(candidate, need)]
            in_shares = [need for need in needs if self._gates.within_entitlement_but_for_lower(candidate, need)]
        if not possible:
            return False
        # Moving own jobs, or reclaiming inside its department, may be what leaves these within their entitlement.
        steps, at_once = self._steps, in_shares
        possible, needs, in_shares = (_certain(candidate, some) for some in (possible, needs, in_shares))
        in_order: Sequence[tuple[Callable[[Candidate, Slots], bool], list[Slots]]] = (
            (steps.start_on_free_slots, at_once),
            (steps.start_on_slots_of_a_lower_reservation, at_once),
            (steps.withdraw_lower_starts, at_once),
            (steps.wait_for_stopping, in_shares),
            (steps.take_over_a_reservation, in_shares),
            (steps.consolidate, possible),
            (steps.reclaim, needs),
            (steps.preempt, in_shares),
            (steps.preempt_and_reclaim, needs),
            (steps.wait_for_launches, in_shares),
            (steps.wait_for_surplus, in_shares),
        )
        return any(step(candidate, need) for step, alternatives in in_order for need in alternatives)

    def _needs_of_holder(self, candidate: Candidate) -> list[Slots]:
        """The alternatives for which nothing but slots are lacking. Where there are none, its reservation falls."""
        return [need for need in candidate.alternatives if self._gates.may_start_once_stops_are_over(candidate, need)]

    def _within_shares(self, candidate: Candidate, needs: list[Slots]) -> list[Slots]:
        """Those that are set aside for it already, or that its pass is for."""
        held, gates = self._draft.own(candidate), self._gates
        return [
            need
            for need in needs
            if not self._pass.first or covers(held, need) or gates.within_entitlement_but_for_lower(candidate, need)
        ]

    def _serve_holder(self, candidate: Candidate, needs: list[Slots]) -> bool:
        """The turn of a job with a reservation: nobody else is evicted for it while a stop may be under way."""
        draft, steps = self._draft, self._steps
        held = draft.own(candidate)
        for step in (steps.start_on_free_slots, steps.start_on_slots_of_a_lower_reservation):
            if any(step(candidate, need) for need in needs):
                return True
        if any(covers(held, need) for need in needs):
            draft.keep_standing(candidate)
            return True
        for step in (steps.wait_for_stopping, steps.take_over_a_reservation):
            if any(step(candidate, need) for need in _certain(candidate, needs)):
                return True
        if needs and candidate.name in draft.promised:
            draft.keep_standing(candidate)
            return True
        return False


def _certain(candidate: Candidate, needs: list[Slots]) -> list[Slots]:
    """Those that nobody has refused: others may be tried on free slots, but are not waited for."""
    return [need for need in needs if need not in candidate.doubted] if candidate.doubted else needs
