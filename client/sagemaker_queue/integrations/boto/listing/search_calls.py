"""Answer Search for training jobs: jobs of the queue replace their attempts, and other results are unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any

from api_contract.models import JobDetail, JobSummary
from sagemaker_queue.integrations.boto import job_descriptions
from sagemaker_queue.integrations.boto.attempt_descriptions import describe
from sagemaker_queue.integrations.boto.call import Answer, Call
from sagemaker_queue.integrations.boto.listing.expression import Expression, matches, names_in
from sagemaker_queue.integrations.boto.listing.job_lists import HiddenAttempts, summary, time_key
from sagemaker_queue.integrations.boto.listing.pages import LARGEST_PAGE, ListEntry, LookupLimitError, merge
from sagemaker_queue.integrations.boto.lookup import JobListing, JobLookup

_DEFAULT_PAGE = 10
_MOST_LOOKUPS = 50
"""Maximum number of jobs of the queue that are looked up for one page. A page may have fewer entries than requested."""
_MOST_NAMES = 100
_LISTED_MEMBERS = frozenset(
    {
        "TrainingJobName",
        "TrainingJobArn",
        "CreationTime",
        "LastModifiedTime",
        "TrainingJobStatus",
        "SecondaryStatus",
        "TrainingEndTime",
    }
)


def search(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer a Search call for the account's training jobs.

    If the expression restricts names to at most _MOST_NAMES, look up these jobs. Otherwise read the queue's list, and
    look up each job that the list does not rule out. Return None for all other calls, and for calls that SageMaker
    would refuse. These calls then go to SageMaker unchanged.
    """
    parameters = call.parameters
    if parameters.get("Resource") != "TrainingJob" or parameters.get("CrossAccountFilterOption") == "CrossAccount":
        return None
    size = int(parameters.get("MaxResults", _DEFAULT_PAGE))
    if size > LARGEST_PAGE:
        return None
    expression: Expression = parameters.get("SearchExpression") or {}
    sort_by = str(parameters.get("SortBy", "LastModifiedTime"))
    token = parameters.get("NextToken")
    names = names_in(expression)
    if names is not None and len(names) > _MOST_NAMES:
        names = None
    page = _Page(jobs, call, expression)
    if names is None:
        listing = jobs.listed("all", again=token is not None)
    else:
        found = [job for job in map(jobs.find, sorted(names)) if job is not None]
        page.details.update({job.job: job for job in found})
        listing = JobListing(datetime.now(timezone.utc), tuple(found))
    hidden_attempts = HiddenAttempts(listing, names or ())
    client = call.client()
    passed_parameters = {name: value for name, value in parameters.items() if name not in ("NextToken", "MaxResults")}

    def fetch(token: str | None) -> tuple[list[ListEntry], str | None]:
        token_argument = {"NextToken": token} if token else {}
        answer = client.search(**passed_parameters, **token_argument, MaxResults=LARGEST_PAGE)
        entries = []
        for result in answer["Results"]:
            training_job = result["TrainingJob"]
            shown = None if hidden_attempts.contain(training_job) else result
            entries.append(
                ListEntry(_key(training_job, sort_by), training_job["TrainingJobName"], partial(_return_entry, shown))
            )
        return entries, answer.get("NextToken")

    descending = parameters.get("SortOrder", "Descending") == "Descending"
    results, following = merge(
        page.entries([job for job in listing.jobs if not job.is_carrier], sort_by),
        fetch,
        order=f"{sort_by} {'down' if descending else 'up'}",
        descending=descending,
        size=size,
        token=token,
    )
    return {"Results": results, **({"NextToken": following} if following else {})}


class _Page:
    """The descriptions of the queue's jobs for one page of results."""

    def __init__(self, jobs: JobLookup, call: Call, expression: Expression) -> None:
        self.details: dict[str, JobDetail] = {}
        self._jobs = jobs
        self._call = call
        self._expression = expression
        self._lookups = 0
        shape = call.client().meta.service_model.shape_for("TrainingJob")
        self._members = frozenset(shape.members) | {"Tags"}

    def entries(self, jobs: Iterable[JobSummary], sort_by: str) -> list[ListEntry]:
        """Return an entry for each job that the members in the queue's list do not rule out."""
        entries = []
        for job in jobs:
            shown = summary(job, self._call.region)
            verdict = matches(self._expression, shown, _LISTED_MEMBERS)
            if verdict is not False:
                entries.append(ListEntry(_key(shown, sort_by), job.job, partial(self._show, job.job)))
        return entries

    def _show(self, name: str) -> Answer | None:
        job = self.details.get(name)
        if job is None:
            if self._lookups == _MOST_LOOKUPS:
                raise LookupLimitError
            self._lookups += 1
            job = self._jobs.find_recent(name)
        if job is None:
            return None
        tags = job.request.get("Tags", [])
        record = {**job_descriptions.from_record(job, self._call.region, {}), "Tags": tags}
        if not matches(self._expression, record):
            return None
        described = {**describe(self._jobs, self._call, job), "Tags": tags}
        return {"TrainingJob": {name: value for name, value in described.items() if name in self._members}}


def _key(training_job: Mapping[str, Any], sort_by: str) -> str:
    value = training_job.get(sort_by)
    return time_key(value) if isinstance(value, datetime) else str(value or "")


def _return_entry(shown: Answer | None) -> Answer | None:
    return shown
