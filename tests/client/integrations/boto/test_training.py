"""Training jobs of plain boto3 clients: queued, described, stopped, tagged, and their models."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError

from sagemaker_queue import ConfigError, QueueClient, boto_session, output_address
from sagemaker_queue.integrations.boto.sessions import hooks_of
from sagemaker_queue.queue.transport import ATTEMPTS
from tests.client.integrations.boto.hooked_clients import (
    ARN,
    OWNER,
    PREEMPTED,
    REQUEST,
    WAITING,
    HookedClients,
    refusal,
    set_status,
    set_times,
    twice_run,
)
from tests.client.samples import refused


class TestCreate:
    def test_it_is_queued_and_sagemaker_gets_nothing(self, clients: HookedClients) -> None:
        clients.server.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        assert clients.sagemaker.create_training_job(**REQUEST)["TrainingJobArn"] == f"{ARN}/job1"
        (received,) = clients.server.received
        assert (received.method, received.path) == ("POST", "/prod/add-job?preflight=false")
        assert json.loads(received.body) == REQUEST
        assert clients.direct.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []

    def test_botocore_still_looks_at_the_request_first(self, clients: HookedClients) -> None:
        with pytest.raises(ParamValidationError):
            clients.sagemaker.create_training_job(TrainingJobName="job1")
        assert clients.server.received == []

    def test_what_is_certain_to_fail_is_not_even_sent(self, clients: HookedClients, queue: QueueClient) -> None:
        boto_session(clients.session, queue=queue)
        with pytest.raises(ClientError, match="OutputDataConfig.S3OutputPath") as error:
            clients.sagemaker.create_training_job(**REQUEST)
        assert refusal(error) == ("ValidationException", 400)
        assert clients.server.received == []

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
        self, clients: HookedClients, status: int, code: str, expected: tuple[str, int]
    ) -> None:
        clients.server.answers(status, refused(code, "No, because."))
        with pytest.raises(ClientError, match=r"No, because\.") as error:
            clients.sagemaker.create_training_job(**REQUEST)
        assert refusal(error) == expected

    def test_a_client_of_another_region_is_not_taken_to_the_queues(self, clients: HookedClients) -> None:
        elsewhere = clients.session.client("sagemaker", region_name="eu-central-1")
        with pytest.raises(ClientError, match="runs jobs in eu-west-1, .* one of eu-central-1") as error:
            elsewhere.create_training_job(**REQUEST)
        assert refusal(error) == ("ValidationException", 400)
        with pytest.raises(ClientError):  # SageMaker's
            elsewhere.describe_training_job(TrainingJobName="job1")
        assert clients.server.received == []

    def test_a_taken_name_is_the_clients_own_exception(self, clients: HookedClients) -> None:
        clients.server.answers(409, refused("NameTaken", "Taken."))
        with pytest.raises(clients.sagemaker.exceptions.ResourceInUse):
            clients.sagemaker.create_training_job(**REQUEST)

    def test_an_outage(self, clients: HookedClients) -> None:
        for _ in range(ATTEMPTS):
            clients.server.answers(503, {"message": "later"})
        with pytest.raises(ClientError) as error:
            clients.sagemaker.create_training_job(**REQUEST)
        assert refusal(error) == ("ServiceUnavailable", 503)

    def test_warnings_are_logged(self, clients: HookedClients, caplog: pytest.LogCaptureFixture) -> None:
        clients.server.answers(200, {"job": "job1", "state": "completed", "warnings": ["no CheckpointConfig"]})
        clients.sagemaker.create_training_job(**REQUEST)
        assert "job1: no CheckpointConfig" in caplog.messages
        assert "job1 was submitted before, so it is not run again; another name runs it" in caplog.messages

    def test_what_became_of_the_job_is_logged(self, clients: HookedClients, caplog: pytest.LogCaptureFixture) -> None:
        reason = {"code": "POOL_FULL", "message": "2 of 2 instances are used"}
        clients.server.answers(202, {"job": "job1", "state": "pending", "position": 3, "reason": reason})
        with caplog.at_level(logging.INFO, "sagemaker_queue"):
            clients.sagemaker.create_training_job(**REQUEST)
        assert caplog.messages == ["job1 is pending, 3rd in the queue: 2 of 2 instances are used"]

    def test_a_job_that_fails_at_once_was_not_submitted_before(
        self, clients: HookedClients, caplog: pytest.LogCaptureFixture
    ) -> None:
        reason = {"code": "FAILED", "message": "no such image"}
        clients.server.answers(202, {"job": "job1", "state": "failed", "reason": reason})
        clients.sagemaker.create_training_job(**REQUEST)
        assert caplog.messages == ["job1 failed: no such image"]


class TestDescribe:
    def test_a_job_that_waits(self, clients: HookedClients) -> None:
        clients.job(**WAITING)
        described = clients.describe()
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Pending")
        assert (described["TrainingJobName"], described["TrainingJobArn"]) == ("job1", f"{ARN}/job1")
        assert described["ResourceConfig"]["InstanceCount"] == 2
        (transition,) = described["SecondaryStatusTransitions"]
        assert transition["StatusMessage"] == "job1 is pending, 3rd in the queue: 2 of 2 instances are used"
        submitted = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
        assert described["LastModifiedTime"] == transition["StartTime"] == submitted
        assert "Tags" not in described

    def test_a_job_that_was_preempted(self, clients: HookedClients) -> None:
        clients.job(**PREEMPTED)
        described = clients.describe()
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Pending")
        transitions = [
            (transition["Status"], transition["StatusMessage"])
            for transition in described["SecondaryStatusTransitions"]
        ]
        assert transitions == [
            ("Training", "accepted"),
            ("Interrupted", "made room for job2"),
            ("Pending", "job1 is preempted, 1st in the queue"),
        ]

    @pytest.mark.parametrize(("state", "status"), [("running", "InProgress"), ("completed", "Completed")])
    def test_an_attempt_under_the_jobs_name(self, clients: HookedClients, state: str, status: str) -> None:
        clients.attempt("job1-qstamp-2", HyperParameters={"of": "the attempt"})
        clients.job(**twice_run(state))
        described = clients.describe()
        assert described["HyperParameters"] == {"of": "the attempt"}
        assert (described["TrainingJobName"], described["TrainingJobArn"]) == ("job1", f"{ARN}/job1")
        assert described["TrainingJobStatus"] in (status, "Completed")  # moto's jobs complete at once

    @pytest.mark.parametrize("status", ["Stopping", "Stopped", "Failed"])
    def test_a_job_that_is_being_preempted_or_tried_again(
        self, clients: HookedClients, status: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clients.attempt("job1-qstamp-2")
        set_status(status)
        clients.job(**{**twice_run("running"), "state": "stopping"})
        described = clients.describe()
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Interrupted")

    def test_a_job_that_is_being_cancelled(self, clients: HookedClients) -> None:
        clients.attempt("job1-qstamp-2")
        set_status("InProgress")
        clients.job(**twice_run("running"), cancelRequested=True)
        assert clients.describe()["TrainingJobStatus"] == "Stopping"

    def test_a_job_that_failed_at_its_launch(self, clients: HookedClients) -> None:
        clients.job(
            state="failed", reason={"code": "FAILED", "message": "no such image"}, trainingJobName="job1-qstamp-1"
        )
        described = clients.describe()
        assert (described["TrainingJobStatus"], described["FailureReason"]) == ("Failed", "no such image")

    def test_a_job_that_was_cancelled_while_it_waited(self, clients: HookedClients) -> None:
        cancelled = {"state": "stopped", "at": "2026-11-21T11:00:00Z", "attempt": 1, "cause": "cancelled by ann"}
        reason = {"code": "STOPPED", "message": "cancelled by ann"}
        clients.job(state="stopped", reason=reason, history=[cancelled])
        described = clients.describe()
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("Stopped", "Stopped")
        assert described["SecondaryStatusTransitions"][-1]["StatusMessage"] == "job1 was stopped: cancelled by ann"

    def test_a_limit_that_the_request_leaves_to_sagemaker(self, clients: HookedClients) -> None:
        request = {name: value for name, value in REQUEST.items() if name != "StoppingCondition"}
        clients.job(**{**WAITING, "request": request})
        assert clients.describe()["StoppingCondition"] == {"MaxRuntimeInSeconds": 24 * 60 * 60}

    def test_a_job_whose_attempt_was_deleted(self, clients: HookedClients) -> None:
        clients.job(**twice_run("completed"))
        described = clients.describe()
        assert described["TrainingJobStatus"] == "Completed"
        assert described["ModelArtifacts"]["S3ModelArtifacts"] == "s3://bucket/out/job1-qstamp-2/output/model.tar.gz"

    def test_of_several_sizes_it_has_that_of_its_attempt(self, clients: HookedClients) -> None:
        """While it waits nobody knows which it will be: it is described as it was submitted."""
        record = twice_run("completed")
        attempts = [{**it, "instances": count} for it, count in zip(record["attempts"], (2, 1))]
        clients.job(**{**record, "attempts": attempts}, sizes=[2, 1])
        assert clients.describe()["ResourceConfig"]["InstanceCount"] == 1
        clients.job(**{**record, "state": "preempted", "attempts": attempts}, sizes=[2, 1])
        assert clients.describe()["ResourceConfig"]["InstanceCount"] == 2

    def test_the_story_of_all_attempts(self, clients: HookedClients) -> None:
        """What SageMaker says of each attempt, and what the queue did between them; times and seconds are the job's."""
        begin = datetime(2026, 11, 21, 10, tzinfo=timezone.utc)
        for number, minutes, seconds in ((1, 5, 100), (2, 65, 50)):
            name = f"job1-qstamp-{number}"
            clients.attempt(name)
            set_times(name, begin + timedelta(minutes=minutes), seconds)
        history = [
            ("pending", 0, 1, "submitted"),
            ("starting", 1, 1, "launching"),
            ("running", 2, 1, "accepted"),
            ("stopping", 30, 1, "makes room for job2"),
            ("preempted", 31, 2, "made room for job2"),
            ("starting", 60, 2, "launching"),
            ("running", 61, 2, "accepted"),
            ("completed", 70, 2, "completed"),
        ]
        ended = {"started": "2026-11-21T10:01:00Z", "ended": "2026-11-21T10:31:00Z"}
        done = twice_run("completed")
        clients.job(
            **{**done, "attempts": [{**done["attempts"][0], **ended}, done["attempts"][1]]},
            attempt=2,
            entryTime="2026-11-21T10:00:00Z",
            history=[
                {
                    "state": state,
                    "at": f"2026-11-21T{10 + at // 60}:{at % 60:02}:00Z",
                    "attempt": number,
                    "cause": cause,
                }
                for state, at, number, cause in history
            ],
        )
        described = clients.describe()
        assert [(it["Status"], it["StatusMessage"]) for it in described["SecondaryStatusTransitions"]] == [
            ("Pending", "submitted"),
            ("Training", "job1-qstamp-1"),
            ("Interrupted", "made room for job2"),
            ("Training", "job1-qstamp-2"),
            ("Completed", "the end"),
        ]
        starts = [it["StartTime"] for it in described["SecondaryStatusTransitions"]]
        assert starts == sorted(starts)
        assert [it["EndTime"] for it in described["SecondaryStatusTransitions"][:-1]] == starts[1:]
        assert described["CreationTime"] == begin
        assert described["TrainingStartTime"] == begin + timedelta(minutes=5)
        assert (described["TrainingTimeInSeconds"], described["BillableTimeInSeconds"]) == (150, 75)

    def test_ended_attempts_are_asked_for_once(self, clients: HookedClients) -> None:
        asked: list[str] = []

        def keep(params: Any, **_: Any) -> None:
            asked.append(params["TrainingJobName"])

        event = "provide-client-params.sagemaker.DescribeTrainingJob"
        clients.session.events.register(event, keep)
        hooks_of(clients.session).renew()
        try:
            for number in (1, 2):
                clients.attempt(f"job1-qstamp-{number}")
            for _ in range(3):
                clients.job(**twice_run("running"), attempt=2)
                clients.describe()
        finally:
            clients.session.events.unregister(event, keep)
            hooks_of(clients.session).renew()
        assert [name for name in asked if "-qstamp-" in name] == [
            "job1-qstamp-2",
            "job1-qstamp-1",
            *["job1-qstamp-2"] * 2,
        ]

    def test_very_many_attempts_cost_a_bounded_number_of_calls(self, clients: HookedClients) -> None:
        """Those in the middle are told by the queue's record, which has a minute for each."""
        name = "job1-qstamp-{}"
        attempts = [
            {
                "attempt": number,
                "trainingJobName": name.format(number),
                "outcome": "preempted",
                "started": "2026-11-21T10:00:00Z",
                "ended": "2026-11-21T10:01:00Z",
            }
            for number in range(1, 101)
        ]
        begin = datetime(2026, 11, 21, 9, tzinfo=timezone.utc)
        for number in (1, *range(77, 101)):
            clients.attempt(name.format(number))
            set_times(name.format(number), begin, 10)
        clients.job(**{**WAITING, "attempts": attempts, "attempt": 101})
        described = clients.describe()
        assert described["TrainingStartTime"] == begin
        assert described["TrainingTimeInSeconds"] == 25 * 10 + 75 * 60

    def test_a_job_that_is_being_launched_does_not_train_yet(self, clients: HookedClients) -> None:
        attempt = {"attempt": 1, "trainingJobName": "job1-qstamp-1", "started": "2026-11-21T10:01:00Z"}
        clients.job(state="starting", attempt=1, attempts=[attempt])
        described = clients.describe()
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("InProgress", "Starting")
        assert "TrainingStartTime" not in described

    def test_of_an_attempt_that_was_deleted_the_queue_knows_when_it_began(self, clients: HookedClients) -> None:
        ended = {"started": "2026-11-21T10:01:00Z", "ended": "2026-11-21T10:31:00Z"}
        (attempt,) = PREEMPTED["attempts"]
        clients.job(**{**PREEMPTED, "attempts": [{**attempt, **ended}]})
        described = clients.describe()
        assert described["TrainingStartTime"] == datetime(2026, 11, 21, 10, 1, tzinfo=timezone.utc)
        assert "TrainingTimeInSeconds" not in described

    def test_a_job_that_the_queue_does_not_know_is_sagemakers(self, clients: HookedClients) -> None:
        clients.attempt("job1")
        clients.unknown()
        assert clients.describe()["TrainingJobArn"] == f"{ARN}/job1"

    def test_nobody_knows_it(self, clients: HookedClients) -> None:
        clients.unknown()
        with pytest.raises(ClientError) as error:
            clients.describe()
        assert refusal(error)[0] == "ValidationException"

    def test_an_attempts_own_name_is_not_looked_up(self, clients: HookedClients) -> None:
        clients.attempt("job1-qstamp-1")
        described = clients.sagemaker.describe_training_job(TrainingJobName="job1-qstamp-1")
        assert described["TrainingJobName"] == "job1-qstamp-1"
        assert clients.server.received == []


class TestStop:
    def test_it_cancels(self, clients: HookedClients) -> None:
        clients.job(state="running")
        clients.server.answers(202, {"job": "job1", "state": "running"})
        clients.sagemaker.stop_training_job(TrainingJobName="job1")
        assert [received.method for received in clients.server.received] == ["GET", "DELETE"]

    def test_an_ended_job_cannot_be_stopped(self, clients: HookedClients) -> None:
        clients.job(state="completed")
        clients.server.answers(200, {"job": "job1", "state": "completed"})
        with pytest.raises(ClientError, match="in status Completed") as error:
            clients.sagemaker.stop_training_job(TrainingJobName="job1")
        assert refusal(error)[0] == "ValidationException"


class TestUpdateAndDelete:
    def test_a_job_that_waits_cannot_be_updated(self, clients: HookedClients) -> None:
        clients.job(**WAITING)
        with pytest.raises(ClientError, match="3rd in the queue.*A job can be updated once it runs") as error:
            clients.sagemaker.update_training_job(
                TrainingJobName="job1", ResourceConfig={"KeepAlivePeriodInSeconds": 0}
            )
        assert refusal(error)[0] == "ValidationException"

    @pytest.mark.parametrize("name", ["job1", "job1-qstamp-1", "job1-qstamp-2"])
    def test_no_attempt_of_a_live_job_can_be_deleted(self, clients: HookedClients, name: str) -> None:
        if not hasattr(clients.sagemaker, "delete_training_job"):
            pytest.skip("this boto3 knows no such call")
        clients.job(**twice_run("running"))
        with pytest.raises(ClientError, match="A job can be deleted after its end"):
            clients.sagemaker.delete_training_job(TrainingJobName=name)


class TestTags:
    def test_of_a_job_that_waits_are_those_of_its_request(self, clients: HookedClients) -> None:
        clients.job(**WAITING)
        assert clients.sagemaker.list_tags(ResourceArn=f"{ARN}/job1")["Tags"] == REQUEST["Tags"]

    def test_of_an_attempt_are_without_the_queues_own(self, clients: HookedClients) -> None:
        tags = [{"Key": "team", "Value": "vision"}, {"Key": "queue-job", "Value": "job1"}]
        clients.attempt("job1-qstamp-2", Tags=tags)
        clients.job(**twice_run("running"))
        assert clients.sagemaker.list_tags(ResourceArn=f"{ARN}/job1")["Tags"] == tags[:1]

    def test_they_are_changed_on_the_attempt(self, clients: HookedClients) -> None:
        clients.attempt("job1-qstamp-2", Tags=[])
        for _ in range(3):
            clients.job(**twice_run("running"))
        clients.sagemaker.add_tags(
            ResourceArn=f"{ARN}/job1", Tags=[{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
        )
        clients.sagemaker.delete_tags(ResourceArn=f"{ARN}/job1", TagKeys=["b"])
        assert clients.sagemaker.list_tags(ResourceArn=f"{ARN}/job1")["Tags"] == [{"Key": "a", "Value": "1"}]

    def test_of_a_job_that_goes_on_one_is_told_that_they_do_not_stay(
        self, clients: HookedClients, caplog: pytest.LogCaptureFixture
    ) -> None:
        clients.attempt("job1-qstamp-2", Tags=[])
        for state in ("running", "completed"):
            clients.job(**twice_run(state))
            clients.sagemaker.add_tags(ResourceArn=f"{ARN}/job1", Tags=[{"Key": "a", "Value": "1"}])
        (warning,) = caplog.messages
        assert warning.startswith(
            "job1: the tags of attempt job1-qstamp-2 are changed. A later attempt has the tags of"
        )

    def test_while_it_waits_they_cannot_be_changed(self, clients: HookedClients) -> None:
        clients.job(**WAITING)
        with pytest.raises(ClientError, match="Its tags are those of its request.*can be changed once it runs"):
            clients.sagemaker.add_tags(ResourceArn=f"{ARN}/job1", Tags=[{"Key": "a", "Value": "1"}])

    def test_of_other_resources_are_sagemakers(self, clients: HookedClients) -> None:
        model = {
            "ModelName": "job1",
            "ExecutionRoleArn": REQUEST["RoleArn"],
            "Tags": [{"Key": "of", "Value": "a model"}],
        }
        arn = clients.direct.sagemaker.create_model(**model, PrimaryContainer={"Image": "image"})["ModelArn"]
        assert clients.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "of", "Value": "a model"}]
        assert clients.server.received == []


class TestModels:
    def create(self, clients: HookedClients, address: str) -> str:
        clients.sagemaker.create_model(
            ModelName="model",
            ExecutionRoleArn=REQUEST["RoleArn"],
            PrimaryContainer={"Image": "image", "ModelDataUrl": address},
        )
        described = clients.direct.sagemaker.describe_model(ModelName="model")
        return str(described["PrimaryContainer"]["ModelDataUrl"])

    def test_an_address_made_from_the_jobs_name_is_the_last_attempts(self, clients: HookedClients) -> None:
        clients.job(**twice_run("completed"))
        made = self.create(clients, "s3://bucket/out/job1/output/model.tar.gz")
        assert made == "s3://bucket/out/job1-qstamp-2/output/model.tar.gz"

    def test_another_folder_is_another_model(self, clients: HookedClients) -> None:
        clients.job(**twice_run("completed"))
        address = "s3://bucket/elsewhere/job1/output/model.tar.gz"
        assert self.create(clients, address) == address

    def test_what_reads_outputs_otherwise_finds_them_too(self, clients: HookedClients) -> None:
        clients.job(**twice_run("completed"))
        clients.sagemaker.create_transform_job(
            TransformJobName="apply",
            ModelName="model",
            TransformInput={
                "DataSource": {
                    "S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/out/job1/output/output.tar.gz"}
                }
            },
            TransformOutput={"S3OutputPath": "s3://bucket/applied"},
            TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
        )
        described = clients.direct.sagemaker.describe_transform_job(TransformJobName="apply")
        found = described["TransformInput"]["DataSource"]["S3DataSource"]["S3Uri"]
        assert found == "s3://bucket/out/job1-qstamp-2/output/output.tar.gz"

    @pytest.mark.parametrize(
        ("address", "true"),
        [
            ("s3://bucket/out/job1/output/output.tar.gz", "s3://bucket/out/job1-qstamp-2/output/output.tar.gz"),
            ("s3://bucket/out/job1/debug-output", "s3://bucket/out/job1-qstamp-2/debug-output"),
            ("s3://bucket/out/job1/other/model", None),
            ("s3://bucket/out/job1", None),
            ("https://bucket/out/job1/output", None),
        ],
    )
    def test_an_address_for_those_who_ask(
        self, clients: HookedClients, queue: QueueClient, address: str, true: str | None
    ) -> None:
        if true:
            clients.job(**twice_run("completed"))
        assert output_address(address, queue=queue) == (true or address)

    def test_any_other_address_is_as_it_is(self, clients: HookedClients) -> None:
        assert self.create(clients, "s3://bucket/mine.tar.gz") == "s3://bucket/mine.tar.gz"


def test_a_tuning_job_goes_to_sagemaker_directly(clients: HookedClients, caplog: pytest.LogCaptureFixture) -> None:
    config = {
        "Strategy": "Random",
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 1},
    }
    with caplog.at_level(logging.WARNING, "sagemaker_queue"):
        clients.sagemaker.create_hyper_parameter_tuning_job(
            HyperParameterTuningJobName="tuning", HyperParameterTuningJobConfig=config
        )
    assert "The tuning job goes to SageMaker directly, not through the queue" in caplog.text


class TestAttemptsShown:
    """``hooks="attempts"``: what SageMaker has is shown as it is, and jobs are queued and stopped all the same."""

    @pytest.fixture(autouse=True)
    def attempts(self, clients: HookedClients, queue: QueueClient) -> Iterator[None]:
        boto_session(clients.session, queue=queue, preflight=False, hooks="attempts")
        yield
        boto_session(clients.session, hooks="jobs")

    def test_what_shows_is_sagemakers(self, clients: HookedClients) -> None:
        clients.attempt("job1-qstamp-1")
        (listed,) = clients.sagemaker.list_training_jobs()["TrainingJobSummaries"]
        assert listed["TrainingJobName"] == "job1-qstamp-1"
        (found,) = clients.sagemaker.search(Resource="TrainingJob")["Results"]
        assert found["TrainingJob"]["TrainingJobName"] == "job1-qstamp-1"
        with pytest.raises(ClientError):
            clients.describe()
        group = "/aws/sagemaker/TrainingJobs"
        clients.direct.logs.create_log_group(logGroupName=group)
        assert clients.logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="job1/")["logStreams"] == []
        assert clients.server.received == []

    def test_jobs_are_queued_and_stopped(self, clients: HookedClients) -> None:
        clients.server.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        clients.sagemaker.create_training_job(**REQUEST)
        clients.job(state="running")
        clients.server.answers(202, {"job": "job1", "state": "running"})
        clients.sagemaker.stop_training_job(TrainingJobName="job1")
        assert [received.method for received in clients.server.received] == ["POST", "GET", "DELETE"]

    def test_it_stays_so_for_whoever_takes_the_session(self, clients: HookedClients) -> None:
        boto_session(clients.session)
        assert hooks_of(clients.session).view == "attempts"

    def test_by_the_environment(self, queue: QueueClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SAGEMAKER_QUEUE_HOOKS", "attempts")
        assert hooks_of(boto_session(boto3.Session(), queue=queue)).view == "attempts"
        assert hooks_of(boto_session(boto3.Session(), queue=queue, hooks="jobs")).view == "jobs"

    def test_anything_else_is_refused(self, queue: QueueClient, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ConfigError, match="hooks is 'both': write 'jobs'"):
            boto_session(boto3.Session(), queue=queue, hooks="both")
        monkeypatch.setenv("SAGEMAKER_QUEUE_HOOKS", "both")
        with pytest.raises(ConfigError, match="SAGEMAKER_QUEUE_HOOKS is 'both'"):
            boto_session(boto3.Session(), queue=queue)
