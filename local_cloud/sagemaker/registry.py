"""The registry of all training jobs: names, use of instances (with quota lag after the end), and deletion."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from local_cloud.sagemaker.account.capacity import Capacity, InstancePlacement, by_type
from local_cloud.sagemaker.account.past_jobs import PastJob
from local_cloud.sagemaker.training_job import EmulatedTrainingJob
from local_cloud.sagemaker.validation import invalid
from local_cloud.sagemaker.wire import EmulatedError

AnyJob = EmulatedTrainingJob | PastJob


class JobRegistry:
    """All training jobs of the account, by name. Safe for threads.

    The methods raise the errors that SageMaker would return.

    :param past: the jobs that ended before the emulator started. Past jobs come first and hold no instances.
    :param quota_lag: seconds for which the instances of a job count toward quotas after they are free.
    :param deletion: seconds that the deletion of a job takes.
    """

    def __init__(
        self, capacity: Capacity, past: Iterable[PastJob] = (), quota_lag: float = 0.0, deletion: float = 0.0
    ) -> None:
        self._capacity = capacity
        self._quota_lag = quota_lag
        self._lagging: list[EmulatedTrainingJob] = []
        self._most: dict[str, int] = {}
        self._jobs: dict[str, AnyJob] = {job.name: job for job in past}
        self._holders: list[EmulatedTrainingJob] = []
        self._deletion = deletion
        self._gone_at: dict[str, float] = {}  # name of a job that is being deleted -> end of the deletion, monotonic
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[AnyJob]:
        with self._lock:
            self._forget_deleted()
            return iter(list(self._jobs.values()))

    def add(
        self, request: dict[str, Any], make: Callable[[InstancePlacement], EmulatedTrainingJob]
    ) -> EmulatedTrainingJob:
        """Create a job. Raise ResourceInUse if its name is taken, or ResourceLimitExceeded if a limit is reached."""
        name = request["TrainingJobName"]
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
        with self._lock:
            self._forget_deleted()
            if taken := self._jobs.get(name):
                raise EmulatedError(
                    "ResourceInUse",
                    "Training job names must be unique within an AWS account and region, and a training job with "
                    f"this name already exists ({taken.arn})",
                )
            placement = self._capacity.place(request, tags, [*self._holding(), *self._still_counted()])
            if placement.warm and placement.warm.warm_pool:
                placement.warm.warm_pool.reuse(name)
            self._jobs[name] = job = make(placement)
            job.machines = placement.warm.machines if placement.warm else self._free_machines(placement)
            self._holders.append(job)
            used = by_type(group for holder in self._holding() if not holder.ended for group in holder.groups)
            # The number of instances in use rises nowhere else.
            self._most |= {kind: max(self._most.get(kind, 0), used.get(kind, 0)) for kind in placement.by_type}
            return job

    def _free_machines(self, placement: InstancePlacement) -> tuple[str, ...]:
        """Return the machines for a new job: for each type those with the lowest numbers that no other job has.

        So a job often gets machines that another job has just left, as may happen on AWS. The caller holds the lock.
        """
        busy = {machine for holder in self._holding() for machine in holder.machines}
        found: list[str] = []
        for group in placement.groups:
            names = (f"{group.instance_type}/{number}" for number in itertools.count())
            free = (name for name in names if name not in busy and name not in found)
            found += itertools.islice(free, group.count)
        return tuple(found)

    @property
    def most_in_use(self) -> dict[str, int]:
        """The largest number of instances of each type that were in use at once, by jobs that had not ended."""
        with self._lock:
            return dict(self._most)

    def may_retain(self, job: EmulatedTrainingJob) -> bool:
        """Return whether the quotas allow a job that ends to keep its instances as a warm pool."""
        with self._lock:
            return self._capacity.may_retain(job, self._holding())

    def get(self, name: str) -> AnyJob:
        """Return the job of that name. Raise a ValidationException if there is none."""
        with self._lock:
            return self._existing(name)

    def find(self, name: str) -> AnyJob | None:
        """Return the job of that name, or None."""
        with self._lock:
            self._forget_deleted()
            return self._jobs.get(name)

    def by_arn(self, arn: str) -> AnyJob:
        """Return the job of that ARN. Raise a ValidationException for the ARN of anything else."""
        job = self.get(arn.rpartition("/")[2])
        if job.arn != arn:
            raise invalid("Requested resource not found.")
        return job

    def delete(self, name: str) -> None:
        """Begin to delete a job: the job has the status Deleting for a while, then its name is free.

        Raise ResourceInUse if the job has not ended, is already being deleted, or retains a warm pool.
        """
        with self._lock:
            job = self._existing(name)
            if not job.ended or name in self._gone_at:
                raise EmulatedError(
                    "ResourceInUse",
                    f"Training job {name} is in status {job.status}: only a training job that is Completed, Failed or "
                    "Stopped can be deleted.",
                )
            if job.warm_pool is not None and job.warm_pool.available:
                raise EmulatedError("ResourceInUse", f"Training job {name} retains a warm pool: terminate it first.")
            job.begin_deletion()
            self._gone_at[name] = time.monotonic() + self._deletion

    def _existing(self, name: str) -> AnyJob:
        """Return the job of that name. Raise a ValidationException if there is none. The caller holds the lock."""
        self._forget_deleted()
        if name not in self._jobs:
            raise invalid("Requested resource not found.")
        return self._jobs[name]

    def _forget_deleted(self) -> None:
        """Remove the jobs whose deletion is over, so that their names are free. The caller holds the lock."""
        now = time.monotonic()
        for name in [name for name, at in self._gone_at.items() if at <= now]:
            del self._gone_at[name], self._jobs[name]

    def _holding(self) -> list[EmulatedTrainingJob]:
        """Return the jobs that have instances: jobs that have not ended, and jobs that retain a warm pool.

        Jobs whose instances have become free move to `_lagging`. The caller holds the lock.
        """
        left = [job for job in self._holders if job.ended and not job.retains]
        self._lagging += [job for job in left if not job.instances_reused]
        self._holders = [job for job in self._holders if job not in left]
        return self._holders

    def _still_counted(self) -> list[EmulatedTrainingJob]:
        """Return the jobs whose instances are free but still count toward the quotas."""
        since = time.time() - self._quota_lag
        self._lagging = [job for job in self._lagging if job.instances_free_since > since]
        return self._lagging
