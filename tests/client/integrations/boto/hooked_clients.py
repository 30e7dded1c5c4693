"""Clients whose training jobs go through the queue; SageMaker, CloudWatch and S3 are moto's."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import pytest
from botocore.exceptions import ClientError

from sagemaker_queue import QueueClient, boto_session
from tests.client.samples import refused

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

ARN = "arn:aws:sagemaker:eu-west-1:123456789012:training-job"
OWNER = "arn:aws:sts::123456789012:assumed-role/research/ann"
REQUEST: dict[str, Any] = {
    "TrainingJobName": "job1",
    "RoleArn": "arn:aws:iam::123456789012:role/training",
    "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 10},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    "Tags": [{"Key": "priority", "Value": "1"}],
}
WAITING = {
    "state": "pending",
    "position": 3,
    "reason": {"code": "POOL_FULL", "message": "2 of 2 instances are used"},
    "history": [{"state": "pending", "at": "2026-11-21T10:00:00Z", "attempt": 1, "cause": "submitted"}],
}
PREEMPTED: dict[str, Any] = {
    "state": "preempted",
    "position": 1,
    "attempts": [{"attempt": 1, "trainingJobName": "job1-qstamp-1", "outcome": "preempted"}],
    "history": [
        {"state": "running", "at": "2026-11-21T10:00:00Z", "attempt": 1, "cause": "accepted"},
        {"state": "preempted", "at": "2026-11-21T11:00:00Z", "attempt": 1, "cause": "made room for job2"},
    ],
}


def twice_run(state: str) -> dict[str, Any]:
    """Of a job whose second attempt runs, or has ended."""
    return {
        "state": state,
        "trainingJobName": "job1-qstamp-2",
        "attempts": [
            {"attempt": 1, "trainingJobName": "job1-qstamp-1", "outcome": "preempted"},
            {"attempt": 2, "trainingJobName": "job1-qstamp-2", "outcome": None if state == "running" else state},
        ],
    }


class Direct(NamedTuple):
    sagemaker: Any
    logs: Any
    cloudwatch: Any


class HookedClients:
    """Clients that are hooked and clients that are not, and the queue's script. They take a second to make."""

    server: ScriptedServer

    def __init__(self) -> None:
        self.session = boto_session(
            boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="eu-west-1"),
            queue=QueueClient(url="http://127.0.0.1:9/prod", region="eu-west-1"),
        )
        self.sagemaker, self.logs, self.cloudwatch = self.made_by(self.session)
        self.direct = Direct(*self.made_by(boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="eu-west-1")))

    def made_by(self, session: Any) -> list[Any]:
        return [session.client(service) for service in ("sagemaker", "logs", "cloudwatch")]

    def job(self, **facts: Any) -> None:
        """Let the queue answer once that it knows job1."""
        known = {
            "job": "job1",
            "owner": OWNER,
            "request": REQUEST,
            "stateSince": "2026-11-21T10:00:00Z",
            "instances": 2,
        }
        self.server.answers(200, {**known, **facts})

    def unknown(self) -> None:
        self.server.answers(404, refused("NotFound", "There is no such job."))

    def attempt(self, name: str, **changes: Any) -> None:
        self.direct.sagemaker.create_training_job(**{**REQUEST, "TrainingJobName": name, **changes})

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = self.sagemaker.describe_training_job(TrainingJobName="job1")
        return described


def refusal(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def set_status(status: str) -> None:
    """Let moto's SageMaker show its training jobs in another state."""
    from moto.sagemaker.models import sagemaker_backends  # noqa: PLC0415

    for job in sagemaker_backends["123456789012"]["eu-west-1"].training_jobs.values():
        job.training_job_status = status


def set_times(name: str, began: datetime, seconds: int) -> None:
    """Let one of moto's training jobs have trained for so long, half of which is billed."""
    from moto.sagemaker.models import sagemaker_backends  # noqa: PLC0415

    job: Any = sagemaker_backends["123456789012"]["eu-west-1"].training_jobs[name]
    ended = began + timedelta(seconds=seconds)
    job.creation_time, job.training_start_time, job.training_end_time = began, began, ended
    job.training_time_in_seconds, job.billable_time_in_seconds = seconds, seconds // 2
    job.secondary_status_transitions = [
        {"Status": "Training", "StartTime": began, "EndTime": ended, "StatusMessage": name},
        {"Status": "Completed", "StartTime": ended, "EndTime": ended, "StatusMessage": "the end"},
    ]
