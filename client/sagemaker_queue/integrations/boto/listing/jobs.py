"""The jobs of the queue as lists of SageMaker's have them, and which of SageMaker's training jobs are theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from sagemaker_queue.integrations.boto import descriptions
from sagemaker_queue.integrations.boto.call import Answer
from sagemaker_queue.integrations.boto.lookup import Listing, attempt_name
from sagemaker_queue.models import JobSummary

_STAMPED = re.compile(r"(?P<stem>.+)-qstamp-(?P<number>\d+)", re.ASCII)
_LAG = timedelta(minutes=5)  # what changed within them may not have come to the queue's list yet; clocks differ, too
_LONGEST_STEM = 63 - len("-qstamp-1")  # a job with a longer name has attempts whose names are cut


def summary(job: JobSummary, region: str) -> Answer:
    """Return what ListTrainingJobs shows of a job."""
    ended = job.state_since if job.finished else None
    shown: Answer = {
        "TrainingJobName": job.job,
        "TrainingJobArn": descriptions.arn_of(job, region),
        "CreationTime": job.entry_time,
        "LastModifiedTime": job.state_since or job.entry_time,
        "TrainingJobStatus": descriptions.status_of(job),
        "SecondaryStatus": descriptions.secondary_status_of(job),
        "TrainingEndTime": ended,
    }
    return {name: value for name, value in shown.items() if value is not None}


class Attempts:
    """Tells which of SageMaker's training jobs are attempts, for which their job is shown."""

    def __init__(self, listing: Listing, named: Iterable[str] = ()) -> None:
        self._names = {job.job for job in listing.jobs}
        self._cut = [name for name in self._names if len(name) > _LONGEST_STEM]
        self._named = frozenset(named)
        self._recent = listing.asked_at - _LAG

    def have(self, training_job: Mapping[str, Any]) -> bool:
        """Tell whether a training job is an attempt of a job in the list.

        Also of one that is too new to be there. An attempt whose job the queue has forgotten is nobody's, and is shown
        as it is; so is one that is asked for by its own name.
        """
        name = str(training_job["TrainingJobName"])
        stamped = _STAMPED.fullmatch(name)
        if stamped is None or name in self._named:
            return False
        if stamped["stem"] in self._names or any(
            attempt_name(cut, int(stamped["number"])) == name for cut in self._cut
        ):
            return True
        changed = training_job.get("LastModifiedTime") or training_job["CreationTime"]
        return bool(changed >= self._recent)


def time_key(time: datetime | None) -> str:
    """Return a time as a text that sorts as it does."""
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f") if time else ""
