"""The data of all pages: the queue's latest status, and the attempts that ended in the last hours."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from api_contract.history import PastAttempt
from api_contract.models import Identity, JobSummary, QueueStatus

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

HOURS = 24.0  # how long attempts stay in the views after their end
# The last part of the history is read again each time, since the history gets an attempt only some time after its end.
_OVERLAP = timedelta(minutes=2)
_LONGEST_GAP = timedelta(minutes=1)  # the history is read at least this often, even if no attempt has ended


@dataclass(frozen=True)
class View:
    """The state of the queue at one time."""

    at: datetime
    status: QueueStatus
    live: tuple[JobSummary, ...]  # in the order of the queue
    past: tuple[PastAttempt, ...]  # in the order of the attempts' ends
    identity: Identity


class Viewer:
    """A reader of views. Not thread-safe.

    To send few requests, a viewer reads the history only after an attempt has ended, or after ``_LONGEST_GAP``.
    """

    def __init__(self, queue: QueueClient, hours: float = HOURS) -> None:
        self._queue = queue
        self._kept = timedelta(hours=hours)
        self._identity: Identity | None = None
        self._past: dict[tuple[str, int, datetime | None], PastAttempt] = {}
        self._history_read_at: datetime | None = None  # when the history was last read
        self._attempts: frozenset[tuple[str, int]] = frozenset()

    def __call__(self) -> View:
        """Read a view from the queue. Raises QueueError."""
        self._identity = self._identity or self._queue.whoami()
        status = self._queue.queue()
        is_all = not (status.more_active or status.more_waiting)
        live = (*status.active, *status.waiting) if is_all else tuple(self._queue.jobs())
        now = datetime.now(timezone.utc)
        attempts = frozenset((job.job, job.attempt) for job in status.active)
        if self._history_read_at is None or self._attempts - attempts or now - self._history_read_at > _LONGEST_GAP:
            self._read_past(now)
        self._attempts = attempts
        return View(now, status, live, tuple(self._past.values()), self._identity)

    def _read_past(self, now: datetime) -> None:
        since = now - self._kept
        if self._history_read_at is not None:
            since = max(since, self._history_read_at - _OVERLAP)
        found = [*self._past.values(), *self._queue.history(since)]
        self._past = {(one.job, one.attempt, one.ended): one for one in _kept(found, now - self._kept)}
        self._history_read_at = now


def _kept(found: Iterable[PastAttempt], since: datetime) -> Iterable[PastAttempt]:
    return (one for one in found if one.ended is None or one.ended >= since)
