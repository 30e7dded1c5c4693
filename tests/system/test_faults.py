"""Sixty jobs through all kinds of faults at once; and the same by the command line, on a smaller scale."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks import faults as sixty_jobs
from local_cloud.aws.stack import LocalCloud
from local_cloud.faults.injection import Faults, parse
from local_cloud.faults.time_warp import TimeWarp
from sagemaker_queue import PastAttempt
from tests.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
SEED = 1


@pytest.mark.thorough
def test_sixty_jobs_are_completed_once_whatever_goes_wrong() -> None:
    wrong = Faults(parse(sixty_jobs.FAULTS), SEED)
    with LocalCloud(sixty_jobs.SLOTS, faults=wrong) as cloud:
        outcome = sixty_jobs.run(cloud, waiting=TimeWarp(cloud), patience=1000)
    assert outcome.faults == []
    # Otherwise nothing has been shown.
    assert min(outcome.injected.values()) > 0, outcome.injected
    assert outcome.most_in_use > sixty_jobs.SLOTS / 2


def an_attempt(number: int, status: str, began: int, ended: int | None, **more: str) -> dict[str, Any]:
    times = {"CreationTime": began} | ({"TrainingEndTime": ended} if ended else {})
    return {"TrainingJobName": f"job-qstamp-{number}", "TrainingJobStatus": status, **times, **more}


@pytest.mark.parametrize(
    ("attempts", "complaint"),
    [
        ([an_attempt(1, "Stopped", 1, 2), an_attempt(2, "Completed", 3, 4)], None),
        ([an_attempt(1, "Failed", 1, 2, FailureReason="CapacityError: none"), an_attempt(2, "Completed", 3, 4)], None),
        ([], "have ended {}"),
        ([an_attempt(1, "Completed", 1, 2), an_attempt(2, "Completed", 3, 4)], "have ended {'Completed': 2}"),
        ([an_attempt(1, "Completed", 1, 2), an_attempt(2, "InProgress", 3, None)], "'InProgress': 1"),
        ([an_attempt(1, "Stopped", 1, 4), an_attempt(2, "Completed", 3, 5)], "qstamp-2 began before"),
        ([an_attempt(1, "Failed", 1, 2, FailureReason="Bug"), an_attempt(2, "Completed", 3, 4)], "has failed: Bug"),
    ],
)
def test_what_is_wrong_with_attempts_is_seen(attempts: list[dict[str, Any]], complaint: str | None) -> None:
    found = list(sixty_jobs.wrong_attempts("job", attempts))
    assert found == [] if complaint is None else complaint in found[0]


BEGAN = datetime(2026, 11, 22, 10, 0, 0, 250_000, tzinfo=UTC)


def seconds(count: float) -> datetime:
    return BEGAN + timedelta(seconds=count)


def described(**changes: Any) -> dict[str, Any]:
    """What SageMaker tells of an attempt that ran for 60 s on two instances."""
    times = {"CreationTime": seconds(0), "TrainingStartTime": seconds(5), "TrainingEndTime": seconds(65)}
    resources = {"ResourceConfig": {"InstanceType": sixty_jobs.KIND, "InstanceCount": 2}}
    return {"TrainingJobName": "job-qstamp-1", **times, **resources, **changes}


def recorded(**changes: Any) -> PastAttempt:
    """What the history has of it."""
    times = {"launched": seconds(0), "began": seconds(5), "ended": seconds(65), "ran_seconds": 60.0}
    used = {"instances": {sixty_jobs.KIND: 2}, "instance_count": 2}
    return PastAttempt(**{"job": "job", "attempt": 1, "training_job_name": "job-qstamp-1", **times, **used, **changes})


@pytest.mark.parametrize(
    ("history", "attempts", "complaint"),
    [
        ([recorded()], [described()], None),
        ([recorded()], [described(TrainingEndTime=seconds(65.4))], None),  # less than a second
        ([recorded(began=None, ran_seconds=0)], [described(TrainingStartTime=None)], None),
        ([], [described()], "job-qstamp-1 is not in the history"),
        ([recorded(), recorded()], [described()], "in the history 2 times"),
        ([recorded()], [], "SageMaker does not know it"),
        ([recorded()], [described(CreationTime=seconds(-1))], "SageMaker tells"),
        ([recorded()], [described(TrainingStartTime=seconds(6))], "SageMaker tells"),
        ([recorded(began=None, ran_seconds=0)], [described()], "SageMaker tells"),
        ([recorded(instances={})], [described()], "SageMaker tells"),
        ([recorded()], [described(TrainingEndTime=seconds(66))], "ended at"),
        ([recorded(ran_seconds=59.4)], [described()], "120.000 instance-seconds, the history has 118.800"),
    ],
)
def test_where_the_history_differs_from_sagemakers_records_is_seen(
    history: list[PastAttempt], attempts: list[dict[str, Any]], complaint: str | None
) -> None:
    found = list(sixty_jobs.wrong_history(history, attempts))
    assert found == [] if complaint is None else complaint in found[0]


@pytest.mark.thorough
def test_the_command_line_tells_what_went_wrong(tmp_path: Path) -> None:
    # Without its schedule, the queue itself makes no call that is throttled, however long the script takes.
    script = """
import boto3, botocore.config
events = boto3.client("events")
for rule in events.list_rules()["Rules"]:
    if "ScheduleExpression" in rule:
        events.disable_rule(Name=rule["Name"])
once = botocore.config.Config(retries={"total_max_attempts": 1})
boto3.client("sagemaker", config=once).list_training_jobs()
"""
    command = [sys.executable, "-m", "local_cloud", "exec", "--faults", "throttle=1,late=0", "--seed", "7", "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "ThrottlingException" in done.stderr
    *_, counts, most = done.stderr.splitlines()
    assert re.fullmatch(r"local_cloud: faults of seed 7: throttle 1, late 0", counts)
    assert most == "local_cloud: in use at once at most: nothing"
