"""The search for victims: preempt, reclaim, or both; no one more than needed (scheduling rules, section 4).

A search only looks. It keeps account of what its victims would free, and leaves the plan as it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from job_queue.scheduler.model import Slots
from job_queue.scheduler.ordering import VictimKey
from job_queue.scheduler.queues import Queue, quota_of
from job_queue.scheduler.shares import UNLIMITED
from job_queue.scheduler.victims import HeapEntry, Victim, Victims


@dataclass(eq=False, slots=True)
class Withdrawable:
    """A start of this same plan, of lower priority: it may be withdrawn."""

    name: str
    slots: Slots
    project: Queue
    key: VictimKey
    launching: bool = False


Leaver = Victim | Withdrawable


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claimant asks for: one alternative, whole."""

    project: Queue
    priority: int
    need: Slots
    own: Slots  # what is set aside for it already
    missing: Mapping[str, int]  # slots of each pool beyond what is free or being freed
    withdrawable: tuple[Withdrawable, ...] = ()
    launching: bool = False  # count on jobs that are still being launched

    def after(self, queue: Queue, pool: str) -> int:
        """What a queue on its path would hold, nobody leaving."""
        return queue.held[pool] - self.own.get(pool, 0) + self.need[pool]

    def within_entitlement(self) -> bool:
        """Whether its project and department stay within what they are due, nobody leaving."""
        return all(self.after(queue, p) <= queue.entitlement[p] for queue in self.project.path for p in self.need)


@dataclass(slots=True)
class Search:
    """Victims found so far, and what is still lacking: all figures at or below 0 means enough.

    `bounds` are what the queues on the claimant's path may hold afterwards.
    """

    claim: Claim
    bounds: dict[tuple[Queue, str], int]
    chosen: list[Leaver] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)  # slots, by pool
    above: dict[tuple[Queue, str], int] = field(default_factory=dict)  # of queues on the path, over their bounds
    lost: dict[tuple[Queue, str], int] = field(default_factory=lambda: defaultdict(int))
    _taken: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lacking = dict(self.claim.missing)
        self.above = {place: self.claim.after(*place) - bound for place, bound in self.bounds.items()}

    @property
    def enough(self) -> bool:
        """Whether the claimant fits once these victims have left."""
        return all(n <= 0 for n in self.lacking.values()) and all(n <= 0 for n in self.above.values())

    def wants(self, pool: str, queues: Iterable[Queue]) -> bool:
        """Whether it lacks slots of a pool, or one of these queues is over its bound there."""
        return self.lacking.get(pool, 0) > 0 or any(self.above.get((queue, pool), 0) > 0 for queue in queues)

    def take(self, leaver: Leaver) -> None:
        """One more victim."""
        self.chosen.append(leaver)
        self._taken.add(id(leaver))
        self._count(leaver, -1)

    def has(self, leaver: Leaver) -> bool:
        """Whether this one is a victim already."""
        return id(leaver) in self._taken

    def _count(self, leaver: Leaver, sign: int) -> None:
        for pool, count in leaver.slots.items():
            if pool in self.lacking:
                self.lacking[pool] += sign * count
            for queue in leaver.project.path:
                self.lost[queue, pool] -= sign * count
                if (queue, pool) in self.above:
                    self.above[queue, pool] += sign * count

    def held(self, queue: Queue, pool: str) -> int:
        """What a queue holds once these victims have left."""
        return queue.held[pool] - self.lost.get((queue, pool), 0)

    def bind(self, queue: Queue, pool: str, bound: int) -> None:
        """The claimant's queue must stay within this, too."""
        place = (queue, pool)
        if bound < self.bounds.get(place, UNLIMITED):
            self.bounds[place] = bound
            self.above[place] = self.claim.after(queue, pool) - self.lost.get(place, 0) - bound

    def spare_needless(self) -> None:
        """Give back victims that turned out not to be needed, most valuable first."""
        for leaver in sorted(self.chosen, key=lambda leaver: leaver.key, reverse=True):
            if self._can_spare(leaver):
                self.chosen.remove(leaver)
                self._count(leaver, 1)

    def _can_spare(self, leaver: Leaver) -> bool:
        for pool, count in leaver.slots.items():
            if self.lacking.get(pool, -count) + count > 0:
                return False
            if any(self.above.get((queue, pool), -count) + count > 0 for queue in leaver.project.path):
                return False
        return True


def withdraw(claim: Claim) -> Search | None:
    """Starts of this same plan, of lower priority in its project."""
    search = Search(claim, {})
    for start in claim.withdrawable:
        if any(search.lacking.get(pool, 0) > 0 for pool in start.slots):
            search.take(start)
    return _settled(search)


def preempt(claim: Claim, victims: Victims) -> Search | None:
    """Lower priorities of its own project, until it has its slots and stands within the limits."""
    search = Search(claim, _limits(claim))
    _take_own(search, victims, claim.need)
    return _settled(search)


def reclaim(claim: Claim, victims: Victims, protect_quota: bool) -> Search | None:
    """Jobs of other projects, by share: the claimant's side must stay within its entitlement afterwards."""
    if any(claim.after(claim.project, pool) > claim.project.entitlement[pool] for pool in claim.need):
        return None
    search = Search(claim, _entitlements(claim))
    _Reclaim(search, victims, protect_quota).run()
    return _settled(search)


def preempt_and_reclaim(claim: Claim, victims: Victims, protect_quota: bool) -> Search | None:
    """Own lower priorities until the job is within its entitlement, the rest by reclaim.

    Where that does not suffice, all own lower priorities may go.
    """
    for all_own in (False, True):
        search = Search(claim, _entitlements(claim))
        _take_own(search, victims, claim.need, slots_too=all_own)
        if any(search.above[claim.project, pool] > 0 for pool in claim.need):
            return None
        _Reclaim(search, victims, protect_quota).run()
        if search.enough:
            return _settled(search)
    return None


def _settled(search: Search) -> Search | None:
    if not search.enough:
        return None
    search.spare_needless()
    return search


def _limits(claim: Claim) -> dict[tuple[Queue, str], int]:
    return {
        (queue, pool): queue.limit[pool] for queue in claim.project.path for pool in claim.need if pool in queue.limit
    }


def _entitlements(claim: Claim) -> dict[tuple[Queue, str], int]:
    return {(queue, pool): queue.entitlement[pool] for queue in claim.project.path for pool in claim.need}


def _take_own(search: Search, victims: Victims, pools: Iterable[str], *, slots_too: bool = True) -> None:
    """Take lower priorities of its own project, in victim order."""
    claim = search.claim
    queues = claim.project.path if slots_too else (claim.project,)
    for pool in pools:
        for leaver in _own(search, victims, pool) if search.wants(pool, queues) else ():
            if slots_too and not search.wants(pool, queues):
                break
            if not slots_too and search.above[claim.project, pool] <= 0:
                break
            search.take(leaver)


def _own(search: Search, victims: Victims, pool: str) -> Iterable[Leaver]:
    claim = search.claim
    lower: list[Leaver] = []
    for victim in victims.of(claim.project, pool, claim.launching):
        if victim.job.priority >= claim.priority:
            break
        if not search.has(victim):
            lower.append(victim)
    withdrawable = [it for it in claim.withdrawable if pool in it.slots and not search.has(it)]
    return sorted([*lower, *withdrawable], key=lambda leaver: leaver.key) if withdrawable else lower


class _Reclaim:
    """Takes jobs of other projects, first from the one furthest above its entitlement."""

    def __init__(self, search: Search, victims: Victims, protect_quota: bool) -> None:
        self._search = search
        self._claim = search.claim
        self._victims = victims
        self._protect_quota = protect_quota

    def run(self) -> None:
        """Take until nothing is lacking or nobody is left."""
        search, department = self._search, self._claim.project.parent
        for pool in self._claim.need:
            if department is not None and search.above[department, pool] > 0:
                self._from_siblings(pool, department)
        for pool in self._claim.need:
            if search.lacking.get(pool, 0) > 0:
                self._from_anybody(pool)

    def _from_siblings(self, pool: str, department: Queue) -> None:
        """To get under the department's bound, victims come from that department."""
        heap: list[HeapEntry] = []
        for project in department.children:
            self._enter(heap, project, pool)
        while heap and self._search.above[department, pool] > 0:
            self._take_from(heap, heappop(heap)[-1], pool)

    def _from_anybody(self, pool: str) -> None:
        heap: list[HeapEntry] = []  # projects that this search has taken from
        popped: list[HeapEntry] = []
        seen: set[Queue] = {victim.project for victim in self._search.chosen}
        for project in sorted(seen, key=lambda queue: queue.place):
            self._enter(heap, project, pool)
        following = self._next(pool, popped, seen)
        while self._search.lacking[pool] > 0:
            if heap and (following is None or heap[0] < following):
                self._take_from(heap, heappop(heap)[-1], pool)
            elif following is not None:
                self._take_from(heap, following[-1], pool)
                following = self._next(pool, popped, seen)
            else:
                break
        self._victims.push(pool, popped)

    def _next(self, pool: str, popped: list[HeapEntry], seen: set[Queue]) -> HeapEntry | None:
        """The next project that may have to give, and that this search has not taken from."""
        while (entry := self._victims.pop(pool)) is not None:
            popped.append(entry)
            if entry[-1] not in seen and self._may_lose(entry[-1], pool):
                seen.add(entry[-1])
                return entry
        return None

    def _take_from(self, heap: list[HeapEntry], project: Queue, pool: str) -> None:
        victim = self._first(project, pool)
        if victim is None:
            return
        for other in victim.slots:
            if other in self._claim.need:
                self._stay_within_quota_if_that_is_the_claim(project, other)
        self._search.take(victim)
        self._enter(heap, project, pool)

    def _enter(self, heap: list[HeapEntry], project: Queue, pool: str) -> None:
        victim = self._first(project, pool)
        if victim is not None:
            excess = self._search.held(project, pool) - project.entitlement[pool]
            heappush(heap, (-excess, victim.key, project.place, project))

    def _first(self, project: Queue, pool: str) -> Victim | None:
        """The project's next victim, if it may lose one."""
        if not self._may_lose(project, pool):
            return None
        for victim in self._victims.of(project, pool, self._claim.launching):
            lacked = [other for other in victim.slots if other != pool and self._search.lacking.get(other, 0) > 0]
            if not self._search.has(victim) and all(self._may_lose(project, other) for other in lacked):
                return victim
        return None

    # --- who may have to give ---------------------------------------------------------------------

    def _may_lose(self, project: Queue, pool: str) -> bool:
        """Whether this project may lose slots of this pool to the claimant."""
        claim, search = self._claim, self._search
        if project is claim.project:
            return False
        if self._protect_quota and search.held(project, pool) <= quota_of(project, pool):
            return False
        side = self._sides(project)[1]
        return search.held(side, pool) > side.entitlement[pool] or self._for_its_quota(project, pool)

    def _for_its_quota(self, project: Queue, pool: str) -> bool:
        """The claimant's side stays within its quota, and the victim's side is above its own."""
        mine, side = self._sides(project)
        after = self._claim.after(mine, pool) - self._search.lost.get((mine, pool), 0)
        return after <= quota_of(mine, pool) and self._search.held(side, pool) > quota_of(side, pool)

    def _stay_within_quota_if_that_is_the_claim(self, project: Queue, pool: str) -> None:
        mine, side = self._sides(project)
        if self._search.held(side, pool) <= side.entitlement[pool] and self._for_its_quota(project, pool):
            self._search.bind(mine, pool, quota_of(mine, pool))

    def _sides(self, project: Queue) -> tuple[Queue, Queue]:
        """The claimant's and the victim's queue at the level where their paths part."""
        mine = self._claim.project
        return (mine, project) if mine.parent is project.parent else (mine.top, project.top)
