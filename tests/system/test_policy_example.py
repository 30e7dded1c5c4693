"""examples/policy.yaml, applied by the command that people apply theirs with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from local_cloud.aws.stack import LocalCloud
from local_cloud.sagemaker.account.options import Account, parse_plan
from sagemaker_queue import InvalidRequest
from tests.system.conftest import System
from tests.waiting import PATIENCE

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/policy.yaml"


def smq(cloud: LocalCloud, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "sagemaker_queue", *arguments],
        env={**os.environ, **cloud.environment(), "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_the_example_is_applied_and_shares_the_fleet() -> None:
    with LocalCloud(slots=38, account=Account(plans=(parse_plan("p5-until-march=4,-60,+999999"),))) as cloud:
        assert smq(cloud, "policy", "diff", str(EXAMPLE)).returncode == 1
        applied = smq(cloud, "policy", "apply", str(EXAMPLE))
        assert (applied.returncode, "No job would start, be stopped or wait longer." in applied.stderr) == (0, True)
        assert applied.stdout.endswith("Version 1 is applied.\n")
        assert smq(cloud, "policy", "diff", str(EXAMPLE)).returncode == 0

        system = System(cloud)
        document = yaml.safe_load(EXAMPLE.read_text())
        status = system.queue.queue()
        assert {pool.name: pool.capacity for pool in status.pools} == {
            pool["name"]: pool["capacity"] for pool in document["pools"]
        }
        assert [project.name for project in status.projects] == [it["name"] for it in document["projects"]]
        assert {it.name for it in status.departments} == {"research", "product"}

        tags = [{"Key": "project", "Value": "vision"}, {"Key": "pools", "Value": "p4-spot"}]
        system.queue.submit(system.request("cat", "pass", Tags=tags))
        system.wait_state("cat", "completed")
        (attempt,) = system.attempts()
        assert attempt["ResourceConfig"]["InstanceType"] == "ml.p4d.24xlarge"
        assert attempt["EnableManagedSpotTraining"] is True

        gang = system.request("lion", "pass", instances=11, Tags=tags[:1])
        with pytest.raises(InvalidRequest, match="only 10 of p5") as refused:
            system.queue.submit(gang)
        assert refused.value.field == "ResourceConfig.InstanceCount"
        (warning,) = system.queue.submit(gang, preflight=False).warnings
        assert "only 10 of p5" in warning
        system.queue.cancel("lion")
