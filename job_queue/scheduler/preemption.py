"""Who may be made to leave: preempt inside a project, reclaim between projects (scheduling rules, section 4).

A search only looks, and leaves the plan as it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, merge
from itertools import takewhile

from job_queue.scheduler.candidates import Candidate
from job_queue.scheduler.fair_share import UNLIMITED, Queue, QueueTree, part_of_paths
from job_queue.scheduler.model import NOTHING, JobState, Slots, Snapshot
from job_queue.scheduler.ordering import Guarantees, VictimKey, victim_order

Place = tuple[Queue, str]
"""A queue, and a pool."""

HeapEntry = tuple[int, VictimKey, int, Queue]
"""A project with victims in a pool: minus its excess, its next victim's key, its place in the policy, itself."""


@dataclass(eq=False, slots=True)
class Victim:
    """An active job that may be evicted, or a start of this same plan that may be withdrawn."""

    name: str
    slots: Slots
    project: Queue
    priority: int
    key: VictimKey
    demand: tuple[Slots, ...] = ()  # all it would accept, where it may migrate
    start: Candidate | None = None  # whose start it is
    launching: bool = False  # may be evicted once it runs
    gone: bool = False  # leaves by this plan


class Victims:
    """The jobs of a snapshot that may be evicted, sorted once, per project and pool."""

    def __init__(self, snapshot: Snapshot, queues: QueueTree, guarantees: Guarantees) -> None:
        self.protect_quota = snapshot.policy.settings.protect_project_quota
        self.all: list[Victim] = []
        self._lists: dict[Place, list[Victim]] = defaultdict(list)
        self._head: dict[Place, int] = defaultdict(int)
        self._sums: dict[Queue, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
        self._heaps: dict[str, list[HeapEntry]] = defaultdict(list)
        for job in snapshot.active:
            if guarantees.allow_to_evict(job, snapshot.now):
                project, key = queues.project(job.project), victim_order(job, snapshot.now)
                launching = job.state is JobState.STARTING
                self.all.append(Victim(job.name, job.slots, project, job.priority, key, job.demand, None, launching))
        self.all.sort(key=lambda victim: victim.key)
        for victim in self.all:
            self._count(victim, 1)
            for pool in victim.slots:
                self._lists[victim.project, pool].append(victim)
        self.any_launching = any(victim.launching for victim in self.all)
        for project, pool in self._lists:
            self._enter(project, pool)

    def of(self, project: Queue, pool: str, launching: bool) -> Iterator[Victim]:
        """A project's jobs in a pool that may be evicted, in victim order."""
        if (project, pool) in self._lists:
            victims = self._lists[project, pool]
            for at in range(self._head[project, pool], len(victims)):
                victim = victims[at]
                if not victim.gone and (launching or not victim.launching):
                    yield victim

    def below(self, project: Queue, priority: int, pool: str) -> int:
        """Slots of a pool held by a project's jobs of lower priority that may be evicted, now or once they run."""
        if project not in self._sums:
            return 0
        return sum(sums[pool] for own, sums in self._sums[project].items() if own < priority and pool in sums)

    def take(self, victim: Victim) -> None:
        """This job is being evicted: nobody else can count on it."""
        victim.gone = True
        self._count(victim, -1)

    def give_back(self, victim: Victim) -> None:
        """This job stays, and may be evicted for another."""
        victim.gone = False
        self._count(victim, 1)
        for pool in victim.slots:
            self._head[victim.project, pool] = 0

    def refresh(self, project: Queue) -> None:
        """The project's figures changed."""
        for pool in list(project.projected):
            self._enter(project, pool)

    def pop(self, pool: str) -> HeapEntry | None:
        """The project furthest above its entitlement; ties by their next victims."""
        heap = self._heaps[pool]
        while heap:
            entry = heappop(heap)
            if self._entry(entry[-1], pool) == entry:
                return entry
        return None

    def push(self, pool: str, entries: list[HeapEntry]) -> None:
        """Put back what was popped."""
        for entry in entries:
            heappush(self._heaps[pool], entry)

    def _count(self, victim: Victim, sign: int) -> None:
        sums = self._sums[victim.project][victim.priority]
        for pool, count in victim.slots.items():
            sums[pool] += sign * count

    def _enter(self, project: Queue, pool: str) -> None:
        entry = self._entry(project, pool)
        if entry is not None:
            heappush(self._heaps[pool], entry)

    def _entry(self, project: Queue, pool: str) -> HeapEntry | None:
        place = (project, pool)
        if place not in self._lists:
            return None
        victims, head = self._lists[place], self._head[place]
        while head < len(victims) and victims[head].gone:
            head += 1
        self._head[place] = head
        if head == len(victims):
            return None
        return (project.entitlement[pool] - project.projected[pool], victims[head].key, project.place, project)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claimant asks for: one alternative, whole."""

    project: Queue
    priority: int
    need: Slots
    own: Slots  # what is set aside for it already
    missing: Slots  # of each pool, beyond what is free or being freed
    victims: Victims
    withdrawable: Sequence[Victim] = ()  # starts of this plan, in victim order
    launching: bool = False  # count on jobs that are still being launched

    def after(self, queue: Queue, pool: str) -> int:
        """Projected usage of a queue on its path with the claimant in it, nobody leaving."""
        return queue.projected[pool] - self.own.get(pool, 0) + self.need.get(pool, 0)

    def entitlements(self) -> dict[Place, int]:
        """What the queues on its path are entitled to."""
        return {(queue, pool): queue.entitlement[pool] for queue in self.project.path for pool in self.need}

    def limits(self) -> dict[Place, int]:
        """What the queues on its path may never exceed."""
        path = self.project.path
        return {(queue, pool): queue.limit[pool] for queue in path for pool in self.need if pool in queue.limit}


class Search:
    """Victims found so far, and what is still lacking.

    :param bounds: what the queues on the claimant's path may hold afterwards.
    """

    def __init__(self, claim: Claim, bounds: dict[Place, int]) -> None:
        self.claim = claim
        self.bounds = bounds
        self.chosen: dict[Victim, Slots] = {}  # victim -> where it migrates to; nothing: it leaves for good
        self.lacking = dict(claim.missing)  # slots by pool; at or below 0 there is enough
        self.lost: dict[Place, int] = defaultdict(int)

    @property
    def enough(self) -> bool:
        """Whether the claimant fits once these victims have left."""
        return all(n <= 0 for n in self.lacking.values()) and all(self.above(*place) <= 0 for place in self.bounds)

    def above(self, queue: Queue, pool: str) -> int:
        """By how many slots a queue would be over its bound; negative: what it has left."""
        place = (queue, pool)
        return self.claim.after(queue, pool) - self.lost.get(place, 0) - self.bounds.get(place, UNLIMITED)

    def projected(self, queue: Queue, pool: str) -> int:
        """What a queue holds once these victims have left."""
        return queue.projected[pool] - self.lost.get((queue, pool), 0)

    def wants(self, pool: str) -> bool:
        """Whether it lacks slots of a pool, or a queue on the claimant's path is over its bound there."""
        return self.lacking.get(pool, 0) > 0 or any(self.above(queue, pool) > 0 for queue in self.claim.project.path)

    def take(self, victim: Victim, place: Slots = NOTHING) -> None:
        """One more victim."""
        self.chosen[victim] = place
        self._count(victim, 1)

    def bind(self, queue: Queue, pool: str, bound: int) -> None:
        """The claimant's queue must stay within this, too."""
        self.bounds[queue, pool] = min(bound, self.bounds.get((queue, pool), UNLIMITED))

    def settled(self) -> "Search | None":
        """Without victims that turned out not to be needed, most valuable first; None if they do not suffice."""
        if not self.enough:
            return None
        for victim in sorted(self.chosen, key=lambda victim: victim.key, reverse=True):
            if self._can_spare(victim):
                del self.chosen[victim]
                self._count(victim, -1)
        return self

    def _can_spare(self, victim: Victim) -> bool:
        for pool, count in victim.slots.items():
            if self.lacking.get(pool, -count) + count > 0:
                return False
            if any(self.above(queue, pool) + count > 0 for queue in victim.project.path):
                return False
        return True

    def _count(self, victim: Victim, sign: int) -> None:
        for pool, count in victim.slots.items():
            if pool in self.lacking:
                self.lacking[pool] -= sign * count
            for queue in victim.project.path:
                self.lost[queue, pool] += sign * count


def withdraw(claim: Claim) -> Search | None:
    """Starts of this same plan, of lower priority in its project."""
    search = Search(claim, {})
    for start in claim.withdrawable:
        if any(search.lacking.get(pool, 0) > 0 for pool in start.slots):
            search.take(start)
    return search.settled()


def preempt(claim: Claim) -> Search | None:
    """Lower priorities of its own project, until it has its slots and stands within the limits."""
    search = Search(claim, claim.limits())
    _take_own(search)
    return search.settled()


def reclaim(claim: Claim) -> Search | None:
    """Jobs of other projects, by share: the claimant's side must stay within its entitlement afterwards."""
    search = Search(claim, claim.entitlements())
    if any(search.above(claim.project, pool) > 0 for pool in claim.need):
        return None
    _Reclaim(search).run()
    return search.settled()


def preempt_and_reclaim(claim: Claim) -> Search | None:
    """Own lower priorities until the job is within its entitlement, the rest by reclaim.

    Where that does not suffice, all own lower priorities may go.
    """
    for all_own in (False, True):
        search = Search(claim, claim.entitlements())
        _take_own(search, for_slots=all_own)
        if any(search.above(claim.project, pool) > 0 for pool in claim.need):
            return None
        _Reclaim(search).run()
        if search.enough:
            return search.settled()
    return None


def _take_own(search: Search, *, for_slots: bool = True) -> None:
    """Take lower priorities of its own project, in victim order.

    :param for_slots: while slots are lacking or its queues are over their bounds; else only while its project is.
    """
    for pool in search.claim.need:
        for victim in _own(search, pool):
            if not (search.wants(pool) if for_slots else search.above(search.claim.project, pool) > 0):
                break
            search.take(victim)


def _own(search: Search, pool: str) -> Iterable[Victim]:
    claim = search.claim
    active = claim.victims.of(claim.project, pool, claim.launching)
    lower = takewhile(lambda victim: victim.priority < claim.priority, active)
    starts = (start for start in claim.withdrawable if pool in start.slots)
    return (victim for victim in merge(lower, starts, key=lambda victim: victim.key) if victim not in search.chosen)


class _Reclaim:
    """Takes jobs of other projects, first from the one furthest above its entitlement."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._claim = search.claim
        self._victims = search.claim.victims

    def run(self) -> None:
        """Take until nothing is lacking or nobody is left."""
        search, department = self._search, self._claim.project.parent
        for pool in self._claim.need:
            if department is not None and search.above(department, pool) > 0:
                self._from_siblings(pool, department)
        for pool in self._claim.need:
            if search.lacking.get(pool, 0) > 0:
                self._from_anybody(pool)

    def _from_siblings(self, pool: str, department: Queue) -> None:
        """To get under the department's bound, victims come from that department."""
        heap: list[HeapEntry] = []
        for project in department.children:
            self._enter(heap, project, pool)
        while heap and self._search.above(department, pool) > 0:
            self._take_from_first(heap, pool)

    def _from_anybody(self, pool: str) -> None:
        """The projects that this search has not taken from yet enter the heap one by one, when it is their turn."""
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

    def _fetch(self, heap: list[HeapEntry], pool: str, fetched: list[HeapEntry], seen: set[Queue]) -> HeapEntry | None:
        """Enter the next project that may have to give, and that this search has not taken from."""
        while (entry := self._victims.pop(pool)) is not None:
            fetched.append(entry)
            if entry[-1] not in seen and self._may_lose(entry[-1], pool):
                seen.add(entry[-1])
                heappush(heap, entry)
                return entry
        return None

    def _take_from_first(self, heap: list[HeapEntry], pool: str) -> HeapEntry:
        """Take a victim from the first project, if it may still lose one."""
        entry = heappop(heap)
        project = entry[-1]
        victim = self._first(project, pool)
        if victim is not None:
            for other in victim.slots:
                if other in self._claim.need:
                    self._bind_to_quota_if_that_is_the_claim(project, other)
            self._search.take(victim)
            self._enter(heap, project, pool)
        return entry

    def _enter(self, heap: list[HeapEntry], project: Queue, pool: str) -> None:
        victim = self._first(project, pool)
        if victim is not None:
            excess = self._search.projected(project, pool) - project.entitlement[pool]
            heappush(heap, (-excess, victim.key, project.place, project))

    def _first(self, project: Queue, pool: str) -> Victim | None:
        """The project's next victim, if it may lose one."""
        if not self._may_lose(project, pool):
            return None
        for victim in self._victims.of(project, pool, self._claim.launching):
            lacked = [other for other in victim.slots if other != pool and self._search.lacking.get(other, 0) > 0]
            if victim not in self._search.chosen and all(self._may_lose(project, other) for other in lacked):
                return victim
        return None

    def _may_lose(self, project: Queue, pool: str) -> bool:
        """Whether this project may lose slots of this pool to the claimant."""
        search = self._search
        if project is self._claim.project:
            return False
        if self._victims.protect_quota and search.projected(project, pool) <= project.quota.get(pool, 0):
            return False
        side = part_of_paths(self._claim.project, project)[1]
        return search.projected(side, pool) > side.entitlement[pool] or self._for_its_quota(project, pool)

    def _for_its_quota(self, project: Queue, pool: str) -> bool:
        """The claimant's side stays within its quota, and the victim's side is above its own."""
        mine, side = part_of_paths(self._claim.project, project)
        after = self._claim.after(mine, pool) - self._search.lost.get((mine, pool), 0)
        return after <= mine.quota.get(pool, 0) and self._search.projected(side, pool) > side.quota.get(pool, 0)

    def _bind_to_quota_if_that_is_the_claim(self, project: Queue, pool: str) -> None:
        mine, side = part_of_paths(self._claim.project, project)
        if self._search.projected(side, pool) <= side.entitlement[pool] and self._for_its_quota(project, pool):
            self._search.bind(mine, pool, mine.quota.get(pool, 0))
