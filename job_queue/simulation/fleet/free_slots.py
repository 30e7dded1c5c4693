"""Since when slots are free, where some seconds are looked at together: who starts on them has started then."""

from collections import defaultdict
from math import inf

from job_queue.scheduler import Slots

LONG_AGO = -inf


class FreeSlots:
    """The slots that came free in the step that is being looked at."""

    def __init__(self) -> None:
        self._freed: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def begin(self) -> None:
        """Another step begins."""
        self._freed.clear()

    def free(self, time: float, slots: Slots) -> None:
        """Somebody left them then."""
        for pool, count in slots.items():
            self._freed[pool].append((time, count))

    def idle_before(self, free: Slots) -> None:
        """The step is over, and so many are free: those that nobody left in it were free before."""
        for pool, freed in self._freed.items():
            freed.sort()
            idle = free.get(pool, 0) - sum(count for _, count in freed)
            if idle > 0:
                freed.insert(0, (LONG_AGO, idle))

    def take(self, slots: Slots) -> float | None:
        """Who starts takes those that have been free for the longest time. Gives since when it has all that it needs.

        None: since before the step, or nobody knows.
        """
        since = LONG_AGO
        for pool, count in slots.items():
            left = count
            freed = self._freed.get(pool, [])
            while left > 0 and freed:
                time, there = freed.pop(0)
                if there > left:
                    freed.insert(0, (time, there - left))
                left -= there
                since = max(since, time)
        return None if since == LONG_AGO else since
