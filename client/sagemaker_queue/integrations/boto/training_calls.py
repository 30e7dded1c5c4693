"""Calls of SageMaker's training API, for jobs of the queue."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from api_contract.models import JobDetail
from sagemaker_queue.errors import InvalidRequest, NoAccountProfile, NotFound
from sagemaker_queue.integrations.boto import attempt_descriptions, job_descriptions, outputs
from sagemaker_queue.integrations.boto.call import Answer, Call, Handler
from sagemaker_queue.integrations.boto.combined_attempts import STATUS_OF_FINISHED
from sagemaker_queue.integrations.boto.listing.search_calls import search
from sagemaker_queue.integrations.boto.listing.training_jobs import list_jobs
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.jobs import preflight
from sagemaker_queue.jobs.formatting import state_sentence
from sagemaker_queue.queue.attempt_clients import is_elsewhere

logger = logging.getLogger(__name__)

_QUEUE_TAG_PREFIX = "queue-"  # prefix of the tags that the queue adds to attempts
_JOB_ARN = re.compile(r"arn:[^:]+:sagemaker:[^:]*:[^:]*:training-job/(?P<name>[^/]+)")


def create(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer CreateTrainingJob: submit the job to the queue.

    Raises InvalidRequest if the client's region is not the queue's, or if pre-flight finds issues.
    """
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
    return {"TrainingJobArn": job_descriptions.arn_of(owned, call.region)}


def describe(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer DescribeTrainingJob as if the job had run in SageMaker under its own name."""
    job = jobs.find(call.parameters.get("TrainingJobName"))
    if job is None:
        return None
    return attempt_descriptions.describe(jobs, call, job)


def stop(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer StopTrainingJob: cancel the job. Raises InvalidRequest, as SageMaker does, if the job has finished."""
    name = call.parameters.get("TrainingJobName")
    if jobs.find(name) is None:
        return None
    job = jobs.queue.cancel(str(name))
    if job.was_finished:
        status = STATUS_OF_FINISHED.get(job.state, job.state)
        raise InvalidRequest(f"The request was rejected because the training job is in status {status}.")
    return {}


def update(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer UpdateTrainingJob: update the running attempt, or the last attempt of a finished job."""
    job = jobs.find(call.parameters.get("TrainingJobName"))
    if job is None:
        return None
    attempt = _attempt_name(job, "A job can be updated")
    answer = call.client_of(job, job.job).update_training_job(**{**call.parameters, "TrainingJobName": attempt})
    return {**answer, "TrainingJobArn": _own_arn(job, answer["TrainingJobArn"], call)}


def delete(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer DeleteTrainingJob: delete the last attempt of a finished job. The queue's record expires later.

    An attempt of a live job is never deleted, not even by the attempt's own name. Deletion makes that name free. If the
    queue has not recorded the attempt's end yet, a late CreateTrainingJob call could then launch the attempt again.
    """
    name = call.parameters.get("TrainingJobName")
    job = jobs.find(name) or jobs.find_of_attempt(name)
    if job is None or (job.finished and job.job != name):
        return None
    if not job.finished:
        raise InvalidRequest(f"{state_sentence(job)}. A job can be deleted after its end.")
    if job.training_job_name is None:
        raise NotFound("Requested resource not found.")
    client = call.client_of(job, job.job)
    answer: Answer = client.delete_training_job(TrainingJobName=job.training_job_name)
    return answer


def list_tags(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer ListTags with the tags of the attempt, else of the request. The queue's own tags are left out."""
    job = _job_of(jobs, call.parameters.get("ResourceArn"))
    if job is None:
        return None
    tags = job.request.get("Tags", [])
    if job_descriptions.is_described_by_its_attempt(job):
        try:
            client = call.client_of(job, job.job)
            answers = client.get_paginator("list_tags").paginate(ResourceArn=_attempt_arn(client, job))
            tags = [tag for answer in answers for tag in answer["Tags"]]
        except NoAccountProfile as error:
            logger.warning("%s: the tags are those of its request. %s", job.job, error)
        except ClientError as error:
            if not attempt_descriptions.is_missing(error):
                raise
    return {"Tags": [tag for tag in tags if not str(tag["Key"]).startswith(_QUEUE_TAG_PREFIX)]}


def change_tags(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer AddTags and DeleteTags: change the tags of the running attempt, or of the last attempt of a finished job.

    The request is not changed, so a later attempt has the tags of the request again.
    """
    job = _job_of(jobs, call.parameters.get("ResourceArn"))
    if job is None:
        return None
    _attempt_name(
        job, "Its tags are those of its request, with which each attempt is launched; its attempt's can be changed"
    )
    if not job.finished:
        logger.warning(
            "%s: the tags of attempt %s are changed. A later attempt has the tags of the request again; put tags "
            "for all attempts into the request.",
            job.job,
            job.training_job_name,
        )
    client = call.client_of(job, job.job)
    change = client.add_tags if call.operation == "AddTags" else client.delete_tags
    answer: Answer = change(**{**call.parameters, "ResourceArn": _attempt_arn(client, job)})
    if "Tags" in answer:
        answer = {**answer, "Tags": [tag for tag in answer["Tags"] if not tag["Key"].startswith(_QUEUE_TAG_PREFIX)]}
    return answer


def use_outputs(jobs: JobLookup, call: Call) -> Answer | None:
    """Answer a call that reads outputs, such as CreateModel, with corrected addresses (see ``outputs``)."""
    translated = outputs.with_true_addresses(jobs.find, call.parameters, jobs.buckets_of)
    if translated == call.parameters:
        return None
    client = call.client()
    operation = getattr(client, xform_name(call.operation))
    answer: Answer = operation(**translated)
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
    **dict.fromkeys(("CreateModel", "CreateModelPackage", "CreateProcessingJob", "CreateTransformJob"), use_outputs),
}


def _job_of(jobs: JobLookup, arn: object) -> JobDetail | None:
    found = _JOB_ARN.fullmatch(str(arn))
    return jobs.find(found["name"]) if found else None


def _attempt_name(job: JobDetail, hint: str) -> str:
    """Return the name of the running attempt, or of a finished job's last attempt; else raise InvalidRequest.

    ``hint`` is the second sentence of the error's message, to which "once it runs" is added.
    """
    if job.training_job_name is None or not job_descriptions.is_described_by_its_attempt(job):
        raise InvalidRequest(f"{state_sentence(job)}. {hint} once it runs.")
    return job.training_job_name


def _own_arn(job: JobDetail, arn: str, call: Call) -> str:
    """Return the ARN under which users see a job; ``arn`` is the ARN of its attempt."""
    return job_descriptions.arn_of(job, call.region) if is_elsewhere(job) else job_descriptions.renamed(arn, job.job)


def _attempt_arn(client: Any, job: JobDetail) -> str:
    """Return the ARN of the last attempt, as read from SageMaker: names in ARNs may be in lower case."""
    arn: str = client.describe_training_job(TrainingJobName=job.training_job_name)["TrainingJobArn"]
    return arn
