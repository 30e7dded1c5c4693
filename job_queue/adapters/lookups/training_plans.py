"""Training plans as DescribeTrainingPlan tells of them."""

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.training_plans import PlanPart

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.client import SageMakerClient
    from mypy_boto3_sagemaker.type_defs import DescribeTrainingPlanResponseTypeDef

_UNKNOWN = frozenset({"ValidationException", "ResourceNotFound", "ResourceNotFoundException"})
_NEVER = frozenset({"Failed"})  # its purchase; the other statuses follow from the times


def plan_parts(client: "SageMakerClient", arn: str) -> tuple[PlanPart, ...]:
    """The times in which a plan has instances; none where SageMaker does not know it.

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
    return () if plan["Status"] in _NEVER else _parts(plan)


def _parts(plan: "DescribeTrainingPlanResponseTypeDef") -> tuple[PlanPart, ...]:
    usable = _usable(plan)
    parts = [
        PlanPart(
            min(usable, part.get("TotalInstanceCount", usable)),
            int(part["StartTime"].timestamp()),
            int(part["EndTime"].timestamp()),
        )
        for part in plan.get("ReservedCapacitySummaries", ())
        if "StartTime" in part and "EndTime" in part
    ]
    if not parts and "StartTime" in plan and "EndTime" in plan:
        parts = [PlanPart(usable, int(plan["StartTime"].timestamp()), int(plan["EndTime"].timestamp()))]
    return tuple(parts)


def _usable(plan: "DescribeTrainingPlanResponseTypeDef") -> int:
    """Its instances, without those that are neither in use nor available: they are broken.

    The sum of both stays the same while jobs come and go, so it may be some minutes old. A plan that has not begun, or
    that has several parts, has none available meanwhile, and all of them later.
    """
    total = plan.get("TotalInstanceCount", 0)
    if plan["Status"] != "Active" or "AvailableInstanceCount" not in plan or "InUseInstanceCount" not in plan:
        return total
    if len(plan.get("ReservedCapacitySummaries", ())) > 1:
        return total
    return min(total, plan["AvailableInstanceCount"] + plan["InUseInstanceCount"])
