"""The parameters of SageMaker's model parallelism library: their names and possible values.

Version 1 (`smdistributed.modelparallel`, started by MPI) and version 2 (`torch.sagemaker`, started by torchrun) read
the parameters from `mp_parameters`. Both versions fail on the instances if a parameter is wrong. The sources are
the SDK (`fw_utils.validate_mp_config`, `SMP`) and the guide (v1, "Configuration Parameters for distribution"; v2,
"SMP v2 core feature configuration parameters"). A later release of the library may have more parameters. So an unknown
name is refused only if it is spelled similarly to a known one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from sys import float_info
from typing import Any

from job_queue.domain.errors import ValidationIssue
from job_queue.validation.issue import field_issue, member, near

PARAMETERS = "HyperParameters.mp_parameters"
SPLITTING = ("pipeline_parallel_degree", "partitions", "tensor_parallel_degree", "context_parallel_degree")
"""Degrees whose product is the number of processes of one replica of the model.

`partitions` is the old name of `pipeline_parallel_degree`.
"""
OF_ALL_PROCESSES = ("expert_parallel_degree", "hybrid_shard_degree")
OF_REPLICAS = "sharded_data_parallel_degree"
MOST_PROCESSES = 10**6
"""The upper bound of a degree: no cluster has more processes."""

_LIKENESS = 0.8  # smallest similarity of a mistyped name to the right name


@dataclass(frozen=True, slots=True)
class _Values:
    """The values that a parameter may have: a test, and its description in words."""

    include: Callable[[Any], bool]
    words: str
    or_null: bool = False


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Return whether a value is a number that fits into a float. A whole number in JSON may have any size."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


def _at_least(least: int) -> _Values:
    return _Values(lambda value: _is_whole(value) and value >= least, f"a whole number of at least {least}")


def _degree(least: int) -> _Values:
    return _Values(
        lambda value: _is_whole(value) and least <= value <= MOST_PROCESSES, f"a whole number of at least {least}"
    )


def _one_of(*texts: str) -> _Values:
    return _Values(lambda value: value in texts, f"one of {', '.join(texts)}")


_WHOLE = _Values(_is_whole, "a whole number")
_SIZE = _Values(lambda value: _is_number(value) and value == int(value), "a whole number")  # 5e8 is a float in JSON
_NUMBER = _Values(_is_number, "a number")
_SHARE = _Values(lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1")
_PORT = _Values(lambda value: _is_whole(value) and 0 <= value < 2**16, "a port from 0 to 65535", or_null=True)
_TEXT = _Values(lambda value: isinstance(value, str), "text", or_null=True)
# The SDK and old releases also accept 0 and 1.
_FLAG = _Values(lambda value: isinstance(value, int) and value in (0, 1), "true or false, without quotes")

_KNOWN: Mapping[str, _Values] = {
    # Degrees, of both versions.
    **dict.fromkeys(SPLITTING, _degree(1)),
    **dict.fromkeys((*OF_ALL_PROCESSES, OF_REPLICAS), _degree(0)),  # 0 switches these off
    # Version 1, for TensorFlow and PyTorch.
    "microbatches": _at_least(1),
    "active_microbatches": _at_least(1),
    "pipeline": _one_of("simple", "interleaved", "_only_forward"),
    "optimize": _one_of("speed", "memory"),
    "placement_strategy": _one_of("cluster", "spread", *map("".join, permutations("DPT"))),
    "auto_partition": _FLAG,
    "default_partition": _Values(
        lambda value: _is_whole(value) and value >= 0, "a whole number of at least 0", or_null=True
    ),
    "memory_weight": _SHARE,
    "contiguous": _FLAG,
    "horovod": _FLAG,
    "ddp": _FLAG,
    "ddp_port": _PORT,
    "ddp_dist_backend": _TEXT,
    "deterministic_server": _FLAG,
    "fp16": _FLAG,
    "bf16": _FLAG,
    "fp16_params": _FLAG,
    "prescaled_batch": _FLAG,
    "shard_optimizer_state": _FLAG,
    "skip_tracing": _FLAG,
    "offload_activations": _FLAG,
    "delayed_parameter_initialization": _FLAG,
    "tensor_parallel_seed": _at_least(0),
    "sdp_reduce_bucket_size": _SIZE,
    "sdp_param_persistence_threshold": _SIZE,
    "sdp_max_live_parameters": _SIZE,
    "sdp_hierarchical_allgather": _FLAG,
    "sdp_gradient_clipping": _NUMBER,
    "load_partition": _FLAG,
    "partition_file": _TEXT,
    # Version 2; version 1 also has `activation_loading_horizon`.
    "activation_loading_horizon": _at_least(0),
    "sm_activation_offloading": _FLAG,
    "fsdp_cache_flush_warnings": _FLAG,
    "allow_empty_shards": _FLAG,
    "random_seed": _WHOLE,
}
_KNOWN_TO_VERSION_2: Mapping[str, _Values] = {**_KNOWN, "activation_loading_horizon": _at_least(1)}
# Internal parameters of version 1: their values are not checked, and their names do not count as mistyped.
_INTERNAL = frozenset(
    {"fast_mode", "static_mode", "herring", "checkpoint_attentions", "task_level_activation_loading_horizon"}
)


def has_sound_degrees(parameters: Mapping[str, Any]) -> bool:
    """Return whether all degrees are numbers that can be multiplied."""
    return all(
        _KNOWN[name].include(parameters[name])
        for name in (*SPLITTING, *OF_ALL_PROCESSES, OF_REPLICAS)
        if name in parameters
    )


def parameter_issues(parameters: Mapping[str, Any], *, version_2: bool) -> Iterator[ValidationIssue]:
    """Yield an issue for each wrong value, each mistyped name, and parameters that contradict one another."""
    known = _KNOWN_TO_VERSION_2 if version_2 else _KNOWN
    sound = {}
    for name, value in parameters.items():
        if (values := known.get(name)) is None:
            yield from _mistyped(name)
        elif values.include(value):
            sound[name] = value
        elif not (values.or_null and value is None):
            yield field_issue(member(PARAMETERS, name), f"must be {values.words}.")
    yield from _partition(parameters, sound)
    yield from _contradictions(sound)
    if not version_2 and sound.get("tensor_parallel_degree", 1) > 1 and sound.get("ddp", True) == 0:
        yield field_issue(f"{PARAMETERS}.ddp", "must be true: tensor_parallel_degree is above 1.")


def _mistyped(name: str) -> Iterator[ValidationIssue]:
    if name in _INTERNAL or name.startswith("_"):
        return
    for meant in near(name.replace("-", "_"), _KNOWN, most=1, likeness=_LIKENESS):
        what = f"is unknown to the model parallelism library: did you mean {meant}? Correct the name."
        yield field_issue(member(PARAMETERS, name), what)


def _partition(parameters: Mapping[str, Any], sound: Mapping[str, Any]) -> Iterator[ValidationIssue]:
    """Check `default_partition`, the partition of the operations that the script itself puts into no partition."""
    field = f"{PARAMETERS}.default_partition"
    if sound.get("auto_partition", True) == 0 and parameters.get("default_partition") is None:
        what = (
            "is missing: auto_partition is false. Name the partition for operations that the script places in no "
            "smp.partition block, such as 0."
        )
        yield field_issue(field, what)
    counted = next((name for name in ("pipeline_parallel_degree", "partitions") if name in sound), None)
    if counted and sound.get("default_partition", 0) >= sound[counted]:
        what = (
            f"is {sound['default_partition']}, but {counted} is {sound[counted]}, and partitions are numbered from 0: "
            f"name one below {sound[counted]}."
        )
        yield field_issue(field, what)


def _contradictions(sound: Mapping[str, Any]) -> Iterator[ValidationIssue]:
    new, old = sound.get("pipeline_parallel_degree"), sound.get("partitions")
    if new is not None and old is not None and new != old:
        what = f"is {old}, but pipeline_parallel_degree, its new name, is {new}: keep one of them."
        yield field_issue(f"{PARAMETERS}.partitions", what)
    for one, other in (("ddp", "horovod"), ("fp16", "bf16")):
        if sound.get(one) and sound.get(other):
            yield field_issue(f"{PARAMETERS}.{one}", f"and {other} exclude each other: keep one of them.")
    if sound.get(OF_REPLICAS, 1) > 1:
        for split in ("pipeline_parallel_degree", "partitions"):
            if sound.get(split, 1) > 1:
                what = f"and {split} exclude each other: set one of them to 1."
                yield field_issue(f"{PARAMETERS}.{OF_REPLICAS}", what)
        if sound.get("shard_optimizer_state"):
            what = f"and {OF_REPLICAS} exclude each other: keep one of them."
            yield field_issue(f"{PARAMETERS}.shard_optimizer_state", what)
    contexts, shards = sound.get("context_parallel_degree", 1), sound.get("hybrid_shard_degree")
    if shards and contexts > shards:
        what = f"is {contexts}, but may be at most hybrid_shard_degree, which is {shards}."
        yield field_issue(f"{PARAMETERS}.context_parallel_degree", what)
