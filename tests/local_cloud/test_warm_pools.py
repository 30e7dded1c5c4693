"""Managed warm pools (guide: train-warm-pools): when instances stay, for how long, and which job may take them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from local_cloud.sagemaker.account.options import Account
from tests.local_cloud.conftest import MakeEmulator
from tests.local_cloud.emulator import Emulator, request
from tests.local_cloud.test_training_api import refusal
from tests.waiting import until

TYPE = "ml.m5.large"
NETWORK = {"Subnets": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]}


def kept(seconds: int = 3600, **config: Any) -> dict[str, Any]:
    base = {"InstanceType": TYPE, "InstanceCount": 1, "VolumeSizeInGB": 1}
    return {"ResourceConfig": {**base, "KeepAlivePeriodInSeconds": seconds, **config}}


def pool(emulator: Emulator, name: str) -> dict[str, Any]:
    described: dict[str, Any] = emulator.describe(name)["WarmPoolStatus"]
    return described


def trains(emulator: Emulator, name: str) -> None:
    until(lambda: emulator.describe(name)["SecondaryStatus"] == "Training")


def update(emulator: Emulator, name: str, seconds: int) -> None:
    emulator.sagemaker.update_training_job(TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": seconds})


def test_a_matching_job_takes_the_instances_without_provisioning(make_emulator: MakeEmulator, tmp_path: Path) -> None:
    """The second job would never start if it had to wait for instances."""
    emulator = make_emulator(instances={TYPE: 1}, startup_delay=0.2)
    gate = tmp_path / "gate"
    emulator.create("cold", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done", **kept())
    assert pool(emulator, "cold") == {"Status": "InUse"}
    gate.touch()
    emulator.ended("cold")
    assert pool(emulator, "cold")["Status"] == "Available"
    assert pool(emulator, "cold")["ResourceRetainedBillableTimeInSeconds"] >= 0

    emulator.service._machine = _slow(emulator)
    emulator.create("warm", "true", **kept(seconds=1800))
    assert pool(emulator, "cold")["Status"] == "Reused"
    assert pool(emulator, "cold")["ReusedByJob"] == "warm"
    assert emulator.ended("warm")["TrainingJobStatus"] == "Completed"
    assert pool(emulator, "warm")["Status"] == "Available"
    # A job that keeps nothing takes a pool, too, and ends it.
    emulator.create("last", "true", **kept(seconds=0))
    emulator.ended("last")
    assert pool(emulator, "last")["Status"] == "Terminated"


def _slow(emulator: Emulator) -> Any:
    return replace(emulator.service._machine, startup_delay=86400.0)


OTHERS: dict[str, dict[str, Any]] = {
    "role": {"RoleArn": "arn:aws:iam::000000000000:role/another"},
    "type": kept(InstanceType="ml.m5.xlarge"),
    "count": kept(InstanceCount=2),
    "volume": kept(VolumeSizeInGB=2),
    "key": kept(VolumeKmsKeyId="1234abcd-12ab-34cd-56ef-1234567890ab"),
    "subnets": {"VpcConfig": {**NETWORK, "Subnets": ["subnet-1"]}},
    "groups": {"VpcConfig": {**NETWORK, "SecurityGroupIds": ["sg-2"]}},
    "no-network": {"VpcConfig": None},
    "isolation": {"EnableNetworkIsolation": True},
    "encryption": {"EnableInterContainerTrafficEncryption": True},
    "session-tags": {"Tags": [{"Key": "sagemaker:EnableSessionTagChaining", "Value": "true"}]},
}


@pytest.mark.thorough
@pytest.mark.parametrize("differs", OTHERS)
def test_a_job_that_does_not_match_finds_the_instances_taken(make_emulator: MakeEmulator, differs: str) -> None:
    emulator = make_emulator(instances={TYPE: 1, "ml.m5.xlarge": 0})
    same = {**kept(), "VpcConfig": NETWORK}
    emulator.create("first", "true", **same)
    emulator.ended("first")
    other = request("other", "true", **{**same, **OTHERS[differs]})
    code, message = refusal(emulator, "create_training_job", **{k: v for k, v in other.items() if v is not None})
    assert code == "ResourceLimitExceeded"
    if differs != "type":
        assert "is 1 Instances, with current utilization of 1 Instances and a request delta of" in message
    assert pool(emulator, "first")["Status"] == "Available"
    reordered = {**same, "VpcConfig": {**NETWORK, "Subnets": NETWORK["Subnets"][::-1]}, "Environment": {"A": "b"}}
    emulator.create("second", "true", **reordered)
    assert pool(emulator, "first")["Status"] == "Reused"


def test_an_update_to_nothing_frees_the_instances(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(instances={TYPE: 1})
    emulator.create("first", "true", **kept())
    emulator.ended("first")
    assert refusal(emulator, "delete_training_job", TrainingJobName="first")[0] == "ResourceInUse"
    update(emulator, "first", 7200)
    described = emulator.describe("first")
    assert described["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 7200
    assert described["WarmPoolStatus"]["Status"] == "Available"
    update(emulator, "first", 0)
    assert pool(emulator, "first")["Status"] == "Terminated"
    emulator.create("other", "true", ResourceConfig=kept(VolumeSizeInGB=2)["ResourceConfig"])
    code, message = refusal(
        emulator, "update_training_job", TrainingJobName="first", ResourceConfig={"KeepAlivePeriodInSeconds": 60}
    )
    assert (code, "is not Available (Terminated)" in message) == ("ValidationException", True)
    emulator.sagemaker.delete_training_job(TrainingJobName="first")


def test_a_pool_ends_by_itself(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(instances={TYPE: 1})
    emulator.create("brief", "true", **kept(seconds=1))
    emulator.ended("brief")
    until(lambda: pool(emulator, "brief")["Status"] == "Terminated")
    assert pool(emulator, "brief")["ResourceRetainedBillableTimeInSeconds"] == 1
    emulator.create("next", "true")


def test_what_leaves_a_healthy_cluster_leaves_a_pool(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator()
    emulator.create("fails", "false", **kept())
    emulator.create("no-data", "true", **kept(), OutputDataConfig={"S3OutputPath": "s3://no-such-bucket/x"})
    emulator.create("stopped", "sleep", "86400", **kept())
    trains(emulator, "stopped")
    emulator.stop("stopped")
    ends = {name: emulator.ended(name)["TrainingJobStatus"] for name in ("fails", "no-data", "stopped")}
    assert ends == {"fails": "Failed", "no-data": "Failed", "stopped": "Stopped"}
    assert {pool(emulator, name)["Status"] for name in ends} == {"Available"}


@pytest.mark.thorough
def test_a_job_that_was_never_launched_leaves_none(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(startup_delay=86400.0)
    emulator.create("early", "true", **kept())
    emulator.stop("early")
    emulator.ended("early")
    assert pool(emulator, "early") == {"Status": "Terminated"}


def test_the_quota_of_warm_pools_decides_what_is_kept(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(account_options=Account({f"{TYPE} for training warm pool usage": 1}))
    emulator.create("first", "sleep", "86400", **kept())
    emulator.create("second", "sleep", "86400", **kept())
    for name in ("first", "second"):
        trains(emulator, name)
        emulator.stop(name)
        emulator.ended(name)
    assert [pool(emulator, name)["Status"] for name in ("first", "second")] == ["Available", "Terminated"]


def test_pools_are_listed(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator()
    emulator.create("kept", "true", **kept())
    emulator.create("plain", "true")
    emulator.ended("kept")
    emulator.ended("plain")

    def listed(**filters: str) -> dict[str, Any]:
        jobs = emulator.sagemaker.list_training_jobs(**filters)["TrainingJobSummaries"]
        return {job["TrainingJobName"]: job.get("WarmPoolStatus", {}).get("Status") for job in jobs}

    assert listed() == {"kept": "Available", "plain": None}
    assert listed(WarmPoolStatusEquals="Available") == {"kept": "Available"}
    assert listed(WarmPoolStatusEquals="Reused") == {}


@pytest.mark.parametrize(
    "changes",
    [
        {
            "EnableManagedSpotTraining": True,
            "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60},
            **kept(),
        },
        {
            "ResourceConfig": {
                "InstanceGroups": [{"InstanceGroupName": "a", "InstanceType": TYPE, "InstanceCount": 1}],
                "VolumeSizeInGB": 1,
                "KeepAlivePeriodInSeconds": 60,
            }
        },
    ],
)
def test_neither_spot_nor_heterogeneous_clusters_are_kept(emulator: Emulator, changes: dict[str, Any]) -> None:
    code, message = refusal(emulator, "create_training_job", **request("no-pool", "true", **changes))
    assert (code, "KeepAlivePeriodInSeconds" in message) == ("ValidationException", True)
