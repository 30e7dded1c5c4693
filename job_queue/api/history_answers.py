"""Conversion of attempt records to the API's answers."""

from collections.abc import Mapping
from datetime import datetime

from api_contract.history import PastAttempt
from job_queue.domain.accounting.attempts import AttemptRecord, MeasuredUtilization
from job_queue.domain.fleet.sites import account_of, region_of
from job_queue.domain.identity import owner_of
from job_queue.domain.job import epoch
from job_queue.scheduler import GPUS, WHOLE


def past_attempt(found: AttemptRecord) -> PastAttempt:
    """Return an attempt record in the form of the API.

    If the number of GPUs is not recorded, it is computed from the instance types.
    """
    began = found.began or found.ended
    measured = found.utilization or MeasuredUtilization()
    return PastAttempt(
        job=found.job,
        attempt=found.attempt,
        training_job_name=found.training_job_name or None,
        outcome=found.outcome,
        project=found.project,
        department=found.department,
        group=found.group,
        owner=owner_of(found.owner),
        priority=found.priority,
        slots=found.slots,
        instances=found.instances,
        instance_count=sum((found.instances or found.slots).values()),
        gpus=gpus_of(found.instances) if found.gpus is None else found.gpus / WHOLE,
        carrier=found.carrier,
        carries=found.carries,
        market=found.market,
        submitted=datetime.fromisoformat(found.submitted),
        waiting_since=datetime.fromisoformat(found.waiting_since),
        launched=datetime.fromisoformat(found.launched),
        began=datetime.fromisoformat(found.began) if found.began else None,
        ended=datetime.fromisoformat(found.ended),
        waited_seconds=_seconds(found.waiting_since, found.launched),
        provisioned_seconds=_seconds(found.launched, began),
        ran_seconds=_seconds(began, found.ended),
        made_room_for=found.made_room_for,
        borrowed=found.borrowed,
        lost_seconds=found.lost,
        max_runtime_seconds=found.max_runtime,
        image=found.image,
        hung_seconds=found.hung,
        idle_seconds=measured.idle,
        gpu_mean_percent=measured.gpu_mean,
        gpu_p95_percent=measured.gpu_p95,
        gpu_memory_mean_percent=measured.gpu_memory_mean,
        gpu_memory_p95_percent=measured.gpu_memory_p95,
        memory_mean_percent=measured.memory_mean,
        memory_p95_percent=measured.memory_p95,
        failure_class=found.failure_class,
        gpu_uuids=found.gpu_uuids or (),
        region=region_of(found.site),
        account=account_of(found.site),
    )


def gpus_of(instances: Mapping[str, int]) -> int | None:
    """Return the total number of accelerators; None without instances, or if an instance type is unknown.

    :param instances: count by instance type.
    """
    if not instances or not instances.keys() <= GPUS.keys():
        return None
    return sum(GPUS[instance_type] * count for instance_type, count in instances.items())


def _seconds(begin: str, end: str) -> float:
    return round(epoch(end) - epoch(begin), 3)
