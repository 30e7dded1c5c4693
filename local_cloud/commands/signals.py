"""Handling of Ctrl-C and other ending signals while a local cloud starts, runs and stops."""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Interrupted(BaseException):
    """A signal that ends this process; `number` is its number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status with which shells report that a signal ended a process."""
        return 128 + self.number


class Signals:
    """A context manager inside which the first ending signal raises Interrupted and later ones have no effect.

    So the cleanup runs once, without interruption. After `pass_to`, signals are passed on instead.
    """

    def __init__(self) -> None:
        self._receiver: Callable[[int], None] = self._interrupt
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in ENDING:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # the process runs under nohup
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def pass_to(self, receiver: Callable[[int], None]) -> None:
        """Call `receiver` with the number of each signal from now on."""
        self._receiver = receiver

    def ignore(self) -> None:
        """Ignore signals from now on."""
        self._receiver = lambda number: None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._receiver(number)

    def _interrupt(self, number: int) -> None:
        self.ignore()
        raise Interrupted(number)
