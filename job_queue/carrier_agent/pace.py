"""Time limits of steps that depend on a member's files or on the network."""

import threading
import time
from typing import Callable, Generic, List, Optional, TypeVar

from .files import LimitExceeded

T = TypeVar("T")
StopTime = Callable[[], Optional[float]]
NEVER = float("inf")


class Pace:
    """The time that a step may take: in total, without progress, and after a stop.

    :param total: seconds from now.
    :param stall: seconds without a call of `moved`.
    :param stopped_at: returns the time (of time.monotonic) at which the member was stopped, or None.
    :param after_stop: seconds from the stop, or from the beginning of the step if the stop was earlier.
    """

    def __init__(
        self,
        total: float = NEVER,
        stall: float = NEVER,
        stopped_at: Optional[StopTime] = None,
        after_stop: float = NEVER,
    ) -> None:
        self._begun = self._moved = time.monotonic()
        self._total, self._stall, self._stopped_at, self._after_stop = total, stall, stopped_at, after_stop
        self._cancelled = False

    def moved(self) -> None:
        """Record progress; raise LimitExceeded if the time is over."""
        self.check()
        self._moved = time.monotonic()

    def cancel(self) -> None:
        """Set the remaining time to 0."""
        self._cancelled = True

    def left(self) -> float:
        """Return the remaining seconds, at least 0."""
        if self._cancelled:
            return 0.0
        ends = [self._begun + self._total, self._moved + self._stall]
        stopped = self._stopped_at() if self._stopped_at is not None else None
        if stopped is not None:
            ends.append(max(stopped, self._begun) + self._after_stop)
        return max(0.0, min(ends) - time.monotonic())

    def check(self) -> None:
        """Raise LimitExceeded if the time is over."""
        if self.left() <= 0:
            raise LimitExceeded("the time for it is over")


def within(pace: Pace, step: Callable[[], T]) -> T:
    """Run a step in its own thread and return its result; raise LimitExceeded when its time is over.

    After LimitExceeded, the thread of the step may still run, at most until the step checks the pace next. So no other
    code may close the descriptors that the step uses.
    """
    running: Background[T] = Background(step, pace)
    while not running.join(min(0.5, pace.left())):
        if pace.left() <= 0:
            pace.cancel()
            raise LimitExceeded("the time for it is over")
    return running.result()


class Background(Generic[T]):
    """A step that runs in its own thread from now on.

    :param pace: only stored, so that a caller can cancel the step; the step itself must check the pace.
    """

    def __init__(self, step: Callable[[], T], pace: Optional[Pace] = None) -> None:
        self.pace = pace or Pace()
        self._step = step
        self._results: List[T] = []
        self._errors: List[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait for the end of the step; return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Return the result of a step that has ended, or raise its exception."""
        if self._errors:
            raise self._errors[0]
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._step())
        except BaseException as error:
            self._errors.append(error)
