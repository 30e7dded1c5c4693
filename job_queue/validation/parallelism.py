"""Checks that degrees of model parallelism divide the number of a job's processes.

Without these checks, a wrong degree is found only after the instances have started and cost money.

The SDK sends `distribution={"smdistributed": {"modelparallel": ...}}` in hyperparameters. `mp_parameters` has the
library's parameters; other hyperparameters define the number of processes on each instance. Sources: guide, SageMaker
model parallelism library v1, "Configuration parameters", and v2, "SMP v2 core feature configuration parameters".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from job_queue.domain.errors import ValidationIssue
from job_queue.scheduler import GPUS
from job_queue.validation.issue import field_issue
from job_queue.validation.parallelism_parameters import (
    MOST_PROCESSES,
    OF_ALL_PROCESSES,
    OF_REPLICAS,
    PARAMETERS,
    SPLITTING,
    has_sound_degrees,
    parameter_issues,
)
from job_queue.validation.values import Json, hyperparameter, mapping, mappings, text

_PER_HOST = "sagemaker_mpi_num_of_processes_per_host"


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The processes that one alternative of a request starts."""

    hosts: Sequence[tuple[str, int]]  # instance type, number of instances
    per_host: Sequence[int]  # processes on each instance, in the order of `hosts`

    @property
    def processes(self) -> int:
        return sum(count * processes for (_, count), processes in zip(self.hosts, self.per_host, strict=True))

    def __str__(self) -> str:
        parts = [f"{count} x {processes}" for (_, count), processes in zip(self.hosts, self.per_host, strict=True)]
        return f"{self.processes} processes that are started ({' + '.join(parts)})"


def _parallelism(request: Json) -> Iterator[ValidationIssue]:
    """Check the library's parameters, the processes for each GPU, and whether the degrees divide the processes."""
    if "mp_parameters" not in mapping(request, "HyperParameters"):
        return
    parameters = hyperparameter(request, "mp_parameters")
    if not isinstance(parameters, dict):
        yield field_issue(PARAMETERS, 'must be a JSON object of parameters, like {"pipeline_parallel_degree": 2}.')
        return
    yield from parameter_issues(parameters, version_2=_is_started_by_torchrun(request))
    for hosts in _alternatives(request):
        if too_many := list(_too_many(hosts, request)):
            yield from too_many
        elif has_sound_degrees(parameters) and (cluster := _cluster(hosts, request)):
            yield from _divisions(parameters, cluster)


def _too_many(hosts: Sequence[tuple[str, int]], request: Json) -> Iterator[ValidationIssue]:
    """Allow at most one process for each GPU."""
    processes = _mpi_processes(request)
    for instance_type in dict.fromkeys(instance_type for instance_type, _ in hosts):
        if processes is not None and processes > GPUS.get(instance_type, processes):
            what = (
                f"is {processes}, but {instance_type} has {_gpus(instance_type)}: start at most one process for each."
            )
            yield field_issue(f"HyperParameters.{_PER_HOST}", what)


def _divisions(degrees: dict[str, Any], cluster: _Cluster) -> Iterator[ValidationIssue]:
    """Check that the degrees divide the processes evenly.

    A replica of the model takes as many processes as the product of the degrees in `SPLITTING`.
    """
    named = [name for name in SPLITTING if name in degrees and name != _alias(degrees)]
    parts = prod(degrees[name] for name in named)
    product = " x ".join(f"{name} {degrees[name]}" for name in named)
    if cluster.processes % parts:
        what = (
            f"splits the model over {parts} processes ({product}), which does not divide the {cluster}: "
            "change a degree, the instances, or the processes on each."
        )
        yield field_issue(PARAMETERS, what)
        return
    for name in OF_ALL_PROCESSES:
        if (degree := degrees.get(name, 0)) and cluster.processes % degree:
            yield field_issue(f"{PARAMETERS}.{name}", f"is {degree}, which does not divide the {cluster}.")
    replicas = cluster.processes // parts
    if (degree := degrees.get(OF_REPLICAS, 0)) and replicas % degree:
        what = f"is {degree}, which does not divide the data parallelism of {replicas}, of the {cluster}."
        yield field_issue(f"{PARAMETERS}.{OF_REPLICAS}", what)


def _alias(degrees: dict[str, Any]) -> str | None:
    """Return `partitions` if its new name is also given, so that the same degree is not counted twice."""
    return "partitions" if "pipeline_parallel_degree" in degrees else None


def _alternatives(request: Json) -> Iterator[list[tuple[str, int]]]:
    """Yield the instances that run the library, for each alternative of the request."""
    config = mapping(request, "ResourceConfig")
    if preferences := mappings(config, "InstancePreferences"):
        for preference in preferences:
            yield [(text(preference, "InstanceType"), preference.get("InstanceCount", config.get("InstanceCount", 0)))]
        return
    groups = mappings(config, "InstanceGroups")
    names = hyperparameter(request, "sagemaker_distribution_instance_groups")
    if isinstance(names, list) and names:  # other groups do not run the library
        groups = [group for group in groups if group.get("InstanceGroupName") in names]
    yield [(text(group, "InstanceType"), group.get("InstanceCount", 0)) for group in groups or [config]]


def _cluster(hosts: Sequence[tuple[str, int]], request: Json) -> _Cluster | None:
    """Return the processes; None if unknown. MPI starts the configured number, torchrun one for each GPU."""
    if (processes := _mpi_processes(request)) is not None:
        per_host = [processes for _ in hosts]
    elif _is_started_by_torchrun(request):
        per_host = [GPUS.get(instance_type, 0) for instance_type, _ in hosts]
    else:
        return None
    return _Cluster(hosts, per_host) if all(per_host) else None


def _is_started_by_torchrun(request: Json) -> bool:
    """Return whether the library has version 2, which torchrun starts; MPI starts version 1."""
    return hyperparameter(request, "sagemaker_torch_distributed_enabled") is True


def _mpi_processes(request: Json) -> int | None:
    """Return the number of processes that MPI starts on each instance (one if it is invalid); None without MPI."""
    if hyperparameter(request, "sagemaker_mpi_enabled") is not True:
        return None
    processes = hyperparameter(request, _PER_HOST)
    return processes if isinstance(processes, int) and 0 < processes <= MOST_PROCESSES else 1


def _gpus(instance_type: str) -> str:
    return "1 GPU" if GPUS[instance_type] == 1 else f"{GPUS[instance_type]} GPUs"


PARALLELISM_RULES = (_parallelism,)
