"""Trying again, on real parts: an account with fewer instances than the policy says, and jobs that fail."""

from collections.abc import Iterator
from typing import Any

import pytest

from local_cloud.aws.stack import LocalCloud
from local_cloud.faults.time_warp import TimeWarp
from tests.system.conftest import FOREVER, System

P5 = "ml.p5.48xlarge"
POLICY = {
    "pools": [
        {"name": "p5", "instance_type": P5, "capacity": 3},
        {"name": "m5", "instance_type": "ml.m5.large", "capacity": 2},
    ],
    "projects": [{"name": "default", "quota": {"p5": 3, "m5": 2}}],
}


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    with LocalCloud(policy=POLICY, instances={P5: 1}) as cloud:
        yield cloud


def on_m5(count: int = 1) -> dict[str, Any]:
    return {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 30}}


def counted_from_elsewhere(system: System) -> list[tuple[str, dict[str, int], bool]]:
    found = system.queue.queue().external
    return [(it.training_job_name, dict(it.slots), it.stopping) for it in found]


@pytest.mark.thorough
def test_a_pool_with_fewer_instances_than_it_should_have_backs_off_as_a_whole(system: System) -> None:
    system.run("first", priority=9)
    system.submit("second", priority=5)
    system.submit("third", priority=1)

    def refusals() -> list[str]:
        return [one.cause for one in system.job("second").history if "ResourceLimitExceeded" in one.cause]

    system.wait("second to be refused", refusals)
    assert refusals()[0].startswith("next try at ")
    for name in ("second", "third"):
        system.wait_state(name, "pending")
    assert [one.cause for one in system.job("third").history] == ["submitted"]  # it has not met the same refusal
    for name in ("second", "third"):
        system.gives_reason(name, "BACKOFF", "STARTING_SOON")
    system.settles(lambda: [(it.pool, it.instances) for it in system.queue.queue().pauses], [("p5", 1)])
    system.queue.cancel("first")
    system.wait_state("first", "stopped")
    later = TimeWarp(system.cloud)
    system.wait("second to be tried again", lambda: system.state("second") == "completed", later)
    system.wait_state("third", "completed")
    system.wait("the pause to be over", lambda: not system.queue.queue().pauses)
    assert [attempt.training_job_name for attempt in system.job("second").attempts] == ["second-qstamp-1"]


def test_a_job_that_fails_is_tried_again_from_its_checkpoint(system: System) -> None:
    script = (
        "import pathlib, sys; mark = pathlib.Path(os.environ['SM_CHECKPOINT_DIR'], 'mark')\n"
        "if not mark.exists(): mark.write_text('here'); sys.exit('the first time it fails')"
    )
    tags = [{"Key": "retries", "Value": "1"}]
    system.submit("flaky", script, Tags=tags, **on_m5())
    system.wait_state("flaky", "completed")
    job = system.job("flaky")
    assert (job.retries, job.retried) == (1, 1)
    assert [attempt.outcome for attempt in job.attempts] == ["failed", "completed"]
    assert any(one.cause.startswith("failed, retry 1 of 1: AlgorithmError") for one in job.history)


def test_a_training_job_from_elsewhere_is_shown_where_it_counts_and_left_alone(system: System) -> None:
    system.sagemaker.create_training_job(**system.request("by-hand", FOREVER, **on_m5(2)))
    system.settles(lambda: counted_from_elsewhere(system), [("by-hand", {"m5": 2}, False)])
    assert system.submit("ours", **on_m5()) == "pending"
    system.cloud.tick()
    assert system.sagemaker.describe_training_job(TrainingJobName="by-hand")["TrainingJobStatus"] == "InProgress"
    system.sagemaker.stop_training_job(TrainingJobName="by-hand")
    system.wait_state("ours", "completed")
    system.settles(lambda: counted_from_elsewhere(system), [])
