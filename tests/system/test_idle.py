"""Held and idle: a job that holds instances whose GPUs do nothing is marked, and makes room first if the policy says.

The local cloud has no GPUs, so the test reports to CloudWatch what SageMaker would have.
"""

import time
from datetime import UTC, datetime

import pytest

from local_cloud.faults.time_warp import TimeWarp
from sagemaker_queue.cli import main
from tests.system.conftest import System

HALF_AN_HOUR = 1800.0


def gpus_did(system: System, training_job: str, percent: float) -> None:
    """Report a figure of the only instance for each of the last 40 minutes, as SageMaker would have.

    The next 20 minutes have figures too, because it may take minutes until the queue looks.
    """
    system.cloud.client("cloudwatch").put_metric_data(
        Namespace="/aws/sagemaker/TrainingJobs",
        MetricData=[
            {
                "MetricName": "GPUUtilization",
                "Dimensions": [{"Name": "Host", "Value": f"{training_job}/algo-1"}],
                "Timestamp": datetime.fromtimestamp(time.time() - 60 * minutes, UTC),
                "Value": percent,
                "Unit": "Percent",
            }
            for minutes in range(-20, 40)
        ],
    )


@pytest.mark.thorough
def test_who_does_nothing_is_marked_and_makes_room_first(
    system: System, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = {
        "pools": [{"name": "default", "capacity": 2}],
        "projects": [{"name": "default", "quota": {"default": 2}}],
        "settings": {"idle_after": HALF_AN_HOUR},
    }
    system.queue.apply_policy(policy, system.queue.policy().version)
    system.run("works")
    system.run("held", priority=5)  # which would be the last to go, and would come back by that, if it worked
    gpus_did(system, "works-qstamp-1", 700.0)
    gpus_did(system, "held-qstamp-1", 3.0)
    warp = TimeWarp(system.cloud)
    warp.have_run_for(["held", "works"], 2 * HALF_AN_HOUR)
    system.wait("a look at CloudWatch", lambda: system.job("held").idle_since, each_time=system.cloud.tick)
    expected = {"held": system.job("held").idle_since, "works": None}
    system.settles(lambda: {job.job: job.idle_since for job in system.queue.jobs()}, expected)
    system.wait("the metric", lambda: '"IdleInstances":[1.0]' in system.cloud.function_logs().replace(" ", ""))
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)
    assert main(["ls", "-o", "job,activity"]) == 0
    shown = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines()[2:])
    assert shown["works"].strip() == "running"
    assert shown["held"].startswith("idle ")
    system.submit("urgent", "pass", priority=9)
    system.wait("held to make room", lambda: [it.outcome for it in system.job("held").attempts][:1] == ["preempted"])
    system.wait("held to run again once there is room", lambda: len(system.job("held").attempts) == 2)
    assert system.state("urgent") == "completed"
    assert (system.state("works"), len(system.job("works").attempts)) == ("running", 1)
