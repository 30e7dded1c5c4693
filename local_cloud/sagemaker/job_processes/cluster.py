"""The properties that all instances of one training job share."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from local_cloud.sagemaker.instance_groups import InstanceGroup

DEFAULT_CHECKPOINTS = "/opt/ml/checkpoints"
TOOLKIT_PREFIX = "sagemaker_"
"""Hyperparameters with this prefix are for SageMaker's training toolkit, not for the script."""


@dataclass(frozen=True)
class Cluster:
    """The parts of a training job that all its instances share: request, hosts, folder and environment."""

    name: str
    arn: str
    request: Mapping[str, Any]
    groups: tuple[InstanceGroup, ...]
    folder: Path
    master_port: int
    mounted: bool
    """Whether a process sees its folder at /opt/ml. If not, only environment variables give the folder's path."""
    base_environment: Mapping[str, str]
    python_path: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts: algo-1, algo-2, ..."""
        return [f"algo-{number}" for number in range(1, sum(group.count for group in self.groups) + 1)]

    @property
    def checkpoint_path(self) -> str:
        """The path for checkpoints inside a container."""
        path: str = self.request.get("CheckpointConfig", {}).get("LocalPath") or DEFAULT_CHECKPOINTS
        return path.rstrip("/")

    @cached_property
    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters, decoded: the SDK encodes values as JSON, and a value that is no JSON is plain text."""
        return {key: _decode(value) for key, value in self.request.get("HyperParameters", {}).items()}

    @property
    def user_hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters for the script, decoded and without those of the training toolkit."""
        return {key: value for key, value in self.hyperparameters.items() if not key.startswith(TOOLKIT_PREFIX)}

    @property
    def channels(self) -> list[dict[str, Any]]:
        """The request's InputDataConfig."""
        return list(self.request.get("InputDataConfig", []))

    @property
    def script(self) -> str | None:
        """The program of a script-mode job; None for any other job."""
        program = self.hyperparameters.get("sagemaker_program")
        return None if program is None else str(program)

    @property
    def entrypoint(self) -> list[str]:
        """The request's ContainerEntrypoint and ContainerArguments; empty if the request has no ContainerEntrypoint.

        The image's own program cannot be run here.
        """
        algorithm = self.request["AlgorithmSpecification"]
        if "ContainerEntrypoint" not in algorithm:
            return []
        return [*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", [])]

    def group_of(self, host: str) -> InstanceGroup:
        """Return the group that contains a host. Raise ValueError if there is no such host."""
        number = self.hosts.index(host)
        for group in self.groups:
            if number < group.count:
                return group
            number -= group.count
        raise ValueError(host)

    def hosts_of(self, group: InstanceGroup) -> list[str]:
        """Return the hosts of a group."""
        return [host for host in self.hosts if self.group_of(host) == group]


def _decode(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
