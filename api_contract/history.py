"""The history of attempts: its query and its answers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Optional, Union

from msgspec import UNSET, Meta, UnsetType

from api_contract.models import MAX_PAGE
from api_contract.shape import Answer, Body, Count, JobName, Ordinal, Slots, Time, schema

Seconds = Annotated[float, schema(minimum=0)]


class HistoryFilter(Body, frozen=True):
    """The query of `/history`."""

    since: Union[datetime, UnsetType] = UNSET
    """Attempts that ended then or later; without it those of seven days."""
    until: Union[datetime, UnsetType] = UNSET
    """Attempts that ended before; without it all up to now."""
    owner: Union[Annotated[str, Meta(min_length=1, max_length=2048)], UnsetType] = UNSET
    """ARN of their owner, or of a role for all its sessions; `*` stands for any characters."""
    project: Union[Annotated[str, Meta(min_length=1, max_length=128)], UnsetType] = UNSET
    """Name of their project."""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = 100
    """Attempts in a page at most."""
    next: Union[Annotated[str, Meta(max_length=512)], UnsetType] = UNSET
    """The `next` of the page before; the rest of the query is the same."""


class PastAttempt(Answer, frozen=True):
    """An attempt that has ended. Its job may be forgotten by now."""

    job: JobName
    """The TrainingJobName under which the job was submitted."""
    attempt: Ordinal
    """Counts the job's attempts."""
    training_job_name: Optional[str] = None
    """Its name in SageMaker."""
    outcome: Annotated[str, schema(enum=["preempted", "completed", "failed", "stopped"])] = "stopped"
    """How it ended."""
    project: Optional[str] = None
    """Whom it counts for."""
    department: Optional[str] = None
    """Of the project, when the attempt ended; null if it had none."""
    group: Optional[str] = None
    """As the job's tag `group` says."""
    owner: Optional[str] = None
    """ARN of the caller who submitted the job."""
    priority: int = 0
    """When it ended."""
    slots: Slots = {}
    """What it held."""
    instances: Annotated[Mapping[str, Count], schema(examples=[{"ml.p5.48xlarge": 2}])] = {}
    """Numbers of instances by type; empty if that is not known."""
    instance_count: Count = 0
    """All of them; 0 where it shared an instance, which counts for its carrier."""
    gpus: Optional[Annotated[float, schema(minimum=0)]] = None
    """Accelerators that they have together; null if a type of theirs is not known to have any. Where it shared an
    instance, what it had of that: such as 1 or 0.5."""
    carrier: Optional[str] = None
    """The job on whose instance it ran, beside others."""
    carries: Optional[Count] = None
    """Of a job of the queue's own, on whose instance others ran: how many GPUs it had for them."""
    market: Annotated[Optional[str], schema(enum=["on_demand", "spot", "training_plan", None])] = None
    """How the instances of its pool are bought; null if there is no such pool any more."""
    submitted: Optional[Time] = None
    """When its job was."""
    waiting_since: Optional[Time] = None
    """When it began to wait: its job was submitted, or the attempt before had ended."""
    launched: Optional[Time] = None
    """When SageMaker accepted it (CreationTime)."""
    began: Optional[Time] = None
    """When it had its instances (TrainingStartTime), from which on SageMaker bills; null if it never had any."""
    ended: Optional[Time] = None
    """When it gave them back (TrainingEndTime)."""
    waited_seconds: Seconds = 0
    """From the time when it began to wait to its launch."""
    provisioned_seconds: Seconds = 0
    """From its launch to the time when it had its instances, or to its end if it never had any."""
    ran_seconds: Seconds = 0
    """From then to its end."""
    made_room_for: Optional[str] = None
    """The job for which it was stopped."""
    borrowed: Count = 0
    """How many of the instances were beyond its project's quota when it was started."""
    lost_seconds: Optional[Count] = None
    """Of what it ran, what its job has to do again, as it was preempted: since the newest checkpoint that the queue has
    seen. Null if it was not preempted, or if that is not known."""
    max_runtime_seconds: Optional[Count] = None
    """What its request allows."""
    image: Optional[str] = None
    """The training image, or the name of the algorithm."""


class HistoryPage(Answer, frozen=True):
    """Some of the attempts that were asked for, in the order of their ends."""

    attempts: tuple[PastAttempt, ...] = ()
    """Perhaps fewer than `limit`, or none, and still there may be more."""
    next: Optional[str] = None
    """Where the next page goes on; null on the last one."""
