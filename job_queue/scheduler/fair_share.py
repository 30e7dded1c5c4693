"""Departments and projects: their usage and its bounds, their fair shares, and whose turn it is (sections 1 and 2)."""

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
"""Pool -> slots; a pool that is not there counts 0."""

Deprivation = tuple[int, float, float, float, int, int]


def counts() -> Counts:
    """No slots."""
    return defaultdict(int)


class Bound(IntEnum):
    """What a queue's usage is compared with."""

    ENTITLEMENT = 0  # projected usage, with what it may hold without being asked to give
    LIMIT = 1  # projected usage, with what it may never exceed
    LIMIT_NOW = 2  # current usage, with the same
    NON_PREEMPTIBLE_QUOTA = 3  # non-preemptible usage, with its quota


@dataclass(eq=False, slots=True)
class Queue:
    """A department or a project. All figures are slots by pool."""

    name: str
    place: int  # in policy order, departments before projects
    parent: "Queue | None"
    quota: Slots
    limit: Slots
    over_quota: float | None = None
    is_department: bool = False
    overspent: bool = False  # its soft budget is spent: it comes after the others
    pools: Mapping[str, Pool] = field(default_factory=dict)  # those that its training jobs may use, by name
    interactive_pools: Mapping[str, Pool] = field(default_factory=dict)  # ... and its interactive jobs
    entitlement: Counts = field(default_factory=counts)
    had: dict[str, tuple[float, float]] = field(default_factory=dict)  # slots lately, and its share without a past
    projected: Counts = field(default_factory=counts)  # usage once all stops are over; counts what is set aside
    current: Counts = field(default_factory=counts)  # usage now; counts stopping jobs
    non_preemptible: Counts = field(default_factory=counts)  # the part of it that may not be stopped
    children: "list[Queue]" = field(default_factory=list)
    path: "tuple[Queue, ...]" = ()  # itself and its department
    bounds: tuple[tuple[Counts, Slots, int], ...] = ()  # by Bound: usage, bound, bound of a pool not named there

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
        """The queue below the root on its path."""
        return self.parent or self


def fits(queue: Queue, need: Slots, bound: Bound, freed: Slots = NOTHING) -> bool:
    """Whether a queue's usage stays within a bound when it gets `need` and gives up `freed`."""
    usage, most, otherwise = queue.bounds[bound]
    return all(usage[pool] - freed.get(pool, 0) + count <= most.get(pool, otherwise) for pool, count in need.items())


def part_of_paths(project: Queue, other: Queue) -> tuple[Queue, Queue]:
    """The queues of two projects at the level where their paths part."""
    return (project, other) if project.parent is other.parent else (project.top, other.top)


class QueueTree:
    """All queues of a policy, by name. A project that the policy does not know gets a queue without quota."""

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
        """The queue of a project."""
        return self._by_name.get(name) or self._add(Queue(name, len(self._by_name), None, {}, {}))

    def divide(
        self, capacities: Slots, external: Slots, requests: Mapping[Queue, Slots], lately: Lately | None = None
    ) -> dict[str, dict[str, int]]:
        """Divide every pool from the root down: enters all entitlements, and gives the fair shares by pool and queue.

        :param requests: what the live jobs of each project ask for.
        :param lately: what was held before, where that counts.
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
            if queue.overspent:  # nothing beyond its quota is its due
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
    """A queue's part of what is left over: a project's own, else the quota, or 1 where the quota is 0."""
    own = None if isinstance(queue, Department) else queue.over_quota
    return Fraction(queue.quota.get(pool, 0) or 1) if own is None else Fraction(str(own))


def oversubscriptions(policy: Policy) -> Iterable[str]:
    """Where quotas add up to more than there is, a sentence each. Such a policy is refused unless it allows it."""
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


# --- whose turn it is ---------------------------------------------------------------------------------


def deprivation(queue: Queue, need: Slots, usage: Mapping[str, int]) -> Deprivation:
    """How well off a queue is with its next job: the smallest is served first (scheduling rules, section 2).

    Of several pools the worst counts. Where past use counts, what was held lately and is held comes before what is held
    alone, by what would be due without a past: Slurm's level fair share, the other way up.

    :param need: the first alternative of its next job.
    :param usage: what the queue holds, slots by pool.
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
    """Whose turn it is to give slots back, the smallest first: whose soft budget is spent, then who has most above.

    :param excess: slots above its entitlement.
    """
    return -excess - (UNLIMITED if project.overspent else 0)


class Turns:
    """Which project is the most deprived, compared from the root down, after every decision.

    A queue's key is computed anew only when its usage or its next job changed; outdated entries are left in the heaps
    and skipped.

    :param next_need: a project's next job's first alternative; None: it has no next job.
    :param usage: what a queue holds, slots by pool.
    """

    def __init__(self, next_need: Callable[[Queue], Slots | None], usage: Callable[[Queue], Mapping[str, int]]) -> None:
        self._next_need = next_need
        self._usage = usage
        self._current: dict[Queue, tuple[Deprivation, Queue] | None] = {}
        self._heaps: dict[Queue | None, list[tuple[Deprivation, Queue]]] = defaultdict(list)

    def refresh(self, project: Queue) -> None:
        """The project's usage or its next job changed."""
        self._push(project, self._next_need(project))
        if project.parent is not None:
            child = self._top(project.parent)
            self._push(project.parent, None if child is None else self._next_need(child))

    def next(self) -> Queue | None:
        """The project whose turn it is."""
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
