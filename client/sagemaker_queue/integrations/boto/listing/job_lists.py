"""Show the queue's jobs in the form of SageMaker's lists, and recognise the jobs' attempts among training jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from api_contract.models import JobSummary
from sagemaker_queue.integrations.boto import job_descriptions
from sagemaker_queue.integrations.boto.call import Answer
from sagemaker_queue.integrations.boto.lookup import JobListing, attempt_name

_STAMPED = re.compile(r"(?P<stem>.+)-qstamp-(?P<number>\d+)", re.ASCII)
_LAG = timedelta(minutes=5)  # the queue's list may lack newer changes, and clocks may differ
_LONGEST_STEM = 63 - len("-qstamp-1")  # if the job's name is longer, its attempts have a cut name


def summary(job: JobSummary, region: str) -> Answer:
    """Return the job's summary in the form of ListTrainingJobs."""
    ended = job.state_since if job.finished else None
    shown: Answer = {
        "TrainingJobName": job.job,
        "TrainingJobArn": job_descriptions.arn_of(job, region),
        "CreationTime": job.entry_time,
        "LastModifiedTime": job.state_since or job.entry_time,
        "TrainingJobStatus": job_descriptions.status_of(job),
        "SecondaryStatus": job_descriptions.secondary_status_of(job),
        "TrainingEndTime": ended,
    }
    return {name: value for name, value in shown.items() if value is not None}


class HiddenAttempts:
    """The attempts of the queue's jobs among SageMaker's training jobs. Lists show the job in place of an attempt.

    ``requested_names`` are the names of training jobs that the caller asked for. These training jobs are shown even
    if they are attempts.
    """

    def __init__(self, listing: JobListing, requested_names: Iterable[str] = ()) -> None:
        self._names = {job.job for job in listing.jobs}
        self._cut = [name for name in self._names if len(name) > _LONGEST_STEM]
        self._requested_names = frozenset(requested_names)
        self._recent = listing.asked_at - _LAG

    def contain(self, training_job: Mapping[str, Any]) -> bool:
        """Return whether a training job is an attempt that the list hides, because the list shows the attempt's job.

        An attempt that changed in the last five minutes is hidden even if ``listing`` lacks its job, because the job
        may be newer than ``listing``. Attempts of jobs that the queue has forgotten, and attempts in
        ``requested_names``, are shown.
        """
        name = str(training_job["TrainingJobName"])
        stamped = _STAMPED.fullmatch(name)
        if stamped is None or name in self._requested_names:
            return False
        if stamped["stem"] in self._names or any(
            attempt_name(cut, int(stamped["number"])) == name for cut in self._cut
        ):
            return True
        changed = training_job.get("LastModifiedTime") or training_job["CreationTime"]
        return bool(changed >= self._recent)


def time_key(time: datetime | None) -> str:
    """Return a time as a text that sorts like the time; empty for None."""
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f") if time else ""
