"""The launcher, in containers whose first process is SageMaker's own: the stop reaches the script."""

import ast
import os
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import boto3
import pytest

from sagemaker_queue import launcher
from tests.local_cloud.emulator import BUCKET, Emulator, request
from tests.local_cloud.test_training_stop import GANG, SAVES
from tests.programs import started
from tests.waiting import PATIENCE

forwarder = Path(launcher.__file__).parent / "jobs/packaging/container/sigterm_forwarder.py"

SCRIPT_MODE = {"TrainingImage": "image", "TrainingInputMode": "File"}


def launched(emulator: Emulator, name: str, code: str = SAVES, **changes: Any) -> None:
    """As an estimator with `container_entry_point=launcher.entry_point()` asks for it."""
    algorithm = {**SCRIPT_MODE, "ContainerEntrypoint": launcher.entry_point()}
    emulator.script(name, code, AlgorithmSpecification=algorithm, **changes)


def test_the_script_of_an_estimator_hears_of_its_stop(emulator: Emulator) -> None:
    launched(emulator, "heard", CheckpointConfig={"S3Uri": f"s3://{BUCKET}/heard-state"})
    emulator.says("heard", "ready")
    emulator.stop("heard")
    assert emulator.ended("heard")["TrainingJobStatus"] == "Stopped"
    ready, passed_on, saved = emulator.log("heard")
    assert (ready, saved) == ("ready", "saved")
    assert passed_on.startswith("launcher: the job is being stopped: SIGTERM to process ")
    assert emulator.read("heard-state/step") == b"7"
    assert emulator.unpacked("models/heard/output/model.tar.gz") == {"partial": b"m"}


@pytest.mark.thorough
def test_every_host_of_a_gang_hears_of_it(emulator: Emulator) -> None:
    launched(emulator, "heard-gang", ResourceConfig=GANG)
    for host in ("algo-1", "algo-2"):
        emulator.says("heard-gang", "ready", host)
    emulator.stop("heard-gang")
    assert emulator.ended("heard-gang")["TrainingJobStatus"] == "Stopped"
    for host in ("algo-1", "algo-2"):
        assert emulator.log("heard-gang", host)[-1] == "saved"


@pytest.mark.thorough
def test_a_script_that_is_still_starting_hears_of_it_later(emulator: Emulator) -> None:
    imports = "import time; print('starting'); time.sleep(2)\n"
    launched(emulator, "starting", imports + textwrap.dedent(SAVES))
    emulator.says("starting", "starting")
    emulator.stop("starting")
    assert emulator.ended("starting")["TrainingJobStatus"] == "Stopped"
    assert emulator.log("starting")[-1] == "saved"


@pytest.mark.parametrize(("code", "status"), [("pass", "Completed"), ("exit(7)", "Failed")])
def test_the_exit_code_is_the_scripts(emulator: Emulator, code: str, status: str) -> None:
    name = f"launched-{status.lower()}"
    launched(emulator, name, code)
    job = emulator.ended(name)
    assert job["TrainingJobStatus"] == status
    reason = job.get("FailureReason", "")
    assert reason == ("AlgorithmError: , exit code: 7" if status == "Failed" else "")


def test_a_process_that_handles_the_signal_looks_after_its_own_children() -> None:
    """As torchrun does, which would be hindered by a worker that is signalled by somebody else."""
    child = "trap 'echo child' TERM; echo up; while :; do sleep 0.1; done"
    parent = f"trap 'echo parent; kill -9 $!; exit 5' TERM; ({child}) & wait"
    command = ("sh", "-c", f"bash -c {shlex.quote(parent)}; echo status $?; exit 6")
    with started(launcher.entry_point(*command), stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        process.terminate()
        told, _ = process.communicate(timeout=PATIENCE)
    assert [line for line in told.splitlines() if not line.startswith("launcher: ")] == ["parent", "status 5"]
    assert process.returncode == 6


# As torchrun of PyTorch 2.8.0 was seen to do: the agent raises the signal as this exception, shuts its workers down,
# and raises it again, which nobody catches.
TORCHRUN = """#!{python}
import signal, sys, time
class SignalException(Exception):
    def __init__(self, msg, sigval):
        super().__init__(msg)
        self.sigval = sigval
def handler(signum, frame):
    sigval = signal.Signals(signum)
    raise SignalException("Process 7 got signal: " + str(int(sigval)), sigval=sigval)
def main():
    if "fails" in sys.argv:
        raise ValueError("no signal")
    if "works" in sys.argv:
        return print(*sys.argv)
    signal.signal(signal.SIGTERM, handler)
    print("up", flush=True)
    while True:
        time.sleep(0.1)
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def torchrun(tmp_path: Path) -> dict[str, str]:
    """An environment with that torchrun."""
    program = tmp_path / "torchrun"
    program.write_text(TORCHRUN.format(python=sys.executable))
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}


def test_a_preemption_under_torchrun_leaves_no_traceback(torchrun: dict[str, str]) -> None:
    for command in (["torchrun", "train.py"], [*launcher.entry_point("sh", "-c", "torchrun train.py; exit $?")]):
        with started(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=torchrun) as process:
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            process.terminate()
            told, _ = process.communicate(timeout=PATIENCE)
        quiet = command[0] != "torchrun"  # without the launcher it is noisy
        assert ("SignalException: Process 7 got signal: 15" in told, "Traceback" in told) == (not quiet, not quiet)
        assert process.returncode == (128 + signal.SIGTERM if quiet else 1)


def test_what_else_torchrun_says_is_left_alone(torchrun: dict[str, str], tmp_path: Path) -> None:
    for word, code, said in (("works", 0, f"{tmp_path / 'torchrun'} works\n"), ("fails", 1, "ValueError: no signal\n")):
        done = subprocess.run(
            launcher.entry_point("torchrun", word),
            env=torchrun,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code
        assert done.stdout.endswith(said)


def test_a_torchrun_that_is_no_script_of_python_is_run_as_it_is(torchrun: dict[str, str], tmp_path: Path) -> None:
    for program in ("#!/bin/sh\necho shell\n", b"\xff\n"):
        (tmp_path / "torchrun").write_bytes(program if isinstance(program, bytes) else program.encode())
        command = launcher.entry_point("sh", "-c", "command -v torchrun")
        done = subprocess.run(command, env=torchrun, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.stdout == f"{tmp_path / 'torchrun'}\n"


def test_a_process_that_nobody_waits_for_is_no_hindrance() -> None:
    command = launcher.entry_point("sh", "-c", "(sleep 0.1 &); exit 3")
    assert subprocess.run(command, timeout=PATIENCE, check=False).returncode == 3


def test_an_image_without_a_program_of_its_own_says_so() -> None:
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        launcher.entry_point(), env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "launcher: there is no train: name the command that the image is to run\n"


def test_it_needs_no_newer_python_than_it_says() -> None:
    ast.parse(forwarder.read_text(), feature_version=(3, 7))


def test_the_entry_point_is_within_sagemakers_limits() -> None:
    words = launcher.entry_point("python", "train.py")
    assert max(map(len, words)) <= 256
    assert len(words) <= 50
    assert words[-3:] == ["--", "python", "train.py"]


def test_a_session_wraps_what_its_clients_create(emulator: Emulator) -> None:
    session = launcher.use(
        boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
    )
    client: Any = session.client("sagemaker", endpoint_url=emulator.service.url)
    asked = request("wrapped")
    asked["AlgorithmSpecification"]["ContainerEntrypoint"] = ["sh", "-c"]
    asked["AlgorithmSpecification"]["ContainerArguments"] = [
        'bash -c "$0"; exit $?',
        "trap 'echo heard; exit' TERM; echo up; while :; do sleep 0.1; done",
    ]
    client.create_training_job(**asked)
    emulator.says("wrapped", "up")
    emulator.stop("wrapped")
    assert emulator.ended("wrapped")["TrainingJobStatus"] == "Stopped"
    assert emulator.log("wrapped")[-1] == "heard"
    described = emulator.describe("wrapped")["AlgorithmSpecification"]
    assert described["ContainerArguments"] == asked["AlgorithmSpecification"]["ContainerArguments"]
    assert launcher.wrap({"AlgorithmSpecification": described})["AlgorithmSpecification"] == described  # once
