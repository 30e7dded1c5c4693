"""plan(snapshot) -> Plan: what to start, whom to evict, and why the rest waits. Pure and deterministic."""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from job_queue.scheduler.admission import Admission, Outcome
from job_queue.scheduler.candidates import Candidate, requests, sort_out
from job_queue.scheduler.explain.holds import explain
from job_queue.scheduler.fair_share import Queue, QueueTree, shares
from job_queue.scheduler.model import Evict, Plan, Slots, Snapshot, Start
from job_queue.scheduler.ordering import Turns, WaitingKey
from job_queue.scheduler.plan_state import PlanState

RERUNS = 20  # how often the candidates are gone through again because slots came free; a later plan goes on from there


def plan(snapshot: Snapshot) -> Plan:
    """Decide one cycle. The order of `active` and `waiting` does not matter."""
    # 1. Set apart who cannot be served whatever is free; the others are candidates.
    queues = QueueTree(snapshot.policy)
    candidates, refused = sort_out(snapshot, queues)
    # 2. Divide every pool: fair shares and entitlements, from the root down.
    due = shares(snapshot.policy, requests(snapshot, candidates), snapshot.external)
    queues.entitle(due)
    # 3. Count what everybody holds, what is free and being freed, and set aside what is reserved.
    state = PlanState(snapshot, candidates, queues)
    # 4. Go through the candidates: start, wait, or make others leave. Give back victims that turn out not to be needed.
    _AdmissionLoop(snapshot, state, candidates).run()
    # 5. Explain to everyone else why it waits.
    return Plan(
        starts=_starts(state, candidates),
        evictions=_evictions(state, candidates),
        holds=explain(snapshot, candidates, refused, state),
        reservations=dict(sorted(state.reservations.items())),
        shares=due.fair,
    )


class _AdmissionLoop:
    """All candidates, gone through in two phases, and again while slots come free for others on the way."""

    def __init__(self, snapshot: Snapshot, state: PlanState, candidates: Sequence[Candidate]) -> None:
        self._state = state
        self._admission = Admission(snapshot, state)
        by_project: dict[Queue, list[Candidate]] = {}
        for candidate in candidates:
            by_project.setdefault(candidate.project, []).append(candidate)
        self._waiting = {project: _WaitingJobs(own, self._is_unserved) for project, own in by_project.items()}

    def run(self) -> None:
        """Both phases, and the needless victims given back, until nothing comes free by it."""
        state = self._state
        for _ in range(RERUNS):
            state.released = False
            self._go_through(first=True)
            if not state.released:
                self._go_through(first=False)
            if not state.released:
                state.give_back_needless()
            if not state.released:
                return
        state.give_back_needless()

    def _go_through(self, *, first: bool) -> None:
        state, waiting = self._state, self._waiting
        self._admission.begin(first=first)
        turns = Turns(self._next_need, lambda queue: queue.projected)
        state.changed.clear()
        for queue, jobs in waiting.items():
            jobs.open()
            turns.refresh(queue)
        while (project := turns.next()) is not None:
            candidate = waiting[project].head()
            assert candidate is not None
            outcome = self._admission.admit(candidate)
            waiting[project].go_on(candidate, failed=outcome is Outcome.FAILED)
            for changed in state.changed:
                state.victims.refresh(changed)
                if changed in waiting and changed is not project:
                    turns.refresh(changed)
            state.changed.clear()
            turns.refresh(project)

    def _is_unserved(self, name: str) -> bool:
        return name not in self._state.settled

    def _next_need(self, project: Queue) -> Slots | None:
        head = self._waiting[project].head() if project in self._waiting else None
        return None if head is None else head.alternatives[0]


class _Shape:
    """Jobs of a project that ask for the same, in waiting order."""

    __slots__ = ("at", "jobs")

    def __init__(self) -> None:
        self.jobs: list[Candidate] = []
        self.at = 0

    def seek(self, is_unserved: Callable[[str], bool], above: int | None = None) -> WaitingKey | None:
        """Go on to the next job that is not served (and has a priority above this); gives its place."""
        while self.at < len(self.jobs):
            candidate = self.jobs[self.at]
            if is_unserved(candidate.name) and (above is None or candidate.priority > above):
                return candidate.key
            self.at += 1
        return None


class _WaitingJobs:
    """A project's waiting jobs, as one phase goes through them.

    When a job cannot be served, nobody of the same shape and of no higher priority can.
    """

    def __init__(self, candidates: Iterable[Candidate], is_unserved: Callable[[str], bool]) -> None:
        self._is_unserved = is_unserved
        self._shapes: dict[tuple[Any, ...], _Shape] = {}
        self._heap: list[tuple[WaitingKey, tuple[Any, ...]]] = []
        for candidate in candidates:
            self._shapes.setdefault(candidate.shape, _Shape()).jobs.append(candidate)

    def open(self) -> None:
        """Begin a phase: everybody who is not served is to be tried."""
        self._heap = []
        for name, shape in self._shapes.items():
            shape.at = 0
            key = shape.seek(self._is_unserved)
            if key is not None:
                self._heap.append((key, name))
        heapify(self._heap)

    def head(self) -> Candidate | None:
        """Whose turn it is."""
        if not self._heap:
            return None
        shape = self._shapes[self._heap[0][1]]
        return shape.jobs[shape.at]

    def go_on(self, candidate: Candidate, *, failed: bool) -> None:
        """The head's turn is over."""
        _, name = heappop(self._heap)
        shape = self._shapes[name]
        shape.at += 1
        key = shape.seek(self._is_unserved, candidate.priority if failed else None)
        if key is not None:
            heappush(self._heap, (key, name))


def _starts(state: PlanState, candidates: Sequence[Candidate]) -> tuple[Start, ...]:
    """Who starts, in waiting order."""
    started = state.started
    return tuple(Start(it.name, dict(started[it.name])) for it in candidates if it.name in started)


def _evictions(state: PlanState, candidates: Sequence[Candidate]) -> tuple[Evict, ...]:
    """Who leaves, claimant by claimant, each in victim order."""
    place = {candidate.name: place for place, candidate in enumerate(candidates)}
    ordered = sorted(state.evicted.values(), key=lambda it: (place[it.claimant], it.victim.key))
    return tuple(Evict(it.victim.name, it.claimant, it.rule) for it in ordered)
