"""Migrate jobs to other pools that they accept, so that a job that can only run here fits (the rule `consolidate`)."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from job_queue.scheduler.candidates import PoolBackoff
from job_queue.scheduler.fair_share import Bound, Queue, fits
from job_queue.scheduler.model import Slots, Snapshot
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.preemption import Claim, Place, Search, Victim

_Target = tuple[tuple[str, int], ...]
_Choice = tuple[Victim, int]  # who may migrate to a target, and which of its alternatives that is


class Migration:
    """The preemptible jobs with a second alternative, by the pool they would leave and the slots they would take."""

    def __init__(self, snapshot: Snapshot, state: PlanState) -> None:
        self._state = state
        self._groups: dict[str, dict[_Target, dict[Queue, list[_Choice]]]] = {}
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

    def search(self, claim: Claim) -> Search | None:
        """Who migrates where for this claim, and no one more; None if that does not suffice."""
        if not any(pool in self._groups for pool in claim.need):
            return None
        search, places = Search(claim, claim.entitlements()), _FreePlaces(self._state, claim.need)
        for pool in claim.need:
            while search.wants(pool):
                moves = self._moves(search, places, pool)
                found = min(moves, key=lambda move: (move[0].key, move[1]), default=None)
                if found is None:
                    return None
                victim, _, target = found
                search.take(victim, dict(target))
                places.take(victim.project, target)
        settled = search.settled()
        return settled if settled is not None and settled.chosen else None

    def _moves(self, search: Search, places: "_FreePlaces", pool: str) -> Iterator[tuple[Victim, int, _Target]]:
        """Of each project and target, the first in victim order who can migrate and whose leaving helps."""
        for target, projects in self._groups.get(pool, {}).items():
            if not places.are_free(target):
                continue
            for project in _whose_leaving_helps(search, pool, projects):
                choices = projects[project]
                able = (choice for choice in choices if not choice[0].gone and choice[0] not in search.chosen)
                first = next(able, None)
                if first is not None and places.within_entitlement(project, target):
                    yield (*first, target)


def _whose_leaving_helps(search: Search, pool: str, projects: Iterable[Queue]) -> Iterable[Queue]:
    for queue in search.claim.project.path:  # first those that bring the claimant's own queues within their bounds
        if search.above(queue, pool) > 0:
            return [project for project in projects if queue in project.path]
    return projects


class _FreePlaces:
    """Free slots of other pools, as migrating jobs take them."""

    def __init__(self, state: PlanState, closed: Slots) -> None:
        self._free = {pool: state.now(pool) for pool in state.free if pool not in closed}
        self._entered: Counter[Place] = Counter()

    def are_free(self, target: _Target) -> bool:
        """Whether nobody uses, counts on, or asks for these slots."""
        return all(self._free.get(pool, 0) >= count for pool, count in target)

    def within_entitlement(self, project: Queue, target: _Target) -> bool:
        """Whether the project and department of who migrates stay within what they are entitled to there."""
        return all(
            fits(queue, {pool: count + self._entered[queue, pool] for pool, count in target}, Bound.ENTITLEMENT)
            for queue in project.path
        )

    def take(self, project: Queue, target: _Target) -> None:
        """A job of this project goes there."""
        for pool, count in target:
            self._free[pool] -= count
            for queue in project.path:
                self._entered[queue, pool] += count
