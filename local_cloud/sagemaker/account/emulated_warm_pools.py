"""Managed warm pools: instances that are kept after a job has ended, for another job with matching properties.

Guide: train-warm-pools. A pool is kept if its job completes, fails by an error of the algorithm or the client, or is
stopped after the launch of its cluster. The pool is then Available until a matching job takes it (Reused), or until its
time is over or a user ends it (Terminated). Events do not contain the WarmPoolStatus, because
SageMaker's documentation of events does not mention it.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

HEALTHY_FAILURES = ("AlgorithmError", "ClientError")
"""Failures that leave the cluster healthy, by the beginning of FailureReason."""
_CHAINING = "sagemaker:EnableSessionTagChaining"


class EmulatedWarmPool:
    """The pool of one job. `keep_alive`: seconds for which the pool stays Available. Safe for threads."""

    def __init__(self, keep_alive: int) -> None:
        self._keep_alive = keep_alive
        self._status = "InUse"
        self._available_since: float | None = None
        self._ended_at: float | None = None
        self._reused_by: str | None = None
        self._lock = threading.RLock()

    @property
    def keep_alive(self) -> int:
        """The number of seconds for which the pool stays Available."""
        return self._keep_alive

    @property
    def status(self) -> str:
        """The status InUse, Available, Reused or Terminated."""
        with self._lock:
            if self._status == "Available" and self._available_since is not None:
                over = self._available_since + self._keep_alive
                if _now() >= over:
                    self._status, self._ended_at = "Terminated", over
            return self._status

    @property
    def ended_at(self) -> float | None:
        """The time at which the pool was Reused or Terminated, in epoch seconds; None before that."""
        return self._ended_at

    @property
    def available(self) -> bool:
        """Whether the pool has instances that another job may take."""
        return self.status == "Available"

    def retain(self) -> None:
        """Keep the instances after the end of the job."""
        with self._lock:
            self._status, self._available_since = "Available", _now()

    def terminate(self) -> None:
        """Free the instances, unless another job has taken them."""
        with self._lock:
            if self.status in ("InUse", "Available"):
                self._status, self._ended_at = "Terminated", _now()

    def reuse(self, job: str) -> None:
        """Give the instances to another job, if they are still available."""
        with self._lock:
            if self.available:
                self._status, self._ended_at, self._reused_by = "Reused", _now(), job

    def update(self, keep_alive: int) -> bool:
        """Change the time for which the pool keeps its instances, in seconds from the job's end; 0 frees the instances.

        Return False if the pool is already Reused or Terminated.
        """
        with self._lock:
            if self.status not in ("InUse", "Available"):
                return False
            self._keep_alive = keep_alive
            if self._status == "Available" and not keep_alive:
                self.terminate()
            return True

    def describe(self) -> dict[str, Any]:
        """Return the field WarmPoolStatus of SageMaker's answers."""
        with self._lock:
            answer: dict[str, Any] = {"Status": self.status}
            if self._available_since is not None:
                until = self._ended_at if self._ended_at is not None else _now()
                answer["ResourceRetainedBillableTimeInSeconds"] = round(until - self._available_since)
            if self._reused_by:
                answer["ReusedByJob"] = self._reused_by
            return answer


def matching_key(request: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the properties of a job that must equal those of an ended job, to reuse the ended job's instances.

    Guide: train-warm-pools, "Matching training jobs"; session tags: model-access-training-data-abac.
    """
    resources, network = request["ResourceConfig"], request.get("VpcConfig", {})
    return (
        request["RoleArn"],
        resources.get("SelectedInstanceType", resources.get("InstanceType")),
        resources.get("SelectedInstanceCount", resources.get("InstanceCount")),
        resources.get("VolumeSizeInGB"),
        resources.get("VolumeKmsKeyId"),
        resources.get("TrainingPlanArn"),
        tuple(sorted(network.get("Subnets", []))),
        tuple(sorted(network.get("SecurityGroupIds", []))),
        bool(request.get("EnableInterContainerTrafficEncryption")),
        bool(request.get("EnableNetworkIsolation")),
        tuple(sorted(tags.items())) if tags.get(_CHAINING, "").lower() == "true" else None,
    )


def _now() -> float:
    return time.time()
