"""What SageMaker's answers and events mean, and how often it is asked."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from job_queue.adapters.sagemaker import (
    LaunchResult,
    SageMakerTraining,
    StopResult,
    training_job,
)
from tests.payloads import payload

BEGAN = datetime(2026, 11, 20, 10, tzinfo=UTC)
PENDING = 7200


def a_report(seconds: float, *steps: str, **changes: Any) -> dict[str, Any]:
    """A training job that was stopped after so many seconds, with the steps that it went through, a second each."""
    transitions = [{"Status": step, "StartTime": BEGAN + timedelta(seconds=at)} for at, step in enumerate(steps)]
    return {
        "TrainingJobName": "job1-qstamp-1",
        "TrainingJobStatus": "Stopped",
        "SecondaryStatus": "Stopped",
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400, "MaxPendingTimeInSeconds": PENDING},
        "CreationTime": BEGAN,
        "LastModifiedTime": BEGAN + timedelta(seconds=seconds),
        "SecondaryStatusTransitions": transitions,
        **changes,
    }


WAITED = ("Starting", "Pending", "Stopping", "Stopped")


@pytest.mark.parametrize(
    ("report", "starved"),
    [
        (a_report(PENDING + 5, *WAITED), True),
        (a_report(PENDING, *WAITED), True),
        (a_report(PENDING + 5, "Starting", "Stopping", "Uploading", "Stopped"), True),
        (a_report(600, *WAITED, SecondaryStatus="MaxWaitTimeExceeded"), True),
        # somebody stopped it while it was pending
        (a_report(PENDING - 1, *WAITED), False),
        # it may be pending for as long as it likes
        (a_report(PENDING + 5, *WAITED, StoppingCondition={"MaxRuntimeInSeconds": 60}), False),
        # its instances came
        (a_report(PENDING + 5, "Starting", "Downloading", "Stopping", "Stopped"), False),
        (a_report(PENDING + 5, "Starting", "Training", "Stopped", SecondaryStatus="MaxRuntimeExceeded"), False),
        (a_report(600, "Starting", "Training", "Stopped", SecondaryStatus="MaxWaitTimeExceeded"), False),
        (a_report(PENDING + 5, *WAITED, TrainingStartTime=BEGAN), False),
        # it did not end so, or the report does not say how
        (a_report(PENDING + 5, *WAITED, TrainingJobStatus="Stopping"), False),
        (a_report(PENDING + 5, *WAITED, TrainingJobStatus="Completed"), False),
        (a_report(PENDING + 5), False),
    ],
)
def test_a_stop_for_lack_of_instances_differs_from_others(report: dict[str, Any], starved: bool) -> None:
    assert training_job(report, {}).starved is starved


def test_the_times_of_events_are_milliseconds() -> None:
    waited = a_report(0, *WAITED, CreationTime=1_000_000, LastModifiedTime=str(1_000_000 + PENDING * 1000))
    assert training_job(waited, {}).starved
    event = payload("sagemaker-stopped")["detail"]
    assert training_job(event, event["Tags"]).provisioned_at == 1795168896.0


@pytest.mark.parametrize(
    ("steps", "came"), [(("Starting", "Pending"), None), (("Starting", "Downloading"), 1), (("Pending", "Training"), 1)]
)
def test_when_the_instances_came(steps: tuple[str, ...], came: int | None) -> None:
    at = training_job(a_report(60, *steps), {}).provisioned_at
    assert at == (None if came is None else (BEGAN + timedelta(seconds=came)).timestamp())


@pytest.mark.parametrize(
    ("code", "status", "answer"),
    [
        ("ResourceLimitExceeded", 400, LaunchResult.NO_QUOTA),
        ("ThrottlingException", 400, LaunchResult.THROTTLED),
        ("AccessDeniedException", 400, LaunchResult.NOT_NOW),
        ("RequestExpired", 400, LaunchResult.NOT_NOW),
        ("SignatureDoesNotMatch", 400, LaunchResult.NOT_NOW),
        ("Conflict", 400, LaunchResult.NOT_NOW),
        ("ValidationException", 400, LaunchResult.REFUSED),
        ("ResourceInUse", 400, LaunchResult.NAME_TAKEN),
        ("InternalFailure", 500, LaunchResult.UNKNOWN),
    ],
)
def test_what_a_refusal_means(code: str, status: int, answer: LaunchResult) -> None:
    response: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}

    class Client:
        def create_training_job(self, **_: Any) -> None:
            raise ClientError(response, "CreateTrainingJob")

    assert SageMakerTraining(cast(Any, None), cast(Any, Client())).create({})[0] is answer


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("ValidationException", StopResult.ENDED_ALREADY),
        ("ResourceNotFound", StopResult.ENDED_ALREADY),
        ("ResourceNotFoundException", StopResult.ENDED_ALREADY),
        ("AccessDeniedException", StopResult.DENIED),
        ("ThrottlingException", StopResult.UNKNOWN),
    ],
)
def test_what_a_refused_stop_means(code: str, answer: StopResult) -> None:
    client: Any = boto3.client("sagemaker", region_name="us-east-1")
    with Stubber(client) as stubber:
        stubber.add_client_error("stop_training_job", code)
        assert SageMakerTraining(client, client).stop("job1-qstamp-1") is answer


def test_a_serverless_training_job_holds_no_instances() -> None:
    class Client:
        def describe_training_job(self, TrainingJobName: str) -> dict[str, str]:  # noqa: N803
            return {"TrainingJobArn": f"arn:{TrainingJobName}", "TrainingJobStatus": "InProgress"}

        def get_paginator(self, _: str) -> Any:
            return self

        def paginate(self, ResourceArn: str) -> list[dict[str, list[str]]]:  # noqa: N803
            assert ResourceArn
            return [{"Tags": []}]

    found = SageMakerTraining(cast(Any, Client()), cast(Any, None)).describe("theirs")
    assert found is not None
    assert found.instance_counts == {}
