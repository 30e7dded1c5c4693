"""QueueTrainingJobSession with real estimators; S3, STS and SageMaker are moto's."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import boto3
import pytest
from moto import mock_aws

import sagemaker_queue  # its QueueTrainingJobSession imports the SDK, which takes seconds
from sagemaker_queue import ConfigError, QueueClient, boto_session
from sagemaker_queue.queue.transport import ATTEMPTS
from tests.client.samples import refused
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from sagemaker.pytorch import PyTorch

    from sagemaker_queue import QueueTrainingJobSession
    from tests.client.conftest import ScriptedServer

ROLE = "arn:aws:iam::123456789012:role/training"
NO_TELEMETRY = {"SchemaVersion": "1.0", "SageMaker": {"PythonSDK": {"Modules": {"TelemetryOptOut": True}}}}


@pytest.fixture(scope="module")
def lasting_session() -> QueueTrainingJobSession:
    """Shared by all tests, since its many AWS clients take a second to make."""
    session = boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="eu-west-1")
    queue = QueueClient(url="http://127.0.0.1:9/prod", boto_session=session)
    return sagemaker_queue.QueueTrainingJobSession(
        session, queue=queue, sagemaker_config=NO_TELEMETRY, default_bucket="bucket"
    )


@pytest.fixture(autouse=True)
def settings_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK checks its own settings each time that it reads one, a tenth of a second: not again and again here."""
    monkeypatch.setattr("sagemaker.utils.validate_sagemaker_config", lambda settings: None)


@pytest.fixture
def session(lasting_session: QueueTrainingJobSession, queue: QueueClient) -> Iterator[QueueTrainingJobSession]:
    with mock_aws():
        where = {"LocationConstraint": lasting_session.boto_region_name}
        lasting_session.boto_session.client("s3").create_bucket(Bucket="bucket", CreateBucketConfiguration=where)
        boto_session(lasting_session.boto_session, queue=queue)
        yield lasting_session


@pytest.fixture
def estimator(session: QueueTrainingJobSession, tmp_path: Path) -> PyTorch:
    from sagemaker.pytorch import PyTorch

    script = tmp_path / "train.py"
    script.write_text("print('training')\n")
    return PyTorch(
        role=ROLE,
        entry_point=str(script),
        instance_type="ml.p5.48xlarge",
        instance_count=1,
        framework_version="2.0.1",
        py_version="py310",
        tags=[{"Key": "priority", "Value": "100"}],
        keep_alive_period_in_seconds=60,
        sagemaker_session=session,
    )


def training_jobs() -> list[str]:
    """Names of the jobs that SageMaker itself has."""
    client = boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="eu-west-1").client("sagemaker")
    jobs = client.list_training_jobs()["TrainingJobSummaries"]
    return [job["TrainingJobName"] for job in jobs]


def detail(state: str, **more: object) -> dict[str, object]:
    return {"job": "job1", "state": state, "priority": 1, "stateSince": "2026-11-21T10:00:00Z", **more}


class TestFit:
    def test_it_submits_the_request_and_starts_nothing(self, server: ScriptedServer, estimator: PyTorch) -> None:
        server.answers(202, detail("pending"))
        estimator.fit(wait=False, job_name="job1")
        (received,) = server.received
        request = json.loads(received.body)
        assert (received.method, received.path) == ("POST", "/prod/add-job")
        assert request["TrainingJobName"] == "job1"
        assert request["RoleArn"] == ROLE
        assert request["ResourceConfig"]["InstanceType"] == "ml.p5.48xlarge"
        assert request["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 60
        assert {"Key": "priority", "Value": "100"} in request["Tags"]
        assert request["HyperParameters"]["sagemaker_program"] == '"train.py"'
        assert training_jobs() == []

    def test_it_waits_until_the_job_is_finished(self, server: ScriptedServer, estimator: PyTorch) -> None:
        server.answers(202, detail("running"))
        server.answers(200, detail("running"))
        for _ in range(2):
            server.answers(200, detail("completed", request=REQUEST))
        estimator.fit(job_name="job1")
        assert [request.path for request in server.received] == ["/prod/add-job", *3 * ["/prod/jobs/job1"]]

    def test_anything_else_is_sagemakers(self, server: ScriptedServer, session: QueueTrainingJobSession) -> None:
        from sagemaker.transformer import Transformer

        Transformer("model", 1, "ml.m5.large", output_path="s3://bucket/out", sagemaker_session=session).transform(
            "s3://bucket/in", job_name="transform1", wait=False, logs=False
        )
        jobs = session.sagemaker_client.list_transform_jobs()["TransformJobSummaries"]
        assert [job["TransformJobName"] for job in jobs] == ["transform1"]
        assert server.received == []


class TestWait:
    def test_each_change_is_told_once(
        self, server: ScriptedServer, session: QueueTrainingJobSession, capsys: pytest.CaptureFixture[str]
    ) -> None:
        states = [("pending", 2), ("pending", 2), ("pending", 2), ("pending", 1), ("running", None), ("running", None)]
        for state, position in states:
            server.answers(200, detail(state, position=position))
        for _ in range(2):
            server.answers(200, detail("completed", request=REQUEST))
        description = session.wait_for_job("job1", poll=0)
        assert capsys.readouterr().err.splitlines() == [
            "job1 is pending, 2nd in the queue",
            "job1 is pending, 1st in the queue",
            "job1 is running",
            "job1 completed",
        ]
        assert (description["TrainingJobName"], description["TrainingJobStatus"]) == ("job1", "Completed")

    def test_a_failure_is_the_sdks_own_exception(
        self, server: ScriptedServer, session: QueueTrainingJobSession
    ) -> None:
        from sagemaker.exceptions import UnexpectedStatusException

        for _ in range(3):
            server.answers(200, detail("failed", reason={"code": "FAILED", "message": "no such image"}))
        with pytest.raises(
            UnexpectedStatusException, match="Error for Training job job1: Failed. Reason: no such image"
        ):
            session.logs_for_job("job1", wait=True, poll=0)

    def test_a_stopped_job_is_a_warning_as_in_the_sdk(
        self, server: ScriptedServer, session: QueueTrainingJobSession, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(3):
            server.answers(200, detail("stopped"))
        assert session.wait_for_job("job1", poll=0)["TrainingJobStatus"] == "Stopped"
        assert "Job ended with status 'Stopped'" in caplog.text

    @pytest.mark.parametrize("options", [{"wait": False}, {"wait": True, "poll": 0, "timeout": 1e-9}])
    def test_logs_that_are_not_waited_for(
        self, server: ScriptedServer, session: QueueTrainingJobSession, options: dict[str, Any]
    ) -> None:
        for _ in range(2):
            server.answers(200, detail("running"))
        session.logs_for_job("job1", **options)
        assert len(server.received) == 2

    def test_logs_of_a_failed_job_are_no_error_unless_waited_for(
        self, server: ScriptedServer, session: QueueTrainingJobSession
    ) -> None:
        for _ in range(2):
            server.answers(200, detail("failed"))
        session.logs_for_job("job1")

    def test_an_outage_is_endured(
        self, server: ScriptedServer, session: QueueTrainingJobSession, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for _ in range(2 * ATTEMPTS):  # from the beginning
            server.answers(503, {"message": "later"})
        for _ in range(2):
            server.answers(200, detail("completed", request=REQUEST))
        session.wait_for_job("job1", poll=0)
        assert "The job is not affected; trying again." in capsys.readouterr().err


REQUEST: dict[str, Any] = {
    "TrainingJobName": "job1",
    "RoleArn": ROLE,
    "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 10},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    "Tags": [{"Key": "priority", "Value": "1"}],
}


def create(name: str) -> None:
    """A training job that was started without the queue."""
    client: Any = boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="eu-west-1").client("sagemaker")
    client.create_training_job(**{**REQUEST, "TrainingJobName": name})


class TestJobsThatTheQueueDoesNotKnow:
    @pytest.fixture(autouse=True)
    def unknown(self, server: ScriptedServer, session: QueueTrainingJobSession) -> None:
        create("older")
        for _ in range(2):
            server.answers(404, refused("NotFound", "There is no job older."))

    def test_they_are_waited_for_as_ever(self, session: QueueTrainingJobSession) -> None:
        assert session.wait_for_job("older", poll=0)["TrainingJobStatus"] == "Completed"


def test_a_session_without_a_queue_says_so_at_once() -> None:
    with pytest.raises(ConfigError, match="No queue is configured"):
        sagemaker_queue.QueueTrainingJobSession(boto3.Session(region_name="eu-west-1"))


def test_a_copy_of_a_session_has_the_same_queue(queue: QueueClient) -> None:
    """The clients of a real one cannot be copied; sessions of programs under test, which are made of mocks, are."""
    mock = MagicMock(region_name="eu-west-1")
    session = sagemaker_queue.QueueTrainingJobSession(mock, MagicMock(), queue=queue, sagemaker_config=NO_TELEMETRY)
    copied = copy.deepcopy(session)
    assert copied is not session
    assert copied.queue is session.queue is queue


def test_the_package_does_without_the_sdk_until_the_session_is_used() -> None:
    program = """
import sys
sys.modules["sagemaker"] = None  # as if it were not installed
import sagemaker_queue
from sagemaker_queue import *
from sagemaker_queue import QueueClient, cli
try:
    sagemaker_queue.QueueTrainingJobSession
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert "pip install 'sagemaker<3'" in done.stdout


def test_a_model_is_made_from_the_jobs_last_attempt(server: ScriptedServer, session: QueueTrainingJobSession) -> None:
    server.answers(200, detail("completed", trainingJobName="job1-qstamp-2", request=REQUEST))
    model = session.create_model_from_job("job1")
    described = session.sagemaker_client.describe_model(ModelName=model)
    source = described["PrimaryContainer"]["ModelDataSource"]["S3DataSource"]
    assert source["S3Uri"] == "s3://bucket/out/job1-qstamp-2/output/model.tar.gz"


def test_outputs_are_found_at_the_addresses_that_the_sdk_computes(
    server: ScriptedServer, session: QueueTrainingJobSession, tmp_path: Path
) -> None:
    from sagemaker.s3 import S3Downloader

    s3 = session.boto_session.client("s3")
    key = "rules/job1-qstamp-2/debug-output/events/0.json"
    s3.put_object(Bucket="bucket", Key=key, Body=b"{}")
    request = {**REQUEST, "DebugHookConfig": {"S3OutputPath": "s3://bucket/rules/"}}
    server.answers(200, detail("completed", trainingJobName="job1-qstamp-2", request=request))
    folder = "s3://bucket/rules/job1/debug-output"  # as latest_job_debugger_artifacts_path() has it
    assert S3Downloader.list(folder, sagemaker_session=session) == [f"s3://bucket/{key}"]
    assert S3Downloader.read_file(f"{folder}/events/0.json", sagemaker_session=session) == "{}"
    S3Downloader.download(folder, str(tmp_path), sagemaker_session=session)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["0.json"]


def test_a_remote_function_goes_through_the_queue(
    server: ScriptedServer, session: QueueTrainingJobSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sagemaker.remote_function import remote
    from sagemaker.remote_function.errors import RemoteFunctionError

    monkeypatch.setattr("sagemaker.session.time.sleep", lambda seconds: None)  # before the SDK asks for the first time

    @remote(image_uri="image", instance_type="ml.m5.large", role=ROLE, sagemaker_session=session)  # type: ignore[untyped-decorator]
    def double(number: int) -> int:
        return 2 * number

    server.answers(202, detail("pending"))
    for _ in range(5):
        reason = {"code": "FAILED", "message": "no such image"}
        server.answers(200, detail("failed", reason=reason, request=REQUEST))
    with pytest.raises(RemoteFunctionError):
        double(21)
    assert server.received[0].path == "/prod/add-job"
    assert json.loads(server.received[0].body)["TrainingJobName"].startswith("double-")
