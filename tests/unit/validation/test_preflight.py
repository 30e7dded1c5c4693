"""Every rule of pre-flight: a request that it stops, and one like it that it lets pass.

docs/reference/preflight.md lists each message; here messages and rules are held against each other.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.domain.policy import AppliedPolicy, default_policy
from job_queue.domain.policy_validation import parse_policy
from job_queue.domain.requests.scheduling_tags import scheduling_options
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import GPUS
from job_queue.services.submission import new_job
from job_queue.validation import ValidationIssue, against_model, against_sagemaker, preflight
from tests.jobs import NOW, OWNER, P5, a_request
from tests.training_requests import shape
from tests.unit.validation.test_rules import REFUSED, found

PAGE = Path(__file__).parents[3] / "docs/reference/preflight.md"
P4, G5, C5 = "ml.p4d.24xlarge", "ml.g5.12xlarge", "ml.c5.xlarge"
URI, LOCAL = "CheckpointConfig.S3Uri", "CheckpointConfig.LocalPath"
MP, PER_HOST = "HyperParameters.mp_parameters", "HyperParameters.sagemaker_mpi_num_of_processes_per_host"
COUNT, TYPE = "ResourceConfig.InstanceCount", "ResourceConfig.InstanceType"

FLEET = AppliedPolicy(
    parse_policy(
        {
            "pools": [
                {"name": "p5", "instance_type": P5, "capacity": 4},
                {"name": "spot", "instance_type": P4, "capacity": 8, "spot": True},
                {"name": "g5", "instance_type": G5, "capacity": 8},
                {"name": "drained", "instance_type": C5, "capacity": 0},
            ],
            "departments": [{"name": "research", "quota": {"p5": 4, "spot": 4}, "limit": {"spot": 6}}],
            "projects": [
                {
                    "name": "vision",
                    "department": "research",
                    "quota": {"p5": 2},
                    "limit": {"p5": 3},
                    "pools": ["p5", "spot"],
                },
                {"name": "free"},
            ],
        }
    ),
    version=1,
)


@dataclass(frozen=True)
class Case:
    stopped: dict[str, Any]
    passes: dict[str, Any]
    field: str


def checkpoints(uri: str = "s3://b/checkpoints/job1", **changes: Any) -> dict[str, Any]:
    local = changes.pop("local", None)
    return a_request(CheckpointConfig={"S3Uri": uri} | ({"LocalPath": local} if local else {}), **changes)


def channel(uri: str) -> list[dict[str, Any]]:
    return [{"ChannelName": "c", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}}]


def hyperparameters(**values: Any) -> dict[str, str]:
    """As the SDK encodes them."""
    return {name: json.dumps(value) for name, value in values.items()}


def on(kind: str, count: int = 1, **config: Any) -> dict[str, Any]:
    return {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 30, **config}


def mpi(
    kind: str = P4, count: int = 2, per_host: int = 8, resources: dict[str, Any] | None = None, **degrees: Any
) -> dict[str, Any]:
    """A request of the SDK's first generation of model parallelism."""
    values = hyperparameters(
        mp_parameters=degrees, sagemaker_mpi_enabled=True, sagemaker_mpi_num_of_processes_per_host=per_host
    )
    return a_request(HyperParameters=values, ResourceConfig=resources or on(kind, count))


def torchrun(kind: str = P5, count: int = 2, **degrees: Any) -> dict[str, Any]:
    """One of the second generation."""
    values = hyperparameters(mp_parameters=degrees, sagemaker_torch_distributed_enabled=True)
    return a_request(HyperParameters=values, ResourceConfig=on(kind, count))


def of(project: str, resources: dict[str, Any], **changes: Any) -> dict[str, Any]:
    tags = {"project": project, **changes.pop("tags", {})}
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return a_request(ResourceConfig=resources, Tags=listed, **changes)


def preferred(*kinds: str) -> dict[str, Any]:
    preferences = [{"InstanceType": kind} for kind in kinds]
    return {"InstancePreferences": preferences, "InstanceCount": 1, "VolumeSizeInGB": 30}


DEGREES = (
    "partitions",
    "tensor_parallel_degree",
    "hybrid_shard_degree",
    "sharded_data_parallel_degree",
    "ddp",
    "auto_partition",
    "default_partition",
    "optimise",
    "memory_weight",
    "sdp_reduce_bucket_size",
)
HYPERPARAMETERS = (
    "mp_parameters",
    "sagemaker_mpi_enabled",
    "sagemaker_mpi_num_of_processes_per_host",
    "sagemaker_torch_distributed_enabled",
    "sagemaker_distribution_instance_groups",
    "sagemaker_submit_directory",
)
GROUPS = {
    "VolumeSizeInGB": 30,
    "InstanceGroups": [
        {"InstanceGroupName": "gpu", "InstanceType": P4, "InstanceCount": 2},
        {"InstanceGroupName": "cpu", "InstanceType": C5, "InstanceCount": 3},
    ],
}


CONFIGS = [on(P4), on(G5, 2**31 - 1), GROUPS, preferred(P4, P5, G5, C5, "ml.p3.2xlarge")]


def grouped(names: list[str], **degrees: Any) -> dict[str, Any]:
    request = mpi(resources=GROUPS, **degrees)
    request["HyperParameters"] |= hyperparameters(sagemaker_distribution_instance_groups=names)
    return request


REQUEST_RULES = {
    "a local path that is none": Case(checkpoints(local="kept"), checkpoints(local="/kept"), LOCAL),
    "a local path above SageMaker's": Case(
        checkpoints(local="/opt/ml/"), checkpoints(local="/opt/ml/checkpoints/"), LOCAL
    ),
    "the root": Case(checkpoints(local="//"), checkpoints(local="/c"), LOCAL),
    "a local path of SageMaker's": Case(
        checkpoints(local="/opt/ml/./model/kept"), checkpoints(local="/opt/ml/models"), LOCAL
    ),
    "an attempt's folder": Case(
        checkpoints("s3://b/checkpoints/job1-qstamp-2/"), checkpoints("s3://b/checkpoints/qstamp"), URI
    ),
    "the output's folder": Case(
        checkpoints("s3://b/o/", OutputDataConfig={"S3OutputPath": "s3://b/o"}),
        checkpoints("s3://b/o/kept", OutputDataConfig={"S3OutputPath": "s3://b/o"}),
        URI,
    ),
    "a bucket with the data": Case(
        checkpoints("s3://b", InputDataConfig=channel("s3://b/data/")),
        checkpoints("s3://b/dat", InputDataConfig=channel("s3://b/data/")),
        URI,
    ),
    "a bucket with the code": Case(
        checkpoints("s3://b", HyperParameters=hyperparameters(sagemaker_submit_directory="s3://b/c/sourcedir.tar.gz")),
        checkpoints("s3://a", HyperParameters=hyperparameters(sagemaker_submit_directory="s3://b/c/sourcedir.tar.gz")),
        URI,
    ),
    "a folder with other jobs' code": Case(
        checkpoints("s3://b/jobs", HyperParameters=hyperparameters(sagemaker_submit_directory="s3://b/jobs/job1/c")),
        checkpoints("s3://b/job1", HyperParameters=hyperparameters(sagemaker_submit_directory="s3://b/job1/source/c")),
        URI,
    ),
    "parameters that are none": Case(
        a_request(HyperParameters={"mp_parameters": '"ddp"'}), a_request(HyperParameters={"other": '"ddp"'}), MP
    ),
    "a degree of nothing": Case(mpi(partitions=0), mpi(partitions=1), f"{MP}.partitions"),
    "half a degree": Case(
        mpi(sharded_data_parallel_degree=0.5),
        mpi(sharded_data_parallel_degree=0),
        f"{MP}.sharded_data_parallel_degree",
    ),
    "document 003: a model that is split by hand without a default partition": Case(
        mpi(auto_partition=False, partitions=2),
        mpi(auto_partition=False, partitions=2, default_partition=1),
        f"{MP}.default_partition",
    ),
    "document 003: a default partition that is none": Case(
        mpi(partitions=2, default_partition=2), mpi(partitions=2, default_partition=0), f"{MP}.default_partition"
    ),
    "document 003: optimized for something else": Case(mpi(optimize="fast"), mpi(optimize="memory"), f"{MP}.optimize"),
    "document 003: a mistyped parameter": Case(
        mpi(auto_partion=True), mpi(some_parameter_of_a_later_release=True), f"{MP}.auto_partion"
    ),
    "a flag in quotes": Case(mpi(ddp="True"), mpi(ddp=True), f"{MP}.ddp"),
    "a share of more than all": Case(mpi(memory_weight=1.5), mpi(memory_weight=1), f"{MP}.memory_weight"),
    "a number in quotes": Case(
        mpi(sdp_gradient_clipping="1"), mpi(sdp_gradient_clipping=0.5), f"{MP}.sdp_gradient_clipping"
    ),
    "half a size": Case(
        mpi(sdp_reduce_bucket_size=0.5), mpi(sdp_reduce_bucket_size=5e8), f"{MP}.sdp_reduce_bucket_size"
    ),
    "a port that is none": Case(mpi(ddp=True, ddp_port=70000), mpi(ddp=True, ddp_port=7000), f"{MP}.ddp_port"),
    "a name that is none": Case(mpi(partition_file=1), mpi(partition_file=None), f"{MP}.partition_file"),
    "partitions under two names": Case(
        mpi(partitions=2, pipeline_parallel_degree=4),
        mpi(partitions=4, pipeline_parallel_degree=4),
        f"{MP}.partitions",
    ),
    "two libraries for the same gradients": Case(
        mpi(ddp=True, horovod=True), mpi(ddp=True, horovod=False), f"{MP}.ddp"
    ),
    "a model in stages whose state is sharded": Case(
        mpi(pipeline_parallel_degree=2, sharded_data_parallel_degree=2),
        mpi(pipeline_parallel_degree=1, sharded_data_parallel_degree=2),
        f"{MP}.sharded_data_parallel_degree",
    ),
    "an optimizer that is sharded twice": Case(
        mpi(shard_optimizer_state=True, sharded_data_parallel_degree=2),
        mpi(shard_optimizer_state=True, sharded_data_parallel_degree=1),
        f"{MP}.shard_optimizer_state",
    ),
    "tensors that are split without data parallelism": Case(
        mpi(tensor_parallel_degree=4, ddp=False),
        mpi(tensor_parallel_degree=1, ddp=False),
        f"{MP}.ddp",
    ),
    "a context beyond its shards": Case(
        torchrun(context_parallel_degree=4, hybrid_shard_degree=2),
        torchrun(context_parallel_degree=4, hybrid_shard_degree=0),
        f"{MP}.context_parallel_degree",
    ),
    "no activations at all, which only version 1 takes": Case(
        torchrun(activation_loading_horizon=0),
        mpi(activation_loading_horizon=0),
        f"{MP}.activation_loading_horizon",
    ),
    "more processes than GPUs": Case(mpi(per_host=16), mpi(per_host=8), PER_HOST),
    "more processes than the GPU": Case(mpi("ml.p3.2xlarge", per_host=2), mpi("ml.p3.2xlarge", per_host=1), PER_HOST),
    "degrees that only the processes of a group that takes no part would suit": Case(
        grouped(["gpu", "cpu"], pipeline_parallel_degree=3), grouped(["gpu"], pipeline_parallel_degree=4), MP
    ),
    "more processes than the GPUs of a preference": Case(
        mpi(resources=preferred(P4, G5)),
        mpi(resources=preferred(P4, P5)),
        PER_HOST,
    ),
    "partitions that do not divide": Case(mpi(partitions=3), mpi(partitions=4), MP),
    "degrees that only together do not divide": Case(
        mpi(count=1, pipeline_parallel_degree=4, tensor_parallel_degree=4),
        mpi(count=2, pipeline_parallel_degree=4, tensor_parallel_degree=4, partitions=4),
        MP,
    ),
    "torchrun on every GPU": Case(
        torchrun(tensor_parallel_degree=8, context_parallel_degree=4),
        torchrun(tensor_parallel_degree=8, context_parallel_degree=2),
        MP,
    ),
    "experts that do not divide": Case(
        torchrun(expert_parallel_degree=6), torchrun(expert_parallel_degree=4), f"{MP}.expert_parallel_degree"
    ),
    "shards that do not divide": Case(
        torchrun(hybrid_shard_degree=5), torchrun(hybrid_shard_degree=0), f"{MP}.hybrid_shard_degree"
    ),
    "shards beyond the replicas": Case(
        mpi(tensor_parallel_degree=4, sharded_data_parallel_degree=8),
        mpi(tensor_parallel_degree=4, sharded_data_parallel_degree=4),
        f"{MP}.sharded_data_parallel_degree",
    ),
}

POLICY_RULES = {
    "a type that no pool of the project has": Case(of("vision", on(G5)), of("free", on(G5)), TYPE),
    "a gang larger than the pool": Case(of("free", on(P5, 5)), of("free", on(P5, 4)), COUNT),
    "a gang above the project's limit": Case(of("vision", on(P5, 4)), of("vision", on(P5, 3)), COUNT),
    "a gang above the department's limit": Case(of("vision", on(P4, 7)), of("vision", on(P4, 6)), COUNT),
    "a gang above the quota that may not be stopped": Case(
        of("vision", on(P5, 3), tags={"preemptible": "false"}), of("vision", on(P5, 3)), COUNT
    ),
    "preferences of which none is offered": Case(
        of("free", preferred("ml.p3.2xlarge")),
        of("free", preferred("ml.p3.2xlarge", P5)),
        "ResourceConfig.InstancePreferences",
    ),
    "a warm pool in a spot pool": Case(
        of("free", on(P4, KeepAlivePeriodInSeconds=60)),
        of("free", on(P5, KeepAlivePeriodInSeconds=60)),
        "ResourceConfig.KeepAlivePeriodInSeconds",
    ),
    "too many processes in a smaller pool": Case(
        of("free", on(P5), tags={"pools": "p5 g5"}, HyperParameters=mpi()["HyperParameters"]),
        of("free", on(P5), tags={"pools": "p5 spot"}, HyperParameters=mpi()["HyperParameters"]),
        PER_HOST,
    ),
}


def request_issues(request: dict[str, Any]) -> list[ValidationIssue]:
    return preflight.request_issues(TrainingRequest.read(request))


def judged(request: dict[str, Any], applied: AppliedPolicy = FLEET) -> list[ValidationIssue]:
    """What pre-flight has against a request in which SageMaker's own rules find nothing."""
    assert against_model(request, shape()) == []
    assert against_sagemaker(request) == []
    read = TrainingRequest.read(request)
    job = new_job(read, OWNER, scheduling_options(read, OWNER, applied.policy), NOW)
    return preflight.policy_issues(read, job, applied, preflight.request_issues(read))


@pytest.mark.parametrize("name", REQUEST_RULES)
def test_a_request_is_stopped_and_one_like_it_passes(name: str) -> None:
    case = REQUEST_RULES[name]
    for request in (case.stopped, case.passes):
        assert against_model(request, shape()) == []
        assert against_sagemaker(request) == []
    (problem,) = request_issues(case.stopped)
    assert problem.field == case.field
    assert problem.message.startswith(case.field) and problem.message.endswith(".")
    assert request_issues(case.passes) == []


@pytest.mark.parametrize("name", POLICY_RULES)
def test_under_a_policy_a_request_is_stopped_and_one_like_it_passes(name: str) -> None:
    case = POLICY_RULES[name]
    (problem,) = judged(case.stopped)
    assert problem.field == case.field
    assert problem.message.endswith(".")
    assert judged(case.passes) == []


def in_sizes(request: dict[str, Any], sizes: str) -> dict[str, Any]:
    return request | {"Tags": [{"Key": "instances", "Value": sizes}]}


def test_the_model_must_divide_the_processes_of_each_size() -> None:
    request = mpi(P4, 4, 8, pipeline_parallel_degree=16)
    assert request_issues(in_sizes(request, "4 2")) == []
    (problem,) = request_issues(in_sizes(request, "4 3 2"))
    assert (problem.field, "(3 x 8)" in problem.message) == (MP, True)
    # A size that is wrong for itself is not told twice, in whichever pools.
    assert len(request_issues(in_sizes(mpi(P4, 4, 8, pipeline_parallel_degree=5), "4 2"))) == 2


def test_a_job_never_starts_only_if_its_smallest_size_cannot() -> None:
    applied = default_policy(2)
    request = a_request(ResourceConfig=on(P5, 8))
    assert judged(in_sizes(request, "8 4 2"), applied) == []
    (problem,) = judged(in_sizes(request, "8 4"), applied)
    assert problem.field == COUNT
    assert "It needs 8 or 4 instances" in problem.message


def test_without_a_policy_any_type_is_offered_up_to_the_capacity() -> None:
    applied = default_policy(2)
    for kind in (P5, "ml.m5.large"):
        assert judged(a_request(ResourceConfig=on(kind, 2)), applied) == []
    (problem,) = judged(a_request(ResourceConfig=on(P5, 3)), applied)
    assert problem.field == COUNT


def test_who_asks_for_a_drained_pool_waits_until_it_is_back() -> None:
    assert judged(of("free", on(C5, 9))) == []


def test_nobody_judges_what_nobody_can_tell() -> None:
    for request in (
        mpi("ml.g7.12xlarge", per_host=99, partitions=9),  # nobody here knows how many GPUs that has
        torchrun("ml.g7.12xlarge", tensor_parallel_degree=7),
        a_request(HyperParameters=hyperparameters(mp_parameters={"partitions": 7})),  # started by the image itself
        a_request(HyperParameters={"mp_parameters": "{}", "sagemaker_mpi_enabled": "no JSON"}),
    ):
        assert request_issues(request) == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["8", "gpu", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(DEGREES), inner, max_size=4),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(HYPERPARAMETERS), values.map(json.dumps) | st.text(max_size=9)),
    st.sampled_from(CONFIGS),
)
def test_whatever_the_hyperparameters_are_it_answers(sent: dict[str, str], config: dict[str, Any]) -> None:
    for problem in request_issues(a_request(HyperParameters=sent, ResourceConfig=config)):
        assert problem.message.endswith(".")


def test_hyperparameters_without_end_are_read_as_text() -> None:
    deep = "[" * 2500
    request = a_request(HyperParameters=dict.fromkeys(HYPERPARAMETERS, deep))
    assert [problem.field for problem in request_issues(request)] == [MP]


def test_all_issues_come_at_once() -> None:
    request = mpi(per_host=16)
    request["CheckpointConfig"] = {"S3Uri": "s3://bucket", "LocalPath": "kept"}
    assert [problem.field for problem in request_issues(request)] == [LOCAL, URI, PER_HOST]


def test_the_table_of_gpus_names_types_that_sagemaker_has() -> None:
    known = shape().members["ResourceConfig"].members["InstanceType"].metadata["enum"]  # type: ignore[attr-defined]
    assert set(GPUS) <= set(known)
    assert (GPUS[P4], GPUS[P5], GPUS[G5], GPUS["ml.p3.2xlarge"]) == (8, 8, 4, 1)


# --- docs/reference/preflight.md


def rows() -> list[str]:
    """The messages that the API gives, as the page has them; an ellipsis stands for what differs."""
    _, _, checks = PAGE.read_text().partition("\n## Rules of SageMaker\n")
    of_the_api, _, _ = checks.partition("\n## Checks of S3 by the client\n")
    return [row.replace("`", "") for row in re.findall(r"^- (.+[.])$", of_the_api, re.MULTILINE)]


def messages() -> list[str]:
    """One of each kind, from the requests that are stopped."""
    of_sagemaker = [problem.message for request, _, _ in REFUSED.values() for problem in found(request)]
    of_requests = [it.message for case in REQUEST_RULES.values() for it in request_issues(case.stopped)]
    return [*of_sagemaker, *of_requests, *(it.message for case in POLICY_RULES.values() for it in judged(case.stopped))]


def test_the_page_has_every_message_and_no_other() -> None:
    patterns = {row: re.compile(".*".join(re.escape(part) for part in row.split("…"))) for row in rows()}
    said = [message.replace("`", "") for message in messages()]
    for message in said:
        assert any(pattern.fullmatch(message) for pattern in patterns.values()), f"{PAGE.name} lacks: {message}"
    for row, pattern in patterns.items():
        assert any(pattern.fullmatch(message) for message in said), f"no rule says: {row}"
