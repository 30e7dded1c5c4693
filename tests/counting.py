"""How much work something is, whatever the machine: its calls of functions are counted instead of its seconds."""

import cProfile
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
CALLS_A_SECOND = 3_500_000  # of an ordinary machine; see `WorkClock`


def counted(work: Callable[[], T]) -> tuple[T, int]:
    """What it gives, and how many functions were called for it."""
    profile = cProfile.Profile()
    value = profile.runcall(work)
    return value, sum(entry.callcount for entry in profile.getstats())


class WorkClock:
    """A clock that goes on by the calls of functions since it was made, and so at the same rate on each machine.

    :param start: the time in seconds at which the clock begins.
    """

    def __init__(self, start: float) -> None:
        self._start = start
        self._profile = cProfile.Profile()
        self.readings = 0

    def __enter__(self) -> "WorkClock":
        """Begin to count."""
        self._profile.enable()
        return self

    def __exit__(self, *_: object) -> None:
        """Count no more."""
        self._profile.disable()

    def __call__(self) -> float:
        """Return the time in seconds."""
        self.readings += 1
        return self._start + sum(entry.callcount for entry in self._profile.getstats()) / CALLS_A_SECOND
