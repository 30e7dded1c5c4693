"""How far a transfer has come, on a terminal."""

import sys
import threading
import time
from types import TracebackType
from typing import Self

from sagemaker_queue.text import file_size

_PERIOD = 0.2  # seconds between two looks at the line


class TransferProgress:
    """A context manager that takes numbers of bytes; elsewhere than on a terminal it is silent."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._moved = 0
        self._next = 0.0
        self._lock = threading.Lock()  # large files move in several threads
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def __call__(self, moved: int) -> None:
        """Count bytes."""
        with self._lock:
            self._moved += moved
            now = time.monotonic()
            if not self._shown or now < self._next:
                return
            self._next = now + _PERIOD
            percent = 100 * self._moved // max(1, self._total)
            line = f"{self._what}: {file_size(self._moved)} of {file_size(self._total)}, {percent} %"
            print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)
