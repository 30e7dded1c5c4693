"""Describe a job of the queue by SageMaker's descriptions of its attempts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from api_contract.models import Attempt, JobDetail
from sagemaker_queue.errors import NoAccountProfile
from sagemaker_queue.integrations.boto import combined_attempts, job_descriptions, outputs
from sagemaker_queue.integrations.boto.call import Answer, Call
from sagemaker_queue.integrations.boto.lookup import JobLookup
from sagemaker_queue.queue.attempt_clients import is_elsewhere

logger = logging.getLogger(__name__)

_MOST_EARLIER = 25
"""Maximum number of a job's earlier attempts that SageMaker describes: the first attempt and the latest ones. The
queue's record describes the attempts in between."""
_MOST_CACHED = 1000  # maximum number of descriptions in the process's cache, for all jobs


def describe(jobs: JobLookup, call: Call, job: JobDetail) -> Answer:
    """Describe a job of the queue as SageMaker would describe a training job of that name."""
    present: Answer | None = None
    known: dict[int, Mapping[str, Any] | None] = {}
    if job_descriptions.is_described_by_its_attempt(job):
        try:
            present = known[job.attempt] = _described(call.client_of(job, job.job), str(job.training_job_name))
        except NoAccountProfile as error:  # the attempt is not read, so its times come from the queue's record
            logger.warning("%s is described by the queue's record. %s", job.job, error)
    known |= _earlier(jobs, call, job)
    if present is not None and job_descriptions.is_status_of_job(job, present["TrainingJobStatus"]):
        answer = job_descriptions.from_attempt(job, present, known)
        if is_elsewhere(job):  # the job's ARN stays the same, wherever its attempts run
            answer["TrainingJobArn"] = job_descriptions.arn_of(job, call.region)
        return answer
    answer = job_descriptions.from_record(job, call.region, known)
    if "ModelArtifacts" in answer and is_elsewhere(job):
        model = outputs.in_buckets(answer["ModelArtifacts"]["S3ModelArtifacts"], jobs.buckets_of(job))
        answer["ModelArtifacts"] = {"S3ModelArtifacts": model}
    return answer


def is_missing(error: ClientError) -> bool:
    """Return whether an error says that SageMaker does not know the resource."""
    return error.response["Error"]["Code"] in ("ValidationException", "ResourceNotFound")


def _earlier(jobs: JobLookup, call: Call, job: JobDetail) -> dict[int, Mapping[str, Any] | None]:
    """Return SageMaker's descriptions of earlier attempts by number, from the process's cache where possible.

    The value None means that SageMaker no longer knows the attempt. Attempts that were not read are left out.
    """
    earlier = [it for it in job.attempts if it.training_job_name and it.outcome and not _is_present_attempt(job, it)]
    known: dict[int, Mapping[str, Any] | None] = {}
    for attempt in earlier if len(earlier) <= _MOST_EARLIER else [earlier[0], *earlier[1 - _MOST_EARLIER :]]:
        name = str(attempt.training_job_name)
        if name not in jobs.ended:
            try:
                described = _described(call.client_of(attempt, job.job), name)
            # The call is throttled or denied, or the account has no profile: use the queue's record.
            except (ClientError, NoAccountProfile):
                continue
            if described is not None and described["TrainingJobStatus"] in ("InProgress", "Stopping"):
                continue  # SageMaker's description is out of date: the attempt has ended
            if len(jobs.ended) >= _MOST_CACHED:
                jobs.ended = {}
            jobs.ended[name] = described and {
                key: described[key] for key in combined_attempts.USED_FIELDS if key in described
            }
        known[attempt.attempt] = jobs.ended.get(name)
    return known


def _is_present_attempt(job: JobDetail, attempt: Attempt) -> bool:
    """Return whether the attempt describes the job, and so is not an earlier attempt."""
    return job_descriptions.is_described_by_its_attempt(job) and attempt.training_job_name == job.training_job_name


def _described(client: Any, name: str) -> Answer | None:
    """Return SageMaker's description of an attempt; None if SageMaker does not know the attempt."""
    try:
        described: Answer = client.describe_training_job(TrainingJobName=name)
    except ClientError as error:
        if not is_missing(error):
            raise
        return None
    return described
