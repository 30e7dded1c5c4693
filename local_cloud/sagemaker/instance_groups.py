"""The instances that a ResourceConfig requests."""

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
    """Return the instances that a ResourceConfig or one of its InstancePreferences requests, in the order of hosts."""
    if config.get("InstanceGroups"):
        return tuple(
            InstanceGroup(group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"])
            for group in config["InstanceGroups"]
        )
    return (InstanceGroup("homogeneousCluster", config["InstanceType"], config["InstanceCount"]),)
