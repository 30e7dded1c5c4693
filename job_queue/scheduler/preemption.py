"""Choose the jobs to evict for a waiting job: preempt, reclaim, or move to another pool.

The searches in this module do not change the plan.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, merge
from itertools import takewhile

from job_queue.scheduler.candidates import PoolBackoff
from job_queue.scheduler.documents.policy_schema import UNLIMITED
from job_queue.scheduler.fair_share import Bound, ShareNode, diverging_nodes, fits, reclaim_key
from job_queue.scheduler.model import NOTHING, Slots, Snapshot
from job_queue.scheduler.ordering import LOWEST_INTERACTIVE
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.victims import HeapEntry, NodeAndPool, Victim, VictimKey, Victims

_Target = tuple[tuple[str, int], ...]
_MoveOption = tuple[Victim, int]  # a job that may migrate to a target, and the position of the target in its demand


@dataclass(slots=True)
class SlotClaim:
    """The request of a claimant: all slots of one alternative."""

    project: ShareNode
    rank: int
    need: Slots
    reserved: Slots  # slots that are already reserved for the claimant
    missing: Slots  # slots by pool that other jobs have to free
    victims: Victims
    withdrawable: Sequence[Victim] = ()  # starts of this plan, in victim order
    launching: bool = False  # whether jobs that are being launched may be victims

    def victim_order(self, victim: Victim) -> VictimKey:
        """Return the sort key of a victim. For an interactive claimant, work lost comes before priority."""
        if self.rank < LOWEST_INTERACTIVE:
            return victim.key
        works, priority, lost, done, latest, name = victim.key
        return (works, lost, priority, done, latest, name)


class VictimSearch:
    """The victims found so far, and the slots that are still lacking.

    :param bound: the bound that the claimant's project and department must not exceed with the claimant and without
        the victims; None: no bound.
    """

    def __init__(self, claim: SlotClaim, bound: Bound | None = None) -> None:
        self.claim = claim
        self.chosen: dict[Victim, Slots] = {}  # victim -> slots to which it migrates; empty: it does not migrate
        self.lacking = dict(claim.missing)  # slots that are lacking, by pool; 0 or less: there are enough
        self.bounds: dict[NodeAndPool, int] = {}
        self._lost: dict[NodeAndPool, int] = defaultdict(int)
        if bound is not None:
            for node in claim.project.path:
                most = node.bounds[bound][1]
                self.bounds |= {(node, pool): most[pool] for pool in claim.need if pool in most}

    def lost(self, node: ShareNode, pool: str) -> int:
        """Return the slots of a pool that a node loses with these victims."""
        return self._lost.get((node, pool), 0)

    def projected(self, node: ShareNode, pool: str) -> int:
        """Return the slots that a node will hold without these victims."""
        return node.projected[pool] - self._lost.get((node, pool), 0)

    def with_claimant(self, node: ShareNode, pool: str) -> int:
        """Return the slots that a node on the claimant's path will hold with the claimant and without these victims."""
        return self.projected(node, pool) - self.claim.reserved.get(pool, 0) + self.claim.need.get(pool, 0)

    def excess(self, node: ShareNode, pool: str) -> int:
        """Return the slots by which a node exceeds its bound. A negative number is the room left below the bound."""
        return self.with_claimant(node, pool) - self.bounds.get((node, pool), UNLIMITED)

    def needs_more(self, pool: str) -> bool:
        """Return whether slots of a pool are lacking, or a node on the claimant's path exceeds its bound there."""
        return self.lacking.get(pool, 0) > 0 or any(self.excess(node, pool) > 0 for node in self.claim.project.path)

    def add(self, victim: Victim, target: Slots = NOTHING) -> None:
        """Add a victim.

        :param target: slots to which the victim migrates; empty: it does not migrate.
        """
        self.chosen[victim] = target
        self._add_to_sums(victim, 1)

    def tighten_bound(self, node: ShareNode, pool: str, bound: int) -> None:
        """Lower the bound of a node on the claimant's path, unless its bound is lower already."""
        self.bounds[node, pool] = min(bound, self.bounds.get((node, pool), UNLIMITED))

    def without_needless(self) -> "VictimSearch | None":
        """Drop needless victims, most valuable first, and return this search, or None if the victims are too few."""
        if any(n > 0 for n in self.lacking.values()) or any(self.excess(node, pool) > 0 for node, pool in self.bounds):
            return None
        for victim in sorted(self.chosen, key=self.claim.victim_order, reverse=True):
            if self._is_needless(victim):
                del self.chosen[victim]
                self._add_to_sums(victim, -1)
        return self

    def _is_needless(self, victim: Victim) -> bool:
        for pool, count in victim.slots.items():
            if self.lacking.get(pool, -count) + count > 0:
                return False
            if any(self.excess(node, pool) + count > 0 for node in victim.project.path):
                return False
        return True

    def _add_to_sums(self, victim: Victim, sign: int) -> None:
        for pool, count in victim.slots.items():
            if pool in self.lacking:
                self.lacking[pool] -= sign * count
            for node in victim.project.path:
                self._lost[node, pool] += sign * count


def withdraw(claim: SlotClaim) -> VictimSearch | None:
    """Find starts of lower priority in the claimant's project to withdraw. Return None if these free too few slots."""
    search = VictimSearch(claim)
    for start in claim.withdrawable:
        if any(search.lacking.get(pool, 0) > 0 for pool in start.slots):
            search.add(start)
    return search.without_needless()


def preempt(claim: SlotClaim) -> VictimSearch | None:
    """Find victims of lower priority in the claimant's project.

    Return None if the victims do not free enough slots, or if the project or department would exceed its limit.
    """
    search = VictimSearch(claim, Bound.LIMIT)
    _take_lower_priorities(search)
    return search.without_needless()


def reclaim(claim: SlotClaim) -> VictimSearch | None:
    """Find victims in other projects. The claimant's project and department must stay within their entitlements.

    Return None if there are not enough victims.
    """
    search = VictimSearch(claim, Bound.ENTITLEMENT)
    if any(search.excess(claim.project, pool) > 0 for pool in claim.need):
        return None
    _Reclaim(search).run()
    return search.without_needless()


def preempt_and_reclaim(claim: SlotClaim) -> VictimSearch | None:
    """Preempt in the claimant's project until the project is within its entitlement, and reclaim the rest.

    If that does not suffice, try again: preempt until no slots are lacking and no bound is exceeded, or until no lower
    priority is left, and reclaim the rest. Return None if this does not suffice either.
    """
    for all_own in (False, True):
        search = VictimSearch(claim, Bound.ENTITLEMENT)
        _take_lower_priorities(search, for_slots=all_own)
        if any(search.excess(claim.project, pool) > 0 for pool in claim.need):
            return None
        _Reclaim(search).run()
        if (found := search.without_needless()) is not None:
            return found
    return None


def _take_lower_priorities(search: VictimSearch, *, for_slots: bool = True) -> None:
    """Take victims of lower priority in the claimant's project, in victim order.

    :param for_slots: whether to take victims while slots are lacking or a node exceeds its bound. If not, take victims
        only while the project exceeds its bound.
    """
    for pool in search.claim.need:
        for victim in _lower_priority_victims(search, pool):
            if not (search.needs_more(pool) if for_slots else search.excess(search.claim.project, pool) > 0):
                break
            search.add(victim)


def _lower_priority_victims(search: VictimSearch, pool: str) -> Iterable[Victim]:
    claim = search.claim

    def is_lower(victim: Victim) -> bool:
        return victim.priority < claim.rank

    if not claim.withdrawable and not claim.victims.slots_below(claim.project, claim.rank, pool):
        return ()
    active: Iterable[Victim] = claim.victims.in_pool(claim.project, pool, claim.launching)
    if claim.rank >= LOWEST_INTERACTIVE:
        active = sorted(active, key=claim.victim_order)
    lower = filter(is_lower, takewhile(lambda victim: victim.idle or is_lower(victim), active))
    starts = (start for start in claim.withdrawable if pool in start.slots)
    both: Iterable[Victim] = merge(lower, starts, key=claim.victim_order) if claim.withdrawable else lower
    return (victim for victim in both if victim not in search.chosen)


class _Reclaim:
    """Search among jobs of other projects, beginning with the project furthest above its entitlement."""

    def __init__(self, search: VictimSearch) -> None:
        self._search = search
        self._claim = search.claim
        self._victims = search.claim.victims

    def run(self) -> None:
        """Take victims until no slots are lacking or no victim is left."""
        search, department = self._search, self._claim.project.parent
        for pool in self._claim.need:
            if department is not None and search.excess(department, pool) > 0:
                self._take_from_department(pool, department)
        for pool in self._claim.need:
            if search.lacking.get(pool, 0) > 0:
                self._take_from_all(pool)

    def _take_from_department(self, pool: str, department: ShareNode) -> None:
        """Take victims from the claimant's department until the department is within its bound."""
        heap: list[HeapEntry] = []
        for project in department.children:
            self._enter(heap, project, pool)
        while heap and self._search.excess(department, pool) > 0:
            self._take_from_first(heap, pool)

    def _take_from_all(self, pool: str) -> None:
        """Take victims from all other projects.

        To save time, the heap contains only the projects that have lost a victim, and one other project: the first by
        reclaim key.
        """
        heap: list[HeapEntry] = []
        fetched: list[HeapEntry] = []
        seen = {victim.project for victim in self._search.chosen}
        for project in seen:
            self._enter(heap, project, pool)
        newest = self._fetch(heap, pool, fetched, seen)
        while heap and self._search.lacking[pool] > 0:
            if self._take_from_first(heap, pool) is newest:
                newest = self._fetch(heap, pool, fetched, seen)
        self._victims.push(pool, fetched)

    def _fetch(
        self, heap: list[HeapEntry], pool: str, fetched: list[HeapEntry], seen: set[ShareNode]
    ) -> HeapEntry | None:
        """Push and return the next project that may lose slots and has not lost any yet, or None if there is none."""
        while (entry := self._victims.pop(pool)) is not None:
            fetched.append(entry)
            if entry[-1] not in seen and self._may_lose(entry[-1], pool):
                seen.add(entry[-1])
                heappush(heap, entry)
                return entry
        return None

    def _take_from_first(self, heap: list[HeapEntry], pool: str) -> HeapEntry:
        """Take a victim from the first project, if the project may still lose one. Return the project's entry."""
        entry = heappop(heap)
        project = entry[-1]
        victim = self._next_victim(project, pool)
        if victim is not None:
            for other in victim.slots:
                if other in self._claim.need:
                    self._tighten_bound_of_quota_claim(project, other)
            self._search.add(victim)
            self._enter(heap, project, pool)
        return entry

    def _enter(self, heap: list[HeapEntry], project: ShareNode, pool: str) -> None:
        victim = self._next_victim(project, pool)
        if victim is not None:
            excess = self._search.projected(project, pool) - project.entitlement[pool]
            heappush(heap, (reclaim_key(project, excess), victim.key, project.policy_index, project))

    def _next_victim(self, project: ShareNode, pool: str) -> Victim | None:
        """Return the project's next victim, or None if there is none or the project may not lose slots of the pool."""
        if not self._may_lose(project, pool):
            return None
        for victim in self._victims.in_pool(project, pool, self._claim.launching):
            if victim not in self._search.chosen and self._may_lose_other_pools(victim, pool):
                return victim
        return None

    def _may_lose_other_pools(self, victim: Victim, pool: str) -> bool:
        """Return whether the victim's project may also lose its slots in other pools where the claimant lacks slots."""
        for other in victim.slots:
            if other != pool and self._search.lacking.get(other, 0) > 0 and not self._may_lose(victim.project, other):
                return False
        return True

    def _may_lose(self, project: ShareNode, pool: str) -> bool:
        """Return whether this project may lose slots of this pool to the claimant."""
        search = self._search
        if project is self._claim.project:
            return False
        if self._victims.protect_quota and search.projected(project, pool) <= project.quota.get(pool, 0):
            return False
        rival = diverging_nodes(self._claim.project, project)[1]
        return search.projected(rival, pool) > rival.entitlement[pool] or self._is_quota_claim(project, pool)

    def _is_quota_claim(self, project: ShareNode, pool: str) -> bool:
        """Return whether the claimant stays within quota and the victim's project is above quota.

        The quotas are those of the nodes at which the two projects compete.
        """
        (claimant_node, rival), search = diverging_nodes(self._claim.project, project), self._search
        above_quota = search.projected(rival, pool) > rival.quota.get(pool, 0)
        return above_quota and search.with_claimant(claimant_node, pool) <= claimant_node.quota.get(pool, 0)

    def _tighten_bound_of_quota_claim(self, project: ShareNode, pool: str) -> None:
        claimant_node, rival = diverging_nodes(self._claim.project, project)
        if self._search.projected(rival, pool) <= rival.entitlement[pool] and self._is_quota_claim(project, pool):
            self._search.tighten_bound(claimant_node, pool, claimant_node.quota.get(pool, 0))


# --- migration ---------------------------------------------------------------------------------------


class Migration:
    """The jobs that may move to another pool (consolidation), by the pool to leave and by the target slots."""

    def __init__(self, snapshot: Snapshot, state: PlanState) -> None:
        self._state = state
        self._groups: dict[str, dict[_Target, dict[ShareNode, list[_MoveOption]]]] = {}
        backoff = PoolBackoff(snapshot)
        for victim in state.victims.all:
            if victim.launching:
                continue
            for rank, need in enumerate(victim.demand):
                elsewhere = need and not need.keys() & victim.slots.keys()
                if elsewhere and need.keys() <= victim.project.pools.keys() and not any(backoff.refusals(need)):
                    target = tuple(sorted(need.items()))
                    for pool in victim.slots:
                        targets = self._groups.setdefault(pool, {})
                        targets.setdefault(target, defaultdict(list))[victim.project].append((victim, rank))

    def is_possible(self) -> bool:
        """Return whether any job has a target, and any pool has free slots. If not, no job can move."""
        return bool(self._groups) and any(count > 0 for count in self._state.free.values())

    def search(self, claim: SlotClaim) -> VictimSearch | None:
        """Find the jobs that migrate for this claim, no more than needed. Return None if none, or too few, can help."""
        if not any(pool in self._groups for pool in claim.need):
            return None
        if not any(count > 0 for pool, count in self._state.free.items() if pool not in claim.need):
            return None  # no job can move
        search, free = VictimSearch(claim, Bound.ENTITLEMENT), _FreeSlots(self._state, claim.need)
        for pool in claim.need:
            while search.needs_more(pool):
                moves = self._moves(search, free, pool)
                found = min(moves, key=lambda move: (move[0].key, move[1]), default=None)
                if found is None:
                    return None
                victim, _, target = found
                search.add(victim, dict(target))
                free.add(victim.project, target)
        settled = search.without_needless()
        return settled if settled is not None and settled.chosen else None

    def _moves(self, search: VictimSearch, free: "_FreeSlots", pool: str) -> Iterator[tuple[Victim, int, _Target]]:
        """Yield, for each project and target, the first job in victim order that can migrate and helps the claimant.

        A migration helps if it brings the claimant closer to its slots or its bounds.
        """
        for target, projects in self._groups.get(pool, {}).items():
            if not free.are_free(target):
                continue
            for project in _helpful_projects(search, pool, projects):
                choices = projects[project]
                able = (choice for choice in choices if not choice[0].is_evicted and choice[0] not in search.chosen)
                first = next(able, None)
                if first is not None and free.within_entitlement(project, target):
                    yield (*first, target)


def _helpful_projects(search: VictimSearch, pool: str, projects: Iterable[ShareNode]) -> Iterable[ShareNode]:
    """Return the projects whose loss of a job helps the claimant.

    If a node on the claimant's path exceeds its bound, only projects under that node help.
    """
    for node in search.claim.project.path:
        if search.excess(node, pool) > 0:
            return [project for project in projects if node in project.path]
    return projects


class _FreeSlots:
    """Free slots of the pools that the claimant does not need, minus the slots that migrating jobs take."""

    def __init__(self, state: PlanState, closed: Slots) -> None:
        self._free = {pool: state.available_now(pool) for pool in state.free if pool not in closed}
        self._entered: Counter[NodeAndPool] = Counter()

    def are_free(self, target: _Target) -> bool:
        """Return whether these slots are free, not reserved, and not in a pool that the claimant needs."""
        return all(self._free.get(pool, 0) >= count for pool, count in target)

    def within_entitlement(self, project: ShareNode, target: _Target) -> bool:
        """Return whether the migrating job's project and department stay within entitlement in the target pools."""
        return all(
            fits(node, {pool: count + self._entered[node, pool] for pool, count in target}, Bound.ENTITLEMENT)
            for node in project.path
        )

    def add(self, project: ShareNode, target: _Target) -> None:
        """Count a job of this project as migrated to these slots."""
        for pool, count in target:
            self._free[pool] -= count
            for node in project.path:
                self._entered[node, pool] += count
