"""What an instance finds where the kernel shows no /opt/ml, and where checkpoints are wanted elsewhere."""

import os
from pathlib import Path
from typing import Any

from local_cloud.sagemaker.instance_groups import instance_groups
from local_cloud.sagemaker.job_processes.cluster import Cluster
from local_cloud.sagemaker.job_processes.instance import Instance
from local_cloud.sagemaker.job_processes.process import ContainerProcess, ProcessLaunch
from tests.local_cloud.emulator import request
from tests.waiting import until


def instance(folder: Path, *, mounted: bool, **changes: Any) -> Instance:
    asked = request("job", "python", **changes)
    cluster = Cluster(
        name="job",
        arn="arn",
        request=asked,
        groups=instance_groups(asked["ResourceConfig"]),
        folder=folder,
        master_port=1,
        mounted=mounted,
        base_environment={"PATH": os.environ["PATH"]},
    )
    return Instance(cluster, cluster.hosts[-1])


def run(instance: Instance) -> str:
    """What the instance's command prints."""
    command = ["sh", "-c", "pwd; cd $SM_CHECKPOINT_DIR && pwd -P; ls $SM_MODEL_DIR/.."]
    launch = ProcessLaunch(command, instance.environment(), instance.cwd, instance.stage, instance.mounts)
    process = ContainerProcess(launch, instance.output)
    until(lambda: process.exit_code() is not None)
    return instance.output.read_text()


def test_without_a_namespace_the_environment_points_to_the_private_folders(tmp_path: Path) -> None:
    alone = instance(tmp_path, mounted=False)
    alone.prepare()
    notice, cwd, checkpoints, *folders = run(alone).splitlines()
    assert "/opt/ml cannot be shown on this machine" in notice
    assert cwd == f"{tmp_path}/algo-1/code"
    assert checkpoints == f"{tmp_path}/algo-1-checkpoints"
    assert folders == ["checkpoints", "code", "input", "model", "output"]


def test_checkpoints_elsewhere_are_where_the_environment_says(tmp_path: Path) -> None:
    odd = instance(tmp_path, mounted=False, CheckpointConfig={"S3Uri": "s3://b/c", "LocalPath": "/a-new-folder/x"})
    odd.prepare()
    said = run(odd)
    assert "/a-new-folder/x cannot be shown on this machine: write checkpoints to SM_CHECKPOINT_DIR" in said
    assert f"{tmp_path}/algo-1-checkpoints" in said.splitlines()
    assert not Path("/a-new-folder").exists()


def test_hosts_of_groups_are_numbered_one_after_another(tmp_path: Path) -> None:
    groups = [
        {"InstanceGroupName": "small", "InstanceType": "ml.m5.large", "InstanceCount": 2},
        {"InstanceGroupName": "large", "InstanceType": "ml.g5.xlarge", "InstanceCount": 1},
    ]
    last = instance(tmp_path, mounted=False, ResourceConfig={"InstanceGroups": groups})
    variables = last.environment()
    assert last.cluster.hosts == ["algo-1", "algo-2", "algo-3"]
    assert variables["SM_CURRENT_HOST"] == "algo-3"
    assert variables["SM_CURRENT_INSTANCE_TYPE"] == "ml.g5.xlarge"
    assert variables["SM_CURRENT_INSTANCE_GROUP"] == "large"
    assert last.cluster.hosts_of(last.cluster.groups[0]) == ["algo-1", "algo-2"]
