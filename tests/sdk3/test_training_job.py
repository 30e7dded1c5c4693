"""TrainingJob of the SageMaker SDK v3, in an environment of its own; the queue answers by script."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import ScriptedServer, environment, server

__all__ = ["environment", "server"]

ROOT = Path(__file__).parent.parent.parent
PYTHON = ROOT / ".venv-sdk3/bin/python"

REQUEST = {
    "RoleArn": "arn:aws:iam::123456789012:role/training",
    "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 10},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}

BEGIN = """
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.resources import TrainingJob
import sagemaker_queue

session = sagemaker_queue.boto_session()
job = TrainingJob.get("job1", session=session)
"""


def run(script: str) -> tuple[list[str], list[str]]:
    """What a script writes to standard output and to standard error."""
    assert PYTHON.exists(), "There is no environment with the SageMaker SDK v3: make setup makes it"
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", BEGIN + script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines(), done.stderr.splitlines()


@pytest.fixture(autouse=True)
def at_the_server(environment: None, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)


def answer(server: ScriptedServer, state: str, times: int = 1, **more: Any) -> None:
    since = "2026-11-21T10:00:00Z"
    for _ in range(times):
        server.answers(200, {"job": "job1", "state": state, "request": REQUEST, "stateSince": since, **more})


def test_a_job_that_waits_is_described(server: ScriptedServer) -> None:
    answer(server, "pending", position=3)
    output, _ = run("""
print(job.training_job_name, job.training_job_status, job.secondary_status, job.resource_config.instance_count)
print(job.secondary_status_transitions[-1].status_message)
""")
    assert output == ["job1 InProgress Pending 2", "job1 is pending, number 3 in the queue"]


def test_waiting_tells_where_the_job_stands_and_ends_as_the_sdk_does(server: ScriptedServer) -> None:
    answer(server, "pending", times=2, position=2)
    answer(server, "pending", times=2, position=2)
    answer(server, "pending", position=1)
    answer(server, "failed", times=2, reason={"code": "FAILED", "message": "no such image"})
    output, notes = run("""
from sagemaker.core.utils.exceptions import FailedStatusError
try:
    job.wait(poll=0)
except FailedStatusError as error:
    print("no such image" in str(error))
""")
    assert output[-1] == "True"
    assert [line for line in notes if line.startswith("job1 is ")] == [
        "job1 is pending, number 2 in the queue",
        "job1 is pending, number 1 in the queue",
        "job1 is failed: no such image",
    ]


def test_a_wait_that_takes_too_long_is_the_sdks_own_error(server: ScriptedServer) -> None:
    answer(server, "pending", times=4, position=2)
    output, _ = run("""
from sagemaker.core.utils.exceptions import TimeoutExceededError
try:
    job.wait(poll=0, timeout=0)
except TimeoutExceededError:
    print("too long")
""")
    assert output[-1] == "too long"


def test_stopping_cancels(server: ScriptedServer) -> None:
    answer(server, "pending", times=2)
    server.answers(202, {"job": "job1", "state": "stopped"})
    run("job.stop()")
    assert [received.method for received in server.received] == ["GET", "GET", "DELETE"]
