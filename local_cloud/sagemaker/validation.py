"""Validation of requests before an operation begins.

There are two layers, as in SageMaker. The published model is checked first: either the first wrong type or all
violated constraints (lengths, ranges, patterns, enums) are reported. Then the rules between fields are checked, and
only the first violation is reported.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import regex
from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape

from local_cloud.sagemaker.wire import EmulatedError

MAX_TAGS = 50

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float),
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
}
_JSON_NAMES = {str: "STRING_VALUE", bool: "BOOLEAN_VALUE", dict: "START_OBJECT", list: "START_ARRAY"}


@cache
def service_model() -> ServiceModel:
    """Return the model of SageMaker's API that botocore contains. The model is loaded once."""
    return ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def invalid(message: str) -> EmulatedError:
    """Return a ValidationException for the caller to raise."""
    return EmulatedError("ValidationException", message)


def check_request(operation: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the request without its nulls. Raise an EmulatedError if the request violates the operation's model.

    The error names every violated constraint, or only the first value of a wrong JSON type if there is one.
    """
    shape = service_model().operation_model(operation).input_shape
    assert shape is not None  # every operation of the training API has an input
    request = _without_nulls(request)
    violations = list(_violations(shape, request, ""))
    if violations:
        count = "1 validation error" if len(violations) == 1 else f"{len(violations)} validation errors"
        raise invalid(f"{count} detected: {'; '.join(violations)}")
    return request


def check_tags(tags: list[dict[str, str]]) -> None:
    """Raise a ValidationException if the tags of one call repeat a key or use the reserved prefix `aws:`."""
    keys = [tag["Key"] for tag in tags]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise invalid(f"Duplicate tag keys found: {', '.join(twice)}. Each tag key may be given once.")
    reserved = [key for key in keys if key.lower().startswith("aws:")]
    if reserved:
        raise invalid(f"Tag keys must not start with the reserved prefix aws: ({', '.join(reserved)}).")


def check_training_job(request: dict[str, Any]) -> None:
    """Raise a ValidationException if a CreateTrainingJob request breaks a rule between fields.

    Features that the emulator lacks are refused in the same way.
    """
    for field in ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition"):
        if field not in request:
            raise invalid(f"{field} is required.")
    if "ServerlessJobConfig" in request:
        raise invalid("ServerlessJobConfig is not emulated in the local cloud: give a ResourceConfig.")
    algorithm = request["AlgorithmSpecification"]
    if ("TrainingImage" in algorithm) == ("AlgorithmName" in algorithm):
        raise invalid("AlgorithmSpecification must have exactly one of TrainingImage and AlgorithmName.")
    _check_resources(request["ResourceConfig"], spot=request.get("EnableManagedSpotTraining", False))
    _check_times(request["StoppingCondition"], spot=request.get("EnableManagedSpotTraining", False))
    _check_channels(request.get("InputDataConfig", []), algorithm["TrainingInputMode"])
    if request.get("CheckpointConfig", {}).get("LocalPath", "/").rstrip("/") == "/opt/ml":
        raise invalid("CheckpointConfig.LocalPath must not be /opt/ml itself: give a folder in it.")
    check_tags(request.get("Tags", []))


def _check_resources(config: dict[str, Any], *, spot: bool) -> None:
    if "SelectedInstanceType" in config or "SelectedInstanceCount" in config:
        raise invalid("ResourceConfig.SelectedInstanceType and SelectedInstanceCount are read-only.")
    single = "InstanceType" in config
    groups, preferences = config.get("InstanceGroups", []), config.get("InstancePreferences", [])
    if single + bool(groups) + bool(preferences) != 1:
        raise invalid(
            "ResourceConfig must have exactly one of InstanceType with InstanceCount, InstanceGroups, and "
            "InstancePreferences."
        )
    common = config.get("InstanceCount")
    if groups and common is not None:
        raise invalid("ResourceConfig.InstanceCount must not be given together with InstanceGroups.")
    counts = [common] if single else [part.get("InstanceCount", common) for part in [*groups, *preferences]]
    if any(not count for count in counts):
        raise invalid("ResourceConfig: an InstanceCount of at least 1 is required for every instance type.")
    names = [group["InstanceGroupName"] for group in groups]
    if len(set(names)) < len(names):
        raise invalid("ResourceConfig.InstanceGroups: each InstanceGroupName may be given once.")
    types = [preference["InstanceType"] for preference in preferences]
    if len(set(types)) < len(types):
        raise invalid("ResourceConfig.InstancePreferences: each InstanceType may be given once.")
    if spot and preferences:
        raise invalid("ResourceConfig.InstancePreferences cannot be used with EnableManagedSpotTraining.")
    if preferences and common is not None and any("InstanceCount" in preference for preference in preferences):
        raise invalid(
            "ResourceConfig: give InstanceCount on every one of InstancePreferences, or once in ResourceConfig."
        )
    plans = [plan for preference in preferences for plan in preference.get("TrainingPlanArns", [])]
    if "TrainingPlanArn" in config and plans:
        raise invalid("ResourceConfig.TrainingPlanArn cannot be used with TrainingPlanArns in InstancePreferences.")
    if spot and ("TrainingPlanArn" in config or plans):
        raise invalid("EnableManagedSpotTraining cannot be used with a training plan.")
    if config.get("KeepAlivePeriodInSeconds") and (spot or groups):
        raise invalid("KeepAlivePeriodInSeconds cannot be used with EnableManagedSpotTraining or InstanceGroups.")


def _check_times(condition: dict[str, Any], *, spot: bool) -> None:
    wait = condition.get("MaxWaitTimeInSeconds")
    if wait is not None and not spot:
        raise invalid(
            "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
        )
    if spot and wait is None:
        raise invalid("MaxWaitTimeInSeconds is required when EnableManagedSpotTraining is true.")
    if wait is not None and wait < condition.get("MaxRuntimeInSeconds", 86400):
        raise invalid("MaxWaitTimeInSeconds must be at least MaxRuntimeInSeconds.")


def _check_channels(channels: list[dict[str, Any]], mode: str) -> None:
    names = [channel["ChannelName"] for channel in channels]
    if len(set(names)) < len(names):
        raise invalid("InputDataConfig: each ChannelName may be given once.")
    for number, channel in enumerate(channels, start=1):
        place = f"InputDataConfig.{number} ({channel['ChannelName']})"
        source = channel["DataSource"].get("S3DataSource")
        if source is None:
            raise invalid(f"{place}: the local cloud reads S3DataSource only.")
        if source["S3DataType"] not in ("S3Prefix", "ManifestFile"):
            raise invalid(f"{place}: the local cloud reads S3DataType S3Prefix and ManifestFile only.")
        if channel.get("InputMode", mode) == "Pipe":
            raise invalid(f"{place}: input mode Pipe is not emulated in the local cloud: use File or FastFile.")
        if channel.get("CompressionType", "None") != "None":
            raise invalid(f"{place}: CompressionType {channel['CompressionType']} is not emulated: use None.")


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _violations(shape: Shape, value: Any, path: str) -> Iterator[str]:
    """Yield a message for each violated constraint of a value and its parts. Raise EmulatedError for a wrong type."""
    _check_type(shape, value, path)
    for constraint in _broken_constraints(shape, value):
        yield _violation(value, path, constraint)
    if isinstance(shape, StructureShape):
        yield from _member_violations(shape, value, path)
    elif isinstance(shape, ListShape):
        for number, item in enumerate(value, start=1):
            yield from _violations(shape.member, item, f"{path}.{number}.member")
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            _check_type(shape.value, item, f"{path}.{key}")
            for part, part_shape, content in (("keys", shape.key, key), ("value", shape.value, item)):
                if constraints := list(_broken_constraints(part_shape, content)):
                    yield _violation(value, path, f"Map {part} must satisfy constraint: [{', '.join(constraints)}]")


def _member_violations(shape: StructureShape, value: dict[str, Any], path: str) -> Iterator[str]:
    for name in shape.required_members:
        if name not in value:
            yield _violation("null", _join(path, name), "Member must not be null", quoted=False)
    for name, item in value.items():
        if name not in shape.members:
            yield _violation(item, _join(path, name), "Member is not known to this operation")
        else:
            yield from _violations(shape.members[name], item, _join(path, name))


def _check_type(shape: Shape, value: Any, path: str) -> None:
    wanted = _PYTHON_TYPES.get(shape.type_name, (object,))
    # In Python a bool is an int, but in JSON true is not a number.
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted and object not in wanted):
        given = _JSON_NAMES.get(type(value), "NUMBER_VALUE")
        place = f" at '{path}'" if path else ""
        raise EmulatedError(
            "SerializationException", f"{given} can not be converted to {shape.type_name.capitalize()}{place}"
        )


def _broken_constraints(shape: Shape, value: Any) -> Iterator[str]:
    limits = shape.metadata
    if shape.type_name in ("integer", "long", "float", "double"):
        if value < limits.get("min", value):
            yield f"Member must have value greater than or equal to {limits['min']}"
        if value > limits.get("max", value):
            yield f"Member must have value less than or equal to {limits['max']}"
    elif shape.type_name in ("string", "list", "map"):
        if len(value) < limits.get("min", 0):
            yield f"Member must have length greater than or equal to {limits['min']}"
        if len(value) > limits.get("max", len(value)):
            yield f"Member must have length less than or equal to {limits['max']}"
    if "enum" in limits and value not in limits["enum"]:
        yield f"Member must satisfy enum value set: [{', '.join(limits['enum'])}]"
    if "pattern" in limits and not _pattern(limits["pattern"]).fullmatch(value):
        yield f"Member must satisfy regular expression pattern: {limits['pattern']}"


@cache
def _pattern(text: str) -> regex.Pattern[str]:
    # The model's patterns are Java's: the standard library's `re` does not support \p{L}.
    return regex.compile(text)


def _violation(value: Any, path: str, constraint: str, *, quoted: bool = True) -> str:
    shown = f"'{value}'" if quoted else value
    return f"Value {shown} at '{path}' failed to satisfy constraint: {constraint}"


def _join(path: str, name: str) -> str:
    member = name[:1].lower() + name[1:]
    return f"{path}.{member}" if path else member
