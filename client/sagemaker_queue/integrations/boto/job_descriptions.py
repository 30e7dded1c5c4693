"""Make the answers of DescribeTrainingJob about jobs of the queue, under the jobs' own names.

Programs that were written for SageMaker must understand the answers. So the status of a waiting job is InProgress,
whether or not the job ran before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api_contract.models import JobDetail, JobSummary
from sagemaker_queue.integrations.boto import combined_attempts
from sagemaker_queue.integrations.boto.combined_attempts import (
    SECONDARY_STATUS,
    STATUS_OF_FINISHED,
    AttemptDescriptions,
    Description,
)

_FLAGS = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining")
_NOT_DESCRIBED = frozenset({"Tags"})
_ONE_DAY = 86_400  # seconds: SageMaker's default of MaxRuntimeInSeconds


def is_described_by_its_attempt(job: JobDetail) -> bool:
    """Return whether an attempt describes the job: a running or stopping attempt, or a finished job's last attempt."""
    return job.training_job_name is not None and (job.state in ("running", "stopping") or job.finished)


def is_status_of_job(job: JobDetail, status: str) -> bool:
    """Return whether an attempt's status is also the job's status.

    A stopping, stopped or failed attempt need not be the end of the job: the queue decides whether the job continues.
    """
    return job.finished or job.cancel_requested or status in ("InProgress", "Completed")


def arn_of(job: JobSummary, region: str) -> str:
    """Return the ARN under which users see the job. The ARN ends with the job's own name."""
    request: Mapping[str, Any] = getattr(job, "request", {})
    parts = (job.owner or str(request.get("RoleArn", ""))).split(":")
    partition, account = (parts[1], parts[4]) if len(parts) > 5 else ("aws", "")
    return f"arn:{partition}:sagemaker:{region}:{account}:training-job/{job.job}"


def status_of(job: JobSummary) -> str:
    """Return the job's TrainingJobStatus from the queue's record."""
    return STATUS_OF_FINISHED.get(job.state) or ("Stopping" if job.cancel_requested else "InProgress")


def secondary_status_of(job: JobSummary) -> str:
    """Return the job's SecondaryStatus from the queue's record."""
    return "Pending" if job.waits else SECONDARY_STATUS.get(job.state, "Pending")


def renamed(arn: str, name: str) -> str:
    """Return the ARN with its training job's name replaced."""
    return f"{arn.rpartition('/')[0]}/{name}"


def from_attempt(job: JobDetail, described: Description, known: AttemptDescriptions) -> Description:
    """Describe the job from SageMaker's description of the job's current attempt.

    Times and secondary statuses cover all attempts of the job.
    """
    answer = {
        **described,
        "TrainingJobName": job.job,
        "TrainingJobArn": renamed(described["TrainingJobArn"], job.job),
        "CreationTime": job.entry_time or described["CreationTime"],
        "LastModifiedTime": max(filter(None, (described.get("LastModifiedTime"), job.state_since))),
        "SecondaryStatusTransitions": combined_attempts.transitions_of_attempts(job, known, described),
        **combined_attempts.times(job, known),
    }
    if job.finished:
        answer["TrainingJobStatus"] = STATUS_OF_FINISHED[job.state]
    elif job.cancel_requested and described["TrainingJobStatus"] == "InProgress":
        answer["TrainingJobStatus"] = "Stopping"
    return answer


def from_record(job: JobDetail, region: str, known: AttemptDescriptions) -> Description:
    """Describe the job from the queue's record: no attempt is current, or its description is not the job's."""
    request = {name: value for name, value in job.request.items() if name not in _NOT_DESCRIBED}
    transitions = combined_attempts.transitions_of_record(job, known)
    last = job.attempts[-1].instances if job.attempts and not job.waits else None
    if last and job.sizes:
        request["ResourceConfig"] = {**request["ResourceConfig"], "InstanceCount": last}
    description: Description = {
        **dict.fromkeys(_FLAGS, False),
        **request,
        "TrainingJobName": job.job,
        "TrainingJobArn": arn_of(job, region),
        "TrainingJobStatus": status_of(job),
        "SecondaryStatus": transitions[-1]["Status"],
        "CreationTime": job.entry_time,
        "LastModifiedTime": job.state_since or job.entry_time,
        "SecondaryStatusTransitions": transitions,
        **combined_attempts.times(job, known),
        # SageMaker always returns MaxRuntimeInSeconds and KmsKeyId, and the SDK's attach reads both.
        "StoppingCondition": {"MaxRuntimeInSeconds": _ONE_DAY, **request.get("StoppingCondition", {})},
        "OutputDataConfig": {"KmsKeyId": "", **request.get("OutputDataConfig", {})},
    }
    return {name: value for name, value in (description | _end(job)).items() if value is not None}


def _end(job: JobDetail) -> Description:
    """Return the fields that only a finished job has: end time, failure reason, model. Empty for other jobs."""
    if not job.finished:
        return {}
    last = job.attempts[-1] if job.attempts else None
    end: Description = {"TrainingEndTime": last.ended if last else job.state_since}
    if job.state == "failed":
        end["FailureReason"] = job.reason.message if job.reason else ""
    if job.state == "completed" and job.training_job_name:
        folder = str(job.request.get("OutputDataConfig", {}).get("S3OutputPath", "")).rstrip("/")
        end["ModelArtifacts"] = {"S3ModelArtifacts": f"{folder}/{job.training_job_name}/output/model.tar.gz"}
    return end
