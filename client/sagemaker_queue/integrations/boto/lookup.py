"""Find the jobs of the queue that a program names, with a short-lived cache."""

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

from api_contract.models import JobDetail, JobSummary
from sagemaker_queue.errors import NotFound, Unavailable
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.workflows.attempt_storage import bucket_by_region, last_launched

RECENT_SECONDS = 2.0
LISTED_SECONDS = 60.0  # time for which a list of the queue's jobs is reused to answer calls for further pages
_POLICY_SECONDS = 60.0
"""Time for which the policy, and so the buckets in the policy, is reused."""
MOST_LISTED = 10_000
"""Maximum number of jobs in one list, with all live jobs first. A list takes at most 20 calls of the queue."""
_MOST_JOBS = 500  # maximum number of cached descriptions
_MOST_LISTS = 8  # maximum number of cached lists

_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", re.ASCII)
_ATTEMPT = re.compile(r"(?P<job>.*)-qstamp-\d+", re.ASCII)


_LONGEST_NAME = 63


def attempt_name(job: str, number: int) -> str:
    """Return the name of a job's attempt in SageMaker, by the queue's rule: a long name is cut, and a hash is added."""
    stamp = f"-qstamp-{number}"
    if len(job) + len(stamp) <= _LONGEST_NAME:
        return job + stamp
    digest = hashlib.sha256(job.encode()).hexdigest()[:10]
    return f"{job[: _LONGEST_NAME - len(stamp) - len(digest) - 1].rstrip('-')}-{digest}{stamp}"


@dataclass(frozen=True)
class JobListing:
    """The jobs of the queue at the time ``asked_at``."""

    asked_at: datetime
    jobs: tuple[JobSummary, ...]


class JobLookup:
    """A cache of the queue's jobs by name, and of its lists of jobs. Thread-safe."""

    def __init__(self, queue: QueueClient) -> None:
        self.queue = queue
        self.ended: dict[str, Mapping[str, Any] | None] = {}
        """SageMaker's final descriptions of ended attempts; None: SageMaker no longer knows the attempt."""
        self._known: dict[str, tuple[float, JobDetail | None]] = {}
        self._listed: dict[tuple[str, datetime | None], JobListing] = {}
        self._policy: tuple[float, Mapping[str, Any]] = (float("-inf"), {})
        self._lock = threading.Lock()

    def buckets_of(self, job: JobDetail) -> Mapping[str, str]:
        """Return a replacement for each bucket of the project: the bucket in the region of the job's last attempt.

        The result is empty if that attempt is in the queue's region, or if the project has no bucket in the attempt's
        region.

        The policy is read only for a job whose last attempt is in another region. Raises QueueError.
        """
        region = last_launched(job).region
        if region is None:
            return {}
        read_at, policy = self._policy
        if time.monotonic() - read_at > _POLICY_SECONDS:
            policy = self.queue.policy().policy
            self._policy = time.monotonic(), policy
        buckets = bucket_by_region(policy, job.project)
        return dict.fromkeys(buckets.values(), buckets[region]) if region in buckets else {}

    def listed(self, states: str, since: datetime | None = None, *, again: bool = False) -> JobListing:
        """Return the jobs in these states, without jobs that ended before ``since``. Raises QueueError.

        With ``again``, which is for further pages of a list, the result may be up to LISTED_SECONDS old.
        """
        with self._lock:
            found = self._listed.get((states, since))
        now = datetime.now(timezone.utc)
        if again and found and (now - found.asked_at).total_seconds() <= LISTED_SECONDS:
            return found
        jobs = []
        for job in islice(self.queue.jobs(states), MOST_LISTED):
            if job.finished and since and job.state_since and job.state_since < since:
                break  # finished jobs come last in the list, beginning with the latest end
            jobs.append(job)
        listing = JobListing(now, tuple(jobs))
        with self._lock:
            if len(self._listed) >= _MOST_LISTS:
                self._listed.clear()
            self._listed[states, since] = listing
            for job in jobs:
                self._forget_if_changed(job)
        return listing

    def find(self, name: object) -> JobDetail | None:
        """Return the job's present description; None if the queue does not know the name. Raises QueueError."""
        if not isinstance(name, str) or not _NAME.fullmatch(name) or _ATTEMPT.fullmatch(name):
            return None  # an attempt's name means the attempt, not its job
        try:
            job = self.queue.job(name)
        except NotFound:
            job = None
        with self._lock:
            if len(self._known) >= _MOST_JOBS:
                self._known.clear()
            self._known[name] = (time.monotonic(), job)
        return job

    def find_of_attempt(self, name: object) -> JobDetail | None:
        """Return the job whose attempt has, or could have, this name; None for other names. Raises QueueError.

        If the job's name was cut (see ``attempt_name``), the job is not found.
        """
        attempt = _ATTEMPT.fullmatch(str(name))
        return self.find(attempt["job"]) if attempt else None

    def _forget_if_changed(self, job: JobSummary) -> None:
        """Drop a job's cached description if a newer list shows another state or attempt.

        Otherwise a program that saw a job's end in the list could get an older answer, and miss the end of the log.
        """
        if job.job in self._known:
            _, known = self._known[job.job]
            if known is None or (known.state, known.attempt) != (job.state, job.attempt):
                del self._known[job.job]

    def may_have(self, name: str) -> bool:
        """Return whether the queue knows the job. In an outage, return True, since a follower of the job retries."""
        try:
            return self.find(name) is not None
        except Unavailable:
            return True

    def find_recent(self, name: object) -> JobDetail | None:
        """Return the job like ``find``, but reuse an answer of the last RECENT_SECONDS, or about a finished job.

        Use this method for calls that come in bursts, such as calls that read logs.
        """
        with self._lock:
            asked_at, job = self._known.get(str(name), (float("-inf"), None))
        if time.monotonic() - asked_at <= RECENT_SECONDS or (job and job.finished):
            return job
        return self.find(name)
