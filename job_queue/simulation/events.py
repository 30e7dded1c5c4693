"""What will happen, and when."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

Event = Callable[[], object]


class Events:
    """In the order of time; of one time, in the order in which they were entered."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Event]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next(self) -> float:
        """When the next one is; there has to be one."""
        return self._heap[0][0]

    def enter(self, time: float, event: Event = lambda: None) -> None:
        """Have something happen; or, if nothing is said, have somebody look."""
        heappush(self._heap, (time, next(self._order), event))

    def until(self, time: float) -> Iterator[tuple[float, Event]]:
        """All up to then, as they come; each may enter others."""
        while self._heap and self._heap[0][0] <= time:
            when, _, event = heappop(self._heap)
            yield when, event
