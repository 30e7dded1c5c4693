"""Answer ListTrainingJobs: list each job of the queue once, including waiting jobs, and all other training jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any

from botocore.utils import parse_to_aware_datetime

from sagemaker_queue.integrations.boto.call import Answer, Call
from sagemaker_queue.integrations.boto.listing.job_lists import Attempts, summary, time_key
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
    asked = call.parameters
    by, size = str(asked.get("SortBy", "CreationTime")), int(asked.get("MaxResults", _DEFAULT_PAGE))
    if any(name in asked for name in _OF_ATTEMPTS) or _STAMP in asked.get("NameContains", ""):
        return None
    if by not in _KEYS or size > LARGEST_PAGE:
        return None
    token = asked.get("NextToken")
    since = max(filter(None, (_time(asked, "CreationTimeAfter"), _time(asked, "LastModifiedTimeAfter"))), default=None)
    listing = jobs.listed(_STATES.get(str(asked.get("StatusEquals")), "all"), since, again=token is not None)
    attempts = Attempts(listing)
    client = call.client()
    key = _KEYS[by]
    same = {name: value for name, value in asked.items() if name not in ("NextToken", "MaxResults")}

    def fetch(token: str | None) -> tuple[list[ListEntry], str | None]:
        more = {"NextToken": token} if token else {}
        page = client.list_training_jobs(**same, **more, MaxResults=LARGEST_PAGE)
        entries = [
            ListEntry(key(found), found["TrainingJobName"], partial(_unless, attempts.have(found), found))
            for found in page["TrainingJobSummaries"]
        ]
        return entries, page.get("NextToken")

    summaries = [summary(job, call.region) for job in listing.jobs if not job.is_carrier]
    own = [
        ListEntry(key(shown), shown["TrainingJobName"], partial(_unless, False, shown))
        for shown in summaries
        if _is_wanted(shown, asked)
    ]
    descending = asked.get("SortOrder", "Ascending") == "Descending"
    order = f"{by} {'down' if descending else 'up'}"
    page, following = merge(own, fetch, order=order, descending=descending, size=size, token=token)
    return {"TrainingJobSummaries": page, **({"NextToken": following} if following else {})}


def _unless(hidden: bool, shown: Answer) -> Answer | None:
    return None if hidden else shown


def _is_wanted(shown: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    def within(of: str) -> bool:
        time, after, before = shown.get(of), _time(asked, f"{of}After"), _time(asked, f"{of}Before")
        return time is not None and (after is None or time > after) and (before is None or time < before)

    return (
        str(asked.get("NameContains", "")) in shown["TrainingJobName"]
        and asked.get("StatusEquals") in (None, shown["TrainingJobStatus"])
        and within("CreationTime")
        and within("LastModifiedTime")
    )


def _time(asked: Mapping[str, Any], name: str) -> datetime | None:
    """Return a time of the request in UTC. botocore also accepts texts and numbers."""
    value = asked.get(name)
    if value is None:
        return None
    time: datetime = parse_to_aware_datetime(value)
    return time.astimezone(timezone.utc)
