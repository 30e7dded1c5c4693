"""Answer ListTrainingJobs: list each job of the queue once, except carriers, and training jobs of other programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any

from botocore.utils import parse_to_aware_datetime

from sagemaker_queue.integrations.boto.call import Answer, Call
from sagemaker_queue.integrations.boto.listing.job_lists import HiddenAttempts, summary, time_key
from sagemaker_queue.integrations.boto.listing.pages import LARGEST_PAGE, ListEntry, merge
from sagemaker_queue.integrations.boto.lookup import JobLookup

_DEFAULT_PAGE = 10
_OF_ATTEMPTS = ("WarmPoolStatusEquals", "TrainingPlanArnEquals")
_STAMP = "-qstamp-"
# Requested status -> the queue's jobs to read. For other statuses, read all jobs: a job in any state may have an
# attempt with that status, and the list must hide this attempt.
_STATES = {"InProgress": "live", "Stopping": "live", "Completed": "completed"}
_KEYS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "CreationTime": lambda shown: time_key(shown.get("CreationTime")),
    "Name": lambda shown: str(shown["TrainingJobName"]),
    "Status": lambda shown: str(shown["TrainingJobStatus"]),
}


def list_jobs(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer a ListTrainingJobs call with each job once, under its own name and in its own state.

    Calls about warm pools or training plans pass to SageMaker, because these calls concern attempts. Calls that search
    for attempts by name, and calls that SageMaker would refuse, also pass.
    """
    parameters = call.parameters
    by, size = str(parameters.get("SortBy", "CreationTime")), int(parameters.get("MaxResults", _DEFAULT_PAGE))
    if any(name in parameters for name in _OF_ATTEMPTS) or _STAMP in parameters.get("NameContains", ""):
        return None
    if by not in _KEYS or size > LARGEST_PAGE:
        return None
    token = parameters.get("NextToken")
    since = max(
        filter(None, (_time(parameters, "CreationTimeAfter"), _time(parameters, "LastModifiedTimeAfter"))), default=None
    )
    listing = jobs.listed(_STATES.get(str(parameters.get("StatusEquals")), "all"), since, again=token is not None)
    hidden_attempts = HiddenAttempts(listing)
    client = call.client()
    key = _KEYS[by]
    unpaged_parameters = {name: value for name, value in parameters.items() if name not in ("NextToken", "MaxResults")}

    def fetch(token: str | None) -> tuple[list[ListEntry], str | None]:
        more = {"NextToken": token} if token else {}
        page = client.list_training_jobs(**unpaged_parameters, **more, MaxResults=LARGEST_PAGE)
        entries = [
            ListEntry(key(found), found["TrainingJobName"], partial(_unless, hidden_attempts.contain(found), found))
            for found in page["TrainingJobSummaries"]
        ]
        return entries, page.get("NextToken")

    summaries = [summary(job, call.region) for job in listing.jobs if not job.is_carrier]
    queue_entries = [
        ListEntry(key(shown), shown["TrainingJobName"], partial(_unless, False, shown))
        for shown in summaries
        if _is_wanted(shown, parameters)
    ]
    descending = parameters.get("SortOrder", "Ascending") == "Descending"
    order = f"{by} {'down' if descending else 'up'}"
    page, following = merge(queue_entries, fetch, order=order, descending=descending, size=size, token=token)
    return {"TrainingJobSummaries": page, **({"NextToken": following} if following else {})}


def _unless(hidden: bool, shown: Answer) -> Answer | None:
    return None if hidden else shown


def _is_wanted(shown: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    def within(field: str) -> bool:
        time, after, before = (
            shown.get(field),
            _time(parameters, f"{field}After"),
            _time(parameters, f"{field}Before"),
        )
        return time is not None and (after is None or time > after) and (before is None or time < before)

    return (
        str(parameters.get("NameContains", "")) in shown["TrainingJobName"]
        and parameters.get("StatusEquals") in (None, shown["TrainingJobStatus"])
        and within("CreationTime")
        and within("LastModifiedTime")
    )


def _time(parameters: Mapping[str, Any], name: str) -> datetime | None:
    """Return a time of the request in UTC. botocore also accepts texts and numbers."""
    value = parameters.get(name)
    if value is None:
        return None
    time: datetime = parse_to_aware_datetime(value)
    return time.astimezone(timezone.utc)
