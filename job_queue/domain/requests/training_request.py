"""CreateTrainingJob requests as typed values. Validation accepts the JSON first, and all later code reads these types.

The JSON is kept for the call to SageMaker, for the owner of the job, and for comparisons. SageMaker's
reports (answers of DescribeTrainingJob, and events) have the same fields. Only the tags differ: an event has a mapping
of tags, and DescribeTrainingJob returns no tags.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Self

from msgspec import Struct, convert, field

NAMED_BY_USERS = frozenset({"Environment", "HyperParameters", "Tags"})  # users choose the names inside these fields


class Preference(Struct, frozen=True, rename="pascal"):
    """An alternative of ResourceConfig.InstancePreferences."""

    instance_type: str
    instance_count: int | None = None  # None: the InstanceCount of the ResourceConfig
    training_plan_arns: tuple[str, ...] = ()


class RequestedGroup(Struct, frozen=True, rename="pascal"):
    """A group of a heterogeneous cluster: ResourceConfig.InstanceGroups."""

    instance_type: str
    instance_count: int


class Resources(Struct, frozen=True, rename="pascal"):
    """A ResourceConfig: the instances that a training job requests, or that it has."""

    instance_type: str | None = None
    instance_count: int = 1
    instance_groups: tuple[RequestedGroup, ...] | None = None
    instance_preferences: tuple[Preference, ...] | None = None
    instance_placement_config: dict[str, Any] | None = None
    selected_instance_type: str | None = None  # only in a report: the instance type that SageMaker chose
    selected_instance_count: int | None = None
    volume_size: int | None = field(name="VolumeSizeInGB", default=None)  # GB
    volume_kms_key_id: str | None = None
    keep_alive_seconds: int | None = field(name="KeepAlivePeriodInSeconds", default=None)
    training_plan_arn: str | None = None

    @property
    def preferences(self) -> tuple[Preference, ...]:
        """The instance preferences; empty if there are none."""
        return self.instance_preferences or ()

    @property
    def demand(self) -> tuple[dict[str, int], ...]:
        """The alternatives, best first, each {instance type: instances}.

        Each instance preference is an alternative. In the report of a running job, only the selected preference is
        left. All instance groups together are one alternative. A serverless job has one alternative without instances.
        """
        counts = {it.instance_type: it.instance_count or self.instance_count for it in self.preferences}
        if selected := self.selected_instance_type:
            return ({selected: self.selected_instance_count or counts.get(selected, self.instance_count)},)
        if counts:
            return tuple({instance_type: number} for instance_type, number in counts.items())
        if self.instance_groups:
            together: dict[str, int] = {}
            for group in self.instance_groups:
                together[group.instance_type] = together.get(group.instance_type, 0) + group.instance_count
            return (together,)
        return ({self.instance_type: self.instance_count} if self.instance_type else {},)

    @property
    def plans(self) -> tuple[str | None, ...]:
        """The ARN of each alternative's training plan, or None without one; empty if no alternative names a plan."""
        if any(it.training_plan_arns for it in self.preferences):
            return tuple(next(iter(it.training_plan_arns), None) for it in self.preferences)
        return (self.training_plan_arn,) * max(1, len(self.preferences)) if self.training_plan_arn else ()

    @property
    def all_plans(self) -> set[str | None]:
        """The ARNs of the training plans that the request names. None is among them if the request names no plan."""
        return {plan for it in self.preferences for plan in it.training_plan_arns} | {self.training_plan_arn}

    @property
    def instance_types(self) -> set[str | None]:
        """The instance types outside of groups, including None if the ResourceConfig itself names no type."""
        return {self.instance_type, *(it.instance_type for it in self.preferences)}


class Network(Struct, frozen=True, rename="pascal"):
    """A VpcConfig."""

    subnets: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()


class SessionChaining(Struct, frozen=True, rename="pascal"):
    """A SessionChainingConfig."""

    enable_session_tag_chaining: bool = False


class TrainingJobFields(Struct, frozen=True, rename="pascal"):
    """The fields that a request and a report of a training job have in common."""

    role: str = field(name="RoleArn", default="")
    resources: Resources = field(name="ResourceConfig", default=Resources())
    vpc_config: Network | None = None
    spot: bool = field(name="EnableManagedSpotTraining", default=False)
    enable_inter_container_traffic_encryption: bool = False
    enable_network_isolation: bool = False
    session_chaining_config: SessionChaining | None = None

    @property
    def footprint(self) -> str | None:
        """A digest of the properties that a job must share with a warm pool, besides instance type and count.

        None means that the job neither uses nor leaves a warm pool.

        Source: AWS's guide, "Matching training jobs" of managed warm pools. SageMaker also compares session tags, which
        are the same in all launches of the queue. Roles are compared without their account, because a job that runs in
        another account has the role of the same name there.
        """
        if self.resources.instance_groups or self.spot:
            return None
        network = self.vpc_config or Network()
        criteria = (
            self.role.rpartition(":")[2],
            self.resources.volume_size or 0,
            self.resources.volume_kms_key_id or "",
            sorted(network.subnets),
            sorted(network.security_group_ids),
            self.enable_inter_container_traffic_encryption,
            self.enable_network_isolation,
            self.session_chaining_config is not None and self.session_chaining_config.enable_session_tag_chaining,
        )
        return sha256(repr(criteria).encode()).hexdigest()[:16]


class RequestTag(Struct, frozen=True, rename="pascal"):
    """A tag of a request."""

    key: str
    value: str


class Algorithm(Struct, frozen=True, rename="pascal"):
    """An AlgorithmSpecification."""

    training_image: str | None = None
    algorithm_name: str | None = None
    training_input_mode: str = "File"
    container_entrypoint: tuple[str, ...] = ()


class S3Source(Struct, frozen=True, rename="pascal"):
    """An S3DataSource of a channel."""

    data_type: str = field(name="S3DataType", default="S3Prefix")


class DataSource(Struct, frozen=True, rename="pascal"):
    """A DataSource of a channel."""

    s3: S3Source | None = field(name="S3DataSource", default=None)


class InputChannel(Struct, frozen=True, rename="pascal"):
    """A channel of InputDataConfig."""

    data_source: DataSource = DataSource()
    input_mode: str = "File"
    compression_type: str = "None"


class CheckpointConfig(Struct, frozen=True, rename="pascal"):
    """A CheckpointConfig."""

    uri: str = field(name="S3Uri")


class Limits(Struct, frozen=True, rename="pascal"):
    """A StoppingCondition."""

    max_runtime: int | None = field(name="MaxRuntimeInSeconds", default=None)  # seconds


@dataclass(frozen=True, slots=True)
class TagValue:
    """The value of a tag, and the field of the request that has it."""

    text: str
    field: str


class TrainingRequest(TrainingJobFields, frozen=True, rename="pascal"):
    """A valid CreateTrainingJob request.

    :ivar content: the request as it was submitted, decoded from JSON.
    """

    content: dict[str, Any] = field(name="content", default_factory=dict)
    name: str = field(name="TrainingJobName", default="")
    algorithm: Algorithm = field(name="AlgorithmSpecification", default=Algorithm())
    channels: tuple[InputChannel, ...] = field(name="InputDataConfig", default=())
    checkpoint_config: CheckpointConfig | None = None
    limits: Limits = field(name="StoppingCondition", default=Limits())
    tags: tuple[RequestTag, ...] = ()

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Return the typed request of this content.

        :param content: a request without issues of `validation.against_model`.
        :raises ValueError: a field does not have the type that SageMaker requires.
        """
        return convert({**content, "content": content}, cls)

    @property
    def checkpoints(self) -> str | None:
        """The address to which the job writes checkpoints, or None if it has no checkpoints."""
        return self.checkpoint_config.uri if self.checkpoint_config else None

    @property
    def tag_values(self) -> dict[str, TagValue]:
        """The values of the tags by key."""
        return {tag.key: TagValue(tag.value, f"Tags[{index}].Value") for index, tag in enumerate(self.tags)}

    @property
    def is_serverless(self) -> bool:
        """Whether SageMaker chooses the instances (a serverless job)."""
        return "ServerlessJobConfig" in self.content

    def texts_under(self, names: frozenset[str]) -> Iterator[tuple[str, str]]:
        """Yield (path, text) for each text in a field with one of these names.

        A path is written like `DebugHookConfig.S3OutputPath`.
        """
        return _texts_under(names, self.content, "")


for _kind in (TrainingJobFields, TrainingRequest):
    convert({}, _kind)  # the first conversion to a type is not thread-safe in msgspec 0.22


def _texts_under(names: frozenset[str], value: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            path = f"{where}.{name}" if where else str(name)
            if name in names:
                yield from _texts(below, path)
            elif name not in NAMED_BY_USERS:
                yield from _texts_under(names, below, path)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _texts_under(names, below, f"{where}[{index}]")


def _texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _texts(below, f"{path}[{index}]")
