"""Admission of training jobs: the account's quotas and capacity, and the choice of a job's instances.

The registry decides which ended jobs still count (quota lag).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.sagemaker.account import options
from local_cloud.sagemaker.account.emulated_plans import EmulatedPlan, EmulatedPlans
from local_cloud.sagemaker.account.emulated_warm_pools import matching_key
from local_cloud.sagemaker.instance_groups import InstanceGroup, instance_groups
from local_cloud.sagemaker.training_job import DEFAULT_MAX_RUNTIME, EmulatedTrainingJob
from local_cloud.sagemaker.wire import EmulatedError

Request = Mapping[str, Any]


@dataclass(frozen=True)
class InstancePlacement:
    """The instances of an accepted job.

    `plan` is the training plan that reserves the instances. `warm` is the ended job whose warm pool the job reuses.
    """

    groups: tuple[InstanceGroup, ...]
    plan: EmulatedPlan | None = None
    warm: EmulatedTrainingJob | None = None

    @property
    def count(self) -> int:
        """The number of instances of all types."""
        return sum(group.count for group in self.groups)

    @property
    def by_type(self) -> dict[str, int]:
        """The number of instances of each type."""
        return by_type(self.groups)


class Capacity:
    """The limits of the account. Not safe for threads: the registry holds its own lock during every call.

    :param machines: the number of existing instances of each type, for both markets (on demand and spot) together.
    :param quotas: the quotas, by SageMaker's names for them.
    :param quota_per_type: the quota of training instances in each market, for each type that neither `machines` nor
        `quotas` names.
    """

    def __init__(
        self,
        machines: Mapping[str, int],
        quotas: Mapping[str, int],
        plans: EmulatedPlans,
        quota_per_type: int | None = None,
    ) -> None:
        self._machines = machines
        self._quotas = quotas
        self._plans = plans
        self._quota_per_type = quota_per_type

    def place(
        self, request: Request, tags: Mapping[str, str], holders: Sequence[EmulatedTrainingJob]
    ) -> InstancePlacement:
        """Return the instances for the job, or raise the error that SageMaker would return.

        The first entry of InstancePreferences with capacity is chosen (API model: InstancePreferences). Without such an
        entry, the error is that of the first entry without a training plan. If all entries have training plans, the job
        waits for the first plan.

        :param holders: the jobs whose instances count: jobs that have instances, and jobs whose freed instances still
            count toward the quotas.
        """
        self._check_seconds(request)
        self._check_debugger_rules(request, holders)
        choices = list(self._options(request))
        refusals: list[EmulatedError] = []
        for option in choices:
            if option.plan:
                option.plan.check(option.by_type)
        for option in choices:
            if option.plan:
                if len(choices) == 1 or option.plan.available >= option.count:
                    return option
                continue
            placement = InstancePlacement(option.groups, None, _warm_match(request, option, tags, holders))
            try:
                self._check_instances(request, placement, holders)
            except EmulatedError as refusal:
                refusals.append(refusal)
            else:
                return placement
        if refusals:
            raise refusals[0]
        return choices[0]  # all choices are plans without enough free instances: the job waits for the first plan

    def may_retain(self, job: EmulatedTrainingJob, holders: Iterable[EmulatedTrainingJob]) -> bool:
        """Return whether the warm pool quotas have room for the job's instances.

        Source: guide, train-warm-pools-resource-limits.
        """
        retained = by_type(group for other in holders if other.retains for group in other.groups)
        return all(
            retained.get(kind, 0) + count <= self._quotas.get(f"{kind} for training warm pool usage", 1_000_000)
            for kind, count in by_type(job.groups).items()
        )

    def _options(self, request: Request) -> Iterator[InstancePlacement]:
        config = request["ResourceConfig"]
        for choice in config.get("InstancePreferences") or [config]:
            arns = choice.get("TrainingPlanArns") or [config.get("TrainingPlanArn")]
            plan = self._plans.of_request(arns[0]) if arns[0] else None
            yield InstancePlacement(instance_groups({"InstanceCount": config.get("InstanceCount"), **choice}), plan)

    def _check_seconds(self, request: Request) -> None:
        seconds = int(request["StoppingCondition"].get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME))
        self._check(options.LONGEST_RUN, used=0, wanted=seconds, unit="Seconds")
        keep_alive = int(request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0))
        self._check(options.LONGEST_KEPT, used=0, wanted=keep_alive, unit="Seconds")

    def _check_debugger_rules(self, request: Request, holders: Iterable[EmulatedTrainingJob]) -> None:
        """Raise ResourceLimitExceeded if the processing quota has no room for the request's Debugger rules.

        Each rule is a processing job on its own instance.
        """
        used = sum(_debugger_rules(job.request) for job in holders if not job.ended)
        if wanted := _debugger_rules(request):
            self._check(options.ALL_PROCESSING, used=used, wanted=wanted)

    def _check_instances(
        self, request: Request, placement: InstancePlacement, holders: Sequence[EmulatedTrainingJob]
    ) -> None:
        spot = bool(request.get("EnableManagedSpotTraining"))
        others = [job for job in holders if job is not placement.warm and job.plan is None]
        market = [job for job in others if job.spot == spot]
        name = "spot training job" if spot else "training job"
        for kind, count in placement.by_type.items():
            usage = f"{kind} for {name} usage"
            quota = self._quotas.get(usage, None if kind in self._machines else self._quota_per_type)
            self._check(usage, used=_instances_of_type(market, kind), wanted=count, limit=quota)
            self._check(usage, used=_instances_of_type(others, kind), wanted=count, limit=self._machines.get(kind))
        largest, everything = (
            (options.LARGEST_SPOT_JOB, options.ALL_SPOT_JOBS) if spot else (options.LARGEST_JOB, options.ALL_JOBS)
        )
        self._check(largest, used=0, wanted=placement.count)
        in_use = sum(group.count for job in market for group in job.groups)
        self._check(everything, used=in_use, wanted=placement.count)

    def _check(self, name: str, *, used: int, wanted: int, limit: int | None = None, unit: str = "Instances") -> None:
        """Raise ResourceLimitExceeded if `used` + `wanted` exceed `limit`, by default the quota `name` if it exists."""
        limit = self._quotas.get(name) if limit is None else limit
        if limit is not None and used + wanted > limit:
            raise options.limit_exceeded(name, limit, used, wanted, unit)


def by_type(groups: Iterable[InstanceGroup]) -> dict[str, int]:
    """Return the number of instances of each type."""
    counts: dict[str, int] = {}
    for group in groups:
        counts[group.instance_type] = counts.get(group.instance_type, 0) + group.count
    return counts


def _instances_of_type(jobs: Iterable[EmulatedTrainingJob], kind: str) -> int:
    return by_type(group for job in jobs for group in job.groups).get(kind, 0)


def _debugger_rules(request: Request) -> int:
    return len(request.get("DebugRuleConfigurations", [])) + len(request.get("ProfilerRuleConfigurations", []))


def _warm_match(
    request: Request, option: InstancePlacement, tags: Mapping[str, str], holders: Iterable[EmulatedTrainingJob]
) -> EmulatedTrainingJob | None:
    """Return the oldest job whose warm pool matches the request, or None."""
    if request.get("EnableManagedSpotTraining") or len(option.groups) > 1:
        return None
    (group,) = option.groups
    resources = {**request["ResourceConfig"], "InstanceType": group.instance_type, "InstanceCount": group.count}
    key = matching_key({**request, "ResourceConfig": resources}, tags)
    return next((job for job in holders if job.retains and matching_key(job.request, job.tags) == key), None)
