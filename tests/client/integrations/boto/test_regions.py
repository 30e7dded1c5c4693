"""Jobs whose attempts are in other regions and accounts, as hooked boto3 clients show them under the job's name."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from sagemaker_queue import QueueClient
from sagemaker_queue.integrations.boto.sessions import hooks_of, output_address
from sagemaker_queue.workflows.job_logs.attempt_logs import LOG_GROUP
from tests.client.integrations.boto.hooked_clients import ARN, REQUEST, HookedClients, refusal
from tests.client.other_account import session_of_profile

HOME, OHIO, LAB = "eu-west-1", "us-east-2", "222222222222"
NAMESPACE = "/aws/sagemaker/TrainingJobs"
DIMENSIONS = [{"Name": "TrainingJobName", "Value": "job1"}]
BEGIN = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
WITHIN = {"StartTime": BEGIN - timedelta(hours=1), "EndTime": BEGIN + timedelta(hours=1)}
POLICY = {
    "version": 1,
    "policy": {"projects": [{"name": "vision", "bucket_by_region": {HOME: "bucket", OHIO: "ohio"}}]},
}


class Elsewhere:
    """Clients in the region and account of the second attempt."""

    def __init__(self, session: Any, region: str) -> None:
        create: Any = session.client
        self.sagemaker, self.logs, self.cloudwatch = (
            create(service, region_name=region) for service in ("sagemaker", "logs", "cloudwatch")
        )


@pytest.fixture
def ohio(clients: HookedClients) -> Elsewhere:
    return Elsewhere(boto3.Session("AKIDEXAMPLE", "not-a-secret"), OHIO)


@pytest.fixture
def lab(clients: HookedClients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    return Elsewhere(session_of_profile(LAB, "lab", tmp_path, monkeypatch), OHIO)


def moved(state: str = "running", **place: str) -> dict[str, Any]:
    """Of a job whose first attempt ran in the queue's region, and whose second attempt runs elsewhere."""
    place = place or {"region": OHIO}
    outcome = None if state == "running" else state
    return {
        **{"state": state, "trainingJobName": "job1-qstamp-2", "attempt": 2, "project": "vision", **place},
        "attempts": [
            {"attempt": 1, "trainingJobName": "job1-qstamp-1", "outcome": "preempted"},
            {"attempt": 2, "trainingJobName": "job1-qstamp-2", "outcome": outcome, **place},
        ],
    }


def written(client: Any, attempt: int) -> None:
    client.create_log_group(logGroupName=LOG_GROUP)
    stream = {"logGroupName": LOG_GROUP, "logStreamName": f"job1-qstamp-{attempt}/algo-1-170000000{attempt}"}
    client.create_log_stream(**stream)
    begin = int((datetime.now(timezone.utc) - timedelta(hours=1)).timestamp() * 1000)
    client.put_log_events(**stream, logEvents=[{"timestamp": begin + attempt, "message": f"of {attempt}"}])


def published(client: Any, attempt: int) -> None:
    data = {
        "MetricName": "loss",
        "Dimensions": [{"Name": "TrainingJobName", "Value": f"job1-qstamp-{attempt}"}],
        "Value": float(attempt),
        "Timestamp": BEGIN + timedelta(minutes=attempt),
    }
    client.put_metric_data(Namespace=NAMESPACE, MetricData=[data])


class TestDescribe:
    def test_it_answers_from_the_region_of_the_attempt(self, clients: HookedClients, ohio: Elsewhere) -> None:
        clients.attempt("job1-qstamp-1")
        there = {"OutputDataConfig": {"S3OutputPath": "s3://ohio/out"}, "TrainingJobName": "job1-qstamp-2"}
        ohio.sagemaker.create_training_job(**{**REQUEST, **there})
        clients.job(**moved())
        described = clients.describe()
        assert described["TrainingJobName"] == "job1"
        assert described["OutputDataConfig"]["S3OutputPath"] == "s3://ohio/out"  # of SageMaker's description there
        assert described["TrainingJobArn"] == f"{ARN}/job1"  # the job's ARN does not change with its region

    def test_in_another_account_with_its_profile(
        self, clients: HookedClients, lab: Elsewhere, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SAGEMAKER_QUEUE_ACCOUNT_PROFILES", f"{LAB}=lab")
        hooks = hooks_of(clients.session)
        monkeypatch.setattr(hooks.jobs, "queue", QueueClient(url=clients.server.url, boto_session=clients.session))
        there = {"OutputDataConfig": {"S3OutputPath": "s3://ohio/out"}, "TrainingJobName": "job1-qstamp-2"}
        lab.sagemaker.create_training_job(**{**REQUEST, **there})
        clients.job(**moved(region=OHIO, account=LAB))
        assert clients.describe()["OutputDataConfig"]["S3OutputPath"] == "s3://ohio/out"

    def test_in_another_account_without_a_profile_the_queue_s_record_answers(
        self, clients: HookedClients, caplog: pytest.LogCaptureFixture
    ) -> None:
        hooks_of(clients.session).renew()  # a client of another test would have the profile
        clients.job(**moved("completed", region=OHIO, account=LAB))
        clients.server.answers(200, POLICY)
        described = clients.describe()
        assert described["TrainingJobStatus"] == "Completed"
        model = "s3://ohio/out/job1-qstamp-2/output/model.tar.gz"
        assert described["ModelArtifacts"]["S3ModelArtifacts"] == model
        assert f"smq config set account_profiles {LAB}=PROFILE" in caplog.text

    def test_without_a_profile_the_times_of_the_last_attempt_are_those_of_the_queue_s_record(
        self, clients: HookedClients
    ) -> None:
        hooks_of(clients.session).renew()  # a client of another test would have the profile
        job = moved("completed", region=OHIO, account=LAB)
        job["attempts"][1] |= {"started": "2026-11-21T10:01:00Z", "ended": "2026-11-21T10:31:00Z"}
        clients.job(**job)
        clients.server.answers(200, POLICY)
        described = clients.describe()
        assert described["TrainingStartTime"] == datetime(2026, 11, 21, 10, 1, tzinfo=timezone.utc)
        assert (described["TrainingTimeInSeconds"], described["BillableTimeInSeconds"]) == (1800, 1800)

    def test_tags_are_read_and_changed_there(self, clients: HookedClients, ohio: Elsewhere) -> None:
        ohio.sagemaker.create_training_job(**{**REQUEST, "TrainingJobName": "job1-qstamp-2"})
        clients.job(**moved())
        clients.sagemaker.add_tags(ResourceArn=f"{ARN}/job1", Tags=[{"Key": "team", "Value": "a"}])
        clients.job(**moved())
        tags = clients.sagemaker.list_tags(ResourceArn=f"{ARN}/job1")["Tags"]
        assert {"Key": "team", "Value": "a"} in tags


class TestLogs:
    def test_a_stream_has_the_lines_of_both_regions(self, clients: HookedClients, ohio: Elsewhere) -> None:
        written(clients.direct.logs, 1)
        written(ohio.logs, 2)
        clients.job(**moved("completed"))
        (stream,) = clients.logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix="job1/")["logStreams"]
        page = clients.logs.get_log_events(
            logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"], startFromHead=True
        )
        assert [event["message"] for event in page["events"]] == ["of 1", "of 2"]
        found = clients.logs.filter_log_events(logGroupName=LOG_GROUP, logStreamNamePrefix="job1/")
        assert [event["message"] for event in found["events"]] == ["of 1", "of 2"]

    def test_the_arn_of_the_log_group_is_not_sent_to_another_region(
        self, clients: HookedClients, ohio: Elsewhere
    ) -> None:
        written(ohio.logs, 2)
        there = moved("completed")
        clients.job(**{**there, "attempts": there["attempts"][1:]})
        group = f"arn:aws:logs:{HOME}:123456789012:log-group:{LOG_GROUP}"
        found = clients.logs.filter_log_events(logGroupIdentifier=group, logStreamNamePrefix="job1/")
        assert [event["message"] for event in found["events"]] == ["of 2"]

    def test_without_a_profile_the_error_names_it(self, clients: HookedClients) -> None:
        written(clients.direct.logs, 1)
        clients.job(**moved("completed", account=LAB))
        with pytest.raises(ClientError, match=f"job1 is in account {LAB}, and no AWS profile") as error:
            clients.logs.filter_log_events(logGroupName=LOG_GROUP, logStreamNamePrefix="job1/")
        assert refusal(error) == ("ValidationException", 400)


class TestMetrics:
    @pytest.fixture(autouse=True)
    def points(self, clients: HookedClients, ohio: Elsewhere) -> None:
        published(clients.direct.cloudwatch, 1)
        published(ohio.cloudwatch, 2)

    def query(self, **more: Any) -> dict[str, Any]:
        metric = {"Namespace": NAMESPACE, "MetricName": "loss", "Dimensions": DIMENSIONS}
        return {"Id": "loss", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}, **more}

    def test_statistics_have_the_points_of_both_regions(self, clients: HookedClients) -> None:
        clients.job(**moved("completed"))
        answer = clients.cloudwatch.get_metric_statistics(
            Namespace=NAMESPACE, MetricName="loss", Dimensions=DIMENSIONS, Period=60, Statistics=["Sum"], **WITHIN
        )
        assert [point["Sum"] for point in answer["Datapoints"]] == [1, 2]

    def test_data_have_the_points_of_both_regions(self, clients: HookedClients) -> None:
        clients.job(**moved("completed"))
        answer = clients.cloudwatch.get_metric_data(
            MetricDataQueries=[self.query()], ScanBy="TimestampAscending", **WITHIN
        )
        (result,) = answer["MetricDataResults"]
        assert (result["Id"], result["Values"]) == ("loss", [1, 2])

    def test_several_queries_without_an_expression_have_the_points_of_both_regions(
        self, clients: HookedClients
    ) -> None:
        clients.job(**moved("completed"))
        queries = [self.query(), self.query(Id="again")]
        answer = clients.cloudwatch.get_metric_data(MetricDataQueries=queries, ScanBy="TimestampAscending", **WITHIN)
        assert [(it["Id"], it["Values"]) for it in answer["MetricDataResults"]] == [("loss", [1, 2]), ("again", [1, 2])]

    def test_an_expression_over_two_regions_is_refused(self, clients: HookedClients) -> None:
        clients.job(**moved("completed"))
        double = {"Id": "double", "Expression": "2 * loss"}
        with pytest.raises(ClientError, match="in one region and account") as error:
            clients.cloudwatch.get_metric_data(MetricDataQueries=[self.query(), double], **WITHIN)
        assert refusal(error) == ("ValidationException", 400)


def test_addresses_of_outputs_have_the_bucket_of_the_region(clients: HookedClients, queue: QueueClient) -> None:
    clients.job(**moved("completed"))
    clients.server.answers(200, POLICY)
    address = output_address("s3://bucket/out/job1/output/model.tar.gz", queue=queue)
    assert address == "s3://ohio/out/job1-qstamp-2/output/model.tar.gz"
