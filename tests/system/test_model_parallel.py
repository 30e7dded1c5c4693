"""Model parallelism through the queue: hyperparameters arrive as they are, a gang goes and comes back whole."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws.stack import LocalCloud
from tests.system.conftest import System
from tests.waiting import PATIENCE

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
STEPS = 60  # of examples/model_parallel/submit.py

# Two estimators as users write them, each once with the plain SDK and once with the queue.
SDK = """
import json, os, pathlib, sys
from sagemaker import Session, utils
from sagemaker.pytorch import PyTorch
from sagemaker_queue import QueueTrainingJobSession

utils.validate_sagemaker_config = lambda _: None  # the SDK does at each look into its settings
degrees = {"pipeline_parallel_degree": 2, "tensor_parallel_degree": 4, "microbatches": 4, "ddp": True}
DISTRIBUTIONS = {
    "by-mpi": ("1.12.1", "py38", {
        "smdistributed": {"modelparallel": {"enabled": True, "parameters": degrees}},
        "mpi": {"enabled": True, "processes_per_host": 8, "custom_mpi_options": "-verbose -x A=b"},
    }),
    "by-torchrun": ("2.0.1", "py310", {"torch_distributed": {"enabled": True}}),
}
for kind in ("plain", "queued"):
    pathlib.Path("train.py").write_text(pathlib.Path("wait.py").read_text() if kind == "queued" else "pass")
    session = QueueTrainingJobSession() if kind == "queued" else Session()
    for name, (framework, python, distribution) in DISTRIBUTIONS.items():
        PyTorch(
            role=os.environ["SAGEMAKER_QUEUE_ROLE"], entry_point="train.py", source_dir=".", instance_count=2,
            instance_type="ml.p4d.24xlarge", framework_version=framework, py_version=python, distribution=distribution,
            hyperparameters={"lr": 0.1, "name": "a b", "layers": [1, 2]}, sagemaker_session=session,
            checkpoint_s3_uri=f"s3://{session.default_bucket()}/kept/{name}",
        ).fit(wait=False, job_name=name)
    if kind == "plain":  # what the queue does not know counts, too
        ended = session.sagemaker_client.get_waiter("training_job_completed_or_stopped")
        for name in DISTRIBUTIONS:
            ended.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 900})
"""
WAIT = 'import time; print("begins", flush=True); time.sleep(86400)'


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=4) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def system(cloud: LocalCloud) -> System:
    return System(cloud)


def start(system: System, folder: Path, *command: str) -> "subprocess.Popen[str]":
    """A user's program, which finds the cloud in its environment."""
    environment = {**os.environ, **system.cloud.environment(), "SAGEMAKER_SUPPRESS_V2_WARNING": "1"}
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**environment, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(program: "subprocess.Popen[str]") -> None:
    """Wait until a program has ended well."""
    output, _ = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, output[-3000:]


def described(system: System, attempt: str) -> dict[str, Any]:
    description: dict[str, Any] = system.sagemaker.describe_training_job(TrainingJobName=attempt)
    return description


def test_hyperparameters_arrive_untouched_and_a_gang_leaves_and_returns_whole(system: System, tmp_path: Path) -> None:
    (tmp_path / "sdk.py").write_text(SDK)
    (tmp_path / "wait.py").write_text(WAIT)
    with start(system, tmp_path, "sdk.py") as program:
        end(program)
    gangs = ["by-mpi", "by-torchrun"]
    for name in gangs:
        system.wait_state(name, "running")
        plain, queued = described(system, name), described(system, f"{name}-qstamp-1")
        for part in ("HyperParameters", "ResourceConfig", "AlgorithmSpecification", "CheckpointConfig"):
            assert queued[part] == plain[part], part
    hyperparameters = described(system, "by-mpi-qstamp-1")["HyperParameters"]
    assert json.loads(hyperparameters["mp_parameters"])["pipeline_parallel_degree"] == 2
    assert json.loads(hyperparameters["sagemaker_mpi_num_of_processes_per_host"]) == 8
    assert described(system, "by-torchrun-qstamp-1")["HyperParameters"]["sagemaker_torch_distributed_enabled"] == "true"

    # One instance is wanted, and two come free: half a gang is no use.
    system.submit("urgent", "import time; time.sleep(1)", priority=9)
    system.wait_state("urgent", "completed")
    (victim,) = (name for name in gangs if "preempted" in [it.outcome for it in system.job(name).attempts])
    system.wait(f"{victim} to be back", lambda: system.job(victim).training_job_name == f"{victim}-qstamp-2")
    system.wait_state(victim, "running")
    again, plain = described(system, f"{victim}-qstamp-2"), described(system, victim)
    assert again["ResourceConfig"]["InstanceCount"] == 2
    assert again["HyperParameters"] == plain["HyperParameters"]
    assert system.most_at_once() <= 4
    for name in gangs:
        system.queue.cancel(name)
    system.wait("the queue to be empty", lambda: not list(system.queue.jobs()))


def curve(system: System, attempt: str) -> dict[int, float]:
    """Step -> loss, from the log of an attempt."""
    steps = (re.search(r"step (\d+): loss ([\d.]+)", line) for line in system.log(attempt))
    return {int(step[1]): float(step[2]) for step in steps if step}


def gated(folder: Path, gate: Path) -> Path:
    """Copy the example; the copy waits after step 20 until a file is there: how fast the machine is decides nothing."""
    shutil.copytree(ROOT / "examples/model_parallel", folder)
    train, sleep = folder / "train.py", "        time.sleep(options.seconds_per_step)\n"
    text = train.read_text()
    assert text.count(sleep) == 1
    wait = f"        while step == 20 and not Path({str(gate)!r}).exists():\n            time.sleep(0.1)\n"
    train.write_text(text.replace(sleep, sleep + wait))
    return folder


def test_a_split_network_goes_on_where_it_was_preempted(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[torch]'")
    gate = tmp_path / "gate"
    with LocalCloud(slots=4) as cloud, ExitStack() as stack:
        system = System(cloud)
        submit = str(gated(tmp_path / "example", gate) / "submit.py")
        programs = [stack.enter_context(start(system, ROOT, submit, name)) for name in ("whole", "split")]
        for program in programs:
            stack.callback(program.kill)
        system.wait("both to be queued", lambda: system.state("whole") and system.state("split"))
        system.queue.change("whole", priority=5)
        system.wait("split to train", lambda: any(it.startswith("step 20: ") for it in system.log("split-qstamp-1")))
        system.submit("urgent", "pass", priority=9)
        system.wait("split to make room", lambda: system.job("split").attempts[0].outcome == "preempted")
        gate.touch()
        for program in programs:
            end(program)

        assert len(system.job("whole").attempts) == 1
        split = system.job("split")
        assert [attempt.outcome for attempt in split.attempts] == ["preempted", "completed"]
        assert [
            job["ResourceConfig"]["InstanceCount"] for job in system.attempts() if "split" in job["TrainingJobName"]
        ] == [2, 2]
        first, second, reference = (
            curve(system, name) for name in ("split-qstamp-1", "split-qstamp-2", "whole-qstamp-1")
        )
        assert list(reference) == list(range(1, STEPS + 1))
        assert 1 < min(second) <= max(first) + 1 < STEPS, "it went on from a checkpoint"
        assert {**first, **second} == pytest.approx(reference, rel=1e-4)
        assert reference[STEPS] < reference[1] / 2, "it has learned"
