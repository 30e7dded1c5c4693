"""ListTrainingJobs: filters, order and pages."""

import base64
import json
from collections.abc import Iterable
from typing import Any

from local_cloud.sagemaker.registry import AnyJob
from local_cloud.sagemaker.validation import invalid

DEFAULT_PAGE = 10

_ORDERS: dict[str, Any] = {
    "Name": lambda job: [job.name],
    "CreationTime": lambda job: [job.created, job.name],
    "Status": lambda job: [job.status, job.name],
}


def list_jobs(jobs: Iterable[AnyJob], request: dict[str, Any]) -> dict[str, Any]:
    """Return one page of ListTrainingJobs.

    As in SageMaker, the page is cut before StatusEquals is applied. The page may therefore be short, or even empty.
    """
    by = request.get("SortBy", "CreationTime")
    order = _ORDERS[by]
    descending = request.get("SortOrder", "Ascending") == "Descending"
    chosen = sorted((job for job in jobs if _matches(job, request)), key=order, reverse=descending)
    if token := request.get("NextToken"):
        last = _read_token(token, by)
        chosen = [job for job in chosen if (order(job) < last if descending else order(job) > last)]
    size = request.get("MaxResults", DEFAULT_PAGE)
    page = chosen[:size]
    status = request.get("StatusEquals")
    answer: dict[str, Any] = {
        "TrainingJobSummaries": [_summary(job) for job in page if status in (None, job.status)],
    }
    if len(chosen) > size:
        answer["NextToken"] = base64.urlsafe_b64encode(json.dumps([by, *order(page[-1])]).encode()).decode()
    return answer


def _matches(job: AnyJob, request: dict[str, Any]) -> bool:
    plan = request.get("TrainingPlanArnEquals")
    return (
        request.get("NameContains", "") in job.name
        and job.created > request.get("CreationTimeAfter", 0)
        and job.created < request.get("CreationTimeBefore", float("inf"))
        and job.modified > request.get("LastModifiedTimeAfter", 0)
        and job.modified < request.get("LastModifiedTimeBefore", float("inf"))
        and plan in (None, job.request["ResourceConfig"].get("TrainingPlanArn"))
        and request.get("WarmPoolStatusEquals") in (None, job.warm_pool.status if job.warm_pool else "")
    )


def _summary(job: AnyJob) -> dict[str, Any]:
    summary = {
        "TrainingJobName": job.name,
        "TrainingJobArn": job.arn,
        "CreationTime": job.created,
        "LastModifiedTime": job.modified,
        "TrainingJobStatus": job.status,
        "SecondaryStatus": job.secondary_status,
    }
    if job.training_ended is not None:
        summary["TrainingEndTime"] = job.training_ended
    if job.warm_pool is not None:
        summary["WarmPoolStatus"] = job.warm_pool.describe()
    if plan := job.request["ResourceConfig"].get("TrainingPlanArn"):
        summary["TrainingPlanArn"] = plan
    return summary


def _read_token(token: str, by: str) -> list[Any]:
    try:
        last = json.loads(base64.urlsafe_b64decode(token))
    except ValueError:
        last = None
    if not isinstance(last, list) or last[:1] != [by]:
        raise invalid("NextToken is not valid: pass on the one of the page before, with the same SortBy, or none.")
    return last[1:]
