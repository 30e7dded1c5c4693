"""Finding the job that a name in somebody's program means."""

from __future__ import annotations

import re
import threading
import time

from sagemaker_queue.client import QueueClient
from sagemaker_queue.errors import NotFound, Unavailable
from sagemaker_queue.models import JobDetail

RECENT_SECONDS = 2.0
_MANY = 500

_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", re.ASCII)
_ATTEMPT = re.compile(r".*-qstamp-\d+", re.ASCII)


class JobLookup:
    """Asks the queue for jobs by name. Safe for threads."""

    def __init__(self, queue: QueueClient) -> None:
        self.queue = queue
        self._known: dict[str, tuple[float, JobDetail | None]] = {}
        self._lock = threading.Lock()

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
