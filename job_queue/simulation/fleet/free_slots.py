"""The times at which slots were freed within a step. A job that takes such slots starts at that time."""

from collections import defaultdict
from math import inf

from job_queue.scheduler import Slots

LONG_AGO = -inf


class FreeSlots:
    """The times at which slots were freed in the present step."""

    def __init__(self) -> None:
        self._freed: dict[str, list[tuple[float, int]]] = defaultdict(list)

    def begin(self) -> None:
        """Forget the times of the last step."""
        self._freed.clear()

    def free(self, time: float, slots: Slots) -> None:
        """Record that slots were freed at this time."""
        for pool, count in slots.items():
            self._freed[pool].append((time, count))

    def record_idle(self, free: Slots) -> None:
        """Record the slots that were free before the step.

        :param free: all slots that are free at the end of the step.
        """
        for pool, freed in self._freed.items():
            freed.sort()
            idle = free.get(pool, 0) - sum(count for _, count in freed)
            if idle > 0:
                freed.insert(0, (LONG_AGO, idle))

    def take(self, slots: Slots) -> float | None:
        """Take the slots that have been free for the longest time, and return the time when the last of them was freed.

        Return None if all of them were free before the step, or the times are not known.
        """
        since = LONG_AGO
        for pool, count in slots.items():
            left = count
            freed = self._freed.get(pool, [])
            while left > 0 and freed:
                time, available = freed.pop(0)
                if available > left:
                    freed.insert(0, (time, available - left))
                left -= available
                since = max(since, time)
        return None if since == LONG_AGO else since
