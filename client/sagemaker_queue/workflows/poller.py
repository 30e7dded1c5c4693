"""Poll the queue in a thread, and keep its latest answer during an outage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from threading import Event, Thread
from typing import Generic, TypeVar

from sagemaker_queue.errors import QueueError
from sagemaker_queue.jobs.formatting import age
from sagemaker_queue.queue.config.pace import PollingPace

T = TypeVar("T")
LATE_AFTER = 3  # ``outage`` reports a missing answer after this many pauses


class Poller(Generic[T]):
    """A thread that calls ``ask`` at the pace of ``config.pace``, so that a screen does not wait for answers.

    ``seconds`` is the shortest pause. After a change of ``state_of(answer)``, pauses are short again. While ``watched``
    returns False, no request is sent.

    The constructor sends the first request in the caller's thread, and raises QueueError if there is no answer.
    """

    def __init__(
        self,
        ask: Callable[[], T],
        seconds: float,
        watched: Callable[[], bool] = lambda: True,
        state_of: Callable[[T], object] = lambda answer: answer,
    ) -> None:
        self._ask = ask
        self._pace = PollingPace(seconds)
        self._seconds = seconds  # length of the present pause
        self._state_of = state_of
        self._watched = watched
        self._sooner = Event()
        self._outage: str | None = None
        self._failure: Exception | None = None
        self._latest = self._poll()
        Thread(target=self._poll_on, daemon=True).start()

    @property
    def latest(self) -> T:
        """The latest answer. Raises the error that ended the thread; a QueueError does not end the thread."""
        if self._failure:
            raise self._failure
        return self._latest[0]

    @property
    def at(self) -> datetime:
        """The time of the latest answer."""
        return self._latest[1]

    @property
    def outage(self) -> str | None:
        """A sentence about an outage or a late answer; None if there is neither."""
        at, outage = self._latest[1], self._outage  # the thread may change both meanwhile
        if outage:
            return f"No news since {at:%H:%M:%S} UTC ({age(at)} ago): {outage}"
        late = (datetime.now(timezone.utc) - at).total_seconds() > LATE_AFTER * self._seconds + 1
        return f"No answer for {age(at)}; trying on." if late else None

    def hurry(self) -> None:
        """Send a request at once, and continue with short pauses."""
        self._pace.restart()
        self._sooner.set()

    def _poll(self) -> tuple[T, datetime]:
        answer = self._ask()
        self._pace.observe(self._state_of(answer))
        return answer, datetime.now(timezone.utc)

    def _poll_on(self) -> None:
        while self._failure is None:
            self._seconds = self._pace.seconds()
            self._sooner.wait(self._seconds)
            self._sooner.clear()
            if not self._watched():
                continue
            try:
                self._latest = self._poll()
                self._outage = None
            except QueueError as error:
                self._pace.failed(error.retry_after)
                self._outage = str(error)
            except Exception as error:  # noqa: BLE001  # ``latest`` raises the error in the caller's thread
                self._failure = error
