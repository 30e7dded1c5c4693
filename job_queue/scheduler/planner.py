"""Plan jobs of whole instances: starts, evictions, and reasons why jobs wait. Planning is pure and deterministic."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

from job_queue.scheduler.admission import Admission
from job_queue.scheduler.candidates import Candidate, Groups, find_candidates, requests, without_drained
from job_queue.scheduler.explain.holds import explain
from job_queue.scheduler.fair_share import ServingOrder, ShareNode, ShareTree
from job_queue.scheduler.model import Evict, Hold, Plan, Slots, Snapshot, Start
from job_queue.scheduler.ordering import WaitingKey, WaitingOrder
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.sharing.lately import held_lately
from job_queue.scheduler.sharing.spending import Spending

MAX_PASSES = 20  # passes of a plan over its candidates; slots that the last pass frees are left for the next plan


def plan_instances(snapshot: Snapshot, *, explained: bool = True) -> Plan:
    """Return the decisions of one cycle: starts, evictions, and the reason why each other job waits.

    The order of `active` and `waiting` does not matter. A snapshot with members or carriers is planned by
    `shared_plan.plan`, which calls this function.

    :param explained: whether to explain why the other jobs wait. Explanations take half of the time. Without them, the
        plan has no holds.
    """
    decided, holds = decide(snapshot)
    return replace(decided, holds=holds()) if explained else decided


def decide(snapshot: Snapshot) -> tuple[Plan, Callable[[], tuple[Hold, ...]]]:
    """Return the decisions of one cycle without holds, and a function that returns the holds."""
    # 1. Find the candidates: the jobs that would start if there were enough free slots.
    lately, spending = held_lately(snapshot), Spending(snapshot)
    snapshot = _without_drained_moves(_without_overspent_moves(snapshot, spending))
    order = WaitingOrder(snapshot, lately, spending)
    tree = ShareTree(snapshot.policy, spending.overspent)
    candidates, refused = find_candidates(snapshot, tree, order, spending)
    # 2. Divide every pool from the root down into fair shares and entitlements.
    capacities = {pool.name: snapshot.capacity(pool) for pool in snapshot.policy.pools}
    groups = Groups(snapshot.active, candidates)
    shares = tree.divide(capacities, snapshot.external, requests(snapshot, candidates, tree, groups), lately)
    # 3. Count the slots that are held, free and being freed, and enter the existing reservations.
    state = PlanState(snapshot, candidates, tree, groups)
    # 4. Go through the candidates: start, wait, or evict others. Then cancel evictions that are not needed.
    _AdmissionLoop(snapshot, state, candidates).run()
    decided = Plan(
        starts=tuple(Start(job.name, dict(state.started[job.name])) for job in candidates if job.name in state.started),
        evictions=_evictions(state, candidates),
        reservations=dict(sorted(state.reservations.items())),
        shares=shares,
        capacities=capacities,
        calendars=snapshot.calendars,
    )
    # 5. Explain why each other job waits.
    return decided, lambda: explain(snapshot, candidates, refused, state, order, spending)


def _without_overspent_moves(snapshot: Snapshot, spending: Spending) -> Snapshot:
    """Remove the alternatives of active jobs with a spent hard budget, so that no such job is moved to another pool.

    A moved job is stopped first, and the spent budget would then keep it from starting again.
    """
    if not spending:
        return snapshot
    active = tuple(replace(job, demand=()) if spending.forbidding_account(job) else job for job in snapshot.active)
    return replace(snapshot, active=active)


def _without_drained_moves(snapshot: Snapshot) -> Snapshot:
    """Remove active jobs' alternatives that use a pool whose drain forbids a start, so that no job moves there."""
    if not snapshot.drains:
        return snapshot
    active = tuple(replace(job, demand=without_drained(job.demand, job, snapshot)) for job in snapshot.active)
    return replace(snapshot, active=active)


class _AdmissionLoop:
    """Passes over all candidates, repeated while a pass frees slots for other jobs.

    A pass has two phases. In the first phase, a job starts only if its project stays within its entitlement. In the
    second phase, all remaining jobs are tried.
    """

    def __init__(self, snapshot: Snapshot, state: PlanState, candidates: Sequence[Candidate]) -> None:
        self._state = state
        self._admission = Admission(snapshot, state, candidates)
        by_project: dict[ShareNode, list[Candidate]] = {}
        for candidate in candidates:
            by_project.setdefault(candidate.project, []).append(candidate)
        self._waiting = {project: _WaitingJobs(own, state) for project, own in by_project.items()}

    def run(self) -> None:
        """Repeat both phases, and cancel needless evictions, until no more slots are released."""
        state = self._state
        for _ in range(MAX_PASSES):
            state.slots_came_free = False
            self._run_phase(first=True)
            if not state.slots_came_free:
                self._run_phase(first=False)
            if not state.slots_came_free:
                state.cancel_needless_evictions()
            if not state.slots_came_free:
                return
        state.cancel_needless_evictions()

    def _run_phase(self, *, first: bool) -> None:
        state, waiting = self._state, self._waiting
        self._admission.begin(is_first=first)
        turns = ServingOrder(self._next_need, lambda node: node.projected)
        state.changed.clear()
        for jobs in waiting.values():
            jobs.begin()
        turns.refresh(waiting)
        while (project := turns.next()) is not None:
            candidate = waiting[project].head()
            assert candidate is not None
            waiting[project].advance(admitted=self._admission.admit(candidate))
            for changed in state.changed:
                state.victims.refresh(changed)
            turns.refresh({project, *(changed for changed in state.changed if changed in waiting)})
            state.changed.clear()

    def _next_need(self, project: ShareNode) -> Slots | None:
        head = self._waiting[project].head() if project in self._waiting else None
        return None if head is None else head.alternatives[0]


class _WaitingJobs:
    """The waiting jobs of a project in the order in which one phase tries them.

    Jobs with the same equivalence key differ only in priority and times. If a job cannot be served, jobs of its key
    with the same or a lower priority cannot be served either. They are skipped.
    """

    def __init__(self, candidates: Iterable[Candidate], state: PlanState) -> None:
        self._state = state
        self._by_key: dict[tuple[Any, ...], list[Candidate]] = {}  # equivalence key -> its jobs, in waiting order
        # The next job of each key, with its sort key and an iterator over the later jobs of the key:
        self._heap: list[tuple[WaitingKey, Candidate, Iterator[Candidate]]] = []
        for candidate in candidates:
            self._by_key.setdefault(candidate.equivalence_key, []).append(candidate)

    def begin(self) -> None:
        """Begin a phase: try all jobs that are not served yet."""
        self._heap = []
        for jobs in self._by_key.values():
            self._enter(iter(jobs))

    def head(self) -> Candidate | None:
        """Return the next job to try, or None if there is none."""
        return self._heap[0][1] if self._heap else None

    def advance(self, *, admitted: bool) -> None:
        """Remove the head and enter the next job of its equivalence key.

        :param admitted: whether the head was admitted. If not, jobs of its key with the same or a lower rank are
            skipped, because they cannot be admitted either.
        """
        _, candidate, others = heappop(self._heap)
        self._enter(others, above=None if admitted else candidate.rank)

    def _enter(self, jobs: Iterator[Candidate], above: int | None = None) -> None:
        """Push the next job without a decision in this plan; with `above`, the next one of a higher rank."""
        for candidate in jobs:
            if candidate.name not in self._state.settled and (above is None or candidate.rank > above):
                heappush(self._heap, (candidate.key, candidate, jobs))
                return


def _evictions(state: PlanState, candidates: Iterable[Candidate]) -> tuple[Evict, ...]:
    """Return the evictions grouped by claimant in waiting order, each group in victim order."""
    turn = {candidate.name: turn for turn, candidate in enumerate(candidates)}
    evicted = [state.evicted[victim.name] for victim in state.victims.all if victim.name in state.evicted]
    return tuple(sorted(evicted, key=lambda eviction: turn[eviction.claimant]))
