"""What is free, what is being freed, and what of it is set aside or kept for whom.

Slots of a pool are alike, so a reservation (a claim) is a number and not particular slots. All claims together never
exceed what is free or being freed. They are filled from what this plan's victims leave, then from free slots, in the
order in which they are served; the free slots beyond that are for anyone. So nobody who comes later makes a job wait
for a stop that it did not ask for. Who is served before a holder may start on a free slot where a stop that is under
way leaves the holder as many.
"""

from collections import Counter
from collections.abc import Mapping

from job_queue.scheduler.model import JobState, Slots, Snapshot

NOTHING: Slots = {}


def covers(have: Mapping[str, int], need: Slots) -> bool:
    """Whether `have` holds all of `need`."""
    return all(have.get(pool, 0) >= count for pool, count in need.items())


class Ledger:
    """The slots of one plan in the making."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.free = Counter({pool.name: pool.capacity for pool in snapshot.policy.pools})
        self.freeing: Counter[str] = Counter()  # held by attempts that were asked to stop
        self.left_by_victims: Counter[str] = Counter()  # of this plan; part of `freeing`
        self.beyond_need: Counter[str] = Counter()  # the part of it that the claimants did not need
        self.claims: dict[str, Slots] = {}  # job -> slots set aside for it
        self.kept: dict[str, Slots] = {}  # patient job -> free slots kept for it; not part of the claims
        self.claimed: Counter[str] = Counter()
        self._stood: set[str] = set()  # holders whose turn is over
        self._standing: Counter[str] = Counter()  # what is set aside for them
        self._kept: Counter[str] = Counter()
        self.free.subtract(snapshot.external)
        for job in snapshot.active:
            self.free.subtract(job.slots)
            if job.state is JobState.STOPPING:
                self.freeing.update(job.slots)

    # --- looking ---------------------------------------------------------------------------------

    def soon(self, pool: str, name: str = "", taken: int = 0) -> int:
        """Slots free or being freed that are set aside or kept for nobody but `name`.

        :param taken: slots set aside for others that it takes over.
        """
        mine = self.claims[name].get(pool, 0) if name in self.claims else 0
        return self.free[pool] + self.freeing[pool] - self.claimed[pool] + taken + mine - self._kept_from(pool, name)

    def surplus(self, pool: str) -> int:
        """What this plan's victims free beyond what their claimants need, as far as nobody has it yet."""
        return max(0, min(self.beyond_need[pool], self.soon(pool))) if pool in self.beyond_need else 0

    def now(self, pool: str, name: str = "", taken: int = 0, *, passing: bool = False) -> int:
        """Free slots on which `name` can start at once: its own, and those set aside or kept for nobody.

        :param taken: slots set aside for others that it takes over.
        :param passing: count kept slots, too.
        """
        free, victims = self.free[pool], self.left_by_victims[pool] - self.beyond_need[pool]
        left = free - max(0, self.claimed[pool] - taken - victims) - self._kept_from(pool, name, passing)
        if name not in self.claims:
            # Those whose turn is still to come may as well have what is being freed.
            ahead = free - max(0, self._standing[pool] - victims) - self._kept_from(pool, name, passing)
            return left if taken else max(left, min(ahead, self.soon(pool, name)))
        mine = self.claims[name].get(pool, 0)
        before = self._standing[pool] - (mine if name in self._stood else 0)
        return min(free, max(0, left) + max(0, min(mine, free - max(0, before - victims))))

    def _kept_from(self, pool: str, name: str, passing: bool = False) -> int:
        if passing or not self._kept[pool]:
            return 0
        return self._kept[pool] - (self.kept[name].get(pool, 0) if name in self.kept else 0)

    # --- writing ---------------------------------------------------------------------------------

    def start(self, slots: Slots, sign: int = 1) -> None:
        """Put a waiting job on free slots, or take it off again."""
        for pool, count in slots.items():
            self.free[pool] -= sign * count

    def set_aside(self, name: str, slots: Slots) -> None:
        """Set these slots aside for a job that has nothing set aside."""
        if slots:
            self.claims[name] = dict(slots)
            self.claimed.update(slots)

    def drop(self, name: str) -> Slots:
        """Nothing is set aside for this job any more. Gives what was."""
        slots = self.claims.pop(name, NOTHING)
        self.claimed.subtract(slots)
        if name in self._stood:
            self._stood.discard(name)
            self._standing.subtract(slots)
        return slots

    def stand(self, name: str) -> None:
        """This holder's turn is over: the free slots that it waits for are not for those behind it."""
        if name in self.claims and name not in self._stood:
            self._stood.add(name)
            self._standing.update(self.claims[name])

    def release(self, slots: Slots, sign: int = 1) -> None:
        """A victim's slots: they are being freed; or after all they are not."""
        for pool, count in slots.items():
            self.freeing[pool] += sign * count
            self.left_by_victims[pool] += sign * count
            if sign < 0 and pool in self.beyond_need:
                self.beyond_need[pool] = max(0, self.beyond_need[pool] - count)

    def use_surplus(self, slots: Slots) -> None:
        """These slots are for somebody who may have what victims free beyond the need."""
        for pool in self.beyond_need.keys() & slots.keys():
            self.beyond_need[pool] = max(0, self.beyond_need[pool] - slots[pool])

    def keep(self, name: str, slots: Slots) -> None:
        """Keep free slots for a patient job."""
        self.kept[name] = dict(slots)
        self._kept.update(slots)

    def keep_no_longer(self, name: str) -> None:
        """This patient job has what it needs."""
        self._kept.subtract(self.kept.pop(name, NOTHING))

    def keep_nothing(self) -> None:
        """Nothing is kept for anybody any more."""
        self.kept.clear()
        self._kept.clear()
