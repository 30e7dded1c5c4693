"""The schedule by which clients ask the queue about jobs that they follow.

Each request costs a little (docs/performance.md), and most requests find nothing new. So pauses are short for a minute
after each change, and grow then. Log lines come from CloudWatch Logs, which is read as often as before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagemaker_queue.models import QueueStatus

POLL_SECONDS = 5.0  # between two requests in the first minute after a change
OFTEN_SECONDS = 60.0  # ... which is this long
GROWTH = 1.25  # of each pause after that minute
LONGEST_SECONDS = 30.0  # unless the queue says that a job is still far from its start
JITTER = 0.25  # by which each pause is longer, at random: followers that began together spread


class Pace:
    """The pauses between requests of one follower.

    ``least`` is the shortest pause in seconds, as a user sets it. ``draw`` returns a random number from 0 to 1.
    """

    def __init__(
        self,
        least: float = POLL_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.least = least
        self._sleep = sleep
        self._draw = draw
        self._seen: object = None
        self._hint = 0.0
        self.restart()

    def restart(self) -> None:
        """Begin again with short pauses."""
        self._pause = self.least
        self._passed = 0.0

    def saw(self, state: object, ask_again_after: float | None = None) -> None:
        """Begin again with short pauses if the state is another one than before.

        ``ask_again_after`` is how long a pause may become, in seconds, if the queue says so.
        """
        self._hint = ask_again_after or 0.0
        if state != self._seen:
            self._seen = state
            self.restart()

    def failed(self, retry_after: float | None = None) -> None:
        """Make pauses longer: the queue did not answer. The next one is ``retry_after`` seconds at least."""
        self._passed = max(self._passed, OFTEN_SECONDS)
        self._pause = max(self._pause, min(retry_after or 0.0, self._longest))

    def seconds(self) -> float:
        """Return the next pause, in seconds."""
        if self._passed >= OFTEN_SECONDS:
            self._pause = min(self._pause * GROWTH, self._longest)
        pause = self._pause * (1 + JITTER * self._draw())
        self._passed += pause
        return pause

    def pause(self) -> None:
        """Sleep until the next request."""
        self._sleep(self.seconds())

    @property
    def _longest(self) -> float:
        return max(LONGEST_SECONDS, self._hint, self.least)


def states(status: QueueStatus) -> object:
    """Return what of the queue has to change for it to be asked often again: which jobs there are, in which states."""
    return sorted((job.job, job.state) for job in (*status.active, *status.waiting))
