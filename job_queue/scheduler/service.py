"""Serving the line: who starts, who waits for what, and who has to leave for it."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from functools import partial

from job_queue.scheduler.decisions import Evict, Rule, Start
from job_queue.scheduler.eligibility import Candidate, Wish
from job_queue.scheduler.ledger import Ledger, covers
from job_queue.scheduler.model import ActiveJob, Slots, Snapshot
from job_queue.scheduler.ordering import victim_order
from job_queue.scheduler.victims import Victims, choose, without_needless


class Service:
    """Serves a line of candidates, each by the least disruptive step that leads to its start.

    What came of it is read from `starts`, `evictions` and the ledger, which is written as the service goes on.
    """

    def __init__(self, snapshot: Snapshot, line: list[Candidate], ledger: Ledger) -> None:
        self._now = snapshot.now
        self._line = line
        self._ledger = ledger
        self._victims = Victims(snapshot)
        self._started: dict[str, Slots] = {}
        self._evicted: dict[str, tuple[ActiveJob, str]] = {}  # victim -> itself, its claimant
        # Holders of reservations whose turn has not come: a higher priority may take those over.
        self._to_come = {candidate.name: candidate for candidate in line if candidate.name in ledger.claims}
        # Those of them for whom a stop may be under way: nobody else is evicted for them meanwhile.
        self._promised = {name for name, holder in self._to_come.items() if ledger.freeing.keys() & holder.pools}
        self._hopeless: set[Wish] = set()  # could not be served, nor can it be for who comes later: no more is in reach
        self._counted_on: dict[str, set[str]] = defaultdict(set)  # project -> pools; see `_wait_to_preempt`
        self._released = False  # slots that were set aside came free for everyone

    def starts(self) -> tuple[Start, ...]:
        """Who starts, in the order of the line."""
        return tuple(
            Start(candidate.name, dict(self._started[candidate.name]))
            for candidate in self._line
            if candidate.name in self._started
        )

    def evictions(self) -> tuple[Evict, ...]:
        """Who leaves, claimant by claimant, each in victim order."""
        place = {candidate.name: place for place, candidate in enumerate(self._line)}
        ordered = sorted(self._evicted.values(), key=lambda it: (place[it[1]], victim_order(it[0], self._now)))
        return tuple(Evict(victim.name, claimant, Rule.PREEMPT) for victim, claimant in ordered)

    def serve(self) -> None:
        """Serve the line, and again from its head when slots that were set aside came free."""
        todo, waiting = deque(self._line), list[Candidate]()
        while todo:
            candidate = todo.popleft()
            self._released = False
            self._serve_one(candidate)
            self._to_come.pop(candidate.name, None)
            if candidate.name not in self._started:
                waiting.append(candidate)
            if self._released:
                self._spare_needless_victims()
                self._hopeless.clear()
                self._counted_on.clear()
                todo, waiting = deque([*waiting, *todo]), []

    def _serve_one(self, candidate: Candidate) -> None:
        holds_slots = candidate.name in self._ledger.claims
        if candidate.wish in self._hopeless and not holds_slots:
            return
        steps = (
            self._start_on_free_slots,
            self._start_on_slots_of_a_lower_reservation,
            self._keep_a_full_reservation,
            self._wait_for_stopping,
            self._take_over_a_reservation,
            self._preempt,
            self._wait_to_preempt,
        )
        if any(step(candidate) for step in steps):
            return
        if holds_slots:  # too few to start, and no way to more: the reservation falls
            self._ledger.drop(candidate.name)
            self._released = candidate.name in self._to_come
        else:
            self._hopeless.add(candidate.wish)

    # --- the steps, least disruptive first; each tries all alternatives, in order -----------------

    def _start_on_free_slots(self, candidate: Candidate) -> bool:
        for need in candidate.alternatives:
            if not self._ledger.missing_now(need, candidate.name):
                self._start(candidate, need)
                return True
        return False

    def _start_on_slots_of_a_lower_reservation(self, candidate: Candidate) -> bool:
        lower = self._lower_reservations(candidate)
        for need in candidate.alternatives if lower else ():
            missing = partial(self._ledger.missing_now, need, candidate.name)
            if not missing(lower):
                self._take_over(lower, missing)
                self._start(candidate, need)
                return True
        return False

    def _keep_a_full_reservation(self, candidate: Candidate) -> bool:
        held = self._ledger.claims.get(candidate.name, {})
        return any(covers(held, need) for need in candidate.alternatives)

    def _wait_for_stopping(self, candidate: Candidate) -> bool:
        for need in candidate.alternatives:
            if not self._ledger.missing_soon(need, candidate.name):
                self._set_aside(candidate, need)
                return True
        return False

    def _take_over_a_reservation(self, candidate: Candidate) -> bool:
        lower = self._lower_reservations(candidate)
        for need in candidate.alternatives if lower else ():
            missing = partial(self._ledger.missing_soon, need, candidate.name)
            if not missing(lower):
                self._take_over(lower, missing)
                self._set_aside(candidate, need)
                return True
        return False

    def _preempt(self, candidate: Candidate) -> bool:
        """Evict lower priorities of its project; nobody where that would not suffice."""
        job = candidate.job
        if job.name in self._promised:
            return False
        lower = self._lower_reservations(candidate)
        in_reach = self._victims.slots_below(job.project, job.priority)
        for need in candidate.alternatives:
            missing = self._ledger.missing_soon(need, job.name, lower)
            if not covers(in_reach, missing):
                continue
            victims = choose(self._victims.below(job.project, job.priority), missing)
            if any(victim.slots.keys() & self._counted_on[job.project] for victim in victims):
                continue
            for victim in victims:
                self._evict(victim, candidate)
            self._take_over(lower, partial(self._ledger.missing_soon, need, job.name))
            self._set_aside(candidate, need)
            self._spare_needless_victims()
            return True
        return False

    def _wait_to_preempt(self, candidate: Candidate) -> bool:
        """Set aside what is there where lower priorities hold the rest but may not be stopped yet.

        Either they are being launched, or a stop for this very job may be under way. Whoever started on these
        slots meanwhile would soon be evicted with them, and so would not gain by it.
        """
        job = candidate.job
        launching = self._victims.launching_below(job.project, job.priority)
        if not launching and job.name not in self._promised:
            return False
        lower = self._lower_reservations(candidate)
        in_reach = Counter(self._victims.slots_below(job.project, job.priority)) + Counter(launching)
        for need in candidate.alternatives:
            missing = self._ledger.missing_soon(need, job.name, lower)
            if covers(in_reach, missing):
                self._take_away(lower)
                self._released = self._released or bool(lower)
                self._counted_on[job.project].update(missing)
                there = {pool: min(count, self._ledger.soon(pool, job.name)) for pool, count in need.items()}
                self._set_aside(candidate, {pool: count for pool, count in there.items() if count > 0})
                return True
        return False

    # --- what the steps do ------------------------------------------------------------------------

    def _lower_reservations(self, candidate: Candidate) -> list[str]:
        """Reservations that it may take over, most valuable first."""
        job = candidate.job
        return [
            name
            for name, holder in self._to_come.items()
            if holder.job.project == job.project
            and holder.job.priority < job.priority
            and self._ledger.claims[name].keys() & candidate.pools
        ]

    def _start(self, candidate: Candidate, need: Slots) -> None:
        self._let_go(candidate, need)
        self._ledger.start(candidate.name, need)
        self._started[candidate.name] = need

    def _set_aside(self, candidate: Candidate, need: Slots) -> None:
        self._let_go(candidate, need)
        self._ledger.set_aside(candidate.name, need)

    def _let_go(self, candidate: Candidate, need: Slots) -> None:
        if not covers(need, self._ledger.claims.get(candidate.name, {})):
            self._released = True

    def _take_over(self, lower: list[str], missing: Callable[[list[str]], Slots]) -> None:
        """Take over as few of these reservations as leave nothing missing, the least valuable first."""
        taken: list[str] = []
        for name in reversed(lower):
            if not missing(taken):
                break
            taken.append(name)
        for name in reversed(taken):
            others = [other for other in taken if other != name]
            if not missing(others):
                taken = others
        lacking, gained = missing([]), Counter[str]()
        for name in taken:
            gained.update(self._ledger.claims[name])
        self._released = self._released or not covers(lacking, gained)
        self._take_away(taken)

    def _take_away(self, holders: list[str]) -> None:
        for name in holders:
            self._ledger.drop(name)
            self._promised.discard(name)
            del self._to_come[name]

    def _evict(self, victim: ActiveJob, claimant: Candidate) -> None:
        self._victims.take(victim)
        self._ledger.release(victim.slots)
        self._evicted[victim.name] = (victim, claimant.name)

    def _spare_needless_victims(self) -> None:
        """Give back victims of this plan whose slots the surplus of the others covers."""
        surplus = self._ledger.surplus()
        if not any(count > 0 for count in surplus.values()):
            return
        chosen = sorted((victim for victim, _ in self._evicted.values()), key=lambda job: victim_order(job, self._now))
        needed = {victim.name for victim in without_needless(chosen, surplus)}
        for victim in chosen:
            if victim.name not in needed:
                self._victims.give_back(victim)
                self._ledger.retain(victim.slots)
                del self._evicted[victim.name]
