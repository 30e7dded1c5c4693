"""Departments and projects: usage, bounds, fair shares, and the order in which they are served (sections 1 and 2)."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from heapq import heappop, heappush

from job_queue.scheduler.model import (
    NOTHING,
    UNLIMITED,
    ActiveJob,
    Department,
    Policy,
    Pool,
    Project,
    Slots,
    WaitingJob,
)
from job_queue.scheduler.sharing.division import Asker, divide, divide_by_past
from job_queue.scheduler.sharing.lately import Lately

Counts = dict[str, int]
"""Pool -> slots; a pool that is not in it counts 0."""

Deprivation = tuple[int, float, float, float, int, int]


def counts() -> Counts:
    """Return a mapping without slots."""
    return defaultdict(int)


class Bound(IntEnum):
    """A bound of the usage of a project or department."""

    ENTITLEMENT = 0  # projected usage at most the entitlement
    LIMIT = 1  # projected usage at most the limit
    LIMIT_NOW = 2  # current usage at most the limit
    NON_PREEMPTIBLE_QUOTA = 3  # usage of jobs that are not preemptible at most the quota


@dataclass(eq=False, slots=True)
class Queue:
    """A node of the sharing tree: a department or a project. All figures are slots by pool."""

    name: str
    place: int  # in policy order, departments before projects
    parent: "Queue | None"
    quota: Slots
    limit: Slots
    over_quota: float | None = None
    is_department: bool = False
    overspent: bool = False  # its soft budget is spent: it is served after the others
    pools: Mapping[str, Pool] = field(default_factory=dict)  # pools that its training jobs may use, by name
    # pools that its interactive jobs may use, by name
    interactive_pools: Mapping[str, Pool] = field(default_factory=dict)
    entitlement: Counts = field(default_factory=counts)
    # pool -> slots held lately, and the fair share if past use did not count
    had: dict[str, tuple[float, float]] = field(default_factory=dict)
    projected: Counts = field(default_factory=counts)  # usage once all stops are over, with reservations
    current: Counts = field(default_factory=counts)  # usage now, with stopping jobs
    non_preemptible: Counts = field(default_factory=counts)  # usage of jobs that are not preemptible
    children: "list[Queue]" = field(default_factory=list)
    path: "tuple[Queue, ...]" = ()  # this node and its department
    bounds: tuple[tuple[Counts, Slots, int], ...] = ()  # by Bound: usage, bound, and the bound of other pools

    def __post_init__(self) -> None:
        self.path = (self,) if self.parent is None else (self, self.parent)
        self.bounds = (
            (self.projected, self.entitlement, 0),
            (self.projected, self.limit, UNLIMITED),
            (self.current, self.limit, UNLIMITED),
            (self.non_preemptible, self.quota, 0),
        )

    def pools_of(self, job: WaitingJob | ActiveJob) -> Mapping[str, Pool]:
        """Return the pools that a job of this project may use, by name."""
        return self.interactive_pools if job.interactive else self.pools

    @property
    def top(self) -> "Queue":
        """The node below the root on its path."""
        return self.parent or self


def fits(queue: Queue, need: Slots, bound: Bound, freed: Slots = NOTHING) -> bool:
    """Return whether a node's usage stays within a bound if it gets `need` and gives up `freed`."""
    usage, most, otherwise = queue.bounds[bound]
    return all(usage[pool] - freed.get(pool, 0) + count <= most.get(pool, otherwise) for pool, count in need.items())


def part_of_paths(project: Queue, other: Queue) -> tuple[Queue, Queue]:
    """Return the nodes of two projects at the level where their paths to the root differ."""
    return (project, other) if project.parent is other.parent else (project.top, other.top)


class QueueTree:
    """The departments and projects of a policy, by name. An unknown project gets a node without quota."""

    def __init__(self, policy: Policy, overspent: Container[str] = ()) -> None:
        self._by_name: dict[str, Queue] = {}
        self.tops: list[Queue] = []
        pools = {pool.name: pool for pool in policy.pools}
        for department in policy.departments:
            self._add(Queue(department.name, len(self._by_name), None, department.quota, department.limit, None, True))
        for project in policy.projects:
            parent = self._by_name[project.department] if project.department else None
            queue = Queue(project.name, len(self._by_name), parent, project.quota, project.limit, project.over_quota)
            queue.overspent = project.name in overspent
            queue.pools = _allowed(pools, project.pools_for(interactive=False))
            queue.interactive_pools = _allowed(pools, project.pools_for(interactive=True))
            self._add(queue)
        self._of_policy = list(self._by_name.values())

    def _add(self, queue: Queue) -> Queue:
        self._by_name[queue.name] = queue
        (queue.parent.children if queue.parent else self.tops).append(queue)
        return queue

    def project(self, name: str) -> Queue:
        """Return the node of a project."""
        return self._by_name.get(name) or self._add(Queue(name, len(self._by_name), None, {}, {}))

    def divide(
        self, capacities: Slots, external: Slots, requests: Mapping[Queue, Slots], lately: Lately | None = None
    ) -> dict[str, dict[str, int]]:
        """Divide every pool from the root down. Set all entitlements, and return the fair shares by pool and node.

        :param requests: slots that the live jobs of each project request.
        :param lately: past use; None: it does not count.
        """
        shares = {}
        for name, capacity in capacities.items():
            fair = shares[name] = self._divide(name, max(0, capacity - external.get(name, 0)), requests, lately)
            for queue in self._of_policy:
                queue.entitlement[name] = min(_limit(queue, name), max(queue.quota.get(name, 0), fair[queue.name]))
        return shares

    def _divide(self, pool: str, have: int, requests: Mapping[Queue, Slots], lately: Lately | None) -> dict[str, int]:
        queues = self._of_policy
        asked = {queue: min(_limit(queue, pool), requests.get(queue, NOTHING).get(pool, 0)) for queue in queues}
        for queue in queues:
            if queue.overspent:  # it is entitled to nothing beyond its quota
                asked[queue] = min(asked[queue], queue.quota.get(pool, 0))
        departments = [queue for queue in queues if queue.is_department]
        for queue in departments:
            asked[queue] = min(_limit(queue, pool), sum(asked[child] for child in queue.children))
        fair = _among([queue for queue in queues if queue.parent is None], pool, asked, have, lately)
        for queue in departments:
            fair |= _among(queue.children, pool, asked, fair[queue.name], lately)
        return fair


def _allowed(pools: Mapping[str, Pool], names: Sequence[str]) -> Mapping[str, Pool]:
    return {name: pool for name, pool in pools.items() if name in names} if names else pools


def _limit(queue: Queue, pool: str) -> int:
    return queue.limit.get(pool, UNLIMITED)


def _among(
    queues: Sequence[Queue], pool: str, asked: Mapping[Queue, int], have: int, lately: Lately | None
) -> dict[str, int]:
    askers = [Asker(queue.quota.get(pool, 0), weight_of(queue, pool), asked[queue]) for queue in queues]
    if lately is None:
        parts = divide(have, askers)
    else:
        pasts = [lately.of([it.name for it in queue.children] or [queue.name], pool) for queue in queues]
        parts, fair = divide_by_past(have, askers, pasts)
        for queue, past, share in zip(queues, pasts, fair, strict=True):
            queue.had[pool] = past.lately, float(share)
    return {queue.name: part for queue, part in zip(queues, parts, strict=True)}


def weight_of(queue: Queue | Department | Project, pool: str) -> Fraction:
    """Return the over-quota weight of a node: a project's own, else the quota, or 1 if the quota is 0."""
    own = None if isinstance(queue, Department) else queue.over_quota
    return Fraction(queue.quota.get(pool, 0) or 1) if own is None else Fraction(str(own))


def oversubscriptions(policy: Policy) -> Iterable[str]:
    """Yield a sentence for each place where quotas add up to more than there is.

    A policy with such places is refused unless it has `allow_oversubscription`.
    """
    for pool in policy.pools:
        name = pool.name
        for department in policy.departments:
            children = (project for project in policy.projects if project.department == department.name)
            total = _quotas(name, children)
            own = department.quota.get(name, 0)
            if total > own:
                yield f"project quotas of {department.name} add up to {total} {name}, its quota is {own}"
        tops = [project for project in policy.projects if project.department is None]
        total = _quotas(name, [*policy.departments, *tops])
        if total > pool.capacity:
            yield f"quotas of the pool {name} add up to {total}, it has {pool.capacity}"


def _quotas(pool: str, queues: Iterable[Department | Project]) -> int:
    return sum(queue.quota.get(pool, 0) for queue in queues)


# --- serving order ------------------------------------------------------------------------------------


def deprivation(queue: Queue, need: Slots, usage: Mapping[str, int]) -> Deprivation:
    """Return how well off a node is with its next job: the smallest is served first (scheduling rules, section 2).

    With several pools the worst one counts. If past use counts, (lately + held) / fair share comes before the ratios of
    present usage. That is the inverse of Slurm's level fair share.

    :param need: the first alternative of its next job.
    :param usage: slots that the node holds, by pool.
    """
    beyond, had = False, 0.0
    worst: tuple[float, float, int] = (-1.0, 0.0, 0)
    for pool, count in need.items():
        held, due = usage[pool], queue.entitlement[pool]
        beyond = beyond or held + count > queue.quota.get(pool, 0)
        worst = max(worst, (_ratio(held + count, due), _ratio(held, due), due))
        if queue.had:
            lately, fair = queue.had[pool]
            had = max(had, _ratio(lately + held, fair))
    last = beyond and queue.overspent
    return (beyond + last, had, *worst, queue.place)


def _ratio(held: float, due: float) -> float:
    return held / due if due else held * 1000.0


def turn_to_give(project: Queue, excess: int) -> int:
    """Return the sort key of a project in reclaim; the smallest gives first.

    The order: projects with a spent soft budget, then most slots above entitlement.

    :param excess: slots above its entitlement.
    """
    return -excess - (UNLIMITED if project.overspent else 0)


class Turns:
    """The order in which projects are served: the most deprived first, compared from the root down.

    The order is determined again after every decision.

    A node's key is computed again only if its usage or its next job has changed. Outdated entries stay in the heaps and
    are skipped.

    :param next_need: returns the first alternative of a project's next job; None: it has no next job.
    :param usage: returns the slots that a node holds, by pool.
    """

    def __init__(self, next_need: Callable[[Queue], Slots | None], usage: Callable[[Queue], Mapping[str, int]]) -> None:
        self._next_need = next_need
        self._usage = usage
        self._current: dict[Queue, tuple[Deprivation, Queue] | None] = {}
        self._heaps: dict[Queue | None, list[tuple[Deprivation, Queue]]] = defaultdict(list)

    def refresh(self, project: Queue) -> None:
        """Compute a project's key again, since its usage or its next job has changed."""
        self._push(project, self._next_need(project))
        if project.parent is not None:
            child = self._top(project.parent)
            self._push(project.parent, None if child is None else self._next_need(child))

    def next(self) -> Queue | None:
        """Return the project to serve next; None: no project has a next job."""
        top = self._top(None)
        return self._top(top) if top is not None and top.children else top

    def _push(self, queue: Queue, need: Slots | None) -> None:
        if need is None:
            self._current[queue] = None
            return
        entry = (deprivation(queue, need, self._usage(queue)), queue)
        self._current[queue] = entry
        heappush(self._heaps[queue.parent], entry)

    def _top(self, parent: Queue | None) -> Queue | None:
        heap = self._heaps[parent]
        while heap and self._current.get(heap[0][-1]) is not heap[0]:
            heappop(heap)
        return heap[0][-1] if heap else None
