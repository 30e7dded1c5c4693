"""The handler with its real parts, fed with every payload of events/, on moto's DynamoDB and SageMaker."""

import copy
import io
import itertools
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from job_queue import app as app_module
from job_queue import lambda_function
from job_queue.adapters.items import job_from
from job_queue.adapters.records import shared_reads
from job_queue.adapters.settings import DeploymentSettings
from job_queue.adapters.telemetry import log
from job_queue.app import App
from job_queue.domain.launching.proof import attempt_tags
from tests.payloads import EVENTS, payload
from tests.unit.conftest import lines_of
from tests.waiting import PATIENCE

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "ALLOWED_ROLE_ARNS": "arn:aws:iam::123456789012:role/training*",
    "MAX_CAPACITY": "2",
    "ADMIN_ARNS": "arn:aws:iam::123456789012:role/researcher",
}
CONTEXT = SimpleNamespace(
    function_name="queue",
    memory_limit_in_mb=1024,
    invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:queue",
    aws_request_id="request-1",
    get_remaining_time_in_millis=lambda: int(1000 * PATIENCE),
)

TOKENS = itertools.count(1000, 1000)
READS: list[tuple[str, bool]] = []  # table, and whether the read was consistent


def note_read(params: dict[str, Any], **_: Any) -> None:
    """Note what a client asks DynamoDB for."""
    if "Key" in params or "KeyConditionExpression" in params:
        READS.append((params["TableName"], params.get("ConsistentRead", False)))


class Tables:
    """The three tables of the queue, which are made for each test."""

    def __init__(self, dynamodb: Any) -> None:
        self.jobs = self._create(dynamodb, "sagemaker-queue", {"jobName": "HASH"})
        self.lines = self._create(dynamodb, "sagemaker-queue-lines", {"line": "HASH", "position": "RANGE"})
        self.history = self._create(dynamodb, "sagemaker-queue-history", {"line": "HASH", "position": "RANGE"})
        # The process stays, and shares what it reads until a cycle raises the token: each test has tokens of its own.
        lease = {"line": "control", "position": "lease", "token": next(TOKENS), "expiresAt": 0, "owner": ""}
        self.lines.put_item(Item=lease)

    def _create(self, dynamodb: Any, name: str, keys: dict[str, str]) -> Any:
        return dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
        )

    def submitted(self, name: str = "job1") -> dict[str, Any]:
        """Submit the payload's job under a name; gives its row."""
        event = payload("api-add-job")
        event["body"] = json.dumps({**json.loads(event["body"]), "TrainingJobName": name})
        assert send(event)["statusCode"] == 202
        return self.row(name)

    def row(self, name: str) -> dict[str, Any]:
        item: dict[str, Any] = self.jobs.get_item(Key={"jobName": name})["Item"]
        return item

    def rows(self) -> tuple[Any, Any]:
        """All that both tables hold, but for the metadata, which every cycle moves."""
        lines = [item for item in self.lines.scan()["Items"] if item["line"] != "control"]
        return self.jobs.scan()["Items"], lines


@pytest.fixture(scope="module", autouse=True)
def app() -> Iterator[App]:
    """The queue of all these tests, whose clients take a second to make. All that it remembers is in the tables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        # No limit depends on the speed of this machine: events are sent before an invocation ends, and rows are shared
        # until a cycle has run, and not longer.
        for limit in ("NOTIFYING_SECONDS", "API_CYCLE_SECONDS", "CYCLE_SECONDS", "LOOK_AHEAD_SECONDS"):
            patch.setattr(app_module, limit, PATIENCE)
        patch.setattr(shared_reads, "SHARE_SECONDS", PATIENCE)
        patch.setattr(shared_reads, "RENEWALS", 1_000_000)
        session = boto3.Session()
        session.events.register("provide-client-params.dynamodb", note_read)
        patch.setattr(boto3, "DEFAULT_SESSION", session)
        yield App(DeploymentSettings.from_environment())


@pytest.fixture(scope="module")
def dynamodb(app: App) -> Any:
    return boto3.resource("dynamodb")


@pytest.fixture(autouse=True)
def tables(app: App, dynamodb: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    monkeypatch.setattr(lambda_function, "_app", app)
    with mock_aws():
        yield Tables(dynamodb)


def send(event: dict[str, Any]) -> Any:
    return lambda_function.lambda_handler(event, CONTEXT)  # type: ignore[arg-type]


def event_of(name: str, job: dict[str, Any]) -> dict[str, Any]:
    """An event's payload, about this submission of the job."""
    event = payload(name)
    event["detail"]["TrainingJobName"] = job["trainingJobName"]
    event["detail"]["Tags"] |= attempt_tags(job_from(json.loads(json.dumps(job, default=int))))  # boto3 gives Decimals
    return event


def test_add_job_stores_the_articles_fields_and_launches(tables: Tables) -> None:
    job = tables.submitted()
    assert job["jobState"] == "running"
    assert job["priority"] == 1
    assert job["entryTime"] <= job["stateSince"]
    assert json.loads(job["jobDetails"])["TrainingJobName"] == "job1"
    launched = boto3.client("sagemaker").describe_training_job(TrainingJobName="job1-qstamp-1")
    assert launched["RoleArn"] == "arn:aws:iam::123456789012:role/training"


def test_the_reading_routes_answer(tables: Tables) -> None:
    tables.submitted()
    assert json.loads(send(payload("api-get-jobs"))["body"])["jobs"][0]["job"] == "job1"
    assert json.loads(send(payload("api-get-job"))["body"])["job"] == "job1"
    assert json.loads(send(payload("api-get-queue"))["body"])["pools"][0]["used"] == 1


@pytest.mark.parametrize("name", ["api-get-jobs", "api-get-job", "api-get-queue"])
def test_a_look_reads_consistently_nothing_but_its_jobs_own_row(name: str, tables: Tables) -> None:
    for job in ("other1", "other2", "job1"):
        tables.submitted(job)
    READS.clear()
    assert send(payload(name))["statusCode"] == 200
    consistent = [table for table, is_consistent in READS if is_consistent]
    assert consistent == (["sagemaker-queue"] if name == "api-get-job" else [])
    assert (len(READS) == 4) is (name == "api-get-job")


def test_looks_of_one_process_share_their_reads(tables: Tables) -> None:
    tables.submitted()
    reads = []
    for _ in range(3):
        READS.clear()
        send(payload("api-get-queue"))
        reads.append(len(READS))
    assert reads[0] > 5, "all of it"
    assert reads[1:] == [1, 1], "the fencing token"


def test_delete_job_cancels(tables: Tables) -> None:
    for name in ("other1", "other2", "job1"):  # the third one waits: moto cannot stop a training job
        tables.submitted(name)
    answer = send(payload("api-delete-job"))
    assert answer["statusCode"] == 202
    assert tables.row("job1")["jobState"] == "stopped"


def test_an_in_progress_event_of_an_attempt_changes_its_stage_and_nothing_else(tables: Tables) -> None:
    job = tables.submitted()
    assert send(event_of("sagemaker-in-progress", job)) is None
    row = tables.row("job1")
    changed = {"version", "stage", "stageAt"}
    assert row["stage"] == "Training"
    assert {name: it for name, it in row.items() if name not in changed} == {
        name: it for name, it in job.items() if name not in changed
    }


@pytest.mark.parametrize(
    ("name", "job", "state"),
    [
        ("sagemaker-completed", "job1", "completed"),
        ("sagemaker-failed", "job2", "failed"),
        ("sagemaker-stopped", "job1", "stopped"),
    ],
)
def test_an_end_event_ends_the_job(name: str, job: str, state: str, tables: Tables) -> None:
    before = tables.submitted(job)
    assert send(event_of(name, before)) is None
    assert tables.row(job)["jobState"] == state
    assert tables.row(job)["expires"] > 0
    if state == "failed":
        assert tables.row(job)["reason"].startswith(payload(name)["detail"]["FailureReason"])


def test_an_external_job_that_sagemaker_does_not_know_is_not_counted() -> None:
    assert send(payload("sagemaker-external-in-progress")) is None
    assert json.loads(send(payload("api-get-queue"))["body"])["pools"][0]["external"] == 0


def test_a_batch_of_reports_is_handed_on(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(app, "mailboxes_changed", lambda reported, context: seen.extend(reported))
    assert send(payload("sqs-member-report")) is None
    assert seen == [("carrier--default--shared--1a2b3c4d-qstamp-1", "job1-qstamp-1")]


@pytest.mark.attack
def test_a_report_of_an_attempt_that_is_on_no_carrier_changes_nothing(tables: Tables) -> None:
    tables.submitted()
    before = tables.rows()
    assert send(payload("sqs-member-report")) is None
    assert tables.rows() == before


def test_the_schedule_brings_in_an_end_whose_event_was_lost(tables: Tables) -> None:
    tables.submitted()
    boto3.client("sagemaker").describe_training_job(TrainingJobName="job1-qstamp-1")  # moto completes it at a look
    assert send(payload("schedule")) is None
    assert tables.row("job1")["jobState"] == "completed"


def test_every_payload_is_fed_to_the_handler_without_an_error(tables: Tables) -> None:
    for job in ("other1", "other2", "job1", "job2"):
        tables.submitted(job)
    names = sorted(path.stem for path in EVENTS.glob("*.json"))
    assert len(names) >= 15
    for name in names:
        answer = send(copy.deepcopy(payload(name)))
        assert answer is None or answer["statusCode"] < 400, name


def test_an_unknown_event_is_ignored() -> None:
    assert send({"source": "somebody.else"}) is None


def test_when_an_invocation_ends_its_metrics_are_printed_and_its_events_are_sent(
    capsys: pytest.CaptureFixture[str],
    tables: Tables,
) -> None:
    sqs, events = boto3.client("sqs"), boto3.client("events")
    url = sqs.create_queue(QueueName="mailbox")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="mailbox", EventPattern=json.dumps({"source": ["sagemaker-queue"]}))
    events.put_targets(Rule="mailbox", Targets=[{"Id": "mailbox", "Arn": arn}])
    tables.submitted()
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    sent = [json.loads(message["Body"])["detail-type"] for message in messages]
    assert sorted(sent) == ["Training Job Queued", "Training Job Started"]
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


def test_without_eventbridge_everything_else_goes_on(monkeypatch: pytest.MonkeyPatch, tables: Tables) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_EVENTBRIDGE", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr(lambda_function, "_app", None)
    assert tables.submitted()["jobState"] == "running"


def test_the_parts_are_made_once_and_kept_between_invocations(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(lambda_function, "_app", None)
    for _ in range(2):
        send(payload("schedule"))
        made.append(lambda_function._app)
    assert made[0] is made[1] is not None


# --- events that SageMaker did not send so -----------------------------------------------------------

SOURCE = "aws.sagemaker"


def event(**detail: Any) -> dict[str, Any]:
    return {"source": SOURCE, "detail-type": "SageMaker Training Job State Change", "detail": detail}


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


def test_an_event_that_is_none_of_sagemakers_changes_nothing(tables: Tables) -> None:
    tables.submitted()
    before = tables.rows()
    for odd in ODD:
        assert send(copy.deepcopy(odd)) is None
        assert tables.rows() == before, odd
