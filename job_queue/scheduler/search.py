"""What a claimant asks for, and the victims found so far: a search only looks, and leaves the plan as it is."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from job_queue.scheduler.model import Slots
from job_queue.scheduler.ordering import VictimKey
from job_queue.scheduler.queues import Queue
from job_queue.scheduler.shares import UNLIMITED
from job_queue.scheduler.victims import Victim


@dataclass(eq=False, slots=True)
class Withdrawable:
    """A start of this same plan, of lower priority: it may be withdrawn."""

    name: str
    slots: Slots
    project: Queue
    key: VictimKey
    launching: bool = False


Leaver = Victim | Withdrawable


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claimant asks for: one alternative, whole."""

    project: Queue
    priority: int
    need: Slots
    own: Slots  # what is set aside for it already
    missing: Mapping[str, int]  # slots of each pool beyond what is free or being freed
    withdrawable: tuple[Withdrawable, ...] = ()
    launching: bool = False  # count on jobs that are still being launched

    def after(self, queue: Queue, pool: str) -> int:
        """What a queue on its path would hold, nobody leaving."""
        return queue.held[pool] - self.own.get(pool, 0) + self.need[pool]

    def within_entitlement(self) -> bool:
        """Whether its project and department stay within what they are due, nobody leaving."""
        return all(self.after(queue, p) <= queue.entitlement[p] for queue in self.project.path for p in self.need)


@dataclass(slots=True)
class Search:
    """Victims found so far, and what is still lacking: all figures at or below 0 means enough.

    `bounds` are what the queues on the claimant's path may hold afterwards.
    """

    claim: Claim
    bounds: dict[tuple[Queue, str], int]
    chosen: list[Leaver] = field(default_factory=list)
    lacking: dict[str, int] = field(default_factory=dict)  # slots, by pool
    above: dict[tuple[Queue, str], int] = field(default_factory=dict)  # of queues on the path, over their bounds
    lost: dict[tuple[Queue, str], int] = field(default_factory=lambda: defaultdict(int))
    _taken: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.lacking = dict(self.claim.missing)
        self.above = {place: self.claim.after(*place) - bound for place, bound in self.bounds.items()}

    @property
    def enough(self) -> bool:
        """Whether the claimant fits once these victims have left."""
        return all(n <= 0 for n in self.lacking.values()) and all(n <= 0 for n in self.above.values())

    def wants(self, pool: str, queues: Iterable[Queue]) -> bool:
        """Whether it lacks slots of a pool, or one of these queues is over its bound there."""
        return self.lacking.get(pool, 0) > 0 or any(self.above.get((queue, pool), 0) > 0 for queue in queues)

    def take(self, leaver: Leaver) -> None:
        """One more victim."""
        self.chosen.append(leaver)
        self._taken.add(id(leaver))
        self._count(leaver, -1)

    def has(self, leaver: Leaver) -> bool:
        """Whether this one is a victim already."""
        return id(leaver) in self._taken

    def _count(self, leaver: Leaver, sign: int) -> None:
        for pool, count in leaver.slots.items():
            if pool in self.lacking:
                self.lacking[pool] += sign * count
            for queue in leaver.project.path:
                self.lost[queue, pool] -= sign * count
                if (queue, pool) in self.above:
                    self.above[queue, pool] += sign * count

    def held(self, queue: Queue, pool: str) -> int:
        """What a queue holds once these victims have left."""
        return queue.held[pool] - self.lost.get((queue, pool), 0)

    def bind(self, queue: Queue, pool: str, bound: int) -> None:
        """The claimant's queue must stay within this, too."""
        place = (queue, pool)
        if bound < self.bounds.get(place, UNLIMITED):
            self.bounds[place] = bound
            self.above[place] = self.claim.after(queue, pool) - self.lost.get(place, 0) - bound

    def spare_needless(self) -> None:
        """Give back victims that turned out not to be needed, most valuable first."""
        for leaver in sorted(self.chosen, key=lambda leaver: leaver.key, reverse=True):
            if self._can_spare(leaver):
                self.chosen.remove(leaver)
                self._count(leaver, 1)

    def _can_spare(self, leaver: Leaver) -> bool:
        for pool, count in leaver.slots.items():
            if self.lacking.get(pool, -count) + count > 0:
                return False
            if any(self.above.get((queue, pool), -count) + count > 0 for queue in leaver.project.path):
                return False
        return True
