"""The plan in the making: what is decided so far, and the figures that follow from it."""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from job_queue.scheduler.decisions import Rule
from job_queue.scheduler.eligibility import Candidate, makes_room
from job_queue.scheduler.ledger import NOTHING, Ledger, covers
from job_queue.scheduler.model import JobState, Slots, Snapshot
from job_queue.scheduler.ordering import VictimKey
from job_queue.scheduler.queues import Queue, Queues
from job_queue.scheduler.search import Withdrawable
from job_queue.scheduler.shares import UNLIMITED
from job_queue.scheduler.victims import Guarantees, Victim, Victims


@dataclass(frozen=True, slots=True)
class Eviction:
    """A victim of this plan."""

    victim: Victim
    claimant: str
    rule: Rule


class Draft:
    """Every decision of a plan goes through here, so that ledger, queues and victims always agree."""

    def __init__(self, snapshot: Snapshot, candidates: list[Candidate], queues: Queues) -> None:
        self.ledger = Ledger(snapshot)
        self.queues = queues
        self._guarantees = Guarantees(snapshot.policy)
        self.projects = {candidate.name: queues.project(candidate.job.project) for candidate in candidates}
        for job in snapshot.active:
            project = queues.project(job.project)
            queues.use(project, job.slots)
            if job.state is not JobState.STOPPING:
                queues.hold(project, job.slots)
            if not job.preemptible:
                queues.fix(project, job.slots)
        self.started: dict[str, Slots] = {}
        self.evicted: dict[str, Eviction] = {}
        self.settled: set[str] = set()  # started, or waiting with something set aside: their turn is over
        self.promised: set[str] = set()  # holders for whom a stop may be under way since before this plan
        self.reopened: list[Candidate] = []  # were settled, and are not any more
        self.relieved: set[Queue] = set()  # projects that lost slots, some of which are for whoever comes next
        self.released = False  # slots came free for others than the one who was served
        self._holders: dict[Queue, dict[str, Candidate]] = defaultdict(dict)
        self._lowest_holder: dict[Queue, int] = {}
        self._lowest_start: dict[Queue, int] = {}
        self._starts: dict[Queue, dict[str, tuple[Candidate, Withdrawable]]] = defaultdict(dict)
        self._bounds: dict[tuple[Queue, str], int] = {}  # what evictions relied on, beside slots
        self._by_size: dict[tuple[Any, ...], list[tuple[VictimKey, Victim]]] = defaultdict(list)
        self._inherit(snapshot, candidates)
        self.victims = Victims(snapshot, queues)

    # --- reservations ----------------------------------------------------------------------------

    def _inherit(self, snapshot: Snapshot, candidates: list[Candidate]) -> None:
        """Enter the reservations that stand in the snapshot, as far as the slots exist."""
        stopping: dict[str, Counter[str]] = defaultdict(Counter)
        for job in sorted(snapshot.active, key=lambda job: job.name):
            if job.state is not JobState.STOPPING:
                continue
            if job.reserved_for is not None:
                stopping[job.reserved_for].update(job.slots)
            if job.name in snapshot.reserved and makes_room(job):  # it moves: its new place is nobody else's
                claim = self._there(snapshot.reserved[job.name])
                self.ledger.set_aside(job.name, claim)
                self.queues.hold(self.queues.project(job.project), claim)
        for candidate in candidates:
            name = candidate.name
            if name in snapshot.reserved or name in stopping:
                claim = self._there(_clipped(Counter(snapshot.reserved.get(name, {})), stopping[name], candidate))
                if claim:
                    self._claim(candidate, claim)
                    if any(self.ledger.freeing[pool] > 0 for pool in candidate.pools):
                        self.promised.add(name)

    def _there(self, claim: Slots) -> Slots:
        there = {pool: min(count, self.ledger.soon(pool)) for pool, count in claim.items()}
        return {pool: count for pool, count in there.items() if count > 0}

    def own(self, candidate: Candidate) -> Slots:
        """What is set aside for a job."""
        return self.ledger.claims.get(candidate.name, NOTHING)

    def set_aside(self, candidate: Candidate, slots: Slots) -> None:
        """Set these slots aside for a job, instead of what was, until it starts."""
        before = self.drop(candidate)
        self.released = self.released or not covers(slots, before)
        if slots:
            self._claim(candidate, slots)
        self.ledger.stand(candidate.name)
        self.ledger.keep_no_longer(candidate.name)
        self.settled.add(candidate.name)

    def _claim(self, candidate: Candidate, slots: Slots) -> None:
        project = self.projects[candidate.name]
        self.ledger.set_aside(candidate.name, slots)
        self.queues.hold(project, slots)
        if not candidate.job.preemptible:
            self.queues.fix(project, slots)
        self._holders[project][candidate.name] = candidate
        priority = candidate.job.priority
        self._lowest_holder[project] = min(priority, self._lowest_holder.get(project, priority))

    def drop(self, candidate: Candidate) -> Slots:
        """Nothing is set aside for this job any more. Gives what was."""
        if candidate.name not in self.ledger.claims:
            return NOTHING
        project = self.projects[candidate.name]
        slots = self.ledger.drop(candidate.name)
        self.queues.hold(project, slots, -1)
        if not candidate.job.preemptible:
            self.queues.fix(project, slots, -1)
        del self._holders[project][candidate.name]
        self.promised.discard(candidate.name)
        return slots

    def keep_standing(self, candidate: Candidate) -> None:
        """What is set aside for this job stays so, and its turn is over."""
        self.ledger.stand(candidate.name)
        self.settled.add(candidate.name)

    def lower_holders(self, candidate: Candidate) -> list[Candidate]:
        """Whose reservations this job may take over, most valuable first."""
        project = self.projects[candidate.name]
        if self._lowest_holder.get(project, candidate.job.priority) >= candidate.job.priority:
            return []
        holders = self._holders[project]
        lower = [
            holder
            for name, holder in holders.items()
            if holder.job.priority < candidate.job.priority and self.ledger.claims[name].keys() & candidate.pools
        ]
        return sorted(lower, key=lambda holder: holder.key)

    def take_over(self, candidate: Candidate, holders: Sequence[Candidate]) -> None:
        """These reservations fall to this job, and so do the evictions that were made for them."""
        losers = {holder.name for holder in holders}
        for holder in holders:
            self.drop(holder)
            self.settled.discard(holder.name)
            self.reopened.append(holder)
        for name, eviction in self.evicted.items():
            if eviction.claimant in losers:
                self.evicted[name] = Eviction(eviction.victim, candidate.name, eviction.rule)

    # --- starts ----------------------------------------------------------------------------------

    def start(self, candidate: Candidate, slots: Slots) -> None:
        """Launch a job on free slots; what was set aside or kept for it is so no more."""
        before = self.drop(candidate)
        self.released = self.released or not covers(slots, before)
        project = self.projects[candidate.name]
        self.ledger.keep_no_longer(candidate.name)
        self._run(candidate, slots, 1)
        self.started[candidate.name] = slots
        self.settled.add(candidate.name)
        if candidate.job.preemptible:
            key = (candidate.job.priority, 0.0, -candidate.job.entered, candidate.name)
            self._starts[project][candidate.name] = (candidate, Withdrawable(candidate.name, slots, project, key))
            self._lowest_start[project] = min(key[0], self._lowest_start.get(project, key[0]))

    def _run(self, candidate: Candidate, slots: Slots, sign: int) -> None:
        project = self.projects[candidate.name]
        self.ledger.start(slots, sign)
        self.queues.hold(project, slots, sign)
        self.queues.use(project, slots, sign)
        if not candidate.job.preemptible:
            self.queues.fix(project, slots, sign)

    def withdrawable(self, candidate: Candidate) -> tuple[Withdrawable, ...]:
        """Starts of this plan that this job's priority may withdraw, lowest first.

        Who came first in the line by aging keeps its start if it is guaranteed a runtime; else it would be preempted.
        """
        project = self.projects[candidate.name]
        if self._lowest_start.get(project, candidate.job.priority) >= candidate.job.priority:
            return ()
        starts = self._starts[project]
        lower = [
            it
            for other, it in starts.values()
            if other.job.priority < candidate.job.priority
            and (candidate.key < other.key or not self._guarantees.runtime(other.job.project, it.slots))
        ]
        return tuple(sorted(lower, key=lambda it: it.key))

    def withdraw(self, start: Withdrawable) -> None:
        """This start is not made: somebody of higher priority needs the slots."""
        candidate, _ = self._starts[start.project].pop(start.name)
        self._run(candidate, self.started.pop(start.name), -1)
        self.settled.discard(start.name)
        self.reopened.append(candidate)

    # --- evictions -------------------------------------------------------------------------------

    def evict(self, victim: Victim, claimant: Candidate, rule: Rule) -> None:
        """Stop this active job."""
        self.victims.take(victim)
        self.ledger.release(victim.slots)
        self.queues.hold(victim.project, victim.slots, -1)
        self.evicted[victim.job.name] = Eviction(victim, claimant.name, rule)
        insort(self._by_size[_size(victim)], (victim.key, victim), key=lambda entry: entry[0])

    def move(self, victim: Victim, place: Slots, claimant: Candidate) -> None:
        """Stop this active job; its new place is set aside for it, and nobody takes that over."""
        self.evict(victim, claimant, Rule.CONSOLIDATE)
        self.ledger.set_aside(victim.job.name, place)
        self.ledger.stand(victim.job.name)
        self.queues.hold(victim.project, place)

    def rely_on(self, bounds: dict[tuple[Queue, str], int]) -> None:
        """Evictions were made so that these queues do not hold more than this: no victim may be given back over it."""
        for place, bound in bounds.items():
            self._bounds[place] = min(bound, self._bounds.get(place, UNLIMITED))

    def spare_needless(self, tries: int | None = None) -> None:
        """Give back victims whose slots the surplus of the others covers, most valuable first.

        :param tries: how many of each size to look at; None: all.
        """
        while (victim := self._most_valuable_needless(tries)) is not None:
            self._by_size[_size(victim)].remove((victim.key, victim))
            eviction = self.evicted.pop(victim.job.name)
            if eviction.rule is Rule.CONSOLIDATE:
                self.queues.hold(victim.project, self.ledger.drop(victim.job.name), -1)
            self.victims.give_back(victim)
            self.ledger.release(victim.slots, -1)
            self.queues.hold(victim.project, victim.slots)

    def _most_valuable_needless(self, tries: int | None) -> Victim | None:
        best: tuple[VictimKey, Victim] | None = None
        for size, entries in self._by_size.items():
            if not entries or any(self.ledger.soon(pool) < count for pool, count in size):
                continue
            for entry in islice(reversed(entries), tries):
                if best is not None and entry[0] < best[0]:
                    break
                if self._may_stay(entry[1]):
                    best = entry
                    break
        return None if best is None else best[1]

    def _may_stay(self, victim: Victim) -> bool:
        for queue in victim.project.path:
            for pool, count in victim.slots.items():
                bound = self._bounds.get((queue, pool), UNLIMITED)
                if queue.held[pool] + count > bound:
                    return False
        return True


def _size(victim: Victim) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(victim.slots.items()))


def _clipped(told: Counter[str], stopping: Counter[str], candidate: Candidate) -> Slots:
    """What a reservation is worth to its job: never more than it needs.

    Slots of jobs stopping for it may be counted in what was told, or come on top of it.
    """
    together = told + stopping
    for have in (told, together):
        for need in candidate.alternatives:
            if covers(have, need):
                return need
    return {
        pool: min(together[pool], max(need.get(pool, 0) for need in candidate.alternatives))
        for pool in sorted(candidate.pools)
    }
