"""Training plans: reserved instances with a calendar.

AWS documents this behaviour (guide: training-plan-utilization-for-training-jobs, and
training-plan-details-using-api-cli-sdk). A job may name a plan that is Scheduled or Active. The job stays Pending until
the plan is Active and has instances for the job. Thirty minutes before the reserved capacity ends, SageMaker begins to
terminate the jobs that run on it.
"""

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

from local_cloud.sagemaker.account.options import TRAINING_JOB, PlanOption
from local_cloud.sagemaker.validation import invalid
from local_cloud.sagemaker.wire import EmulatedError

RECALL = 1800.0  # seconds before the end of the plan at which instances are taken back
DEFAULT_TYPE = "ml.p5.48xlarge"  # shown for a plan of any type, since the API requires a type
ZONE = "a"


class EmulatedPlan:
    """One plan, and the jobs that use its instances. Safe for threads."""

    def __init__(self, option: PlanOption, prefix: str, clock: Callable[[], float]) -> None:
        started = clock()
        self.name = option.name
        self.arn = f"{prefix}:training-plan/{option.name}"
        self.start = option.start.epoch(started)
        self.end = option.end.epoch(started)
        self._prefix = prefix
        self._instances = option.instances
        self._type = option.instance_type
        self._targets = option.targets
        self._clock = clock
        self._users: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def status(self) -> str:
        """The status Scheduled before the plan's start, then Active, and Expired from its end on."""
        now = self._clock()
        return "Scheduled" if now < self.start else "Active" if now < self.end else "Expired"

    @property
    def recalled(self) -> bool:
        """Whether SageMaker takes the plan's instances back, which begins RECALL seconds before its end."""
        return self._clock() >= self.end - RECALL

    @property
    def available(self) -> int:
        """The number of instances that a job could take now."""
        with self._lock:
            return self._free()

    def check(self, types: Iterable[str]) -> None:
        """Raise a ValidationException unless a job with these instance types may name the plan."""
        if self.status == "Expired":
            raise invalid(
                f"The training plan {self.arn} is in status Expired. It must be in status Scheduled or Active."
            )
        if TRAINING_JOB not in self._targets:
            raise invalid(f"The training plan {self.arn} is for {', '.join(self._targets)} and not for {TRAINING_JOB}.")
        if self._type and (others := sorted(set(types) - {self._type})):
            raise invalid(
                f"The instance type {others[0]} does not match the instance type {self._type} of the training plan "
                f"{self.arn}."
            )

    def take(self, job: str, count: int) -> bool:
        """Reserve instances for a job and return True, or return False if there are not enough free instances."""
        with self._lock:
            if self._free() < count:
                return False
            self._users[job] = count
            return True

    def give_back(self, job: str) -> None:
        """Free a job's instances; nothing happens if the job has none."""
        with self._lock:
            self._users.pop(job, None)

    def describe(self) -> dict[str, Any]:
        """Return the answer of DescribeTrainingPlan, with times in epoch seconds."""
        with self._lock:
            in_use, free = sum(self._users.values()), self._free()
        hours, minutes = divmod(round((self.end - self.start) / 60), 60)
        common = {
            "Status": self.status,
            "StartTime": self.start,
            "EndTime": self.end,
            "DurationHours": hours,
            "DurationMinutes": minutes,
            "TotalInstanceCount": self._instances,
        }
        reserved = {
            "ReservedCapacityArn": f"{self._prefix}:reserved-capacity/{self.name}",
            "InstanceType": self._type or DEFAULT_TYPE,
            "AvailabilityZone": self._prefix.split(":")[3] + ZONE,
            **common,
        }
        return {
            "TrainingPlanArn": self.arn,
            "TrainingPlanName": self.name,
            "UpfrontFee": "0.00",
            "CurrencyCode": "USD",
            "AvailableInstanceCount": free,
            "InUseInstanceCount": in_use,
            "UnhealthyInstanceCount": 0,
            "AvailableSpareInstanceCount": 0,
            "TargetResources": list(self._targets),
            "ReservedCapacitySummaries": [reserved],
            **common,
        }

    def _free(self) -> int:
        """Return the free instances; 0 unless the plan is Active and not recalled. The caller holds the lock."""
        if self.status != "Active" or self.recalled:
            return 0
        return max(0, self._instances - sum(self._users.values()))


class EmulatedPlans:
    """The plans of the account. `prefix` is `arn:aws:sagemaker:REGION:ACCOUNT`."""

    def __init__(self, options: Iterable[PlanOption], prefix: str, clock: Callable[[], float]) -> None:
        self._plans = {option.name: EmulatedPlan(option, prefix, clock) for option in options}

    def named(self, name_or_arn: str) -> EmulatedPlan:
        """Return the plan for DescribeTrainingPlan. Raise ResourceNotFound if there is none."""
        plan = self._find(name_or_arn)
        if plan is None:
            raise EmulatedError("ResourceNotFound", f"Training plan {name_or_arn} does not exist.")
        return plan

    def of_request(self, arn: str) -> EmulatedPlan:
        """Return the plan that a CreateTrainingJob request names. Raise a ValidationException if there is none."""
        plan = self._find(arn)
        if plan is None:
            raise invalid(f"The training plan {arn} does not exist.")
        return plan

    def _find(self, name_or_arn: str) -> EmulatedPlan | None:
        plan = self._plans.get(re.sub(r"^arn:.*:training-plan/", "", name_or_arn))
        return plan if plan and name_or_arn in (plan.name, plan.arn) else None
