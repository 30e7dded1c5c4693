"""The history of attempts: its query and its answers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Optional, Union

from msgspec import UNSET, Meta, UnsetType

from api_contract.models import MAX_PAGE, OUTCOMES
from api_contract.shape import Answer, Body, Count, JobName, Ordinal, Slots, Time, schema

Seconds = Annotated[float, schema(minimum=0)]
"""A duration in seconds, 0 or more."""


class HistoryFilter(Body, frozen=True):
    """The query of `/history`."""

    since: Union[datetime, UnsetType] = UNSET
    """The earliest end of the attempts, inclusive; by default seven days before `until`."""
    until: Union[datetime, UnsetType] = UNSET
    """The latest end of the attempts, exclusive; by default now."""
    owner: Union[Annotated[str, Meta(min_length=1, max_length=2048)], UnsetType] = UNSET
    """The ARN of the attempts' owner, or of a role for all its sessions; `*` matches any characters."""
    project: Union[Annotated[str, Meta(min_length=1, max_length=128)], UnsetType] = UNSET
    """The name of the attempts' project."""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    """The largest number of attempts in a page."""
    next: Union[Annotated[str, Meta(max_length=512)], UnsetType] = UNSET
    """The `next` of the previous page; the rest of the query must be the same."""


class PastAttempt(Answer, frozen=True):
    """An attempt that has ended. The queue may no longer store the job of the attempt."""

    job: JobName
    """The TrainingJobName under which the job was submitted."""
    attempt: Ordinal
    """The number of the attempt, from 1."""
    training_job_name: Optional[str] = None
    """The name of the training job in SageMaker."""
    outcome: Annotated[str, schema(enum=list(OUTCOMES))] = "stopped"
    """The outcome of the attempt."""
    project: Optional[str] = None
    """The project that the attempt counts for."""
    department: Optional[str] = None
    """The project's department when the attempt ended; null if there was none."""
    group: Optional[str] = None
    """The job's tag `group`."""
    owner: Optional[str] = None
    """The ARN of the caller who submitted the job."""
    priority: int = 0
    """The priority when the attempt ended."""
    slots: Slots = {}
    """The slots that the attempt held."""
    instances: Annotated[Mapping[str, Count], schema(examples=[{"ml.p5.48xlarge": 2}])] = {}
    """The number of instances by type; empty if it is unknown."""
    instance_count: Count = 0
    """The number of all instances; 0 if the attempt shared an instance, which is counted for the attempt's carrier."""
    gpus: Optional[Annotated[float, schema(minimum=0)]] = None
    """The number of accelerators of all the attempt's instances; null if the queue does not know one of the instance
    types. For an attempt that shared an instance, the GPUs that it held there, such as 1 or 0.5."""
    carrier: Optional[str] = None
    """The job whose instance the attempt shared; null if it shared none."""
    carries: Optional[Count] = None
    """The GPUs for other jobs, if the job was a carrier: a job of the queue itself, whose instance other jobs
    shared."""
    market: Annotated[Optional[str], schema(enum=["on_demand", "spot", "training_plan", None])] = None
    """The market of the attempt's pool; null if the pool no longer exists."""
    submitted: Optional[Time] = None
    """The time at which the job was submitted."""
    waiting_since: Optional[Time] = None
    """The start of the wait: the submission of the job or the end of the previous attempt."""
    launched: Optional[Time] = None
    """The time at which SageMaker accepted the attempt (CreationTime)."""
    began: Optional[Time] = None
    """The time at which the attempt got its instances and billing began (TrainingStartTime); null if the attempt got
    none."""
    ended: Optional[Time] = None
    """The time at which the attempt released its instances (TrainingEndTime)."""
    waited_seconds: Seconds = 0
    """The seconds from `waiting_since` to the launch."""
    provisioned_seconds: Seconds = 0
    """The seconds from the launch to `began`, or to the end if the attempt never had instances."""
    ran_seconds: Seconds = 0
    """The seconds from `began` to the end."""
    made_room_for: Optional[str] = None
    """The job for which the attempt was stopped."""
    borrowed: Count = 0
    """The number of the attempt's instances beyond its project's quota, at the start of the attempt."""
    lost_seconds: Optional[Count] = None
    """The seconds of work that a preemption, a requeue or a failure has lost: the work since the newest checkpoint that
    the queue has seen. Null if the attempt ended otherwise, or the number is unknown."""
    hung_seconds: Optional[Count] = None
    """The seconds at the end of the attempt in which it hung; null if this was not measured."""
    idle_seconds: Optional[Count] = None
    """The seconds in which the attempt ran and its GPUs were idle; null if this was not measured."""
    max_runtime_seconds: Optional[Count] = None
    """The MaxRuntimeInSeconds of the request."""
    image: Optional[str] = None
    """The training image, or the name of the algorithm."""
    failure_class: Annotated[Optional[str], schema(examples=["user_error"])] = None
    """The class of the attempt's failure; null if it did not fail, or an earlier version recorded it."""
    gpu_uuids: Annotated[tuple[str, ...], schema(maxItems=16)] = ()
    """The UUIDs of GPUs that the log of a hardware failure names, those in lines about the error first."""
    gpu_mean_percent: Optional[Count] = None
    """The mean utilization of all the attempt's GPUs, from SageMaker's metrics of each minute. Null if SageMaker
    reported nothing, such as for an attempt of a few minutes; for an attempt that ended in the last minutes; and for
    instances without GPUs."""
    gpu_p95_percent: Optional[Count] = None
    """The 95th percentile over time of the utilization of all the attempt's GPUs."""
    gpu_memory_mean_percent: Optional[Count] = None
    """The mean share of the GPUs' memory that was in use."""
    gpu_memory_p95_percent: Optional[Count] = None
    """The 95th percentile over time of the share of the GPUs' memory that was in use."""
    memory_mean_percent: Optional[Count] = None
    """The mean share of the instances' memory that was in use."""
    memory_p95_percent: Optional[Count] = None
    """The 95th percentile over time of the share of the instances' memory that was in use."""
    region: Optional[str] = None
    """The region of the training job; null if it is the queue's region."""
    account: Optional[str] = None
    """The account of the training job; null if it is the queue's account."""


class HistoryPage(Answer, frozen=True):
    """A page of the requested attempts, in the order of their ends."""

    attempts: tuple[PastAttempt, ...] = ()
    """The attempts. A page may have fewer than `limit`, or none, although more pages follow."""
    next: Optional[str] = None
    """The parameter `next` for the following page; null on the last page."""
