"""The registry of all training jobs, and the instances that they hold."""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from local_cloud.sagemaker.training_job import TrainingJob, instance_groups
from local_cloud.sagemaker.validation import invalid
from local_cloud.sagemaker.wire import EmulatedError


class JobRegistry:
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
