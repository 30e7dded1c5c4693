"""Movers: jobs that can start again at once in another pool, so that a job that can only run here fits."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from job_queue.scheduler.draft import Draft
from job_queue.scheduler.eligibility import PoolsOfProjects
from job_queue.scheduler.model import Slots, Snapshot
from job_queue.scheduler.pausing import Pausing
from job_queue.scheduler.queues import Queue
from job_queue.scheduler.search import Claim, Search
from job_queue.scheduler.victims import Victim

_Target = tuple[tuple[str, int], ...]


class Movers:
    """The preemptible jobs with a second alternative, by the pool they would leave and the place they would take."""

    def __init__(self, snapshot: Snapshot, draft: Draft) -> None:
        self._draft = draft
        self._groups: dict[str, dict[_Target, dict[Queue, list[Victim]]]] = {}
        pausing = Pausing(snapshot)
        allowed = PoolsOfProjects(snapshot.policy)
        for victim in draft.victims.all:
            if victim.launching or not victim.job.demand:
                continue
            pools = allowed[victim.job.project]
            for need in victim.job.demand:
                elsewhere = need and not need.keys() & victim.slots.keys()
                if elsewhere and all(pool in pools for pool in need) and not pausing.doubts(need):
                    target = tuple(sorted(need.items()))
                    for pool in victim.slots:
                        targets = self._groups.setdefault(pool, {})
                        targets.setdefault(target, defaultdict(list))[victim.project].append(victim)

    def search(self, claim: Claim) -> list[tuple[Victim, Slots]] | None:
        """Who moves where for this claim, and no one more; None if that does not suffice."""
        if not any(pool in self._groups for pool in claim.need):
            return None
        bounds = {(queue, pool): queue.entitlement[pool] for queue in claim.project.path for pool in claim.need}
        search, places = Search(claim, bounds), _Places(self._draft, claim.need)
        for pool in claim.need:
            while search.wants(pool, claim.project.path):
                found = self._best(search, places, pool)
                if found is None:
                    return None
                search.take(found[0])
                places.take(*found)
        search.spare_needless()
        return [(victim, places.of[victim]) for victim in search.chosen if isinstance(victim, Victim)]

    def _best(self, search: Search, places: "_Places", pool: str) -> tuple[Victim, Slots] | None:
        """The first in victim order who can move and whose leaving helps; its first free alternative."""
        best: tuple[Any, Victim, _Target] | None = None
        for target, projects in self._groups.get(pool, {}).items():
            if not places.are_free(target):
                continue
            for project in _who_helps(search, pool, projects):
                victim = next((it for it in projects[project] if not it.gone and not search.has(it)), None)
                if victim is None or not places.within_entitlement(project, target):
                    continue
                rank = (victim.key, [tuple(sorted(need.items())) for need in victim.job.demand].index(target))
                if best is None or rank < best[0]:
                    best = (rank, victim, target)
        return None if best is None else (best[1], dict(best[2]))


def _who_helps(search: Search, pool: str, projects: dict[Queue, list[Victim]]) -> Iterator[Queue]:
    claim = search.claim
    for queue in claim.project.path:  # first those that bring the claimant's own queues within their bounds
        if search.above[queue, pool] > 0:
            yield from (project for project in projects if queue in project.path)
            return
    yield from projects


class _Places:
    """Free places of other pools, as movers take them."""

    def __init__(self, draft: Draft, closed: Slots) -> None:
        self._draft = draft
        self._closed = closed.keys()
        self._taken: dict[str, int] = defaultdict(int)
        self._entered: dict[tuple[Queue, str], int] = defaultdict(int)
        self.of: dict[Victim, Slots] = {}

    def are_free(self, target: _Target) -> bool:
        """Whether nobody uses, counts on, or asks for these slots."""
        return all(
            pool not in self._closed and self._draft.ledger.now(pool) - self._taken[pool] >= count
            for pool, count in target
        )

    def within_entitlement(self, project: Queue, target: _Target) -> bool:
        """Whether the mover's project and department stay within what they are due there."""
        return all(
            queue.held[pool] + self._entered[queue, pool] + count <= queue.entitlement[pool]
            for queue in project.path
            for pool, count in target
        )

    def take(self, victim: Victim, target: Slots) -> None:
        """This one moves there."""
        self.of[victim] = target
        for pool, count in target.items():
            self._taken[pool] += count
            for queue in victim.project.path:
                self._entered[queue, pool] += count
