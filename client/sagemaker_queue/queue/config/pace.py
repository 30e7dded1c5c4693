"""Polling of the queue by a client that follows jobs: short pauses after a change, and longer pauses later.

Each request has a cost (docs/developers/benchmarks.md), and most requests find no change. So pauses are short in the
minute after a change, and grow afterwards. A client that waits for a job begins with even shorter pauses, because a job
may end within seconds. The reading of log lines from CloudWatch Logs does not depend on these pauses.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from api_contract.models import QueueStatus

FIRST_SECONDS = 1.0  # the first pause after a change, for a client that waits for a job
FIRST_GROWTH = 1.5  # factor by which these first pauses grow, up to the usual pause
POLL_SECONDS = 5.0  # seconds between two requests in the first minute after a change
OFTEN_SECONDS = 60.0  # time after a change in which pauses are at most the usual pause
GROWTH = 1.25  # factor by which each pause grows after OFTEN_SECONDS
LONGEST_SECONDS = 30.0  # the longest pause, unless the queue's answer or the user wants a longer one
# The maximum random extension of a pause, as a fraction of the pause, so that clients do not poll at the same time.
JITTER = 0.25


class PollingPace:
    """The pauses between a client's requests about the same job or screen.

    ``least`` is the usual pause in seconds after a change; users can set it. ``first`` is a shorter pause right
    after a change (None: ``least``), from which pauses grow to ``least``. ``draw`` returns a random number from 0 to 1.
    """

    def __init__(
        self,
        least: float = POLL_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
        first: float | None = None,
    ) -> None:
        self.least = least
        self._first = least if first is None else min(first, least)
        self._sleep = sleep
        self._draw = draw
        self._seen: object = None
        self._hint = 0.0
        self.restart()

    def restart(self) -> None:
        """Return to short pauses."""
        self._pause = self._first
        self._passed = 0.0

    def observe(self, state: object, ask_again_after: float | None = None) -> None:
        """Return to short pauses if the state differs from the last state.

        ``ask_again_after`` is the pause in seconds that the queue's answer suggests (None: no suggestion). A
        suggestion over LONGEST_SECONDS becomes the longest pause.
        """
        self._hint = ask_again_after or 0.0
        if state != self._seen:
            self._seen = state
            self.restart()

    def failed(self, retry_after: float | None = None) -> None:
        """Use longer pauses, because the queue did not answer.

        The next pause is at least ``retry_after`` seconds, limited to the longest pause.
        """
        self._passed = max(self._passed, OFTEN_SECONDS)
        self._pause = max(self._pause, self.least, min(retry_after or 0.0, self._longest))

    def seconds(self) -> float:
        """Return the next pause, in seconds."""
        if self._passed >= OFTEN_SECONDS:
            self._pause = min(self._pause * GROWTH, self._longest)
        pause = self._pause * (1 + JITTER * self._draw())
        self._passed += pause
        if self._pause < self.least:
            self._pause = min(self._pause * FIRST_GROWTH, self.least)
        return pause

    def pause(self) -> None:
        """Sleep until the next request."""
        self._sleep(self.seconds())

    @property
    def _longest(self) -> float:
        return max(LONGEST_SECONDS, self._hint, self.least)


def first_pause(poll: float) -> float:
    """Return a waiting client's first pause in seconds: FIRST_SECONDS if ``poll`` is the default, else ``poll``."""
    return FIRST_SECONDS if poll == POLL_SECONDS else poll


def states(status: QueueStatus) -> object:
    """Return the live jobs with their states, as a value for ``PollingPace.observe``."""
    return sorted((job.job, job.state) for job in (*status.active, *status.waiting))
