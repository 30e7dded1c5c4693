"""Managed warm pools: instances that stay with a job after its end, for another that matches it.

Guide: train-warm-pools. A pool is kept after Completed, after a stop once the cluster had been launched, and after an
error of the algorithm or the client; then it is Available until a matching job takes it (Reused), or its time is over
or somebody ends it (Terminated). No event tells of it: the documented fields of SageMaker's events do not have it.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

KEEPS = ("AlgorithmError", "ClientError")
"""Failures that leave the cluster healthy, by the beginning of FailureReason."""
_CHAINING = "sagemaker:EnableSessionTagChaining"


class WarmPool:
    """The pool of one job. `keep_alive`: seconds for which it stays Available. Safe for threads."""

    def __init__(self, keep_alive: int) -> None:
        self._keep_alive = keep_alive
        self._status = "InUse"
        self._available_since: float | None = None
        self._ended_at: float | None = None
        self._reused_by: str | None = None
        self._lock = threading.RLock()

    @property
    def keep_alive(self) -> int:
        """Seconds for which it stays Available."""
        return self._keep_alive

    @property
    def status(self) -> str:
        """InUse, Available, Reused or Terminated."""
        with self._lock:
            if self._status == "Available" and self._available_since is not None:
                over = self._available_since + self._keep_alive
                if _now() >= over:
                    self._status, self._ended_at = "Terminated", over
            return self._status

    @property
    def ended_at(self) -> float | None:
        """When its instances were gone, in epoch seconds; None: they are there."""
        return self._ended_at

    @property
    def available(self) -> bool:
        """Whether it holds instances that another job may take."""
        return self.status == "Available"

    def retain(self) -> None:
        """The job has ended, and its instances stay."""
        with self._lock:
            self._status, self._available_since = "Available", _now()

    def terminate(self) -> None:
        """Its instances are gone, if another job has not taken them."""
        with self._lock:
            if self.status in ("InUse", "Available"):
                self._status, self._ended_at = "Terminated", _now()

    def reuse(self, job: str) -> None:
        """Another job takes the instances, if they are still there."""
        with self._lock:
            if self.available:
                self._status, self._ended_at, self._reused_by = "Reused", _now(), job

    def update(self, keep_alive: int) -> bool:
        """Keep the instances for so long from the job's end; 0 frees them. Gives whether there are any."""
        with self._lock:
            if self.status not in ("InUse", "Available"):
                return False
            self._keep_alive = keep_alive
            if self._status == "Available" and not keep_alive:
                self.terminate()
            return True

    def describe(self) -> dict[str, Any]:
        """WarmPoolStatus."""
        with self._lock:
            answer: dict[str, Any] = {"Status": self.status}
            if self._available_since is not None:
                until = self._ended_at if self._ended_at is not None else _now()
                answer["ResourceRetainedBillableTimeInSeconds"] = round(until - self._available_since)
            if self._reused_by:
                answer["ReusedByJob"] = self._reused_by
            return answer


def matching_key(request: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[Any, ...]:
    """What must be the same in two jobs for the one to take the other's instances.

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
