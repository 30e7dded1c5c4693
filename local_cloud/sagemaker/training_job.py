"""The state of one training job: status, transitions, tags and warm pool, as SageMaker describes them."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from local_cloud.sagemaker.account.emulated_plans import EmulatedPlan
from local_cloud.sagemaker.account.emulated_warm_pools import HEALTHY_FAILURES, EmulatedWarmPool
from local_cloud.sagemaker.instance_groups import InstanceGroup
from local_cloud.sagemaker.validation import MAX_TAGS, invalid, service_model

TERMINAL = frozenset({"Completed", "Failed", "Stopped"})
DELETING = "Deleting"
REMOTE_DEBUG_STATUSES = ("Downloading", "Training")  # API_UpdateTrainingJob, RemoteDebugConfig
AGENT_SECONDS = 1.0  # time for the SSM agent to connect after an update has enabled remote debugging
DEFAULT_MAX_RUNTIME = 86400  # seconds; SageMaker's default


class EmulatedTrainingJob:
    """One training job as SageMaker shows it. Safe for threads.

    The job's runner makes the changes of state, except for stop requests, tags, updates and deletion, which come from
    API calls. `publish(job)` is called after every change of state but deletion, in order. `may_retain(job)` returns
    whether the account may keep the job's instances as a warm pool.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        arn: str,
        groups: tuple[InstanceGroup, ...],
        plan: EmulatedPlan | None,
        publish: Callable[["EmulatedTrainingJob"], None],
        may_retain: Callable[["EmulatedTrainingJob"], bool] = lambda job: True,
        *,
        warm_start: bool = False,
    ) -> None:
        self.request = {key: value for key, value in request.items() if key != "Tags"}
        self.name: str = request["TrainingJobName"]
        self.arn = arn
        self.groups = groups
        self.plan = plan
        self.warm_start = warm_start
        self.machines: tuple[str, ...] = ()  # the machines of the instances, in the order of hosts
        self.spot = bool(request.get("EnableManagedSpotTraining"))
        self.launched = self.warm_start  # a warm pool's cluster is already running
        self.tags: dict[str, str] = {}
        self.add_tags(request.get("Tags", []))
        self.status = "InProgress"
        self.secondary_status = "Starting"
        self.failure_reason: str | None = None
        self.created = self.modified = _now()
        self.training_started: float | None = None
        self.training_ended: float | None = None
        self.artifacts: str | None = None
        self._agent_since = 0.0  # monotonic seconds from which the SSM agent of a container is connected
        self.stop_requested = threading.Event()
        self.warm_pool = _warm_pool(request, warm_start=self.warm_start)
        self._publish = publish
        self._may_retain = may_retain
        self._lock = threading.RLock()
        self._transitions: list[dict[str, Any]] = []
        if self.request["ResourceConfig"].get("InstancePreferences"):
            selected = {
                "SelectedInstanceType": self.groups[0].instance_type,
                "SelectedInstanceCount": self.groups[0].count,
            }
            self.request["ResourceConfig"] = {**self.request["ResourceConfig"], **selected}
        self._move("InProgress", "Starting", "Starting the training job")

    @property
    def ended(self) -> bool:
        """Whether the job has ended. A job that is being deleted counts as ended.

        The instances of an ended job are free or in a warm pool.
        """
        return self.status in TERMINAL or self.status == DELETING

    @property
    def retains(self) -> bool:
        """Whether the job's instances are in a warm pool that another job can take."""
        return self.ended and self.warm_pool is not None and self.warm_pool.available

    @property
    def instances_reused(self) -> bool:
        """Whether another job has taken over the job's instances."""
        return self.warm_pool is not None and self.warm_pool.status == "Reused"

    @property
    def instances_free_since(self) -> float:
        """The epoch seconds at which an ended job's instances became free: at its end, or at that of its warm pool."""
        kept_until = self.warm_pool.ended_at if self.warm_pool else None
        return self.modified if kept_until is None else max(kept_until, self.modified)

    @property
    def max_runtime(self) -> float:
        """The number of seconds for which the job may train."""
        return float(self.request["StoppingCondition"].get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME))

    @property
    def max_pending(self) -> int | None:
        """The number of seconds for which the job may wait for its instances; None if the request sets no limit."""
        limit: int | None = self.request["StoppingCondition"].get("MaxPendingTimeInSeconds")
        return limit

    def backdate(self, seconds: float) -> None:
        """Move the creation time back by `seconds`."""
        with self._lock:
            self.created -= seconds
            self._transitions[0]["StartTime"] -= seconds

    def add_tags(self, tags: list[dict[str, str]]) -> None:
        """Add tags, and change the values of existing tags. Raise a ValidationException beyond MAX_TAGS tags."""
        merged = self.tags | {tag["Key"]: tag.get("Value", "") for tag in tags}
        if len(merged) > MAX_TAGS:
            raise invalid(f"The resource would have {len(merged)} tags; the limit is {MAX_TAGS}.")
        self.tags = merged

    def delete_tags(self, keys: Sequence[str]) -> None:
        """Remove tags. Keys that the job does not have are ignored, as in SageMaker."""
        self.tags = {key: value for key, value in self.tags.items() if key not in keys}

    def update(self, request: Mapping[str, Any]) -> None:
        """Apply an UpdateTrainingJob request. Raise a ValidationException if the job's state forbids the change."""
        with self._lock:
            changes = {key: value for key, value in request.items() if key != "TrainingJobName"}
            others = changes.keys() - {"ResourceConfig"}
            if self.status == DELETING or (others and self.ended):
                raise invalid(f"The request was rejected because the training job is in status {self.status}.")
            if "RemoteDebugConfig" in changes and self.secondary_status not in REMOTE_DEBUG_STATUSES:
                raise invalid(
                    "RemoteDebugConfig can be updated while the SecondaryStatus of the training job is Downloading or "
                    f"Training, and it is {self.secondary_status}."
                )
            if "ResourceConfig" in changes:
                self._update_warm_pool(changes["ResourceConfig"]["KeepAlivePeriodInSeconds"])
                changes["ResourceConfig"] = {**self.request["ResourceConfig"], **changes["ResourceConfig"]}
            if changes.get("RemoteDebugConfig", {}).get("EnableRemoteDebug") and not self.agent_connects:
                self._agent_since = time.monotonic() + AGENT_SECONDS
            self.request |= changes
            self._touch()

    @property
    def agent_connects(self) -> bool:
        """Whether the SSM agents of the containers can be connected to Session Manager now."""
        with self._lock:
            enabled = self.request.get("RemoteDebugConfig", {}).get("EnableRemoteDebug", False)
            isolated = self.request.get("EnableNetworkIsolation", False)
            return enabled and not isolated and time.monotonic() >= self._agent_since

    def begin_deletion(self) -> None:
        """Begin DeleteTrainingJob; the registry forgets the job later. AWS documents no event for this status."""
        with self._lock:
            self._touch()
            self.status = DELETING

    def request_stop(self) -> None:
        """Carry out StopTrainingJob: the runner stops the processes later. A second request changes nothing."""
        with self._lock:
            if self.ended:
                raise invalid(f"The request was rejected because the training job is in status {self.status}.")
            self.begin_stopping("Stopping the training job")
            self.stop_requested.set()

    def begin_stopping(self, message: str) -> None:
        """Change the status from InProgress to Stopping. A job in any other status stays unchanged."""
        with self._lock:
            if self.status == "InProgress":
                self._move("Stopping", "Stopping", message)

    def progress(self, secondary: str, message: str) -> None:
        """Record the next step of an ordinary run. A job that is being stopped keeps its status Stopping."""
        with self._lock:
            if secondary == "Downloading":
                self.launched = True
            if secondary == "Training":
                self.training_started = _now()
            if self.status == "InProgress":
                self._move("InProgress", secondary, message)

    def end(self, status: str, secondary: str, message: str, *, failure_reason: str | None = None) -> None:
        """Record the end of the job, in one of the TERMINAL statuses, and keep or free its instances."""
        with self._lock:
            self.training_ended = _now()
            # The warm pool is updated before the status, so that the instances are never free in between.
            self._leave_warm_pool(failure_reason)
            self.failure_reason = failure_reason
            self._move(status, secondary, message)

    def describe(self) -> dict[str, Any]:
        """Return the answer of DescribeTrainingJob, with times in epoch seconds."""
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
            # the SDK's attach reads KmsKeyId
            answer["OutputDataConfig"] = {"KmsKeyId": "", **answer["OutputDataConfig"]}
            for field in _FLAGS:
                answer.setdefault(field, False)
            optional = {
                "FailureReason": self.failure_reason,
                "ModelArtifacts": {"S3ModelArtifacts": self.artifacts} if self.artifacts else None,
                "WarmPoolStatus": self.warm_pool.describe() if self.warm_pool else None,
                "TrainingStartTime": self.training_started,
                "TrainingEndTime": self.training_ended,
            }
            answer |= {key: value for key, value in optional.items() if value is not None}
            if self.training_started and self.training_ended:
                seconds = max(1, round(self.training_ended - self.training_started))
                answer |= {"TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": seconds}
            return answer

    def _update_warm_pool(self, keep_alive: int) -> None:
        pool = self.warm_pool
        if pool is None and not keep_alive:
            return  # no warm pool exists that could be ended
        if pool is None or not pool.update(keep_alive):
            status = pool.status if pool else "none"
            raise invalid(
                f"KeepAlivePeriodInSeconds cannot be updated: the warm pool of {self.name} is not Available ({status})."
            )

    def _leave_warm_pool(self, failure_reason: str | None) -> None:
        """Keep the instances if a warm pool is requested, allowed and healthy; else free the instances."""
        if (pool := self.warm_pool) is None:
            return
        healthy = self.launched and (failure_reason is None or failure_reason.startswith(HEALTHY_FAILURES))
        if healthy and self.plan is None and pool.keep_alive and self._may_retain(self):
            pool.retain()
        else:
            pool.terminate()

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
        # Receivers order events by this time, which has milliseconds. Each change therefore gets a later millisecond.
        self.modified = max(_now(), round(self.modified + 0.001, 3))


def _warm_pool(request: Mapping[str, Any], *, warm_start: bool) -> EmulatedWarmPool | None:
    keep_alive: int = request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
    return EmulatedWarmPool(keep_alive) if keep_alive or warm_start else None


_FLAGS = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining")


def _now() -> float:
    return round(time.time(), 3)  # milliseconds, as in SageMaker: the times of events and of answers are equal


def _described() -> frozenset[str]:
    shape = service_model().operation_model("DescribeTrainingJob").output_shape
    assert shape is not None
    return frozenset(getattr(shape, "members", {}))
