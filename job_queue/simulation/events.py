"""The future events of a simulation, in the order of their times."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count

Event = Callable[[], object]


class Events:
    """Events in the order of their times. Events of the same time are in the order in which they were entered."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Event]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next(self) -> float:
        """The time of the next event. The property may be read only if there is an event."""
        return self._heap[0][0]

    def enter(self, time: float, event: Event = lambda: None) -> None:
        """Add an event. Without an event, the simulator only makes another plan at that time."""
        heappush(self._heap, (time, next(self._order), event))

    def until(self, time: float) -> Iterator[tuple[float, Event]]:
        """Yield the events up to this time in order, including events that are entered meanwhile."""
        while self._heap and self._heap[0][0] <= time:
            when, _, event = heappop(self._heap)
            yield when, event
