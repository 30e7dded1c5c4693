"""In which order the waiting jobs would be served if slots came free one after the other."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from job_queue.scheduler.draft import Draft
from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.lines import Turns
from job_queue.scheduler.model import Slots, WaitingJob
from job_queue.scheduler.queues import Queue


class Places:
    """Hands out slots that do not exist; the draft's figures are used up by it."""

    def __init__(self, draft: Draft, known: Mapping[str, Candidate]) -> None:
        self._draft = draft
        self._known = known
        self._lines: dict[Queue, deque[WaitingJob]] = {}

    def in_order(self, waiting: Iterable[WaitingJob]) -> Iterator[WaitingJob]:
        """The jobs, given in line order; who cannot be served at all keeps its place in its project's line."""
        queues = self._draft.queues
        for job in waiting:
            self._lines.setdefault(queues.project(job.project), deque()).append(job)
        turns = Turns(queues, self._next_need)
        for queue in self._lines:
            turns.refresh(queue)
        while (project := turns.next()) is not None:
            line = self._lines[project]
            while line[0].name not in self._known:
                yield line.popleft()
            job = line.popleft()
            yield job
            own = self._draft.own(self._known[job.name])
            need = self._known[job.name].alternatives[0]
            queues.hold(project, {pool: max(0, count - own.get(pool, 0)) for pool, count in need.items()})
            turns.refresh(project)
        for line in self._lines.values():
            yield from line

    def _next_need(self, project: Queue) -> Slots | None:
        line = self._lines.get(project, ())
        first = next((job for job in line if job.name in self._known), None)
        return None if first is None else self._known[first.name].alternatives[0]
