"""Rules for the instances, the storage and the warm pool of a training job: ResourceConfig.

Sources are named as in `rules.py`.
"""

import re
from collections.abc import Iterator
from typing import Any

from job_queue.domain.errors import ValidationIssue
from job_queue.validation.issue import field_issue
from job_queue.validation.values import Json, integer, mapping, mappings, repeats, text

_WARMEST = 3600  # seconds
_WAYS = ("InstanceType", "InstanceGroups", "InstancePreferences")

# Families without a local disk, by EC2's guide of instance types. SageMaker's service model names only c5 and p2, as
# examples. Families in neither pattern are not checked: all or some of their types have a disk, but the model does not
# name them.
_EBS_ONLY = re.compile(r"ml\.(?:c4|c5n?|[cmr][678]i(?:-flex)?|m4|m5|p2|p3|r5|t3)\.\w+")
_WITH_DISK = re.compile(r"ml\.(?:p4d|g4dn|g5)\.\w+")  # families with a local disk that the model names


def _instances(request: Json) -> Iterator[ValidationIssue]:
    """Require one of InstanceType, InstanceGroups and InstancePreferences (model; guide: heterogeneous cluster)."""
    if "ServerlessJobConfig" in request:
        return
    config = mapping(request, "ResourceConfig")
    ways = [way for way in _WAYS if config.get(way)]
    if not ways:
        what = "is missing: say it here, or in InstanceGroups or InstancePreferences."
        yield field_issue("ResourceConfig.InstanceType", what)
        return
    for way in ways[1:]:
        yield field_issue(f"ResourceConfig.{way}", f"and {ways[0]} exclude each other: keep one of them.")
    if len(ways) == 1:
        checks = {"InstanceType": _one_type, "InstanceGroups": _groups, "InstancePreferences": _preferences}
        yield from checks[ways[0]](request, config)


def _one_type(request: Json, config: Json) -> Iterator[ValidationIssue]:
    """Require a count for the type."""
    yield from _at_least_one(config, "ResourceConfig")


def _groups(request: Json, config: Json) -> Iterator[ValidationIssue]:
    """Require a count and a unique name for each group (guide: heterogeneous cluster)."""
    if config.get("InstanceCount"):
        what = "and InstanceGroups exclude each other: each group has its own InstanceCount."
        yield field_issue("ResourceConfig.InstanceCount", what)
    groups = mappings(config, "InstanceGroups")
    for index, group in enumerate(groups):
        yield from _at_least_one(group, f"ResourceConfig.InstanceGroups[{index}]")
    yield from repeats(groups, "ResourceConfig.InstanceGroups", "InstanceGroupName")


def _preferences(request: Json, config: Json) -> Iterator[ValidationIssue]:
    """Require each type once, and counts on all preferences or on none. Refuse fields that exclude preferences.

    Source: model (InstancePreferences).
    """
    preferences, where = mappings(config, "InstancePreferences"), "ResourceConfig.InstancePreferences"
    yield from repeats(preferences, where, "InstanceType")
    counted = [index for index, preference in enumerate(preferences) if "InstanceCount" in preference]
    if not counted:
        yield from _at_least_one(config, "ResourceConfig")
    elif "InstanceCount" in config:
        what = "is also in InstancePreferences: say it once for the job or on every preference."
        yield field_issue("ResourceConfig.InstanceCount", what)
    for index, preference in enumerate(preferences):
        if counted:
            yield from _at_least_one(preference, f"{where}[{index}]")
        if "TrainingPlanArns" in preference and "TrainingPlanArn" in config:
            what = "and ResourceConfig.TrainingPlanArn exclude each other: keep one of them."
            yield field_issue(f"{where}[{index}].TrainingPlanArns", what)
    apart = "and InstancePreferences exclude each other: keep one of them."
    if request.get("EnableManagedSpotTraining") is True:
        yield field_issue("EnableManagedSpotTraining", apart)
    if "InstancePlacementConfig" in config:
        yield field_issue("ResourceConfig.InstancePlacementConfig", apart)


def _at_least_one(parent: Json, field: str) -> Iterator[ValidationIssue]:
    """Require at least one instance: the model allows 0, but a job or a group without instances cannot run."""
    if (integer(parent, "InstanceCount") or 0) < 1:
        yield field_issue(f"{field}.InstanceCount", "must say how many instances to use, at least 1.")


def _placement(request: Json) -> Iterator[ValidationIssue]:
    """Require at least one instance on an UltraServer (model: PlacementSpecification.InstanceCount)."""
    placement = mapping(mapping(request, "ResourceConfig"), "InstancePlacementConfig")
    for index, specification in enumerate(mappings(placement, "PlacementSpecifications")):
        field = f"ResourceConfig.InstancePlacementConfig.PlacementSpecifications[{index}]"
        yield from _at_least_one(specification, field)


def _read_only(request: Json) -> Iterator[ValidationIssue]:
    """Refuse fields that only answers of Describe may contain (model: SelectedInstanceType, SelectedInstanceCount)."""
    for name in ("SelectedInstanceType", "SelectedInstanceCount"):
        if name in mapping(request, "ResourceConfig"):
            yield field_issue(f"ResourceConfig.{name}", "is SageMaker's to say, not the request's: leave it out.")


def _storage(request: Json) -> Iterator[ValidationIssue]:
    """Require a volume size for instances without a disk, and refuse a KMS key for instances with a disk (model)."""
    config = mapping(request, "ResourceConfig")
    configs = [config, *mappings(config, "InstanceGroups"), *mappings(config, "InstancePreferences")]
    types = [text(part, "InstanceType") for part in configs]
    diskless = next(filter(_EBS_ONLY.fullmatch, types), None)
    if diskless and not config.get("VolumeSizeInGB"):
        what = f"must say how many GB of storage to use: {diskless} has no disk of its own."
        yield field_issue("ResourceConfig.VolumeSizeInGB", what)
    with_disk = next(filter(_WITH_DISK.fullmatch, types), None)
    if with_disk and config.get("VolumeKmsKeyId"):
        what = f"is not possible with {with_disk}: its own disk is used, and encrypted by the hardware."
        yield field_issue("ResourceConfig.VolumeKmsKeyId", what)


def _warm_pool(request: Json) -> Iterator[ValidationIssue]:
    """Limit a warm pool to an hour (the model allows six), and refuse warm pools with spot or instance groups.

    Source: guide, warm pools.
    """
    config, field = mapping(request, "ResourceConfig"), "ResourceConfig.KeepAlivePeriodInSeconds"
    seconds = integer(config, "KeepAlivePeriodInSeconds") or 0
    if seconds > _WARMEST:
        yield field_issue(field, f"is too large: SageMaker keeps a warm pool for at most {_WARMEST} seconds.")
    if seconds > 0 and request.get("EnableManagedSpotTraining") is True:
        yield field_issue(field, "and EnableManagedSpotTraining exclude each other: spot has no warm pools.")
    if seconds > 0 and config.get("InstanceGroups"):
        yield field_issue(field, "and InstanceGroups exclude each other: only one type can be kept warm.")


def _group_channels(request: Json) -> Iterator[ValidationIssue]:
    """Check that channels name only existing groups, and that either all channels name groups or none does.

    Sources: seen ("Some channels have assigned instance groups: ... while others not: ..."); model
    (S3DataSource.InstanceGroupNames).
    """
    config = mapping(request, "ResourceConfig")
    groups = {text(group, "InstanceGroupName") for group in mappings(config, "InstanceGroups")}
    named: dict[int, list[Any]] = {}
    for index, channel in enumerate(mappings(request, "InputDataConfig")):
        source = mapping(channel, "DataSource").get("S3DataSource")
        if isinstance(source, dict):
            names = source.get("InstanceGroupNames")
            named[index] = names if isinstance(names, list) else []
    for index, names in named.items():
        field = f"InputDataConfig[{index}].DataSource.S3DataSource.InstanceGroupNames"
        if any(isinstance(name, str) and name not in groups for name in names):
            yield field_issue(field, "names a group that ResourceConfig.InstanceGroups does not have.")
        elif not names and any(named.values()):
            yield field_issue(field, "is missing: when one channel names its instance groups, all must.")


RESOURCE_RULES = (_instances, _placement, _read_only, _storage, _warm_pool, _group_channels)
