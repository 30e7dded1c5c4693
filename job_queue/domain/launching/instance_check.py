"""The infrastructure health check: SageMaker tests the instances of the attempt after a suspected hardware failure.

AWS documents that the check tests the hardware of instances and the network between them (API_InfraCheckConfig). AWS
does not document the instance types and requests for which the check is available, nor its duration. So the queue adds
the check only to requests for one type with NVIDIA GPUs, and launches without the check if SageMaker refuses it.
"""

from collections.abc import Mapping
from typing import Any

from job_queue.domain.accounting.utilization import WITH_GPUS
from job_queue.domain.failures import FailureClass
from job_queue.domain.job import FailedAttempt, Job
from job_queue.domain.requests.training_request import TrainingRequest

CHECK_FIELD = "InfraCheckConfig"

_SUSPECTED_BY_RULES = FailureClass.COMMUNICATION  # the network may be the cause, if a rule asks for fresh instances


def is_check_due(failed: FailedAttempt) -> bool:
    """Return whether SageMaker is to check the instances of the attempt that follows a failed attempt."""
    if failed.failure_class == FailureClass.HARDWARE:
        return True
    return failed.failure_class == _SUSPECTED_BY_RULES and failed.fresh_instances


def with_instance_check(request: TrainingRequest, sent: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """Return the request for SageMaker, with the health check if the job's `infra_check` is set.

    The user's own InfraCheckConfig prevails. A member gets no check, because its instance belongs to the carrier.

    :param request: the user's request.
    :param sent: the request for SageMaker, adapted to the job's slots.
    """
    resources = sent["ResourceConfig"]
    checkable = resources.get("InstanceType") in WITH_GPUS and not resources.get("InstanceGroups")
    if not job.infra_check or job.gpus is not None or CHECK_FIELD in request.content or not checkable:
        return dict(sent)
    return {**sent, CHECK_FIELD: {"EnableInfraCheck": True}}


def has_added_check(request: TrainingRequest, sent: Mapping[str, Any]) -> bool:
    """Return whether the queue has added the health check to a user's request."""
    return CHECK_FIELD in sent and CHECK_FIELD not in request.content
