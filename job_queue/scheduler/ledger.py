"""What is free, what is being freed, and what of it is set aside for whom.

Slots of a pool are alike, so a reservation is a number and not a particular slot: it is good as long as all
reservations together do not exceed what is free or being freed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from job_queue.scheduler.eligibility import Candidate
from job_queue.scheduler.model import JobState, Slots, Snapshot

NOBODY: frozenset[str] = frozenset()


def covers(have: Mapping[str, int], need: Slots) -> bool:
    """Whether `have` holds all of `need`."""
    return all(have.get(pool, 0) >= count for pool, count in need.items())


class Ledger:
    """The slots of one plan in the making."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.free = Counter({pool.name: pool.capacity for pool in snapshot.policy.pools})
        self.freeing: Counter[str] = Counter()  # held by attempts that were asked to stop
        self.claims: dict[str, Slots] = {}  # job -> slots set aside for it
        self._claimed: Counter[str] = Counter()
        self._heirs: dict[str, None] = {}  # see `inherit`; in the order of their turns
        self.free.subtract(snapshot.external)
        for job in snapshot.active:
            self.free.subtract(job.slots)
            if job.state is JobState.STOPPING:
                self.freeing.update(job.slots)

    def inherit(self, candidates: Iterable[Candidate], snapshot: Snapshot) -> None:
        """Enter the reservations that stand in the snapshot: those of candidates, as far as the slots exist.

        Until their turn comes, holders whose slots are free already are heirs: they start in this very plan.
        """
        stopping: dict[str, Counter[str]] = {}
        for job in snapshot.active:
            if job.state is JobState.STOPPING and job.reserved_for is not None:
                stopping.setdefault(job.reserved_for, Counter()).update(job.slots)
        for candidate in candidates:
            told = Counter(snapshot.reserved.get(candidate.name, {}))
            claim = _clipped(told, stopping.get(candidate.name, Counter()), candidate)
            held = {pool: n for pool, count in claim.items() if (n := min(count, self.soon(pool, ""))) > 0}
            if held:
                self.set_aside(candidate.name, held)
                self._heirs[candidate.name] = None

    # --- looking ---------------------------------------------------------------------------------

    def soon(self, pool: str, name: str, without: Collection[str] = NOBODY) -> int:
        """Slots free or being freed that are set aside for nobody but `name` (and `without`)."""
        mine = sum(self.claims.get(holder, {}).get(pool, 0) for holder in (name, *without))
        return self.free[pool] + self.freeing[pool] - self._claimed[pool] + mine

    def fits_now(self, need: Slots, name: str, without: Collection[str] = NOBODY) -> bool:
        """Whether `name` can start on `need` at once, and every other reservation stays good."""
        if any(count > self.free[pool] for pool, count in need.items()):
            return False
        taken = self._taken_by_heirs(name, without)
        return all(count <= self.free[pool] - taken.get(pool, 0) for pool, count in need.items()) and all(
            count <= self.soon(pool, name, without) for pool, count in need.items()
        )

    def fits_soon(self, need: Slots, name: str, without: Collection[str] = NOBODY) -> bool:
        """Whether `name` can start on `need` once all that is being freed is free."""
        return not self.missing(need, name, without)

    def missing(self, need: Slots, name: str, without: Collection[str] = NOBODY) -> Slots:
        """What `need` lacks once all that is being freed is free; empty: nothing."""
        return {pool: n for pool, count in need.items() if (n := count - self.soon(pool, name, without)) > 0}

    def surplus(self) -> Slots:
        """Slots free or being freed that are set aside for nobody."""
        return {pool: self.soon(pool, "") for pool in self.free}

    def _taken_by_heirs(self, name: str, without: Collection[str]) -> Mapping[str, int]:
        left, taken = Counter(self.free), Counter[str]()
        for heir in self._heirs:
            if heir not in without and covers(left, self.claims[heir]):
                left.subtract(self.claims[heir])
                if heir != name:
                    taken.update(self.claims[heir])
        return taken

    # --- writing ---------------------------------------------------------------------------------

    def turn(self, name: str) -> None:
        """This candidate has had its turn: it is no heir any more."""
        self._heirs.pop(name, None)

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
        """These slots are being freed."""
        self.freeing.update(slots)

    def retain(self, slots: Slots) -> None:
        """These slots are not being freed after all."""
        self.freeing.subtract(slots)


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
