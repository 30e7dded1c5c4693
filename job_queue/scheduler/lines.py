"""The waiting lines: whose turn it is among the projects, and whose within a project (scheduling rules, section 2)."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.ordering import LineKey
from job_queue.scheduler.queues import Queue, Queues, deprivation

_Entry = tuple[bool, float, float, int, int, Queue]


class _Shape:
    """Jobs of a project that ask for the same, in line order."""

    __slots__ = ("at", "jobs")

    def __init__(self) -> None:
        self.jobs: list[Candidate] = []
        self.at = 0

    def seek(self, unserved: Callable[[str], bool], above: int | None = None) -> LineKey | None:
        """Go on to the next job that is not served (and has a priority above this); gives its place in the line."""
        while self.at < len(self.jobs):
            candidate = self.jobs[self.at]
            if unserved(candidate.name) and (above is None or candidate.job.priority > above):
                return candidate.key
            self.at += 1
        return None


class Line:
    """A project's waiting jobs, as one pass goes through them.

    When a job cannot be served, nobody of the same shape and of no higher priority can.
    """

    def __init__(self, candidates: Iterable[Candidate], unserved: Callable[[str], bool]) -> None:
        self._unserved = unserved
        self._shapes: dict[tuple[Any, ...], _Shape] = {}
        self._heap: list[tuple[LineKey, tuple[Any, ...]]] = []
        self._first: dict[tuple[Any, ...], int] = {}
        for candidate in candidates:
            self._shapes.setdefault(candidate.shape, _Shape()).jobs.append(candidate)

    def open(self) -> None:
        """Begin a pass: everybody who is not served is to be tried."""
        self._heap = []
        for name, shape in self._shapes.items():
            shape.at = self._first.get(name, 0)
            key = shape.seek(self._unserved)
            self._first[name] = shape.at
            if key is not None:
                self._heap.append((key, name))
        self._heap = [(key, name) for key, name in self._heap]
        heapify(self._heap)

    def head(self) -> Candidate | None:
        """Whose turn it is."""
        if not self._heap:
            return None
        shape = self._shapes[self._heap[0][1]]
        return shape.jobs[shape.at]

    def settle(self, candidate: Candidate, *, failed: bool) -> None:
        """The head's turn is over."""
        _, name = heappop(self._heap)
        shape = self._shapes[name]
        shape.at += 1
        key = shape.seek(self._unserved, candidate.job.priority if failed else None)
        if key is not None:
            heappush(self._heap, (key, name))

    def take_back(self, candidate: Candidate) -> None:
        """A job that was served is not: it is to be tried again."""
        name = candidate.shape
        shape = self._shapes[name]
        place = shape.jobs.index(candidate)
        self._first[name] = min(self._first.get(name, 0), place)
        self._heap = [entry for entry in self._heap if entry[1] != name]
        shape.at = min(shape.at, place)
        key = shape.seek(self._unserved)
        if key is not None:
            self._heap.append((key, name))
        heapify(self._heap)


class Turns:
    """Which project is the most deprived, compared from the root down, after every decision.

    A queue's key is computed anew only when its figures or its next job changed; outdated entries are left in the
    heaps and skipped.
    """

    def __init__(self, queues: Queues, next_need: Callable[[Queue], Any]) -> None:
        self._queues = queues
        self._next_need = next_need
        self._current: dict[Queue, _Entry | None] = {}
        self._heaps: dict[Queue | None, list[_Entry]] = defaultdict(list)

    def refresh(self, project: Queue) -> None:
        """The project's figures or its next job changed."""
        need = self._next_need(project)
        self._push(project, need)
        if project.parent is not None:
            child = self._top(project.parent)
            self._push(project.parent, None if child is None else self._next_need(child))

    def next(self) -> Queue | None:
        """The project whose turn it is."""
        top = self._top(None)
        if top is None or not top.children:
            return top
        return self._top(top)

    def _push(self, queue: Queue, need: Any) -> None:
        if need is None:
            self._current[queue] = None
            return
        entry = (*deprivation(queue, need), queue)
        self._current[queue] = entry
        heappush(self._heaps[queue.parent], entry)

    def _top(self, parent: Queue | None) -> Queue | None:
        heap = self._heaps[parent]
        while heap and self._current.get(heap[0][-1]) is not heap[0]:
            heappop(heap)
        return heap[0][-1] if heap else None
