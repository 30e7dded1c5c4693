"""plan(snapshot) -> Plan: what to start, whom to evict, and why the rest waits. Pure and deterministic."""

from job_queue.scheduler.decisions import Evict, Plan, Start
from job_queue.scheduler.draft import Draft
from job_queue.scheduler.eligibility import Candidate, requests, sort_out
from job_queue.scheduler.explain import explain
from job_queue.scheduler.lines import Line, Turns
from job_queue.scheduler.model import Slots, Snapshot
from job_queue.scheduler.queues import Queue, Queues
from job_queue.scheduler.service import Outcome, Service
from job_queue.scheduler.shares import shares

RERUNS = 20  # how often the lines are gone through again because slots came free; a later plan goes on from there


def plan(snapshot: Snapshot) -> Plan:
    """Decide one cycle. The order of `active` and `waiting` does not matter."""
    # 1. Set apart who cannot be served whatever is free; the others stand in line.
    candidates, refused = sort_out(snapshot)
    # 2. Divide every pool: fair shares and entitlements, from the root down.
    due = shares(snapshot.policy, requests(snapshot, candidates), snapshot.external)
    # 3. Count what everybody holds, what is free and being freed, and set aside what is reserved.
    draft = Draft(snapshot, candidates, Queues(snapshot.policy, due))
    # 4. Serve the lines: start, wait, or make others leave.
    _Lines(snapshot, draft, candidates).serve()
    # 5. Give back victims that turned out not to be needed.
    draft.spare_needless()
    # 6. Tell everyone else why it waits.
    starts, evictions = _starts(draft, candidates), _evictions(draft, candidates)
    holds = explain(snapshot, candidates, refused, draft=draft)
    return Plan(starts, evictions, holds, reservations=dict(sorted(draft.ledger.claims.items())), shares=due.fair)


class _Lines:
    """All waiting lines, gone through in two passes, and again while slots come free for others on the way."""

    def __init__(self, snapshot: Snapshot, draft: Draft, candidates: list[Candidate]) -> None:
        self._draft = draft
        self._service = Service(snapshot, draft)
        by_project: dict[Queue, list[Candidate]] = {}
        for candidate in candidates:
            by_project.setdefault(draft.projects[candidate.name], []).append(candidate)
        self._lines = {project: Line(own, self._is_unserved) for project, own in by_project.items()}

    def serve(self) -> None:
        for _ in range(RERUNS):
            self._draft.released = False
            # First pass: those with whom their project and department stay within entitlement.
            self._go_through(first=True)
            if self._draft.released:
                continue
            # Second pass: everybody else.
            self._go_through(first=False)
            if not self._draft.released:
                return

    def _go_through(self, *, first: bool) -> None:
        draft, lines = self._draft, self._lines
        self._service.begin(first=first)
        turns = Turns(draft.queues, self._next_need)
        draft.queues.touched.clear()
        for queue, line in lines.items():
            line.open()
            turns.refresh(queue)
        while (project := turns.next()) is not None:
            candidate = lines[project].head()
            assert candidate is not None
            outcome = self._service.serve(candidate)
            lines[project].settle(candidate, failed=outcome is Outcome.FAILED)
            for other in draft.reopened:
                lines[draft.projects[other.name]].take_back(other)
            draft.reopened.clear()
            for relieved in draft.relieved & lines.keys():
                lines[relieved].open()
            draft.relieved.clear()
            for touched in draft.queues.touched:
                draft.victims.refresh(touched)
                if touched in lines and touched is not project:
                    turns.refresh(touched)
            draft.queues.touched.clear()
            turns.refresh(project)

    def _is_unserved(self, name: str) -> bool:
        return name not in self._draft.settled

    def _next_need(self, project: Queue) -> Slots | None:
        head = self._lines[project].head() if project in self._lines else None
        return None if head is None else head.alternatives[0]


def _starts(draft: Draft, candidates: list[Candidate]) -> tuple[Start, ...]:
    """Who starts, in the order of the lines."""
    started = draft.started
    return tuple(Start(it.name, dict(started[it.name])) for it in candidates if it.name in started)


def _evictions(draft: Draft, candidates: list[Candidate]) -> tuple[Evict, ...]:
    """Who leaves, claimant by claimant, each in victim order."""
    place = {candidate.name: place for place, candidate in enumerate(candidates)}
    ordered = sorted(draft.evicted.values(), key=lambda it: (place[it.claimant], it.victim.key))
    return tuple(Evict(it.victim.job.name, it.claimant, it.rule) for it in ordered)
