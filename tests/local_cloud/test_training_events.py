"""The events that SageMaker sends, and their way to the targets of rules."""

import io
import json
import threading
import zipfile
from typing import Any

import pytest

from tests.local_cloud.conftest import MakeEmulator
from tests.local_cloud.emulator import BUCKET, Emulator, client
from tests.waiting import until

# A Lambda function that keeps the event it gets.
KEEPER = f"""
import boto3, json, os
def handler(event, context):
    name = event["detail"]["TrainingJobName"] + "-" + event["detail"]["SecondaryStatus"]
    boto3.client("s3", endpoint_url=os.environ["KEEP_AT"]).put_object(
        Bucket="{BUCKET}", Key="events/" + name, Body=json.dumps(event))
"""


@pytest.mark.thorough
def test_each_change_is_an_event_in_order(make_emulator: MakeEmulator) -> None:
    events: list[dict[str, Any]] = []
    emulator = make_emulator(deliver=events.append)
    emulator.create("told", "sh", "-c", "exit 4", Tags=[{"Key": "queue-job", "Value": "told"}])
    job = emulator.ended("told")
    until(lambda: events and events[-1]["detail"]["TrainingJobStatus"] == "Failed")

    details = [event["detail"] for event in events]
    assert [detail["SecondaryStatus"] for detail in details] == [
        "Starting",
        "Downloading",
        "Training",
        "Uploading",
        "Failed",
    ]
    times = [detail["LastModifiedTime"] for detail in details]
    assert times == sorted(set(times))
    last = events[-1]
    assert {key: value for key, value in last.items() if key not in ("id", "time", "detail")} == {
        "version": "0",
        "detail-type": "SageMaker Training Job State Change",
        "source": "aws.sagemaker",
        "account": "000000000000",
        "region": "us-east-1",
        "resources": [job["TrainingJobArn"]],
    }
    detail = last["detail"]
    assert detail["Tags"] == {"queue-job": "told"}
    assert detail["FailureReason"] == job["FailureReason"]
    assert detail["ResourceConfig"] == job["ResourceConfig"]
    assert detail["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400}
    assert detail["RoleArn"] == job["RoleArn"]
    assert detail["LastModifiedTime"] == round(job["LastModifiedTime"].timestamp() * 1000)
    assert detail["CreationTime"] == round(job["CreationTime"].timestamp() * 1000)
    assert isinstance(detail["SecondaryStatusTransitions"][0]["StartTime"], int)
    assert len({event["id"] for event in events}) == len(events)


def test_an_event_that_is_stuck_keeps_no_job_and_no_call_waiting(make_emulator: MakeEmulator) -> None:
    go_on = threading.Event()

    def stuck(event: dict[str, Any]) -> None:
        go_on.wait()

    emulator = make_emulator(deliver=stuck)
    try:
        emulator.create("unhindered")
        assert emulator.ended("unhindered")["TrainingJobStatus"] == "Completed"
    finally:
        go_on.set()


def test_a_lost_event_does_not_hold_up_the_next(make_emulator: MakeEmulator) -> None:
    seen: list[str] = []

    def lossy(event: dict[str, Any]) -> None:
        seen.append(event["detail"]["SecondaryStatus"])
        if seen[-1] == "Starting":
            raise ConnectionError("lost")

    emulator = make_emulator(deliver=lossy)
    emulator.create("lossy")
    until(lambda: "Completed" in seen)


@pytest.mark.thorough
def test_the_targets_of_matching_rules_are_called(make_emulator: MakeEmulator, aws_url: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("keeper.py", KEEPER)
    function = client("lambda", aws_url).create_function(
        FunctionName="keeper",
        Runtime="python3.12",
        Role="arn:aws:iam::000000000000:role/keeper",
        Handler="keeper.handler",
        Code={"ZipFile": buffer.getvalue()},
        Environment={"Variables": {"KEEP_AT": aws_url}},
    )["FunctionArn"]
    events = client("events", aws_url)
    for rule, statuses in (("ends", ["Completed", "Failed", "Stopped"]), ("stops", ["Stopped"])):
        pattern = {"source": ["aws.sagemaker"], "detail": {"TrainingJobStatus": statuses}}
        events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
        events.put_targets(Rule=rule, Targets=[{"Id": "1", "Arn": function}])

    emulator: Emulator = make_emulator(deliver=None)
    emulator.create("ruled")
    until(lambda: emulator.keys("events/"))
    assert emulator.keys("events/") == ["events/ruled-Completed"]
    assert json.loads(emulator.read("events/ruled-Completed"))["detail"]["TrainingJobName"] == "ruled"
