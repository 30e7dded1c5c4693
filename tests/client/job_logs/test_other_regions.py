"""The log of a job whose attempts ran in several regions and accounts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue import QueueClient
from sagemaker_queue.cli import main
from sagemaker_queue.errors import NoAccountProfile
from sagemaker_queue.queue.attempt_clients import AttemptClients
from sagemaker_queue.tuning.metric import SearchMetric
from sagemaker_queue.tuning.metric_log import MetricLog
from sagemaker_queue.workflows.job_logs.attempt_logs import LOG_GROUP
from tests.client.other_account import session_of_profile

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

HOME, OHIO, LAB = "eu-west-1", "us-east-2", "222222222222"
ENDED = "2026-11-21T10:00:00Z"
ATTEMPTS: list[dict[str, Any]] = [
    {"attempt": 1, "trainingJobName": "job1-qstamp-1", "outcome": "preempted", "ended": ENDED},
    {"attempt": 2, "trainingJobName": "job1-qstamp-2", "outcome": "preempted", "ended": ENDED, "region": OHIO},
    {
        **{"attempt": 3, "trainingJobName": "job1-qstamp-3", "outcome": "completed", "ended": ENDED},
        **{"region": OHIO, "account": LAB},
    },
]
JOB = {"job": "job1", "state": "completed", "attempts": ATTEMPTS}


@pytest.fixture(autouse=True)
def logs(address: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each attempt's lines, in the region and account of the attempt alone."""
    with mock_aws():
        lab = session_of_profile(LAB, "lab", tmp_path, monkeypatch)
        for attempt, session, region in ((1, boto3, HOME), (2, boto3, OHIO), (3, lab, OHIO)):
            create: Any = session.client
            client = create("logs", region_name=region)
            client.create_log_group(logGroupName=LOG_GROUP)
            stream = {"logGroupName": LOG_GROUP, "logStreamName": f"job1-qstamp-{attempt}/algo-1-1700000001"}
            client.create_log_stream(**stream)
            line = {"timestamp": int(time.time() * 1000), "message": f"loss={attempt}.5;"}
            client.put_log_events(**stream, logEvents=[line])
        yield


@pytest.mark.parametrize("follow", [[], ["--follow"]])
def test_it_has_the_lines_of_all_attempts(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], follow: list[str]
) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_ACCOUNT_PROFILES", f"{LAB}=lab")
    server.always_answers(200, JOB)
    assert main(["logs", *follow, "job1"]) == 0
    assert capsys.readouterr().out.splitlines() == ["loss=1.5;", "loss=2.5;", "loss=3.5;"]


def test_without_a_profile_the_error_names_job_account_and_setting(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.always_answers(200, JOB)
    assert main(["logs", "job1"]) != 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["loss=1.5;", "loss=2.5;"]  # those of the other attempts are shown first
    assert f"job1 is in account {LAB}, and no AWS profile of that account is set" in err
    assert f"smq config set account_profiles {LAB}=PROFILE" in err and "Traceback" not in err


def test_an_attempt_without_need_of_a_profile_can_be_chosen(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.always_answers(200, JOB)
    assert main(["logs", "--attempt", "2", "job1"]) == 0
    assert capsys.readouterr().out == "loss=2.5;\n"


def test_a_search_reads_the_metric_wherever_a_trial_runs(
    server: ScriptedServer, queue: QueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGEMAKER_QUEUE_ACCOUNT_PROFILES", f"{LAB}=lab")
    with_profile = QueueClient(url=server.url)
    server.always_answers(200, JOB)
    metric = SearchMetric("loss", r"loss=([0-9.]+);")
    read = MetricLog(AttemptClients(with_profile, "logs"), metric).read(with_profile.job("job1"))
    assert [value for _, value in read] == [1.5, 2.5, 3.5]
    with pytest.raises(NoAccountProfile, match="job1 is in account"):
        MetricLog(AttemptClients(queue, "logs"), metric).read(queue.job("job1"))
