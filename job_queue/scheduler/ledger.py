"""What is free, what is being freed, and what of it is set aside for whom.

Slots of a pool are alike, so a reservation is a number and not particular slots. All reservations together never
exceed what is free or being freed. They are filled from what this plan's victims leave, then from free slots, in the
order of the line; the free slots beyond that are for anyone. So nobody who comes later makes a job wait for a stop
that it did not ask for.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.model import JobState, Slots, Snapshot

NOBODY: frozenset[str] = frozenset()


def covers(have: Mapping[str, int], need: Slots) -> bool:
    """Whether `have` holds all of `need`."""
    return all(have.get(pool, 0) >= count for pool, count in need.items())


class Ledger:
    """The slots of one plan in the making."""

    def __init__(self, snapshot: Snapshot, line: Sequence[Candidate]) -> None:
        self.free = Counter({pool.name: pool.capacity for pool in snapshot.policy.pools})
        self.freeing: Counter[str] = Counter()  # held by attempts that were asked to stop
        self.claims: dict[str, Slots] = {}  # job -> slots set aside for it
        self._claimed: Counter[str] = Counter()
        self._left_by_victims: Counter[str] = Counter()  # of this plan; part of `freeing`
        self._place = {candidate.name: place for place, candidate in enumerate(line)}
        self.free.subtract(snapshot.external)
        for job in snapshot.active:
            self.free.subtract(job.slots)
            if job.state is JobState.STOPPING:
                self.freeing.update(job.slots)
        self._inherit(snapshot, line)

    def _inherit(self, snapshot: Snapshot, line: Sequence[Candidate]) -> None:
        """Enter the reservations that stand in the snapshot: those of candidates, as far as the slots exist."""
        stopping: dict[str, Counter[str]] = defaultdict(Counter)
        for job in snapshot.active:
            if job.state is JobState.STOPPING and job.reserved_for is not None:
                stopping[job.reserved_for].update(job.slots)
        for candidate in line:
            told = Counter(snapshot.reserved.get(candidate.name, {}))
            claim = _clipped(told, stopping[candidate.name], candidate)
            there = {pool: min(count, self.soon(pool, candidate.name)) for pool, count in claim.items()}
            self.set_aside(candidate.name, {pool: count for pool, count in there.items() if count > 0})

    # --- looking ---------------------------------------------------------------------------------

    def soon(self, pool: str, name: str, without: Collection[str] = NOBODY) -> int:
        """Slots free or being freed that are set aside for nobody but `name` (and `without`)."""
        mine = sum(self.claims.get(holder, {}).get(pool, 0) for holder in (name, *without))
        return self.free[pool] + self.freeing[pool] - self._claimed[pool] + mine

    def now(self, pool: str, name: str, without: Collection[str] = NOBODY) -> int:
        """Free slots on which `name` can start at once: its own, and those set aside for nobody (and `without`)."""
        mine = self.claims.get(name, {}).get(pool, 0)
        claimed = self._claimed[pool] - sum(self.claims[holder].get(pool, 0) for holder in without)
        left = self.free[pool] - max(0, claimed - self._left_by_victims[pool])
        if not mine:
            return left
        place = self._place[name]
        before = sum(claim.get(pool, 0) for holder, claim in self.claims.items() if self._place[holder] < place)
        return min(self.free[pool], max(0, left) + max(0, min(mine, self.free[pool] - before)))

    def missing_now(self, need: Slots, name: str, without: Collection[str] = NOBODY) -> Slots:
        """What `need` lacks for a start at once; empty: nothing."""
        return {pool: n for pool, count in need.items() if (n := count - self.now(pool, name, without)) > 0}

    def missing_soon(self, need: Slots, name: str, without: Collection[str] = NOBODY) -> Slots:
        """What `need` lacks once all that is being freed is free; empty: nothing."""
        return {pool: n for pool, count in need.items() if (n := count - self.soon(pool, name, without)) > 0}

    def surplus(self) -> Slots:
        """Slots free or being freed that are set aside for nobody."""
        return {pool: self.soon(pool, "") for pool in self.free}

    # --- writing ---------------------------------------------------------------------------------

    def start(self, name: str, slots: Slots) -> None:
        """Put a waiting job on free slots; what was set aside for it is set aside no more."""
        self.drop(name)
        self.free.subtract(slots)

    def set_aside(self, name: str, slots: Slots) -> None:
        """Set these slots aside for a job, instead of what was."""
        self.drop(name)
        if slots:
            self.claims[name] = dict(slots)
            self._claimed.update(slots)

    def drop(self, name: str) -> None:
        """Nothing is set aside for this job any more."""
        self._claimed.subtract(self.claims.pop(name, {}))

    def release(self, slots: Slots) -> None:
        """A victim's slots: they are being freed."""
        self.freeing.update(slots)
        self._left_by_victims.update(slots)

    def retain(self, slots: Slots) -> None:
        """A victim's slots after all are not being freed."""
        self.freeing.subtract(slots)
        self._left_by_victims.subtract(slots)


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
        pool: min(together[pool], max(need.get(pool, 0) for need in candidate.alternatives)) for pool in candidate.pools
    }
