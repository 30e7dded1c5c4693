"""Plain boto3 clients whose training jobs go through the queue; SageMaker, CloudWatch and S3 are moto's."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError
from moto import mock_aws

from sagemaker_queue import ConfigError, QueueClient, boto_session, install
from sagemaker_queue.job_logs.attempt_logs import LOG_GROUP
from sagemaker_queue.transport import ATTEMPTS
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
PREEMPTED = {
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


class World:
    """Clients that are hooked and clients that are not, and the queue's script. They take a second to make."""

    server: ScriptedServer

    def __init__(self) -> None:
        self.session = boto_session(
            boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="eu-west-1"),
            queue=QueueClient(url="http://127.0.0.1:9/prod", region="eu-west-1"),
        )
        self.sagemaker, self.logs, self.cloudwatch = self.clients(self.session)
        self.direct = Direct(*self.clients(boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="eu-west-1")))

    def clients(self, session: Any) -> list[Any]:
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


@pytest.fixture(scope="module")
def lasting_world() -> World:
    return World()


@pytest.fixture
def world(lasting_world: World, server: ScriptedServer, queue: QueueClient) -> Iterator[World]:
    lasting_world.server = server
    boto_session(lasting_world.session, queue=queue, preflight=False)
    with mock_aws():
        yield lasting_world
    assert not server.script, "not all answers were asked for"


def refusal(error: pytest.ExceptionInfo[ClientError]) -> tuple[str, int]:
    answer = error.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


class TestCreate:
    def test_it_is_queued_and_sagemaker_gets_nothing(self, world: World) -> None:
        world.server.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        assert world.sagemaker.create_training_job(**REQUEST)["TrainingJobArn"] == f"{ARN}/job1"
        (received,) = world.server.received
        assert (received.method, received.path) == ("POST", "/prod/add-job?preflight=false")
        assert json.loads(received.body) == REQUEST
        assert world.direct.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []

    def test_botocore_still_looks_at_the_request_first(self, world: World) -> None:
        with pytest.raises(ParamValidationError):
            world.sagemaker.create_training_job(TrainingJobName="job1")
        assert world.server.received == []

    def test_what_is_certain_to_fail_is_not_even_sent(self, world: World, queue: QueueClient) -> None:
        boto_session(world.session, queue=queue)
        with pytest.raises(ClientError, match="OutputDataConfig.S3OutputPath") as error:
            world.sagemaker.create_training_job(**REQUEST)
        assert refusal(error) == ("ValidationException", 400)
        assert world.server.received == []

    @pytest.mark.parametrize(
        ("status", "code", "expected"),
        [
            (409, "NameTaken", ("ResourceInUse", 400)),
            (400, "InvalidRequest", ("ValidationException", 400)),
            (413, "TooLarge", ("ValidationException", 400)),
            (403, "Forbidden", ("AccessDeniedException", 403)),
        ],
    )
    def test_a_refusal_is_an_error_of_sagemakers(
        self, world: World, status: int, code: str, expected: tuple[str, int]
    ) -> None:
        world.server.answers(status, refused(code, "No, because."))
        with pytest.raises(ClientError, match=r"No, because\.") as error:
            world.sagemaker.create_training_job(**REQUEST)
        assert refusal(error) == expected

    def test_a_client_of_another_region_is_not_taken_to_the_queues(self, world: World) -> None:
        elsewhere = world.session.client("sagemaker", region_name="eu-central-1")
        with pytest.raises(ClientError, match="runs jobs in eu-west-1, .* one of eu-central-1") as error:
            elsewhere.create_training_job(**REQUEST)
        assert refusal(error) == ("ValidationException", 400)
        with pytest.raises(ClientError):  # SageMaker's
            elsewhere.describe_training_job(TrainingJobName="job1")
        assert world.server.received == []

    def test_a_taken_name_is_the_clients_own_exception(self, world: World) -> None:
        world.server.answers(409, refused("NameTaken", "Taken."))
        with pytest.raises(world.sagemaker.exceptions.ResourceInUse):
            world.sagemaker.create_training_job(**REQUEST)

    def test_an_outage(self, world: World) -> None:
        for _ in range(ATTEMPTS):
            world.server.answers(503, {"message": "later"})
        with pytest.raises(ClientError) as error:
            world.sagemaker.create_training_job(**REQUEST)
        assert refusal(error) == ("ServiceUnavailable", 503)

    def test_warnings_are_logged(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        world.server.answers(200, {"job": "job1", "state": "completed", "warnings": ["no CheckpointConfig"]})
        world.sagemaker.create_training_job(**REQUEST)
        assert "job1: no CheckpointConfig" in caplog.messages
        assert "job1 was submitted before, so it is not run again; another name runs it" in caplog.messages

    def test_a_job_that_fails_at_once_was_not_submitted_before(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        reason = {"code": "FAILED", "message": "no such image"}
        world.server.answers(202, {"job": "job1", "state": "failed", "reason": reason})
        world.sagemaker.create_training_job(**REQUEST)
        assert caplog.messages == ["job1 is failed: no such image"]


class TestDescribe:
    def test_a_job_that_waits(self, world: World) -> None:
        world.job(**WAITING)
        described = world.describe()
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Pending")
        assert (described["TrainingJobName"], described["TrainingJobArn"]) == ("job1", f"{ARN}/job1")
        assert described["ResourceConfig"]["InstanceCount"] == 2
        (transition,) = described["SecondaryStatusTransitions"]
        assert transition["StatusMessage"] == "job1 is pending, number 3 in the queue: 2 of 2 instances are used"
        assert described["LastModifiedTime"] == transition["StartTime"] == datetime(2026, 11, 21, 10, tzinfo=UTC)
        assert "Tags" not in described

    def test_a_job_that_was_preempted(self, world: World) -> None:
        world.job(**PREEMPTED)
        described = world.describe()
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Pending")
        told = [(each["Status"], each["StatusMessage"]) for each in described["SecondaryStatusTransitions"]]
        assert told == [
            ("Training", "accepted"),
            ("Interrupted", "made room for job2"),
            ("Pending", "job1 is preempted, number 1 in the queue"),
        ]

    @pytest.mark.parametrize(("state", "status"), [("running", "InProgress"), ("completed", "Completed")])
    def test_an_attempt_under_the_jobs_name(self, world: World, state: str, status: str) -> None:
        world.attempt("job1-qstamp-2", HyperParameters={"of": "the attempt"})
        world.job(**twice_run(state))
        described = world.describe()
        assert described["HyperParameters"] == {"of": "the attempt"}
        assert (described["TrainingJobName"], described["TrainingJobArn"]) == ("job1", f"{ARN}/job1")
        assert described["TrainingJobStatus"] in (status, "Completed")  # moto's jobs complete at once

    @pytest.mark.parametrize("status", ["Stopping", "Stopped", "Failed"])
    def test_a_job_that_is_being_preempted_or_tried_again(
        self, world: World, status: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.attempt("job1-qstamp-2")
        set_status(status)
        world.job(**{**twice_run("running"), "state": "stopping"})
        described = world.describe()
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Interrupted")

    def test_a_job_that_is_being_cancelled(self, world: World) -> None:
        world.attempt("job1-qstamp-2")
        set_status("InProgress")
        world.job(**twice_run("running"), cancelRequested=True)
        assert world.describe()["TrainingJobStatus"] == "Stopping"

    def test_a_job_that_failed_at_its_launch(self, world: World) -> None:
        world.job(
            state="failed", reason={"code": "FAILED", "message": "no such image"}, trainingJobName="job1-qstamp-1"
        )
        described = world.describe()
        assert (described["TrainingJobStatus"], described["FailureReason"]) == ("Failed", "no such image")

    def test_a_job_that_was_cancelled_while_it_waited(self, world: World) -> None:
        cancelled = {"state": "stopped", "at": "2026-11-21T11:00:00Z", "attempt": 1, "cause": "cancelled by ann"}
        reason = {"code": "STOPPED", "message": "cancelled by ann"}
        world.job(state="stopped", reason=reason, history=[cancelled])
        described = world.describe()
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("Stopped", "Stopped")
        assert described["SecondaryStatusTransitions"][-1]["StatusMessage"] == "job1 is stopped: cancelled by ann"

    def test_a_limit_that_the_request_leaves_to_sagemaker(self, world: World) -> None:
        request = {name: value for name, value in REQUEST.items() if name != "StoppingCondition"}
        world.job(**{**WAITING, "request": request})
        assert world.describe()["StoppingCondition"] == {"MaxRuntimeInSeconds": 24 * 60 * 60}

    def test_a_job_whose_attempt_was_deleted(self, world: World) -> None:
        world.job(**twice_run("completed"))
        described = world.describe()
        assert described["TrainingJobStatus"] == "Completed"
        assert described["ModelArtifacts"]["S3ModelArtifacts"] == "s3://bucket/out/job1-qstamp-2/output/model.tar.gz"

    def test_a_job_that_the_queue_does_not_know_is_sagemakers(self, world: World) -> None:
        world.attempt("job1")
        world.unknown()
        assert world.describe()["TrainingJobArn"] == f"{ARN}/job1"

    def test_nobody_knows_it(self, world: World) -> None:
        world.unknown()
        with pytest.raises(ClientError) as error:
            world.describe()
        assert refusal(error)[0] == "ValidationException"

    def test_an_attempts_own_name_is_not_looked_up(self, world: World) -> None:
        world.attempt("job1-qstamp-1")
        described = world.sagemaker.describe_training_job(TrainingJobName="job1-qstamp-1")
        assert described["TrainingJobName"] == "job1-qstamp-1"
        assert world.server.received == []


class TestStop:
    def test_it_cancels(self, world: World) -> None:
        world.job(state="running")
        world.server.answers(202, {"job": "job1", "state": "running"})
        world.sagemaker.stop_training_job(TrainingJobName="job1")
        assert [received.method for received in world.server.received] == ["GET", "DELETE"]

    def test_an_ended_job_cannot_be_stopped(self, world: World) -> None:
        world.job(state="completed")
        world.server.answers(200, {"job": "job1", "state": "completed"})
        with pytest.raises(ClientError, match="in status Completed") as error:
            world.sagemaker.stop_training_job(TrainingJobName="job1")
        assert refusal(error)[0] == "ValidationException"


class TestUpdateAndDelete:
    def test_a_job_that_waits_cannot_be_updated(self, world: World) -> None:
        world.job(**WAITING)
        with pytest.raises(ClientError, match="number 3 in the queue.*It can be updated once it runs") as error:
            world.sagemaker.update_training_job(TrainingJobName="job1", RemoteDebugConfig={"EnableRemoteDebug": True})
        assert refusal(error)[0] == "ValidationException"

    def test_a_job_that_lives_cannot_be_deleted(self, world: World) -> None:
        world.job(**twice_run("running"))
        with pytest.raises(ClientError, match="It can be deleted once it has ended"):
            world.sagemaker.delete_training_job(TrainingJobName="job1")


class TestTags:
    def test_of_a_job_that_waits_are_those_of_its_request(self, world: World) -> None:
        world.job(**WAITING)
        assert world.sagemaker.list_tags(ResourceArn=f"{ARN}/job1")["Tags"] == REQUEST["Tags"]

    def test_of_an_attempt_are_without_the_queues_own(self, world: World) -> None:
        tags = [{"Key": "team", "Value": "vision"}, {"Key": "queue-job", "Value": "job1"}]
        world.attempt("job1-qstamp-2", Tags=tags)
        world.job(**twice_run("running"))
        assert world.sagemaker.list_tags(ResourceArn=f"{ARN}/job1")["Tags"] == tags[:1]

    def test_they_are_changed_on_the_attempt(self, world: World) -> None:
        world.attempt("job1-qstamp-2", Tags=[])
        for _ in range(3):
            world.job(**twice_run("running"))
        world.sagemaker.add_tags(
            ResourceArn=f"{ARN}/job1", Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
        )
        world.sagemaker.delete_tags(ResourceArn=f"{ARN}/job1", TagKeys=["b"])
        assert world.sagemaker.list_tags(ResourceArn=f"{ARN}/job1")["Tags"] == [{"Key": "a", "Value": "1"}]

    def test_while_it_waits_they_cannot_be_changed(self, world: World) -> None:
        world.job(**WAITING)
        with pytest.raises(ClientError, match="tags can be changed once it runs"):
            world.sagemaker.add_tags(ResourceArn=f"{ARN}/job1", Tags=[{"Key": "a", "Value": "1"}])

    def test_of_other_resources_are_sagemakers(self, world: World) -> None:
        model = {
            "ModelName": "job1",
            "ExecutionRoleArn": REQUEST["RoleArn"],
            "Tags": [{"Key": "of", "Value": "a model"}],
        }
        arn = world.direct.sagemaker.create_model(**model, PrimaryContainer={"Image": "image"})["ModelArn"]
        assert world.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "of", "Value": "a model"}]
        assert world.server.received == []


class TestLogs:
    @pytest.fixture(autouse=True)
    def streams(self, world: World) -> None:
        """What two attempts on two instances have written."""
        logs = world.direct.logs
        logs.create_log_group(logGroupName=LOG_GROUP)
        begin = int((datetime.now(UTC) - timedelta(hours=1)).timestamp() * 1000)
        for attempt in (1, 2):
            for host in (1, 2):
                name = f"job1-qstamp-{attempt}/algo-{host}-170000000{attempt}"
                logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=name)
                events = [
                    {"timestamp": begin + 1000 * (10 * attempt + line), "message": f"{attempt}.{host}.{line}"}
                    for line in range(3)
                ]
                logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=name, logEvents=events)

    def names(self, world: World, prefix: str = "job1/") -> list[str]:
        answer = world.logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=prefix, limit=1)
        return [stream["logStreamName"] for stream in answer["logStreams"]]

    def test_there_is_one_stream_for_each_instance(self, world: World) -> None:
        world.job(**twice_run("running"))
        assert self.names(world) == ["job1/algo-1-1700000001", "job1/algo-2-1700000001"]
        assert self.names(world, "job1/algo-2") == ["job1/algo-2-1700000001"]
        assert self.names(world, "job1") == ["job1/algo-1-1700000001", "job1/algo-2-1700000001"]

    def test_a_job_that_waits_has_none(self, world: World) -> None:
        world.job(**WAITING)
        assert self.names(world) == []

    def test_a_stream_has_the_lines_of_all_attempts(self, world: World) -> None:
        world.job(**twice_run("running"))
        messages: list[str] = []
        token: dict[str, str] = {}
        for _ in range(10):
            page = world.logs.get_log_events(
                logGroupName=LOG_GROUP, logStreamName="job1/algo-2-1700000001", startFromHead=True, limit=2, **token
            )
            messages += [event["message"] for event in page["events"]]
            token = {"nextToken": page["nextForwardToken"]}
        assert messages == ["1.2.0", "1.2.1", "1.2.2", "2.2.0", "2.2.1", "2.2.2"]

    def test_a_time_in_the_second_attempt(self, world: World) -> None:
        world.job(**twice_run("running"))
        stream = "job1/algo-1-1700000001"
        arguments = {"logGroupName": LOG_GROUP, "logStreamName": stream, "startFromHead": True, "limit": 3}
        first = world.logs.get_log_events(**arguments)
        second = world.logs.get_log_events(**arguments, nextToken=first["nextForwardToken"])
        after = second["events"][1]["timestamp"]
        page = world.logs.get_log_events(**arguments, startTime=after)
        assert [event["message"] for event in page["events"]] == ["2.1.1", "2.1.2"]

    @pytest.mark.parametrize("from_head", [True, False])
    def test_one_page_has_all_attempts_if_there_is_room(self, world: World, from_head: bool) -> None:
        world.job(**twice_run("running"))
        page = world.logs.get_log_events(
            logGroupName=LOG_GROUP, logStreamName="job1/algo-1-1700000001", startFromHead=from_head
        )
        messages = [event["message"] for event in page["events"]]
        assert messages == ["1.1.0", "1.1.1", "1.1.2", "2.1.0", "2.1.1", "2.1.2"]

    def test_from_the_tail(self, world: World) -> None:
        world.job(**twice_run("running"))
        page = world.logs.get_log_events(logGroupName=LOG_GROUP, logStreamName="job1/algo-1-1700000001", limit=1)
        assert [event["message"] for event in page["events"]] == ["2.1.2"]

    def test_a_prefix_of_several_jobs_is_no_job(self, world: World) -> None:
        world.unknown()
        assert self.names(world, "job") == ["job1-qstamp-1/algo-1-1700000001"]  # as many as were asked for

    @pytest.mark.parametrize(
        "chosen",
        [
            {"logStreamNames": ["job1/algo-1-1700000001"]},
            {"logStreamNamePrefix": "job1/algo-1"},
            {"logStreamNamePrefix": "job1"},
        ],
    )
    def test_filtered(self, world: World, chosen: dict[str, Any]) -> None:
        world.job(**twice_run("running"))
        pages = world.logs.get_paginator("filter_log_events").paginate(logGroupName=LOG_GROUP, **chosen)
        events = [event for page in pages for event in page["events"] if "/algo-1-" in event["logStreamName"]]
        assert [event["message"] for event in events] == ["1.1.0", "1.1.1", "1.1.2", "2.1.0", "2.1.1", "2.1.2"]
        assert {event["logStreamName"].partition("/")[0] for event in events} == {"job1"}

    def test_other_groups_are_left_alone(self, world: World) -> None:
        world.direct.logs.create_log_group(logGroupName="/mine")
        world.logs.describe_log_streams(logGroupName="/mine", logStreamNamePrefix="job1/")
        assert world.server.received == []


class TestMetrics:
    NAMESPACE = "/aws/sagemaker/TrainingJobs"

    @pytest.fixture(autouse=True)
    def published(self, world: World) -> None:
        for attempt, loss in ((1, 0.5), (2, 0.25)):
            dimensions = [{"Name": "TrainingJobName", "Value": f"job1-qstamp-{attempt}"}]
            data = {"MetricName": "loss", "Dimensions": dimensions, "Value": loss}
            world.direct.cloudwatch.put_metric_data(Namespace=self.NAMESPACE, MetricData=[data])

    def ago(self) -> dict[str, Any]:
        now = datetime.now(UTC)
        return {"StartTime": now - timedelta(hours=1), "EndTime": now + timedelta(hours=1)}

    def test_statistics_are_those_of_all_attempts(self, world: World) -> None:
        world.job(**twice_run("completed"))
        answer = world.cloudwatch.get_metric_statistics(
            Namespace=self.NAMESPACE,
            MetricName="loss",
            Dimensions=[{"Name": "TrainingJobName", "Value": "job1"}],
            Period=60,
            Statistics=["Average"],
            **self.ago(),
        )
        assert [point["Average"] for point in answer["Datapoints"]] == [0.5, 0.25]

    def test_data_are_those_of_the_last_one(self, world: World) -> None:
        world.job(**twice_run("completed"))
        dimensions = [{"Name": "TrainingJobName", "Value": "job1"}]
        metric = {"Namespace": self.NAMESPACE, "MetricName": "loss", "Dimensions": dimensions}
        query = {"Id": "loss", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Average"}}
        answer = world.cloudwatch.get_metric_data(MetricDataQueries=[query], **self.ago())
        assert answer["MetricDataResults"][0]["Values"] == [0.25]


class TestModels:
    def create(self, world: World, address: str) -> str:
        world.sagemaker.create_model(
            ModelName="model",
            ExecutionRoleArn=REQUEST["RoleArn"],
            PrimaryContainer={"Image": "image", "ModelDataUrl": address},
        )
        described = world.direct.sagemaker.describe_model(ModelName="model")
        return str(described["PrimaryContainer"]["ModelDataUrl"])

    def test_an_address_made_from_the_jobs_name_is_the_last_attempts(self, world: World) -> None:
        world.job(**twice_run("completed"))
        made = self.create(world, "s3://bucket/out/job1/output/model.tar.gz")
        assert made == "s3://bucket/out/job1-qstamp-2/output/model.tar.gz"

    def test_another_folder_is_another_model(self, world: World) -> None:
        world.job(**twice_run("completed"))
        address = "s3://bucket/elsewhere/job1/output/model.tar.gz"
        assert self.create(world, address) == address

    def test_any_other_address_is_as_it_is(self, world: World) -> None:
        assert self.create(world, "s3://bucket/mine.tar.gz") == "s3://bucket/mine.tar.gz"


def test_a_tuning_job_goes_to_sagemaker_directly(world: World, caplog: pytest.LogCaptureFixture) -> None:
    config = {
        "Strategy": "Random",
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 1},
    }
    with caplog.at_level(logging.WARNING, "sagemaker_queue"):
        world.sagemaker.create_hyper_parameter_tuning_job(
            HyperParameterTuningJobName="tuning", HyperParameterTuningJobConfig=config
        )
    assert "The tuning job goes to SageMaker directly, not through the queue" in caplog.text


class TestSessions:
    def test_the_default_one(self, server: ScriptedServer, queue: QueueClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        install(queue=queue, preflight=False)
        server.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        client: Any = boto3.client("sagemaker")
        assert client.create_training_job(**REQUEST)["TrainingJobArn"] == f"{ARN}/job1"

    def test_a_new_one_is_like_the_default_one_and_leaves_it_alone(
        self, server: ScriptedServer, queue: QueueClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session("AKIDOTHER", "another", region_name="us-west-2"))
        session = boto_session(queue=queue)
        credentials = session.get_credentials()
        assert credentials is not None
        assert (credentials.access_key, session.region_name) == ("AKIDOTHER", "us-west-2")
        with mock_aws():
            direct: Any = boto3.client("sagemaker")
            direct.create_training_job(**REQUEST)
        assert server.received == []

    def test_another_queue_replaces_the_first(self, server: ScriptedServer, queue: QueueClient) -> None:
        session = boto_session(boto3.Session(), queue=QueueClient(url="http://127.0.0.1:9/prod"))
        client: Any = session.client("sagemaker")
        boto_session(session, queue=queue, preflight=False)
        server.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        client.create_training_job(**REQUEST)
        assert len(server.received) == 1

    def test_no_queue_is_configured(self) -> None:
        with pytest.raises(ConfigError, match="No queue is configured"):
            boto_session()


def test_the_client_is_light_until_it_is_used() -> None:
    program = """
import sys
import sagemaker_queue, sagemaker_queue.cli
sagemaker_queue.cli.main(["logs", "--help"])
heavy = {"boto3", "botocore", "requests", "sagemaker", "pandas", "numpy"} & set(sys.modules)
print("heavy:", sorted(heavy))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def set_status(status: str) -> None:
    """Let moto's SageMaker show its training jobs in another state."""
    from moto.sagemaker.models import sagemaker_backends  # noqa: PLC0415

    for job in sagemaker_backends["123456789012"]["eu-west-1"].training_jobs.values():
        job.training_job_status = status
