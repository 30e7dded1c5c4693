"""Reclaim: who of other projects has to give, first the project furthest above its entitlement."""

from heapq import heappop, heappush

from job_queue.scheduler.queues import Queue, quota_of
from job_queue.scheduler.search import Search
from job_queue.scheduler.victims import HeapEntry, Victim, Victims


class Reclaim:
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
