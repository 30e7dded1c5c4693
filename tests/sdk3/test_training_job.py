"""TrainingJob of the SageMaker SDK v3, in an environment of its own; the queue answers by script."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import ScriptedServer, server, set_environment

pytestmark = pytest.mark.thorough

__all__ = ["server"]

ROOT = Path(__file__).parent.parent.parent
PYTHON = ROOT / ".venv-sdk3/bin/python"

Run = Callable[[str], tuple[list[str], list[str]]]
REQUEST = {
    "RoleArn": "arn:aws:iam::123456789012:role/training",
    "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 10},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}

# Reads scripts, and runs each: the SDK takes seconds to load.
INTERPRETER = """
import json, os, sys, traceback
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.resources import TrainingJob
from sagemaker.core.utils.exceptions import FailedStatusError, TimeoutExceededError
import sagemaker_queue

for line in sys.stdin:
    os.environ["SAGEMAKER_QUEUE_URL"], script = json.loads(line)
    try:
        job = TrainingJob.get("job1", session=sagemaker_queue.boto_session())
        exec(script)
    except Exception:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            print("THE END", file=stream, flush=True)
"""


class Interpreter:
    """A Python with the SDK, whose `job` is `job1` at a server."""

    def __init__(self) -> None:
        assert PYTHON.exists(), "There is no environment with the SageMaker SDK v3: make setup makes it"
        self.process = subprocess.Popen(
            [PYTHON, "-W", "ignore", "-c", INTERPRETER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, url: str, script: str) -> tuple[list[str], list[str]]:
        """What a script writes to standard output and to standard error."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.process.stdin.write(json.dumps([url, script]) + "\n")
        self.process.stdin.flush()
        output, notes = (
            [line.rstrip("\n") for line in iter(stream.readline, "THE END\n") if line or self._has_ended()]
            for stream in (self.process.stdout, self.process.stderr)
        )
        assert "Traceback (most recent call last):" not in notes, notes
        return output, notes

    def _has_ended(self) -> bool:
        raise AssertionError(f"The interpreter has ended with {self.process.wait()}")


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch, tmp_path_factory.mktemp("home"))
        interpreter = Interpreter()
    with interpreter.process:
        yield interpreter
        interpreter.process.kill()


@pytest.fixture
def run(interpreter: Interpreter, server: ScriptedServer) -> Run:
    """Runs a script, and gives what it writes to standard output and to standard error."""
    return lambda script: interpreter.run(server.url, script)


def answer(server: ScriptedServer, state: str, times: int = 1, **more: Any) -> None:
    since = "2026-11-21T10:00:00Z"
    for _ in range(times):
        server.answers(200, {"job": "job1", "state": state, "request": REQUEST, "stateSince": since, **more})


def test_a_job_that_waits_is_described(server: ScriptedServer, run: Run) -> None:
    answer(server, "pending", position=3)
    output, _ = run("""
print(job.training_job_name, job.training_job_status, job.secondary_status, job.resource_config.instance_count)
print(job.secondary_status_transitions[-1].status_message)
""")
    assert output == ["job1 InProgress Pending 2", "job1 is pending, 3rd in the queue"]


def test_waiting_tells_where_the_job_stands_and_ends_as_the_sdk_does(server: ScriptedServer, run: Run) -> None:
    answer(server, "pending", times=2, position=2)
    answer(server, "pending", times=2, position=2)
    answer(server, "pending", position=1)
    answer(server, "failed", times=2, reason={"code": "FAILED", "message": "no such image"})
    output, notes = run("""
try:
    job.wait(poll=0)
except FailedStatusError as error:
    print("no such image" in str(error))
""")
    assert output[-1] == "True"
    assert [line for line in notes if line.startswith("job1 ")] == [
        "job1 is pending, 2nd in the queue",
        "job1 is pending, 1st in the queue",
        "job1 failed: no such image",
    ]


def test_a_wait_that_takes_too_long_is_the_sdks_own_error(server: ScriptedServer, run: Run) -> None:
    answer(server, "pending", times=4, position=2)
    output, _ = run("""
try:
    job.wait(poll=0, timeout=0)
except TimeoutExceededError:
    print("too long")
""")
    assert output[-1] == "too long"


def test_stopping_cancels(server: ScriptedServer, run: Run) -> None:
    answer(server, "pending", times=2)
    server.answers(202, {"job": "job1", "state": "stopped"})
    run("job.stop()")
    assert [received.method for received in server.received] == ["GET", "GET", "DELETE"]
