"""Members: the tag `gpus`, the requests that may have this tag, and the kinds of members that may share an instance."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from job_queue.domain.errors import InvalidRequest
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import WHOLE

MOST_GPUS = 64  # GPUs of one instance
TAG = "gpus"
_GPUS = re.compile(r"[0-9]{1,2}|0?\.[0-9]|[0-9]{1,2}\.0", re.ASCII)
# Types of input data that SageMaker can provide to a program, but the agent cannot.
_UNSUPPORTED_DATA_TYPES = ("ManifestFile", "AugmentedManifestFile")
_SUPPORTED_INPUT_MODES = ("File", "FastFile")
_LOCAL_PATHS = "/opt/ml/"  # the checkpoint folder of a member must be below this folder
_WHOLE_INSTANCES = "Leave out the tag gpus to have whole instances."


def accepted_gpus(request: TrainingRequest) -> int | None:
    """Return the tenths of GPUs that the tag `gpus` requests (such as `1`, `4` or `0.5`), or None without the tag.

    :raises InvalidRequest: the tag is wrong, or the request cannot share an instance. The error names the field.
    """
    tag = request.tag_values.get(TAG)
    if tag is None:
        return None
    tenths = _tenths(tag.field, tag.text)
    for field, why, remedy in _obstacles(request):
        raise InvalidRequest(
            f"The job requests GPUs of a shared instance (tag gpus), and {why}.", field=field, remedy=remedy
        )
    return tenths


def _tenths(field: str, text: str) -> int:
    word = text.strip()
    tenths = round(float(word) * WHOLE) if _GPUS.fullmatch(word) else 0
    if not 0 < tenths <= MOST_GPUS * WHOLE or (tenths > WHOLE and tenths % WHOLE):
        raise InvalidRequest(
            f"The tag gpus must be a whole number of GPUs of one instance, or tenths of one, not {text!r}.",
            field=field,
            remedy="Write such as 1, 4 or 0.5.",
        )
    return tenths


def _obstacles(request: TrainingRequest) -> Iterator[tuple[str, str, str]]:
    """Yield the obstacles to sharing an instance: the field, the reason, and the remedy."""
    resources, algorithm = request.resources, request.algorithm
    if resources.instance_count != 1 or resources.instance_groups:
        yield "ResourceConfig.InstanceCount", "has more than 1 instance", _WHOLE_INSTANCES
    if resources.preferences:
        yield "ResourceConfig.InstancePreferences", "leaves its instance type open", "Name one InstanceType."
    if resources.keep_alive_seconds:
        yield (
            "ResourceConfig.KeepAlivePeriodInSeconds",
            "wants its instance kept, which is not its own",
            "Leave it out.",
        )
    if not algorithm.container_entrypoint:
        yield (
            "AlgorithmSpecification.ContainerEntrypoint",
            "names no command: the entry point of its image runs the carrier's agent",
            "Name a ContainerEntrypoint, as smq submit does.",
        )
    if algorithm.training_input_mode not in _SUPPORTED_INPUT_MODES:
        yield "AlgorithmSpecification.TrainingInputMode", "reads its data as a pipe", "Use the mode File."
    for field, why in (
        ("EnableManagedSpotTraining", "requests spot instances itself"),
        ("EnableNetworkIsolation", "has no network, over which its agent hears from the queue"),
        ("RetryStrategy", "has SageMaker try again; its agent does not (tag retries does)"),
    ):
        if request.content.get(field):
            yield field, why, "Leave it out, or leave out the tag gpus."
    if (request.content.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug"):
        why = "is open to shells, which would also open the jobs beside it"
        yield "RemoteDebugConfig", why, "Leave it out, or leave out the tag gpus."
    yield from _obstacles_of_folders(request.content)
    yield from _obstacles_of_channels(request)


def _obstacles_of_folders(content: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    local = (content.get("CheckpointConfig") or {}).get("LocalPath")
    if local and not (local.startswith(_LOCAL_PATHS) and ".." not in local.split("/")):
        what = f"has its checkpoints outside of {_LOCAL_PATHS}, where its agent does not save them"
        yield "CheckpointConfig.LocalPath", what, f"Name a folder below {_LOCAL_PATHS}, or leave it out."
    if (content.get("OutputDataConfig") or {}).get("CompressionType", "GZIP") != "GZIP":
        what = "wants its results uncompressed, and its agent packs them"
        yield "OutputDataConfig.CompressionType", what, _WHOLE_INSTANCES


def _obstacles_of_channels(request: TrainingRequest) -> Iterator[tuple[str, str, str]]:
    for index, channel in enumerate(request.channels):
        source, where = channel.data_source.s3, f"InputDataConfig[{index}]"
        if source is None:
            yield f"{where}.DataSource", "reads from a file system, which its agent does not mount", _WHOLE_INSTANCES
        elif source.data_type in _UNSUPPORTED_DATA_TYPES or channel.input_mode not in _SUPPORTED_INPUT_MODES:
            yield where, "has a channel that is no prefix in the mode File or FastFile", _WHOLE_INSTANCES
        elif channel.compression_type != "None":
            yield f"{where}.CompressionType", "has a channel that is to be unpacked", _WHOLE_INSTANCES
    for index, content in enumerate(request.content.get("InputDataConfig") or ()):
        for field in ("RecordWrapperType", "ShuffleConfig"):
            if content.get(field) not in (None, "None"):
                what = "has a channel that its agent does not transform"
                yield f"InputDataConfig[{index}].{field}", what, _WHOLE_INSTANCES


def kind_of(request: TrainingRequest, owner: str | None, *, preemptible: bool) -> str:
    """Return the kind of a member. Members of the same kind need equal carriers, so they may share an instance.

    Members on one instance share a kernel, a role and a network. Preemptible and other members have different kinds, so
    that the carriers of preemptible members can be evicted.

    :param owner: the only owner whose members may share an instance; None: members of all owners in the project may.
    """
    carrier = carrier_request(request)
    same = [sorted(carrier.items(), key=lambda it: it[0]), owner, preemptible]
    return hashlib.sha256(repr(_ordered(same)).encode()).hexdigest()[:16]


def owner_of_kind(request: TrainingRequest, owner: str, kind: str | None, *, preemptible: bool) -> str | None:
    """Return the owner to whom a kind is restricted, or None if the kind includes members of all owners."""
    return owner if kind_of(request, owner, preemptible=preemptible) == kind else None


def carrier_request(request: TrainingRequest) -> dict[str, Any]:
    """Return the fields that a carrier copies from a member: image, role, network, encryption, volume, instance."""
    content = request.content
    algorithm, resources = content["AlgorithmSpecification"], content["ResourceConfig"]
    copied_fields = ("RoleArn", "VpcConfig", "EnableInterContainerTrafficEncryption")
    return {
        **{field: content[field] for field in copied_fields if field in content},
        "AlgorithmSpecification": {
            field: algorithm[field]
            for field in ("TrainingImage", "AlgorithmName", "TrainingImageConfig")
            if field in algorithm
        },
        "ResourceConfig": {
            field: resources[field]
            for field in ("InstanceType", "VolumeSizeInGB", "VolumeKmsKeyId", "TrainingPlanArn")
            if field in resources
        },
    }


def _ordered(value: Any) -> Any:
    """Return a value with sorted mappings, so that equal contents have equal results."""
    if isinstance(value, Mapping):
        return [(name, _ordered(value[name])) for name in sorted(value)]
    if isinstance(value, list | tuple):
        return [_ordered(it) for it in value]
    return value
