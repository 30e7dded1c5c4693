"""What all pages show: the queue as it was answered last, and what has ended in the hours before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from sagemaker_queue.models import Identity, JobSummary, PastAttempt, QueueStatus

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

HOURS = 24.0  # of the past that is kept
_OVERLAP = timedelta(minutes=2)  # an attempt is found in the history some time after it has ended
_SELDOM = timedelta(minutes=1)  # the history is asked again though no attempt seems to have ended


@dataclass(frozen=True)
class View:
    """What there was at one moment."""

    at: datetime
    status: QueueStatus
    live: tuple[JobSummary, ...]  # in the order of the queue
    past: tuple[PastAttempt, ...]  # in the order of their ends
    identity: Identity


class Viewer:
    """Asks for a view, in as few questions as it takes; one thread at a time may ask."""

    def __init__(self, queue: QueueClient, hours: float = HOURS) -> None:
        self._queue = queue
        self._kept = timedelta(hours=hours)
        self._identity: Identity | None = None
        self._past: dict[tuple[str, int, datetime | None], PastAttempt] = {}
        self._asked: datetime | None = None  # when the history was, last
        self._attempts: frozenset[tuple[str, int]] = frozenset()

    def __call__(self) -> View:
        """Ask. Raises QueueError."""
        self._identity = self._identity or self._queue.whoami()
        status = self._queue.queue()
        is_all = not (status.more_active or status.more_waiting)
        live = (*status.active, *status.waiting) if is_all else tuple(self._queue.jobs())
        now = datetime.now(timezone.utc)
        attempts = frozenset((job.job, job.attempt) for job in status.active)
        if self._asked is None or self._attempts - attempts or now - self._asked > _SELDOM:
            self._read_past(now)
        self._attempts = attempts
        return View(now, status, live, tuple(self._past.values()), self._identity)

    def _read_past(self, now: datetime) -> None:
        since = now - self._kept
        if self._asked is not None:
            since = max(since, self._asked - _OVERLAP)
        found = [*self._past.values(), *self._queue.history(since)]
        self._past = {(one.job, one.attempt, one.ended): one for one in _kept(found, now - self._kept)}
        self._asked = now


def _kept(found: Iterable[PastAttempt], since: datetime) -> Iterable[PastAttempt]:
    return (one for one in found if one.ended is None or one.ended >= since)
