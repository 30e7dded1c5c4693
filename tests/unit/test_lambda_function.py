"""The handler with its real parts, fed with every payload of events/, on moto's DynamoDB and SageMaker."""

import copy
import io
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Literal

import boto3
import pytest
from moto import mock_aws

from job_queue import lambda_function
from job_queue.adapters.telemetry import log
from tests.payloads import EVENTS, payload
from tests.unit.conftest import lines_of

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "ALLOWED_ROLE_ARNS": "arn:aws:iam::123456789012:role/training*",
    "MAX_CAPACITY": "2",
}
CONTEXT = SimpleNamespace(
    function_name="queue",
    memory_limit_in_mb=1024,
    invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:queue",
    aws_request_id="request-1",
    get_remaining_time_in_millis=lambda: 45_000,
)


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr(lambda_function, "_app", None)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with mock_aws():
        dynamodb = boto3.client("dynamodb")
        key_types: list[Literal["HASH", "RANGE"]] = ["HASH", "RANGE"]
        for table, keys in (("sagemaker-queue", ["jobName"]), ("sagemaker-queue-lines", ["line", "position"])):
            dynamodb.create_table(
                TableName=table,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
                KeySchema=[{"AttributeName": k, "KeyType": t} for k, t in zip(keys, key_types, strict=False)],
            )
        yield


def send(event: dict[str, Any]) -> Any:
    return lambda_function.lambda_handler(event, CONTEXT)  # type: ignore[arg-type]


def submitted(name: str = "job1") -> dict[str, Any]:
    """Submit the payload's job under a name; gives its row."""
    event = payload("api-add-job")
    event["body"] = json.dumps({**json.loads(event["body"]), "TrainingJobName": name})
    assert send(event)["statusCode"] == 202
    return row(name)


def row(name: str) -> dict[str, Any]:
    item: dict[str, Any] = boto3.resource("dynamodb").Table("sagemaker-queue").get_item(Key={"jobName": name})["Item"]
    return item


def told(name: str, job: dict[str, Any]) -> dict[str, Any]:
    """An event's payload, about this submission of the job."""
    event = payload(name)
    event["detail"]["Tags"]["queue-submission"] = job["submission"]
    event["detail"]["Tags"]["queue-attempt"] = str(job["attempt"])
    return event


def test_add_job_stores_the_articles_fields_and_launches() -> None:
    job = submitted()
    assert job["jobState"] == "running"
    assert job["priority"] == 1
    assert job["entryTime"] <= job["stateSince"]
    assert json.loads(job["jobDetails"])["TrainingJobName"] == "job1"
    launched = boto3.client("sagemaker").describe_training_job(TrainingJobName="job1-qstamp-1")
    assert launched["RoleArn"] == "arn:aws:iam::123456789012:role/training"


def test_the_reading_routes_answer() -> None:
    submitted()
    assert json.loads(send(payload("api-get-jobs"))["body"])["jobs"][0]["job"] == "job1"
    assert json.loads(send(payload("api-get-job"))["body"])["job"] == "job1"
    assert json.loads(send(payload("api-get-queue"))["body"])["pools"][0]["used"] == 1


def test_delete_job_cancels() -> None:
    for name in ("other1", "other2", "job1"):  # the third one waits: moto cannot stop a training job
        submitted(name)
    answer = send(payload("api-delete-job"))
    assert answer["statusCode"] == 202
    assert row("job1")["jobState"] == "stopped"


def test_an_in_progress_event_of_an_attempt_changes_nothing() -> None:
    job = submitted()
    assert send(told("sagemaker-in-progress", job)) is None
    assert row("job1") == job


@pytest.mark.parametrize(
    ("name", "job", "state"),
    [
        ("sagemaker-completed", "job1", "completed"),
        ("sagemaker-failed", "job2", "failed"),
        ("sagemaker-stopped", "job1", "stopped"),
    ],
)
def test_an_end_event_ends_the_job(name: str, job: str, state: str) -> None:
    before = submitted(job)
    assert send(told(name, before)) is None
    assert row(job)["jobState"] == state
    assert row(job)["expires"] > 0
    if state == "failed":
        assert row(job)["reason"] == payload(name)["detail"]["FailureReason"]


def test_an_external_job_that_sagemaker_does_not_know_is_not_counted() -> None:
    assert send(payload("sagemaker-external-in-progress")) is None
    assert json.loads(send(payload("api-get-queue"))["body"])["pools"][0]["external"] == 0


def test_the_schedule_brings_in_an_end_whose_event_was_lost() -> None:
    submitted()
    boto3.client("sagemaker").describe_training_job(TrainingJobName="job1-qstamp-1")  # moto completes it at a look
    lines = boto3.resource("dynamodb").Table("sagemaker-queue-lines")
    lease = {"line": "control", "position": "lease"}
    lines.update_item(
        Key=lease, UpdateExpression="SET reconciledAt = :long_ago", ExpressionAttributeValues={":long_ago": 0}
    )
    assert send(payload("schedule")) is None
    assert row("job1")["jobState"] == "completed"


def test_every_payload_is_fed_to_the_handler_without_an_error() -> None:
    for job in ("other1", "other2", "job1", "job2"):
        submitted(job)
    names = sorted(path.stem for path in EVENTS.glob("*.json"))
    assert len(names) >= 15
    for name in names:
        answer = send(copy.deepcopy(payload(name)))
        assert answer is None or answer["statusCode"] < 400, name


def test_an_unknown_event_is_ignored() -> None:
    assert send({"source": "somebody.else"}) is None


def test_when_an_invocation_ends_its_metrics_are_printed_and_its_events_are_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sqs, events = boto3.client("sqs"), boto3.client("events")
    url = sqs.create_queue(QueueName="mailbox")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="mailbox", EventPattern=json.dumps({"source": ["sagemaker-queue"]}))
    events.put_targets(Rule="mailbox", Targets=[{"Id": "mailbox", "Arn": arn}])
    submitted()
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    told = [json.loads(message["Body"])["detail-type"] for message in messages]
    assert sorted(told) == ["Training Job Queued", "Training Job Started"]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"_aws"')]
    assert {line.get("project") for line in lines} == {None, "default"}
    assert [line["CycleTime"] for line in lines if "CycleTime" in line]
    send(payload("api-get-queue"))
    assert '"_aws"' not in capsys.readouterr().out, "nothing happened, and nothing is measured twice"


@pytest.mark.parametrize(
    ("name", "id_of"),
    [
        ("api-get-queue", lambda event: event["requestContext"]["requestId"]),
        ("schedule", lambda event: event["id"]),
        ("sagemaker-completed", lambda event: event["id"]),
    ],
)
def test_log_lines_tell_what_caused_them(name: str, id_of: Callable[[Any], str], written: io.StringIO) -> None:
    event = payload(name)
    send(event)
    log.info("anything")
    assert {line["correlation_id"] for line in lines_of(written)} == {id_of(event)}


def test_without_eventbridge_everything_else_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_EVENTBRIDGE", "http://127.0.0.1:9")  # nobody listens there
    assert submitted()["jobState"] == "running"


def test_the_parts_are_kept_between_invocations() -> None:
    submitted()
    first = lambda_function._app
    send(payload("schedule"))
    assert lambda_function._app is first


# --- events that SageMaker did not send so -----------------------------------------------------------

SOURCE = "aws.sagemaker"


def event(**detail: Any) -> dict[str, Any]:
    return {"source": SOURCE, "detail-type": "SageMaker Training Job State Change", "detail": detail}


def tables() -> dict[str, Any]:
    """All that both tables hold, but for the control rows, which every cycle moves."""
    found = {}
    for name in ("sagemaker-queue", "sagemaker-queue-lines"):
        items = boto3.resource("dynamodb").Table(name).scan()["Items"]
        found[name] = [item for item in items if item.get("line") != "control"]
    return found


ODD: list[dict[str, Any]] = [
    {},
    {"source": SOURCE},
    {"source": SOURCE, "detail": None},
    {"source": SOURCE, "detail": []},
    {"source": SOURCE, "detail": "Completed"},
    event(),
    event(TrainingJobName="job1-qstamp-1"),
    event(TrainingJobStatus="Completed"),
    event(TrainingJobName=7, TrainingJobStatus="Completed"),
    event(TrainingJobName="", TrainingJobStatus="Completed"),
    event(TrainingJobName=["job1-qstamp-1"], TrainingJobStatus="Completed"),
    event(TrainingJobName="job1-qstamp-1", TrainingJobStatus=7),
    event(TrainingJobName="job1-qstamp-1", TrainingJobStatus=["Completed"]),
    event(TrainingJobName="x" * 1_000_000, TrainingJobStatus="Completed"),
    event(TrainingJobName="../job1", TrainingJobStatus="Completed"),
    event(TrainingJobName="\ud800", TrainingJobStatus="Completed"),
    event(TrainingJobName="nobodys", TrainingJobStatus="Completed", Tags={}),
    event(TrainingJobName="nobodys", TrainingJobStatus="Exploded", Tags={}),
    {"source": "somebody.else", "detail": {"TrainingJobName": "job1-qstamp-1", "TrainingJobStatus": "Completed"}},
    {"source": [SOURCE], "detail": {"TrainingJobName": "job1-qstamp-1", "TrainingJobStatus": "Completed"}},
    {"source": None, "Records": [{"eventSource": "aws:sqs", "body": "x" * 100_000}]},
]
FORGED = [
    ("queue-name", "another-queue"),
    ("queue-job", "job2"),
    ("queue-job", "nobodys"),
    ("queue-job", ""),
    ("queue-job", "x" * 1000),
    ("queue-submission", "another"),
    ("queue-attempt", "2"),
    ("queue-attempt", "1 "),
]


def test_an_event_that_is_none_of_sagemakers_changes_nothing() -> None:
    submitted()
    before = tables()
    for odd in ODD:
        assert send(copy.deepcopy(odd)) is None
        assert tables() == before, odd


def test_an_end_with_other_tags_than_the_recorded_attempts_ends_nothing() -> None:
    job = submitted()
    submitted("job2")
    before = tables()
    for tag, value in FORGED:
        forged = told("sagemaker-completed", job)
        forged["detail"]["Tags"][tag] = value
        assert send(forged) is None
        assert tables() == before, (tag, value)
