"""Migrate jobs to other pools that they accept, so that a job that can only run here fits (the rule `consolidate`)."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from job_queue.scheduler.candidates import AllowedPools, PoolBackoff
from job_queue.scheduler.fair_share import Bound, Queue, fits
from job_queue.scheduler.model import Slots, Snapshot
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.preemption import Claim, Search, Victim

_Target = tuple[tuple[str, int], ...]


class Migration:
    """The preemptible jobs with a second alternative, by the pool they would leave and the slots they would take."""

    def __init__(self, snapshot: Snapshot, state: PlanState) -> None:
        self._state = state
        self._groups: dict[str, dict[_Target, dict[Queue, list[Victim]]]] = {}
        self._ranks: dict[Victim, dict[_Target, int]] = {}  # which of its alternatives it prefers
        backoff = PoolBackoff(snapshot)
        allowed = AllowedPools(snapshot.policy)
        for victim in state.victims.all:
            if victim.launching or victim.job is None or not victim.job.demand:
                continue
            pools = allowed[victim.job.project]
            for rank, need in enumerate(victim.job.demand):
                elsewhere = need and not need.keys() & victim.slots.keys()
                if elsewhere and all(pool in pools for pool in need) and not backoff.has_refused(need):
                    target = tuple(sorted(need.items()))
                    self._ranks.setdefault(victim, {}).setdefault(target, rank)
                    for pool in victim.slots:
                        targets = self._groups.setdefault(pool, {})
                        targets.setdefault(target, defaultdict(list))[victim.project].append(victim)

    def search(self, claim: Claim) -> tuple[Search, dict[Victim, Slots]] | None:
        """Who migrates where for this claim, and no one more; None if that does not suffice."""
        if not any(pool in self._groups for pool in claim.need):
            return None
        search, places = Search(claim, claim.entitlements()), _FreePlaces(self._state, claim.need)
        for pool in claim.need:
            while search.wants(pool, claim.project.path):
                found = self._best(search, places, pool)
                if found is None:
                    return None
                search.take(found[0])
                places.take(*found)
        settled = search.settled()
        return (settled, places.of) if settled is not None and settled.chosen else None

    def _best(self, search: Search, places: "_FreePlaces", pool: str) -> tuple[Victim, Slots] | None:
        """The first in victim order who can migrate and whose leaving helps; its first free alternative."""
        best: tuple[Any, Victim, _Target] | None = None
        for target, projects in self._groups.get(pool, {}).items():
            if not places.are_free(target):
                continue
            for project in _whose_leaving_helps(search, pool, projects):
                victim = next((it for it in projects[project] if not it.gone and not search.has(it)), None)
                if victim is None or not places.within_entitlement(project, target):
                    continue
                rank = (victim.key, self._ranks[victim][target])
                if best is None or rank < best[0]:
                    best = (rank, victim, target)
        return None if best is None else (best[1], dict(best[2]))


def _whose_leaving_helps(search: Search, pool: str, projects: dict[Queue, list[Victim]]) -> Iterator[Queue]:
    for queue in search.claim.project.path:  # first those that bring the claimant's own queues within their bounds
        if search.above[queue, pool] > 0:
            yield from (project for project in projects if queue in project.path)
            return
    yield from projects


class _FreePlaces:
    """Free slots of other pools, as migrating jobs take them."""

    def __init__(self, state: PlanState, closed: Slots) -> None:
        self._free = {pool: state.now(pool) for pool in state.free if pool not in closed}
        self._entered: dict[Queue, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.of: dict[Victim, Slots] = {}

    def are_free(self, target: _Target) -> bool:
        """Whether nobody uses, counts on, or asks for these slots."""
        return all(self._free.get(pool, 0) >= count for pool, count in target)

    def within_entitlement(self, project: Queue, target: _Target) -> bool:
        """Whether the project and department of who migrates stay within what they are entitled to there."""
        for queue in project.path:
            entered = self._entered[queue]
            if not fits(queue, {pool: count + entered[pool] for pool, count in target}, Bound.ENTITLEMENT):
                return False
        return True

    def take(self, victim: Victim, target: Slots) -> None:
        """This one goes there."""
        self.of[victim] = target
        for pool, count in target.items():
            self._free[pool] -= count
            for queue in victim.project.path:
                self._entered[queue][pool] += count
