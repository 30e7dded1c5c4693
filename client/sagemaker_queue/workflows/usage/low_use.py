"""Find the attempts that held GPUs and used little of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from api_contract.history import PastAttempt

LOW_PERCENT = 30
"""The mean utilization of the GPUs, in percent, below which an attempt used little."""
MOST = 10
"""The largest number of attempts that are listed."""


@dataclass(frozen=True)
class LowUse:
    """An attempt that used little of its GPUs."""

    attempt: PastAttempt
    gpu_hours: float
    unused_gpu_hours: float


class LowUseAttempts:
    """The attempts with the most unused GPU-hours, collected while the caller reads the history for another purpose."""

    def __init__(self) -> None:
        self._found: list[tuple[float, int, LowUse]] = []
        self._count = 0

    def watching(self, attempts: Iterable[PastAttempt]) -> Iterator[PastAttempt]:
        """Yield the attempts unchanged, and remember the attempts that used little."""
        for attempt in attempts:
            self._add(attempt)
            yield attempt

    def worst(self) -> list[LowUse]:
        """Return the attempts with the most unused GPU-hours, the largest first."""
        return [found for _, _, found in sorted(self._found, key=lambda it: it[:2], reverse=True)]

    def _add(self, attempt: PastAttempt) -> None:
        mean, gpus = attempt.gpu_mean_percent, attempt.gpus or attempt.carries
        if mean is None or not gpus or mean >= LOW_PERCENT:
            return
        held = attempt.ran_seconds * gpus / 3600
        found = LowUse(attempt, held, held * (100 - mean) / 100)
        self._count += 1
        heapq.heappush(self._found, (found.unused_gpu_hours, -self._count, found))
        if len(self._found) > MOST:
            heapq.heappop(self._found)
