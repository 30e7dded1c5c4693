"""Fair shares, weights and limits of departments and projects, and the project to serve next."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from heapq import heappop, heappush

from job_queue.scheduler.documents.policy_schema import UNLIMITED, Department, Policy, Pool, Project
from job_queue.scheduler.model import NOTHING, ActiveJob, Slots, WaitingJob
from job_queue.scheduler.sharing.division import Recipient, divide, divide_by_past
from job_queue.scheduler.sharing.lately import Lately

Counts = dict[str, int]
"""Pool -> slots. A pool that is missing counts as 0."""

Deprivation = tuple[int, float, float, float, int, int]


def no_counts() -> Counts:
    """Return an empty mapping, in which a missing pool counts as 0 slots."""
    return defaultdict(int)


class Bound(IntEnum):
    """A bound of the usage of a project or department."""

    ENTITLEMENT = 0  # projected usage at most the entitlement
    LIMIT = 1  # projected usage at most the limit
    LIMIT_NOW = 2  # current usage at most the limit
    NON_PREEMPTIBLE_QUOTA = 3  # usage of jobs that are not preemptible at most the quota


@dataclass(eq=False, slots=True)
class ShareNode:
    """A node of the sharing tree: a department or a project. All figures are slots by pool."""

    name: str
    policy_index: int  # in policy order, departments before projects
    parent: "ShareNode | None"
    quota: Slots
    limit: Slots
    weight: float | None = None
    is_department: bool = False
    overspent: bool = False  # the project's soft budget is spent, so the project is served after the others
    pools: Mapping[str, Pool] = field(default_factory=dict)  # pools that training jobs of the project may use, by name
    # pools that interactive jobs of the project may use, by name
    interactive_pools: Mapping[str, Pool] = field(default_factory=dict)
    entitlement: Counts = field(default_factory=no_counts)
    # pool -> slots held lately on average, and the fair share that the node would have if past use did not count
    past: dict[str, tuple[float, float]] = field(default_factory=dict)
    projected: Counts = field(default_factory=no_counts)  # usage when all stops are over, including reservations
    current: Counts = field(default_factory=no_counts)  # usage now, including stopping jobs
    non_preemptible: Counts = field(default_factory=no_counts)  # usage of jobs that are not preemptible
    children: "list[ShareNode]" = field(default_factory=list)
    path: "tuple[ShareNode, ...]" = ()  # this node and its department
    bounds: tuple[tuple[Counts, Slots, int], ...] = ()  # by Bound: usage, bound by pool, bound of all other pools

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
    def top_ancestor(self) -> "ShareNode":
        """The department of a project, or the node itself if it has no parent."""
        return self.parent or self


def fits(node: ShareNode, need: Slots, bound: Bound, freed: Slots = NOTHING) -> bool:
    """Return whether a node's usage stays within a bound if the node gets `need` and gives up `freed`."""
    usage, most, otherwise = node.bounds[bound]
    for pool, count in need.items():  # noqa: SIM110  (faster than a generator; no function is called more often)
        if usage[pool] - freed.get(pool, 0) + count > most.get(pool, otherwise):
            return False
    return True


def diverging_nodes(project: ShareNode, other: ShareNode) -> tuple[ShareNode, ShareNode]:
    """Return the nodes at which two projects compete: the projects if they share a parent, else their top nodes."""
    return (project, other) if project.parent is other.parent else (project.top_ancestor, other.top_ancestor)


class ShareTree:
    """The departments and projects of a policy, and a node without quota for each other project that has jobs."""

    def __init__(self, policy: Policy, overspent: Container[str] = ()) -> None:
        self._of_policy: list[ShareNode] = []
        self._projects: dict[str, ShareNode] = {}
        self.top_nodes: list[ShareNode] = []
        pools = {pool.name: pool for pool in policy.pools}
        departments: dict[str, ShareNode] = {}
        for number, department in enumerate(policy.departments):
            node = ShareNode(department.name, number, None, department.quota, department.limit, None, True)
            departments[node.name] = self._add(node)
            self._of_policy.append(node)
        for number, project in enumerate(policy.projects, start=len(departments)):
            parent = departments[project.department] if project.department else None
            node = ShareNode(project.name, number, parent, project.quota, project.limit, project.weight)
            node.overspent = project.name in overspent
            node.pools = _allowed(pools, project.pools_for(interactive=False))
            node.interactive_pools = _allowed(pools, project.pools_for(interactive=True))
            self._projects[node.name] = self._add(node)
            self._of_policy.append(node)

    def _add(self, node: ShareNode) -> ShareNode:
        (node.parent.children if node.parent else self.top_nodes).append(node)
        return node

    def project(self, name: str) -> ShareNode:
        """Return the node of a project. Create a node without quota if the policy does not have the project."""
        if name not in self._projects:
            number = len(self._of_policy) + len(self._projects)
            self._projects[name] = self._add(ShareNode(name, number, None, {}, {}))
        return self._projects[name]

    def divide(
        self, capacities: Slots, external: Slots, requests: Mapping[ShareNode, Slots], lately: Lately | None = None
    ) -> dict[str, dict[str, int]]:
        """Divide every pool from the root down. Set all entitlements, and return the fair shares by pool and name.

        :param requests: slots that the live jobs of each project request.
        :param lately: past use, or None if past use does not count.
        """
        shares = {}
        for name, capacity in capacities.items():
            fair = self._divide(name, max(0, capacity - external.get(name, 0)), requests, lately)
            for node in self._of_policy:
                node.entitlement[name] = min(_limit(node, name), max(node.quota.get(name, 0), fair[node]))
            shares[name] = self._by_name(fair)
        return shares

    def _by_name(self, fair: Mapping[ShareNode, int]) -> dict[str, int]:
        """Return the shares of the policy's departments and projects by name."""
        found: dict[str, int] = {}
        for node in self._of_policy:
            found.setdefault(node.name, fair[node])
        return found

    def _divide(
        self, pool: str, have: int, requests: Mapping[ShareNode, Slots], lately: Lately | None
    ) -> dict[ShareNode, int]:
        nodes = self._of_policy
        asked = {node: min(_limit(node, pool), requests.get(node, NOTHING).get(pool, 0)) for node in nodes}
        for node in nodes:
            if node.overspent:  # a project with a spent soft budget is entitled to its quota only
                asked[node] = min(asked[node], node.quota.get(pool, 0))
        departments = [node for node in nodes if node.is_department]
        for node in departments:
            asked[node] = min(_limit(node, pool), sum(asked[child] for child in node.children))
        fair = _divide_among_nodes([node for node in nodes if node.parent is None], pool, asked, have, lately)
        for node in departments:
            fair |= _divide_among_nodes(node.children, pool, asked, fair[node], lately)
        return fair


def _allowed(pools: Mapping[str, Pool], names: Sequence[str]) -> Mapping[str, Pool]:
    return {name: pool for name, pool in pools.items() if name in names} if names else pools


def _limit(node: ShareNode, pool: str) -> int:
    return node.limit.get(pool, UNLIMITED)


def _divide_among_nodes(
    nodes: Sequence[ShareNode], pool: str, asked: Mapping[ShareNode, int], have: int, lately: Lately | None
) -> dict[ShareNode, int]:
    recipients = [Recipient(node.quota.get(pool, 0), weight_of(node, pool), asked[node]) for node in nodes]
    if lately is None:
        parts = divide(have, recipients)
    else:
        pasts = [lately.of([it.name for it in node.children] or [node.name], pool) for node in nodes]
        parts, fair = divide_by_past(have, recipients, pasts)
        for node, past, share in zip(nodes, pasts, fair, strict=True):
            node.past[pool] = past.lately, float(share)
    return dict(zip(nodes, parts, strict=True))


def weight_of(node: ShareNode | Department | Project, pool: str) -> Fraction:
    """Return the over-quota weight of a node: a project's own weight if set, else the quota, or 1 if the quota is 0."""
    own = None if isinstance(node, Department) else node.weight
    return Fraction(node.quota.get(pool, 0) or 1) if own is None else Fraction(str(own))


def oversubscriptions(policy: Policy) -> Iterable[str]:
    """Yield a sentence for each pool and level where the quotas add up to more than the capacity or department quota.

    A policy with such quotas is refused unless it has `allow_oversubscription`.
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


def _quotas(pool: str, nodes: Iterable[Department | Project]) -> int:
    return sum(node.quota.get(pool, 0) for node in nodes)


# --- serving order ------------------------------------------------------------------------------------


def deprivation(node: ShareNode, need: Slots, usage: Mapping[str, int]) -> Deprivation:
    """Return the sort key of a node by its usage with its next job. The smallest key comes first.

    The parts of the key, in this order:

    1. 0 if the node stays within quota, 1 beyond quota, 2 beyond quota with a spent soft budget.
    2. If past use counts, (slots held lately + slots held now) / fair share: the inverse of Slurm's level fair share.
    3. Usage / entitlement with the next job, the same ratio without that job, and the entitlement.
    4. The position in the policy.

    If the job needs several pools, the pool with the largest ratio counts.

    :param need: the first alternative of the node's next job.
    :param usage: slots that the node holds, by pool.
    """
    beyond, had = False, 0.0
    worst: tuple[float, float, int] = (-1.0, 0.0, 0)
    for pool, count in need.items():
        held, due = usage[pool], node.entitlement[pool]
        beyond = beyond or held + count > node.quota.get(pool, 0)
        worst = max(worst, (_ratio(held + count, due), _ratio(held, due), due))
        if node.past:
            lately, fair = node.past[pool]
            had = max(had, _ratio(lately + held, fair))
    last = beyond and node.overspent
    return (beyond + last, had, *worst, node.policy_index)


def _ratio(held: float, due: float) -> float:
    return held / due if due else held * 1000.0


def reclaim_key(project: ShareNode, excess: int) -> int:
    """Return the sort key of a project in reclaim; the project with the smallest key loses a job first.

    Projects with a spent soft budget come before all others. Then the project with the most excess slots comes first.

    :param excess: slots that the project holds above its entitlement.
    """
    return -excess - (UNLIMITED if project.overspent else 0)


class ServingOrder:
    """The order in which projects are served.

    The most deprived top node is next. If this node is a department, its most deprived project is next.

    The order is determined again after every decision. The key of a node is computed again only if its usage or its
    next job has changed. Outdated entries stay in the heaps and are skipped.

    :param next_need: returns the first alternative of a project's next job, or None if the project has no next job.
    :param usage: returns the slots that a node holds, by pool.
    """

    def __init__(
        self, next_need: Callable[[ShareNode], Slots | None], usage: Callable[[ShareNode], Mapping[str, int]]
    ) -> None:
        self._next_need = next_need
        self._usage = usage
        self._current: dict[ShareNode, tuple[Deprivation, ShareNode] | None] = {}
        self._heaps: dict[ShareNode | None, list[tuple[Deprivation, ShareNode]]] = defaultdict(list)

    def refresh(self, projects: Iterable[ShareNode]) -> None:
        """Compute the keys of projects again, after changes of their usage or their next job."""
        parents: dict[ShareNode, None] = {}
        for project in projects:
            self._push(project, self._next_need(project))
            if project.parent is not None:
                parents[project.parent] = None
        for parent in parents:
            child = self._most_deprived(parent)
            self._push(parent, None if child is None else self._next_need(child))

    def next(self) -> ShareNode | None:
        """Return the project to serve next, or None if no project has a next job."""
        top = self._most_deprived(None)
        return self._most_deprived(top) if top is not None and top.children else top

    def _push(self, node: ShareNode, need: Slots | None) -> None:
        if need is None:
            self._current[node] = None
            return
        entry = (deprivation(node, need, self._usage(node)), node)
        before = self._current.get(node)
        if before is not None and before[0] == entry[0]:
            return  # an equal entry of the node is in the heap
        self._current[node] = entry
        heappush(self._heaps[node.parent], entry)

    def _most_deprived(self, parent: ShareNode | None) -> ShareNode | None:
        heap = self._heaps[parent]
        while heap and self._current.get(heap[0][-1]) is not heap[0]:
            heappop(heap)
        return heap[0][-1] if heap else None
