"""Whether the account allows a training job, and which instances it gets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.sagemaker.account import options
from local_cloud.sagemaker.account.training_plans import TrainingPlan, TrainingPlans
from local_cloud.sagemaker.account.warm_pools import matching_key
from local_cloud.sagemaker.instance_groups import InstanceGroup, instance_groups
from local_cloud.sagemaker.training_job import DEFAULT_MAX_RUNTIME, TrainingJob
from local_cloud.sagemaker.wire import EmulatedError

Request = Mapping[str, Any]


@dataclass(frozen=True)
class Placement:
    """The instances of an accepted job: its groups, the plan they are reserved in, and the job whose they were."""

    groups: tuple[InstanceGroup, ...]
    plan: TrainingPlan | None = None
    warm: TrainingJob | None = None

    @property
    def count(self) -> int:
        """All instances."""
        return sum(group.count for group in self.groups)

    @property
    def by_type(self) -> dict[str, int]:
        """Instances of each type."""
        return by_type(self.groups)


class Capacity:
    """The limits of the account. The registry holds its lock while it asks.

    `machines`: how many instances of a type there are at all, whatever the market. `quotas`: by SageMaker's names.
    `of_each_type`: the quota of instances in training jobs, in each market, of a type that is named by neither.
    """

    def __init__(
        self,
        machines: Mapping[str, int],
        quotas: Mapping[str, int],
        plans: TrainingPlans,
        of_each_type: int | None = None,
    ) -> None:
        self._machines = machines
        self._quotas = quotas
        self._plans = plans
        self._of_each_type = of_each_type

    def place(self, request: Request, tags: Mapping[str, str], holders: Sequence[TrainingJob]) -> Placement:
        """Where the job will run; raises the refusal that SageMaker would answer with.

        `holders` are the jobs that have instances. Of InstancePreferences the first is taken that there is capacity
        for (model: InstancePreferences); where there is none, the refusal of the first counts.
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
            placement = Placement(option.groups, None, _warm_match(request, option, tags, holders))
            try:
                self._check_instances(request, placement, holders)
            except EmulatedError as refusal:
                refusals.append(refusal)
            else:
                return placement
        if refusals:
            raise refusals[0]
        return choices[0]  # all are plans without a free instance: it waits for the first

    def may_retain(self, job: TrainingJob, holders: Iterable[TrainingJob]) -> bool:
        """Whether the warm pool quota has room for what a job leaves (guide: train-warm-pools-resource-limits)."""
        retained = by_type(group for other in holders if other.retains for group in other.groups)
        return all(
            retained.get(kind, 0) + count <= self._quotas.get(f"{kind} for training warm pool usage", 1_000_000)
            for kind, count in by_type(job.groups).items()
        )

    def _options(self, request: Request) -> Iterator[Placement]:
        config = request["ResourceConfig"]
        for choice in config.get("InstancePreferences") or [config]:
            arns = choice.get("TrainingPlanArns") or [config.get("TrainingPlanArn")]
            plan = self._plans.of_request(arns[0]) if arns[0] else None
            yield Placement(instance_groups({"InstanceCount": config.get("InstanceCount"), **choice}), plan)

    def _check_seconds(self, request: Request) -> None:
        seconds = int(request["StoppingCondition"].get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME))
        self._check(options.LONGEST_RUN, used=0, wanted=seconds, unit="Seconds")
        keep_alive = int(request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0))
        self._check(options.LONGEST_KEPT, used=0, wanted=keep_alive, unit="Seconds")

    def _check_debugger_rules(self, request: Request, holders: Iterable[TrainingJob]) -> None:
        """Each rule of the Debugger is a processing job on an instance of its own."""
        used = sum(_rules(job.request) for job in holders if not job.ended)
        if wanted := _rules(request):
            self._check(options.ALL_PROCESSING, used=used, wanted=wanted)

    def _check_instances(self, request: Request, placement: Placement, holders: Sequence[TrainingJob]) -> None:
        spot = bool(request.get("EnableManagedSpotTraining"))
        others = [job for job in holders if job is not placement.warm and job.plan is None]
        market = [job for job in others if job.spot == spot]
        name = "spot training job" if spot else "training job"
        for kind, count in placement.by_type.items():
            usage = f"{kind} for {name} usage"
            quota = self._quotas.get(usage, None if kind in self._machines else self._of_each_type)
            self._check(usage, used=_used(market, kind), wanted=count, limit=quota)
            self._check(usage, used=_used(others, kind), wanted=count, limit=self._machines.get(kind))
        largest, everything = (
            (options.LARGEST_SPOT_JOB, options.ALL_SPOT_JOBS) if spot else (options.LARGEST_JOB, options.ALL_JOBS)
        )
        self._check(largest, used=0, wanted=placement.count)
        in_use = sum(group.count for job in market for group in job.groups)
        self._check(everything, used=in_use, wanted=placement.count)

    def _check(self, name: str, *, used: int, wanted: int, limit: int | None = None, unit: str = "Instances") -> None:
        """A limit, or else the quota of that name, if there is one."""
        limit = self._quotas.get(name) if limit is None else limit
        if limit is not None and used + wanted > limit:
            raise options.limit_exceeded(name, limit, used, wanted, unit)


def by_type(groups: Iterable[InstanceGroup]) -> dict[str, int]:
    """Instances of each type."""
    counts: dict[str, int] = {}
    for group in groups:
        counts[group.instance_type] = counts.get(group.instance_type, 0) + group.count
    return counts


def _used(jobs: Iterable[TrainingJob], kind: str) -> int:
    return by_type(group for job in jobs for group in job.groups).get(kind, 0)


def _rules(request: Request) -> int:
    return len(request.get("DebugRuleConfigurations", [])) + len(request.get("ProfilerRuleConfigurations", []))


def _warm_match(
    request: Request, option: Placement, tags: Mapping[str, str], holders: Iterable[TrainingJob]
) -> TrainingJob | None:
    """The job whose warm pool this one takes, the one that has waited longest."""
    if request.get("EnableManagedSpotTraining") or len(option.groups) > 1:
        return None
    (group,) = option.groups
    resources = {**request["ResourceConfig"], "InstanceType": group.instance_type, "InstanceCount": group.count}
    key = matching_key({**request, "ResourceConfig": resources}, tags)
    return next((job for job in holders if job.retains and matching_key(job.request, job.tags) == key), None)
