"""Training jobs of plain boto3 clients: queued, described, stopped, tagged, and their models."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from sagemaker_queue import QueueClient, boto_session
from sagemaker_queue.transport import ATTEMPTS
from tests.client.boto.world import ARN, OWNER, PREEMPTED, REQUEST, WAITING, World, refusal, set_status, twice_run
from tests.client.samples import refused


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
            (409, "TooMany", ("ResourceLimitExceeded", 400)),
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
