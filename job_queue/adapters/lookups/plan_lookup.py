"""The look-up of a training plan's periods and of its instances for training jobs (DescribeTrainingPlan)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.adapters.telemetry import log
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.training_plans import PlanPart

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.client import SageMakerClient
    from mypy_boto3_sagemaker.type_defs import DescribeTrainingPlanResponseTypeDef

_UNKNOWN = frozenset({"ValidationException", "ResourceNotFound", "ResourceNotFoundException"})
_TRAINING = "training-job"  # the target of a plan for training jobs; others: hyperpod-cluster, endpoint, studio-apps
_FAILED = frozenset({"Failed"})  # failed purchases; with any other status, the plan's times decide


def plan_parts(client: "SageMakerClient", arn: str, in_use: Callable[[], int]) -> tuple[PlanPart, ...]:
    """Return the times in which a plan has instances for training jobs; empty if the plan is unknown or failed.

    A plan that is only for other resources, such as endpoints, has 0 instances at these times.

    :param in_use: counts the plan's instances that training jobs use; called only if the plan also serves other
        resources.
    :raises Unavailable: SageMaker gave no usable answer.
    """
    try:
        plan = client.describe_training_plan(TrainingPlanName=arn.rpartition("/")[-1])
    except ClientError as error:
        if error.response["Error"].get("Code") in _UNKNOWN:
            return ()
        raise Unavailable(f"SageMaker could not describe {arn}: {error}") from error
    except BotoCoreError as error:
        raise Unavailable(f"SageMaker did not describe {arn}: {error}") from error
    return () if plan["Status"] in _FAILED else _parts(plan, in_use)


def _parts(plan: "DescribeTrainingPlanResponseTypeDef", in_use: Callable[[], int]) -> tuple[PlanPart, ...]:
    targets = tuple(plan.get("TargetResources") or (_TRAINING,))
    for_others = () if _TRAINING in targets else targets
    if for_others:
        log.warning("training plan is not for training jobs", plan=plan["TrainingPlanArn"], targets=targets)
    usable = 0 if for_others else _usable(plan, targets, in_use)
    parts = [
        PlanPart(
            min(usable, part.get("TotalInstanceCount", usable)),
            int(part["StartTime"].timestamp()),
            int(part["EndTime"].timestamp()),
            for_others,
        )
        for part in plan.get("ReservedCapacitySummaries", ())
        if "StartTime" in part and "EndTime" in part
    ]
    if not parts and "StartTime" in plan and "EndTime" in plan:
        parts = [PlanPart(usable, int(plan["StartTime"].timestamp()), int(plan["EndTime"].timestamp()), for_others)]
    return tuple(parts)


def _usable(plan: "DescribeTrainingPlanResponseTypeDef", targets: tuple[str, ...], in_use: Callable[[], int]) -> int:
    """Return the number of instances for training jobs. Unhealthy, spare and otherwise used instances do not count.

    The sum of available instances and instances in use does not change while jobs start and end. So an answer that is
    some minutes old is still right. If a plan has not begun or has several parts, the number of available instances may
    change. In these cases the plan's total counts.
    """
    broken = plan.get("UnhealthyInstanceCount", 0) + plan.get("AvailableSpareInstanceCount", 0)
    total = max(0, plan.get("TotalInstanceCount", 0) - broken)
    if plan["Status"] != "Active" or "AvailableInstanceCount" not in plan or "InUseInstanceCount" not in plan:
        return total
    if len(plan.get("ReservedCapacitySummaries", ())) > 1:
        return total
    used = plan["InUseInstanceCount"]
    if set(targets) != {_TRAINING}:  # endpoints, clusters and apps use some of the instances in use
        used = min(used, in_use())
    return min(total, plan["AvailableInstanceCount"] + used)
