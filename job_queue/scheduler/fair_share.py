"""Departments and projects: their fair shares (scheduling rules, section 1), their usage, and the bounds on it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction

from job_queue.scheduler.model import NOTHING, Department, Policy, Pool, Project, Slots

UNLIMITED = 1 << 60
"""The limit of a queue that has none."""

Counts = dict[str, int]
"""Pool -> slots; a pool that is not there counts 0."""


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
    is_department: bool = False
    entitlement: Counts = field(default_factory=counts)
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

    @property
    def top(self) -> "Queue":
        """The queue below the root on its path."""
        return self.parent or self


def fits(queue: Queue, need: Slots, bound: Bound, freed: Slots = NOTHING) -> bool:
    """Whether a queue's usage stays within a bound when it gets `need` and gives up `freed`."""
    usage, most, otherwise = queue.bounds[bound]
    return all(usage[pool] - freed.get(pool, 0) + count <= most.get(pool, otherwise) for pool, count in need.items())


class QueueTree:
    """All queues of a policy, by name. A project that the policy does not know gets a queue without quota."""

    def __init__(self, policy: Policy) -> None:
        self._by_name: dict[str, Queue] = {}
        self.tops: list[Queue] = []
        for department in policy.departments:
            self._add(department, None)
        for project in policy.projects:
            self._add(project, self._by_name[project.department] if project.department else None)

    def _add(self, it: Department | Project, parent: Queue | None) -> Queue:
        queue = Queue(it.name, len(self._by_name), parent, it.quota, it.limit, isinstance(it, Department))
        self._by_name[it.name] = queue
        (parent.children if parent else self.tops).append(queue)
        return queue

    def project(self, name: str) -> Queue:
        """The queue of a project."""
        return self._by_name.get(name) or self._add(Project(name), None)

    def entitle(self, due: "Shares") -> None:
        """Enter what every queue is entitled to."""
        for pool, entitlements in due.entitlement.items():
            for name, entitlement in entitlements.items():
                self._by_name[name].entitlement[pool] = entitlement


Requests = Mapping[str, Mapping[str, int]]
"""Project -> pool -> slots that its live jobs ask for."""


@dataclass(frozen=True, slots=True)
class Asker:
    """One of those who divide what their parent has."""

    quota: int
    weight: Fraction  # its part of what is left over, relative to the others'
    request: int


@dataclass(frozen=True, slots=True)
class Shares:
    """What every queue (a department or a project) is due, pool by pool."""

    fair: Mapping[str, Mapping[str, int]]  # pool -> queue -> fair share
    entitlement: Mapping[str, Mapping[str, int]]  # pool -> queue -> what it may hold without being asked to give


def divide(have: int, askers: Sequence[Asker]) -> list[int]:
    """Divide what a parent has among its children, given in policy order.

    Everyone first gets its quota, as far as it asks for it; what is left goes by weight to those still asking.
    """
    guaranteed = [min(asker.quota, asker.request) for asker in askers]
    total = sum(guaranteed)
    if total > have:
        return _round_down([Fraction(part * have, total) for part in guaranteed], have)
    rest = [(it.request - own, it.weight) for it, own in zip(askers, guaranteed, strict=True)]
    over = _divide_rest(have - total, rest)
    return [own + more for own, more in zip(guaranteed, over, strict=True)]


def _divide_rest(rest: int, asks: Sequence[tuple[int, Fraction]]) -> list[int]:
    """By weight. Who asks less than its part gets what it asks, and the rest is divided anew among the others."""
    parts = [Fraction(0)] * len(asks)
    asking = [place for place, (ask, weight) in enumerate(asks) if ask > 0 and weight > 0]
    asking.sort(key=lambda place: Fraction(asks[place][0]) / asks[place][1])
    left, weights = rest, sum((asks[place][1] for place in asking), Fraction(0))
    for done, place in enumerate(asking):
        ask, weight = asks[place]
        if ask * weights > left * weight:  # from here on everyone asks for more than its part
            for other in asking[done:]:
                parts[other] = left * asks[other][1] / weights
            return _round_down(parts, rest)
        parts[place] = Fraction(ask)
        left, weights = left - ask, weights - weight
    return [int(part) for part in parts]


def _round_down(parts: Sequence[Fraction], total: int) -> list[int]:
    """Whole slots; the odd ones go one each: largest remainder, then policy order."""
    whole = [int(part) for part in parts]
    order = sorted(range(len(parts)), key=lambda place: (whole[place] - parts[place], place))
    for place in order[: total - sum(whole)]:
        whole[place] += 1
    return whole


def shares(policy: Policy, requests: Requests, external: Mapping[str, int]) -> Shares:
    """The fair share and the entitlement of every department and project, in every pool."""
    fair: dict[str, dict[str, int]] = {}
    entitlement: dict[str, dict[str, int]] = {}
    for pool in policy.pools:
        fair[pool.name] = _of_pool(policy, pool, requests, external.get(pool.name, 0))
        entitlement[pool.name] = {
            queue.name: min(limit_of(queue, pool.name), max(queue.quota.get(pool.name, 0), fair[pool.name][queue.name]))
            for queue in _queues(policy)
        }
    return Shares(fair, entitlement)


def _queues(policy: Policy) -> list[Department | Project]:
    """In policy order."""
    return [*policy.departments, *policy.projects]


def _of_pool(policy: Policy, pool: Pool, requests: Requests, external: int) -> dict[str, int]:
    name = pool.name
    asked = {
        project.name: min(limit_of(project, name), requests.get(project.name, {}).get(name, 0))
        for project in policy.projects
    }
    children: dict[str | None, list[Project]] = defaultdict(list)
    for project in policy.projects:
        children[project.department].append(project)
    for department in policy.departments:
        of_children = sum(asked[child.name] for child in children[department.name])
        asked[department.name] = min(limit_of(department, name), of_children)
    result = _among([*policy.departments, *children[None]], name, asked, max(0, pool.capacity - external))
    for department in policy.departments:
        result |= _among(children[department.name], name, asked, result[department.name])
    return result


def _among(queues: Sequence[Department | Project], pool: str, asked: Mapping[str, int], have: int) -> dict[str, int]:
    askers = [Asker(queue.quota.get(pool, 0), weight_of(queue, pool), asked[queue.name]) for queue in queues]
    return {queue.name: part for queue, part in zip(queues, divide(have, askers), strict=True)}


def limit_of(queue: Department | Project, pool: str) -> int:
    """What a queue may never exceed."""
    return queue.limit.get(pool, UNLIMITED)


def weight_of(queue: Department | Project, pool: str) -> Fraction:
    """A queue's part of what is left over: a project's own, else the quota, or 1 where the quota is 0."""
    own = queue.over_quota if isinstance(queue, Project) else None
    return Fraction(queue.quota.get(pool, 0) or 1) if own is None else Fraction(str(own))


def oversubscriptions(policy: Policy) -> Iterable[str]:
    """Where quotas add up to more than there is, a sentence each. Such a policy is refused unless it allows it."""
    for pool in policy.pools:
        name = pool.name
        for department in policy.departments:
            total = sum(it.quota.get(name, 0) for it in policy.projects if it.department == department.name)
            if total > department.quota.get(name, 0):
                own = department.quota.get(name, 0)
                yield f"project quotas of {department.name} add up to {total} {name}, its quota is {own}"
        tops = [it for it in _queues(policy) if isinstance(it, Department) or it.department is None]
        total = sum(queue.quota.get(name, 0) for queue in tops)
        if total > pool.capacity:
            yield f"quotas of the pool {name} add up to {total}, it has {pool.capacity}"
