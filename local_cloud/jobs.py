"""The state of one training job, and the book of all of them."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from local_cloud.validation import MAX_TAGS, invalid, service_model
from local_cloud.wire import EmulatedError

TERMINAL = frozenset({"Completed", "Failed", "Stopped"})
DEFAULT_MAX_RUNTIME = 86400  # seconds; SageMaker's default


@dataclass(frozen=True)
class InstanceGroup:
    """Instances of one type that a job has from its start to its end."""

    name: str
    instance_type: str
    count: int


def instance_groups(config: Mapping[str, Any]) -> tuple[InstanceGroup, ...]:
    """What a ResourceConfig asks for, in the order in which hosts are numbered.

    Of InstancePreferences the first is taken: here capacity is never short of one type only.
    """
    if "InstanceGroups" in config and config["InstanceGroups"]:
        return tuple(
            InstanceGroup(group["InstanceGroupName"], group["InstanceType"], group["InstanceCount"])
            for group in config["InstanceGroups"]
        )
    choice = (config.get("InstancePreferences") or [config])[0]
    count = choice.get("InstanceCount", config.get("InstanceCount"))
    return (InstanceGroup("homogeneousCluster", choice["InstanceType"], count),)


class TrainingJob:
    """One training job as SageMaker shows it. Every change of state is published, in order; safe for threads.

    The runner moves it on; only `ask_stop`, tags and updates come from outside.
    """

    def __init__(self, request: Mapping[str, Any], arn: str, publish: Callable[["TrainingJob"], None]) -> None:
        self.request = {key: value for key, value in request.items() if key != "Tags"}
        self.name: str = request["TrainingJobName"]
        self.arn = arn
        self.groups = instance_groups(request["ResourceConfig"])
        self.tags: dict[str, str] = {}
        self.add_tags(request.get("Tags", []))
        self.status = "InProgress"
        self.secondary_status = "Starting"
        self.failure_reason: str | None = None
        self.created = self.modified = _now()
        self.training_started: float | None = None
        self.training_ended: float | None = None
        self.artifacts: str | None = None
        self.stop_asked = threading.Event()
        self._publish = publish
        self._lock = threading.RLock()
        self._transitions: list[dict[str, Any]] = []
        if config := self.request["ResourceConfig"].get("InstancePreferences"):
            selected = {
                "SelectedInstanceType": config[0]["InstanceType"],
                "SelectedInstanceCount": self.groups[0].count,
            }
            self.request["ResourceConfig"] = {**self.request["ResourceConfig"], **selected}
        self._move("InProgress", "Starting", "Starting the training job")

    @property
    def ended(self) -> bool:
        """Whether nothing more can happen to it."""
        return self.status in TERMINAL

    @property
    def max_runtime(self) -> float:
        """Seconds that it may train."""
        return float(self.request["StoppingCondition"].get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME))

    def add_tags(self, tags: list[dict[str, str]]) -> None:
        """Add tags, or give those that exist another value."""
        merged = self.tags | {tag["Key"]: tag.get("Value", "") for tag in tags}
        if len(merged) > MAX_TAGS:
            raise invalid(f"The resource would have {len(merged)} tags; the limit is {MAX_TAGS}.")
        self.tags = merged

    def update(self, request: Mapping[str, Any]) -> None:
        """Apply an UpdateTrainingJob request."""
        with self._lock:
            changes = {key: value for key, value in request.items() if key != "TrainingJobName"}
            if "ResourceConfig" in changes:
                changes["ResourceConfig"] = {**self.request["ResourceConfig"], **changes["ResourceConfig"]}
            elif self.ended:
                raise invalid(f"The request was rejected because the training job is in status {self.status}.")
            self.request |= changes
            self._touch()

    def ask_stop(self) -> None:
        """StopTrainingJob: the runner does the rest. Asking twice changes nothing."""
        with self._lock:
            if self.ended:
                raise invalid(f"The request was rejected because the training job is in status {self.status}.")
            self.begin_stopping("Stopping the training job")
            self.stop_asked.set()

    def begin_stopping(self, message: str) -> None:
        """Show that it is being stopped, if that is not shown already."""
        with self._lock:
            if self.status == "InProgress":
                self._move("Stopping", "Stopping", message)

    def progress(self, secondary: str, message: str) -> None:
        """The next step on the ordinary way; a job that is being stopped keeps showing that."""
        with self._lock:
            if secondary == "Training":
                self.training_started = _now()
            if self.status == "InProgress":
                self._move("InProgress", secondary, message)

    def end(self, status: str, secondary: str, message: str, *, failure_reason: str | None = None) -> None:
        """The last move."""
        with self._lock:
            self.training_ended = _now()
            self.failure_reason = failure_reason
            self._move(status, secondary, message)

    def describe(self) -> dict[str, Any]:
        """The answer of DescribeTrainingJob; times in epoch seconds."""
        with self._lock:
            answer = {key: value for key, value in self.request.items() if key in _described()}
            answer |= {
                "TrainingJobArn": self.arn,
                "TrainingJobStatus": self.status,
                "SecondaryStatus": self.secondary_status,
                "CreationTime": self.created,
                "LastModifiedTime": self.modified,
                "SecondaryStatusTransitions": [dict(transition) for transition in self._transitions],
            }
            answer["OutputDataConfig"] = {"KmsKeyId": "", **answer["OutputDataConfig"]}  # the SDK's attach reads it
            for field in _FLAGS:
                answer.setdefault(field, False)
            optional = {
                "FailureReason": self.failure_reason,
                "ModelArtifacts": {"S3ModelArtifacts": self.artifacts} if self.artifacts else None,
                "TrainingStartTime": self.training_started,
                "TrainingEndTime": self.training_ended,
            }
            answer |= {key: value for key, value in optional.items() if value is not None}
            if self.training_started and self.training_ended:
                seconds = max(1, round(self.training_ended - self.training_started))
                answer |= {"TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": seconds}
            return answer

    def _move(self, status: str, secondary: str, message: str) -> None:
        self._touch()
        self.status, self.secondary_status = status, secondary
        if self._transitions:
            self._transitions[-1]["EndTime"] = self.modified
        self._transitions.append({"Status": secondary, "StartTime": self.modified, "StatusMessage": message})
        if status in TERMINAL:
            self._transitions[-1]["EndTime"] = self.modified
        self._publish(self)

    def _touch(self) -> None:
        # Events are put in order by this time, which they carry in milliseconds: no two moves may share one.
        self.modified = max(_now(), round(self.modified + 0.001, 3))


class JobBook:
    """All training jobs of the account, by name; says no where SageMaker would. Safe for threads."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = limits
        self._most: dict[str, int] = {}
        self._jobs: dict[str, TrainingJob] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[TrainingJob]:
        with self._lock:
            return iter(list(self._jobs.values()))

    def add(self, name: str, config: Mapping[str, Any], arn: str, make: Callable[[], TrainingJob]) -> TrainingJob:
        """Make a job, if its name is free and its instances are within the limits."""
        with self._lock:
            if taken := self._jobs.get(name):
                raise EmulatedError(
                    "ResourceInUse",
                    "Training job names must be unique within an AWS account and region, and a training job with "
                    f"this name already exists ({taken.arn})",
                )
            wanted = _wanted(config)
            self._check_limits(wanted)
            self._jobs[name] = job = make()
            # Their number rises here only.
            self._most |= {kind: max(self._most.get(kind, 0), self._used(kind)) for kind in wanted}
            return job

    @property
    def most_in_use(self) -> dict[str, int]:
        """The most instances of each type that were in use at once, by jobs that had not ended."""
        with self._lock:
            return dict(self._most)

    def get(self, name: str) -> TrainingJob:
        """The job of that name."""
        with self._lock:
            job = self._jobs.get(name)
        if job is None:
            raise invalid("Requested resource not found.")
        return job

    def by_arn(self, arn: str) -> TrainingJob:
        """The job of that ARN; other resources are not known here."""
        job = next((job for job in self if job.arn == arn), None)
        if job is None:
            raise invalid("Requested resource not found.")
        return job

    def delete(self, name: str) -> None:
        """Forget a job that has ended; as in SageMaker, its name is free again."""
        job = self.get(name)
        if not job.ended:
            raise EmulatedError("ResourceInUse", f"Training job {name} is in status {job.status}: stop it first.")
        with self._lock:
            self._jobs.pop(name, None)

    def _check_limits(self, wanted: Mapping[str, int]) -> None:
        for instance_type, count in wanted.items():
            limit = self._limits.get(instance_type)
            used = self._used(instance_type)
            if limit is not None and used + count > limit:
                raise EmulatedError(
                    "ResourceLimitExceeded",
                    f"The account-level service limit '{instance_type} for training job usage' is {limit} Instances, "
                    f"with current utilization of {used} Instances and a request delta of {count} Instances. Please "
                    "use AWS Service Quotas to request an increase for this quota.",
                )

    def _used(self, instance_type: str) -> int:
        groups = (group for job in self._jobs.values() if not job.ended for group in job.groups)
        return sum(group.count for group in groups if group.instance_type == instance_type)


def _wanted(config: Mapping[str, Any]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for group in instance_groups(config):
        wanted[group.instance_type] = wanted.get(group.instance_type, 0) + group.count
    return wanted


_FLAGS = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining")


def _now() -> float:
    return round(time.time(), 3)  # as exact as SageMaker's times, and the same in every form


def _described() -> frozenset[str]:
    shape = service_model().operation_model("DescribeTrainingJob").output_shape
    assert shape is not None
    return frozenset(getattr(shape, "members", {}))
