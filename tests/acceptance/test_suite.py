"""The acceptance suite itself: it says what it costs, asks, and leaves nothing behind."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws import deployment
from local_cloud.aws.stack import LocalCloud
from local_cloud.commands.up_and_exec import without_account
from local_cloud.sagemaker.account.options import limit_exceeded
from sagemaker_queue import QueueClient
from tests.acceptance.__main__ import main
from tests.acceptance.plan import TRAINING_JOBS, Cost
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BUCKET = "sagemaker-us-east-1-000000000000"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1"  # else the SDK is asked, for seconds


def keep_waiting(phase: str, operation: str, request: Mapping[str, Any]) -> None:
    """Refuse the job for which the interrupted check waits, so that the check cannot end before it is interrupted."""
    if (phase, operation) == ("before", "CreateTrainingJob") and "-high-" in request["TrainingJobName"]:
        raise limit_exceeded("ml.m5.large for training job usage", 2, 2, 1)


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=2, intercept=keep_waiting) as cloud:
        yield cloud


def test_the_plan_names_every_check() -> None:
    checks = {
        f"{path.name}::{line.split('(')[0].removeprefix('def ')}"
        for path in HERE.glob("check_*.py")
        for line in path.read_text().splitlines()
        if line.startswith("def check_")
    }
    assert set(TRAINING_JOBS) == checks


def test_the_cost_is_told() -> None:
    told = Cost(10, 2.0, 6.0).sentence("ml.m5.large", 0.5)
    assert "10 training jobs on ml.m5.large" in told
    assert "2.0 instance-hours, and never more than 6.0" in told
    assert "at 0.5 each that is 1.00, never more than 3.00" in told
    assert "--price" in Cost.of_all().sentence("ml.m5.large", None)


def test_a_real_account_is_not_touched_before_somebody_agrees(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_URL", "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/prod")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))  # no terminal
    assert main(["--price", "0.5"]) == 1
    told = capsys.readouterr()
    assert "instance-hours" in told.out and "--yes" in told.err


@pytest.mark.thorough
def test_ctrl_c_leaves_nothing_behind(cloud: LocalCloud) -> None:
    queue = QueueClient(url=cloud.queue_url, boto_session=cloud.boto_session())
    before = queue.policy()
    options = ["--stack", deployment.STACK, "--url", cloud.queue_url, "--image", IMAGE, "--yes"]
    options += ["--patience", str(PATIENCE)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance", *options, "--", "-k", "preempted"],
        cwd=ROOT, env={**without_account(os.environ), **cloud.environment(), **cloud.mark},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as suite:  # fmt: skip
        until(lambda: suite.poll() is not None or any(job.state == "running" for job in queue.jobs()))
        jobs = [job.job for job in queue.jobs()]
        suite.send_signal(signal.SIGINT)
        told, _ = suite.communicate()
    assert suite.returncode == pytest.ExitCode.INTERRUPTED, told
    assert jobs and {queue.job(job).state for job in jobs} == {"stopped"}
    assert queue.policy().policy == before.policy
    objects = cloud.client("s3").list_objects_v2(Bucket=BUCKET)
    assert "Contents" not in objects, told
