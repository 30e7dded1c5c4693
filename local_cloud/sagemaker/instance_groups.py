"""The instances that a ResourceConfig asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class InstanceGroup:
    """Instances of one type that a job has from its start to its end."""

    name: str
    instance_type: str
    count: int


def instance_groups(config: Mapping[str, Any]) -> tuple[InstanceGroup, ...]:
    """What one ResourceConfig or one of its InstancePreferences asks for, in the order in which hosts are numbered."""
    if config.get("InstanceGroups"):
        return tuple(
            InstanceGroup(group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"])
            for group in config["InstanceGroups"]
        )
    return (InstanceGroup("homogeneousCluster", config["InstanceType"], config["InstanceCount"]),)
