"""The parameters of the model parallelism library (document 003): nothing valid is refused, in neither version."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.validation import preflight
from job_queue.validation.parallelism_parameters import (
    OF_ALL_PROCESSES,
    OF_REPLICAS,
    SPLITTING,
    parameter_issues,
)
from tests.jobs import a_request

# As the guides and notebooks of SageMaker give them.
OF_VERSION_1 = [
    {
        "microbatches": 4,
        "placement_strategy": "spread",
        "pipeline": "interleaved",
        "optimize": "speed",
        "partitions": 2,
        "ddp": True,
    },
    {"partitions": 2, "microbatches": 8, "pipeline": "simple", "horovod": True, "contiguous": True},
    {"auto_partition": False, "default_partition": 0, "partitions": 2, "memory_weight": 0.2},
    {
        "pipeline_parallel_degree": 1,
        "tensor_parallel_degree": 4,
        "ddp": True,
        "ddp_dist_backend": "auto",
        "placement_strategy": "PTD",
        "prescaled_batch": True,
        "shard_optimizer_state": True,
        "offload_activations": True,
        "activation_loading_horizon": 4,
        "bf16": True,
        "fp16": False,
        "skip_tracing": True,
        "delayed_parameter_initialization": True,
        "tensor_parallel_seed": 0,
        "active_microbatches": 1,
    },
    {
        "ddp": True,
        "sharded_data_parallel_degree": 2,
        "sdp_reduce_bucket_size": 5e8,
        "sdp_param_persistence_threshold": 1000000,
        "sdp_max_live_parameters": 1e9,
        "sdp_hierarchical_allgather": True,
        "sdp_gradient_clipping": 1.0,
    },
    {"partitions": 2, "fast_mode": True, "static_mode": True, "_match_weights": True, "_fp32_grad_accumulation": 0},
]
OF_VERSION_2 = [
    {
        "hybrid_shard_degree": 8,
        "sm_activation_offloading": True,
        "activation_loading_horizon": 2,
        "fsdp_cache_flush_warnings": True,
        "allow_empty_shards": False,
        "tensor_parallel_degree": 2,
        "context_parallel_degree": 2,
        "expert_parallel_degree": 1,
        "random_seed": -1,
    },
    {"hybrid_shard_degree": 0, "tensor_parallel_degree": 1},
    {},
]


def told(parameters: dict[str, Any], *, version_2: bool = False) -> list[str]:
    return [issue.message for issue in parameter_issues(parameters, version_2=version_2)]


@pytest.mark.parametrize("parameters", OF_VERSION_1)
def test_the_parameters_of_version_1_pass(parameters: dict[str, Any]) -> None:
    assert told(parameters) == []


@pytest.mark.parametrize("parameters", OF_VERSION_2)
def test_the_parameters_of_version_2_pass(parameters: dict[str, Any]) -> None:
    assert told(parameters, version_2=True) == []


def test_all_parameters_of_the_installed_sdk_are_known_and_pass() -> None:
    from sagemaker.modules.distributed import SMP  # noqa: PLC0415  # takes seconds

    everything = {
        name: 1 if "int" in str(field.annotation) else True for name, field in SMP.model_fields.items()
    }  # all are whole numbers or flags
    assert len(everything) >= 9
    assert told(everything, version_2=True) == []
    for name in everything:  # and an error in one is noticed
        assert any(name in message for message in told({name: "no"}, version_2=True))


VALUES: dict[str, list[object]] = {
    "pipeline": ["simple", "interleaved", "_only_forward", "fast"],
    "placement_strategy": ["spread", "cluster", "TPD"],
    "optimize": ["speed", "memory", "fast"],
    "microbatches": [0, 1, 4],
    "partitions": [1, 2, 4],
    "active_microbatches": [0, 1],
    "auto_partition": [True, False, 1, "yes"],
    "default_partition": [0, 1, 3],
    "contiguous": [True, False],
    "load_partition": [True, 0],
    "horovod": [True, False],
    "ddp": [True, False],
    "deterministic_server": [True, "no"],
    "memory_weight": [0.0, 0.8, 1, 2],
    "ddp_port": [0, 7000],
    "ddp_dist_backend": ["nccl", "auto", "smddp"],
    "partition_file": ["f", 1],
}


@given(st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}))
def test_whatever_the_sdk_accepts_passes(parameters: dict[str, Any]) -> None:
    from sagemaker.fw_utils import validate_mp_config  # noqa: PLC0415

    try:
        validate_mp_config(parameters)
    except (ValueError, KeyError):
        return
    assert told(parameters) == []


LARGE = ("sdp_gradient_clipping", "sdp_reduce_bucket_size", "memory_weight")


@pytest.mark.attack
@pytest.mark.parametrize("value", ["9" * 400, "-" + "9" * 4000, "1e999", "NaN", f"[{'9' * 400}]", '"9"', "9" * 5000])
def test_no_value_of_any_type_or_size_is_an_internal_error(value: str) -> None:
    for name in (*VALUES, *LARGE, *SPLITTING, *OF_ALL_PROCESSES, OF_REPLICAS, "default_partition"):
        request = a_request(HyperParameters={"mp_parameters": f'{{"{name}": {value}}}'})
        for issue in preflight.request_issues(TrainingRequest.read(request)):
            assert len(issue.message) < 1000


@pytest.mark.attack
@pytest.mark.parametrize("name", LARGE)
def test_a_number_beyond_a_float_is_refused(name: str) -> None:
    (message,) = told({name: 10**400})
    assert message.startswith(f"HyperParameters.mp_parameters.{name} must be")


def test_a_mistyped_name_is_told_with_the_right_one() -> None:
    for wrong, right in (
        ("optimise", "optimize"),
        ("micro_batches", "microbatches"),
        ("Partitions", "partitions"),
        ("default-partition", "default_partition"),
        ("tensor_paralel_degree", "tensor_parallel_degree"),
        ("hybrid_shard_degre", "hybrid_shard_degree"),
    ):
        assert told({wrong: 1}) == [
            f"HyperParameters.mp_parameters.{wrong} is unknown to the model parallelism library: did you mean {right}? "
            "Correct the name."
        ]


@pytest.mark.parametrize("name", ["zero_bubble", "moe_layers", "p", "", "x" * 5000, "a.b", "_optimise", "static_mode"])
def test_a_name_that_may_belong_to_a_later_release_passes(name: str) -> None:
    assert told({name: "anything"}) == []


def test_what_the_script_may_say_itself_is_not_asked_for() -> None:
    # smp.init() in the script may name the partitions, and ddp.
    for parameters in ({"default_partition": 5}, {"tensor_parallel_degree": 4}, {"ddp_port": 7000}):
        assert told(parameters) == []


def test_a_number_of_partitions_that_is_wrong_itself_is_compared_with_nothing() -> None:
    (message,) = told({"partitions": "2", "default_partition": 5})
    assert message.startswith("HyperParameters.mp_parameters.partitions must be")
    assert len(told({"partitions": 2, "default_partition": True})) == 1


def test_all_faults_come_at_once_each_with_its_field() -> None:
    wrong = {"auto_partition": False, "partitions": 3, "optimize": "fast", "micro_batches": 2, "pipeline": None}
    request = a_request(
        HyperParameters={
            "mp_parameters": json.dumps(wrong),
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": "8",
        },
        ResourceConfig={"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30},
    )
    fields = [
        issue.field.removeprefix("HyperParameters.mp_parameters")
        for issue in preflight.request_issues(TrainingRequest.read(request))
    ]
    assert sorted(fields) == ["", ".default_partition", ".micro_batches", ".optimize", ".pipeline"]
