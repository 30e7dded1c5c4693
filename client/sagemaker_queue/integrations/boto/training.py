"""Calls of SageMaker's training API, for jobs of the queue."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from sagemaker_queue import preflight
from sagemaker_queue.errors import InvalidRequest, NotFound
from sagemaker_queue.formatting import state_sentence
from sagemaker_queue.integrations.boto import attempts, descriptions
from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.listing.search import search
from sagemaker_queue.integrations.boto.listing.training_jobs import list_jobs
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.integrations.boto.story import ENDED
from sagemaker_queue.models import JobDetail

logger = logging.getLogger(__name__)

_OWN_TAGS = "queue-"  # the queue's, on attempts
_JOB_ARN = re.compile(r"arn:[^:]+:sagemaker:[^:]*:[^:]*:training-job/(?P<name>[^/]+)")
_ARTIFACTS = re.compile(r"(?P<folder>s3://.+)/(?P<name>[^/]+)/(?P<rest>output/model\.tar\.gz)")


def create(jobs: JobLookup, call: Call) -> Answer | None:
    """CreateTrainingJob: queue it."""
    if call.region != jobs.queue.region:
        raise InvalidRequest(
            f"The queue runs jobs in {jobs.queue.region}, and this client is one of {call.region}. Make the client in "
            f"{jobs.queue.region}, or by a session whose jobs do not go through the queue."
        )
    if call.preflight:
        issues = preflight.check(call.parameters, call.session, region=call.region, config=jobs.queue.config)
        preflight.refuse(issues)
    job = jobs.queue.submit(call.parameters, preflight=call.preflight)
    logger.log(logging.WARNING if job.state == "failed" else logging.INFO, state_sentence(job))
    if job.known and job.finished:
        logger.warning("%s was submitted before, so it is not run again; another name runs it", job.job)
    for warning in job.warnings:
        logger.warning("%s: %s", job.job, warning)
    owned = JobDetail(job.job, job.state, owner=job.owner, request=call.parameters)
    return {"TrainingJobArn": descriptions.arn_of(owned, call.region)}


def describe(jobs: JobLookup, call: Call) -> Answer | None:
    """DescribeTrainingJob: as SageMaker would describe it, had the job run there under its own name."""
    job = jobs.find(call.parameters.get("TrainingJobName"))
    if job is None:
        return None
    return attempts.describe(jobs, call, job)


def stop(jobs: JobLookup, call: Call) -> Answer | None:
    """StopTrainingJob: cancel it."""
    name = call.parameters.get("TrainingJobName")
    if jobs.find(name) is None:
        return None
    job = jobs.queue.cancel(str(name))
    if job.was_finished:
        status = ENDED.get(job.state, job.state)
        raise InvalidRequest(f"The request was rejected because the training job is in status {status}.")
    return {}


def update(jobs: JobLookup, call: Call) -> Answer | None:
    """UpdateTrainingJob: the attempt that runs, or the last one."""
    job = jobs.find(call.parameters.get("TrainingJobName"))
    if job is None:
        return None
    attempt = _attempt(job, "It can be updated")
    answer = call.client().update_training_job(**{**call.parameters, "TrainingJobName": attempt})
    return {**answer, "TrainingJobArn": descriptions.renamed(answer["TrainingJobArn"], job.job)}


def delete(jobs: JobLookup, call: Call) -> Answer | None:
    """DeleteTrainingJob: the last attempt; the queue's own record expires by itself."""
    job = jobs.find(call.parameters.get("TrainingJobName"))
    if job is None:
        return None
    if not job.finished:
        raise InvalidRequest(f"{state_sentence(job)}. It can be deleted once it has ended.")
    if job.training_job_name is None:
        raise NotFound("Requested resource not found.")
    answer: Answer = call.client().delete_training_job(TrainingJobName=job.training_job_name)
    return answer


def list_tags(jobs: JobLookup, call: Call) -> Answer | None:
    """ListTags: those that the user gave, and those that the attempt was given since."""
    job = _job_of(jobs, call.parameters.get("ResourceArn"))
    if job is None:
        return None
    tags = job.request.get("Tags", [])
    if descriptions.is_described_by_its_attempt(job):
        try:
            client = call.client()
            answers = client.get_paginator("list_tags").paginate(ResourceArn=_attempt_arn(client, job))
            tags = [tag for answer in answers for tag in answer["Tags"]]
        except ClientError as error:
            if not attempts.is_missing(error):
                raise
    return {"Tags": [tag for tag in tags if not str(tag["Key"]).startswith(_OWN_TAGS)]}


def change_tags(jobs: JobLookup, call: Call) -> Answer | None:
    """AddTags, DeleteTags: those of the attempt."""
    job = _job_of(jobs, call.parameters.get("ResourceArn"))
    if job is None:
        return None
    _attempt(job, "Its tags can be changed")
    client = call.client()
    change = client.add_tags if call.operation == "AddTags" else client.delete_tags
    answer: Answer = change(**{**call.parameters, "ResourceArn": _attempt_arn(client, job)})
    if "Tags" in answer:
        answer = {**answer, "Tags": [tag for tag in answer["Tags"] if not tag["Key"].startswith(_OWN_TAGS)]}
    return answer


def create_model(jobs: JobLookup, call: Call) -> Answer | None:
    """CreateModel: where an address was made from the job's name, the artifacts of its last attempt are meant."""
    translated = _with_artifacts(jobs, call.parameters)
    if translated == call.parameters:
        return None
    answer: Answer = call.client().create_model(**translated)
    return answer


HANDLERS: Mapping[str, Handler] = {
    "CreateTrainingJob": create,
    "DescribeTrainingJob": describe,
    "ListTrainingJobs": list_jobs,
    "Search": search,
    "StopTrainingJob": stop,
    "UpdateTrainingJob": update,
    "DeleteTrainingJob": delete,
    "ListTags": list_tags,
    "AddTags": change_tags,
    "DeleteTags": change_tags,
    "CreateModel": create_model,
}


def _job_of(jobs: JobLookup, arn: object) -> JobDetail | None:
    found = _JOB_ARN.fullmatch(str(arn))
    return jobs.find(found["name"]) if found else None


def _attempt(job: JobDetail, what: str) -> str:
    if job.training_job_name is None or not descriptions.is_described_by_its_attempt(job):
        raise InvalidRequest(f"{state_sentence(job)}. {what} once it runs.")
    return job.training_job_name


def _attempt_arn(client: Any, job: JobDetail) -> str:
    """SageMaker writes ARNs in lower case, so the attempt's is not made up."""
    arn: str = client.describe_training_job(TrainingJobName=job.training_job_name)["TrainingJobArn"]
    return arn


def _with_artifacts(jobs: JobLookup, value: Any) -> Any:
    """Return a request in which the addresses of jobs' artifacts are those of their attempts."""
    if isinstance(value, Mapping):
        return {name: _with_artifacts(jobs, member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_artifacts(jobs, member) for member in value]
    found = _ARTIFACTS.fullmatch(value) if isinstance(value, str) else None
    job = jobs.find(found["name"]) if found else None
    if found is None or job is None or job.training_job_name is None:
        return value
    folder = str(job.request.get("OutputDataConfig", {}).get("S3OutputPath", "")).rstrip("/")
    return f"{folder}/{job.training_job_name}/{found['rest']}" if found["folder"] == folder else value
