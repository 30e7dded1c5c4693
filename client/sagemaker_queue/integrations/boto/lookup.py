"""Finding the job that a name in somebody's program means."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from sagemaker_queue.client import QueueClient
from sagemaker_queue.errors import NotFound, Unavailable
from sagemaker_queue.models import JobDetail, JobSummary

RECENT_SECONDS = 2.0
LISTED_SECONDS = 60.0
"""How long the pages of one list may rest on one look at the queue."""
MOST_LISTED = 10_000
"""Jobs of one list, all live ones first: 20 calls of the queue at most."""
_MANY = 500
_MANY_LISTS = 8

_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", re.ASCII)
_ATTEMPT = re.compile(r".*-qstamp-\d+", re.ASCII)


_LONGEST_NAME = 63


def attempt_name(job: str, number: int) -> str:
    """Return the name of a job's attempt in SageMaker, as the queue makes it: a long one is cut and given a hash."""
    stamp = f"-qstamp-{number}"
    if len(job) + len(stamp) <= _LONGEST_NAME:
        return job + stamp
    digest = hashlib.sha256(job.encode()).hexdigest()[:10]
    return f"{job[: _LONGEST_NAME - len(stamp) - len(digest) - 1].rstrip('-')}-{digest}{stamp}"


@dataclass(frozen=True)
class Listing:
    """Jobs of the queue as they were at a time."""

    asked_at: datetime
    jobs: tuple[JobSummary, ...]


class JobLookup:
    """Asks the queue for jobs by name, or for all of them. Safe for threads."""

    def __init__(self, queue: QueueClient) -> None:
        self.queue = queue
        self.ended: dict[str, Mapping[str, Any] | None] = {}
        """What SageMaker says of attempts that have ended, which does not change; None if it knows them no more."""
        self._known: dict[str, tuple[float, JobDetail | None]] = {}
        self._listed: dict[tuple[str, datetime | None], Listing] = {}
        self._lock = threading.Lock()

    def listed(self, states: str, since: datetime | None = None, *, again: bool = False) -> Listing:
        """Return the jobs in these states, without those that ended before ``since``. Raises QueueError.

        ``again``: for a further page, for which a list that is a minute old will do.
        """
        with self._lock:
            found = self._listed.get((states, since))
        now = datetime.now(timezone.utc)
        if again and found and (now - found.asked_at).total_seconds() <= LISTED_SECONDS:
            return found
        jobs = []
        for job in islice(self.queue.jobs(states), MOST_LISTED):
            if job.finished and since and job.state_since and job.state_since < since:
                break  # those that ended come last, the latest first
            jobs.append(job)
        listing = Listing(now, tuple(jobs))
        with self._lock:
            if len(self._listed) >= _MANY_LISTS:
                self._listed.clear()
            self._listed[states, since] = listing
            for job in jobs:
                self._forget_unless_as(job)
        return listing

    def find(self, name: object) -> JobDetail | None:
        """Return the job as it is now; None if the queue does not know the name. Raises QueueError."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or _ATTEMPT.fullmatch(name):
            return None  # an attempt's name means just that attempt
        try:
            job = self.queue.job(name)
        except NotFound:
            job = None
        with self._lock:
            if len(self._known) >= _MANY:
                self._known.clear()
            self._known[name] = (time.monotonic(), job)
        return job

    def _forget_unless_as(self, job: JobSummary) -> None:
        """No call may be answered by what is older than an earlier answer: who sees an end reads the whole log then."""
        if job.job in self._known:
            _, known = self._known[job.job]
            if known is None or (known.state, known.attempt) != (job.state, job.attempt):
                del self._known[job.job]

    def may_have(self, name: str) -> bool:
        """Tell whether the queue knows the job; also true in an outage, which whoever follows the job will outlast."""
        try:
            return self.find(name) is not None
        except Unavailable:
            return True

    def find_recent(self, name: object) -> JobDetail | None:
        """Like ``find``, but two seconds old at most: for calls that come in bursts, such as those that read logs."""
        with self._lock:
            asked, job = self._known.get(str(name), (float("-inf"), None))
        if time.monotonic() - asked <= RECENT_SECONDS or (job and job.finished):
            return job
        return self.find(name)
