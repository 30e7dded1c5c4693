"""The tree of departments and projects as it stands while a plan is made: what each holds, and what it is due."""

from collections import defaultdict
from dataclasses import dataclass, field

from job_queue.scheduler.model import Department, Policy, Project, Slots
from job_queue.scheduler.shares import UNLIMITED, Shares

Counts = dict[str, int]


def _counts() -> Counts:
    return defaultdict(int)


@dataclass(eq=False, slots=True)
class Queue:
    """A department or a project. All figures are by pool."""

    name: str
    place: int  # in policy order, departments before projects
    parent: "Queue | None"
    quota: Slots
    limit: Slots
    entitlement: Counts
    held: Counts = field(default_factory=_counts)  # once all stops are over, what is set aside for its jobs included
    used: Counts = field(default_factory=_counts)  # now, stopping jobs included
    fixed: Counts = field(default_factory=_counts)  # the part of it that is not preemptible
    children: "list[Queue]" = field(default_factory=list)

    @property
    def top(self) -> "Queue":
        """The queue below the root on its path."""
        return self.parent or self

    @property
    def path(self) -> "tuple[Queue, ...]":
        """Itself and its department."""
        return (self,) if self.parent is None else (self, self.parent)

    def excess(self, pool: str) -> int:
        """Slots above its entitlement."""
        return self.held[pool] - self.entitlement[pool]

    def room(self, pool: str) -> int:
        """Slots up to its limit."""
        return self.limit.get(pool, UNLIMITED) - self.held[pool]


class Queues:
    """All queues of a policy, by name. Jobs of a project that the policy does not know get a queue with no quota."""

    def __init__(self, policy: Policy, due: Shares) -> None:
        self._due = due
        self._by_name: dict[str, Queue] = {}
        self.tops: list[Queue] = []
        self.touched: set[Queue] = set()  # projects whose figures changed since somebody cleared this
        for department in policy.departments:
            self._add(department, None)
        for project in policy.projects:
            self._add(project, self._by_name[project.department] if project.department else None)

    def _add(self, it: Department | Project, parent: Queue | None) -> Queue:
        entitlement = _counts()
        entitlement.update({pool: queues.get(it.name, 0) for pool, queues in self._due.entitlement.items()})
        queue = Queue(it.name, len(self._by_name), parent, it.quota, it.limit, entitlement)
        self._by_name[it.name] = queue
        (parent.children if parent else self.tops).append(queue)
        return queue

    def project(self, name: str) -> Queue:
        """The queue of a project."""
        return self._by_name.get(name) or self._add(Project(name), None)

    def hold(self, project: Queue, slots: Slots, sign: int = 1) -> None:
        """More (or, with sign -1, less) is held once all stops are over."""
        self.touched.add(project)
        for queue in project.path:
            for pool, count in slots.items():
                queue.held[pool] += sign * count

    def use(self, project: Queue, slots: Slots, sign: int = 1) -> None:
        """More (or less) is used now."""
        for queue in project.path:
            for pool, count in slots.items():
                queue.used[pool] += sign * count

    def fix(self, project: Queue, slots: Slots, sign: int = 1) -> None:
        """More (or less) is held by jobs that are not preemptible."""
        for queue in project.path:
            for pool, count in slots.items():
                queue.fixed[pool] += sign * count


def deprivation(queue: Queue, need: Slots) -> tuple[bool, float, float, int, int]:
    """How well off a queue is with its next job: the smallest is served first (scheduling rules, section 2).

    Of several pools the worst counts.
    """
    beyond = False
    worst: tuple[float, float, int] = (-1.0, 0.0, 0)
    for pool, count in need.items():
        held, due = queue.held[pool], queue.entitlement[pool]
        beyond = beyond or held + count > queue.quota.get(pool, 0)
        worst = max(worst, (_ratio(held + count, due), _ratio(held, due), due))
    return (beyond, *worst, queue.place)


def _ratio(held: int, due: int) -> float:
    return held / due if due else held * 1000.0


def quota_of(queue: Queue, pool: str) -> int:
    """Slots of a pool guaranteed to a queue."""
    return queue.quota.get(pool, 0)
