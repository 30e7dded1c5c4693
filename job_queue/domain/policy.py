"""Apply the policy to a job: the pools that it may use, the slots that it takes, and its request for SageMaker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product, zip_longest
from typing import Any

from job_queue.domain.access.resources import unpermitted_counterpart, why_no_role_there
from job_queue.domain.fleet.sites import Site, has_other_sites, key_of, same_place, site_of_pool
from job_queue.domain.job import Job
from job_queue.domain.requests.portability import localized
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import (
    DEFAULT,
    UNLIMITED,
    Policy,
    Pool,
    Project,
    Slots,
    policy_from_document,
)

DEFAULT_RUNTIME = 86_400  # SageMaker's MaxRuntimeInSeconds, if a request has none
MOST_COMBINATIONS = 16  # largest number of combinations of pools for one alternative of a heterogeneous cluster

_Part = tuple[str, int]  # a pool, and the number of instances there


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy as it is stored. The document is JSON text that is not parsed yet."""

    version: int
    document: str
    applied_by: str
    applied_at: str  # ISO time


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A version of the policy in its history."""

    version: int
    applied_by: str
    applied_at: str  # ISO time
    restored: int | None = None  # the earlier version that was restored; None: a new document


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """The policy in force. Version 0 is the default policy, which is in force until a policy is applied."""

    policy: Policy
    version: int = 0
    document: Mapping[str, Any] = field(default_factory=dict)
    applied_by: str | None = None
    applied_at: str | None = None  # ISO time
    ceiling: int | None = None  # limit on the instances of all pools together; None: no limit

    @property
    def excess(self) -> int:
        """The number of instances by which all capacities together exceed the ceiling; 0 if they do not."""
        return max(0, total_capacity(self.policy) - self.ceiling) if self.ceiling is not None else 0


def default_policy(max_capacity: int) -> AppliedPolicy:
    """Return the default policy: one pool of any instance type, and one project with a quota of the whole pool."""
    document = {
        "pools": [{"name": DEFAULT, "capacity": max_capacity}],
        "projects": [{"name": DEFAULT, "quota": {DEFAULT: max_capacity}}],
    }
    return AppliedPolicy(policy_from_document(document), document=document, ceiling=max_capacity)


def total_capacity(policy: Policy) -> int:
    """Return the sum of the capacities of all pools.

    A pool with a training plan may omit `capacity`. Such a pool adds nothing, because it gets at most the instances
    that the other pools leave.
    """
    return sum(pool.capacity for pool in policy.pools if pool.capacity != UNLIMITED)


def under_ceiling(policy: Policy, ceiling: int | None, plans: Mapping[str, int]) -> Policy:
    """Return the policy with lower capacities, so that all pools together are within the ceiling.

    Pools get their instances in the order of the policy. Pools that omit `capacity` (they have training plans)
    come last and get at most the rest.

    :param plans: pool -> instances that its training plan has now, for each pool whose plan is open.
    """
    if ceiling is None:
        return policy
    left, sizes = ceiling, dict[str, int]()
    named = [pool for pool in policy.pools if pool.capacity != UNLIMITED]
    for pool in (*named, *(pool for pool in policy.pools if pool not in named and pool.name in plans)):
        sizes[pool.name] = min(plans[pool.name] if pool.capacity == UNLIMITED else pool.capacity, left)
        left -= sizes[pool.name]
    return replace(policy, pools=tuple(replace(pool, capacity=sizes.get(pool.name, left)) for pool in policy.pools))


# --- a job under a policy ----------------------------------------------------------------------------


def alternatives(job: Job, policy: Policy) -> tuple[Slots, ...]:
    """Return the slots that each alternative of a job takes, best first.

    Slots are derived again for each plan of a cycle, so that a new policy needs no migration.

    Each alternative of the request may run in the allowed pools of its instance types, in the order of
    `allowed_pools`. With the tag `pools`, a job may run in allowed pools of any instance type, unless it is a
    heterogeneous cluster. An alternative with a training plan may run only in the allowed pools of that plan. If a job
    accepts several sizes, the slots of the best size in all pools come first.

    An instance type without an allowed pool is returned under its own name. No pool has that name, so the planner
    reports this type. A project that no longer exists allows no pool.
    """
    allowed = allowed_pools(job, policy)
    if job.pools and len(job.demand[0]) == 1:  # the tag's pools may have other types; the number of instances stays
        counts = {pool.name: count for pool in allowed if (count := _count_in(pool, job)) is not None}
        return tuple({pool: size or count} for size in job.sizes or (None,) for pool, count in counts.items())
    found = []
    for alternative, plan in zip_longest(job.demand, job.plans):
        eligible = [pool for pool in allowed if plan in (None, pool.training_plan)]
        choices = [
            [(pool.name, count) for pool in eligible if pool.instance_type in (None, instance_type)]
            or [(instance_type, count)]
            for instance_type, count in alternative.items()
        ]
        for combination in islice(_combinations_at_one_site(choices, policy), MOST_COMBINATIONS):
            slots = _summed(combination)
            if slots not in found:
                found.append(slots)
    return tuple(found)


def allowed_pools(job: Job, policy: Policy) -> list[Pool]:
    """Return the pools in which a job may run, in order of preference.

    A job without the tag `pools` may run in the project's pools, or in all pools if the project names none. With the
    tag, only the tag's pools among these pools are allowed, in the order of the tag. Pools in which the job cannot run
    because of their region or account are left out.
    """
    by_name = {pool.name: pool for pool in policy.pools}
    project = project_of(policy, job.project)
    if project is None:
        return []
    own = project.pools_for(interactive=job.interactive) or tuple(by_name)
    named = [by_name[name] for name in (job.pools or own) if name in by_name and name in own]
    if not has_other_sites(policy):
        return named
    return [pool for pool in named if why_not_there(job, pool, project) is None]


def why_not_there(job: Job, pool: Pool, project: Project) -> str | None:
    """Return why a job cannot run in a pool because of the pool's region or account, as a clause; None if it can."""
    site, portability = site_of_pool(pool), job.portability
    if job.has_work and not project.checkpoints_replicated and not same_place(site, job.work_site):
        where = job.work_site.text if job.work_site else "the queue's region"
        return f"its checkpoints are in {where}"
    if site is None:
        return None
    if portability is None:
        return "it was submitted before the policy had pools of other regions and accounts"
    if portability.obstacle:
        return f"its {portability.obstacle} names a resource of the queue's region and account"
    if (why := why_no_role_there(portability.role, site, project)) or not pool.region:
        return why
    return _why_no_bucket(portability.buckets, pool.region, project)


def why_pools_are_unusable(job: Job, policy: Policy) -> str | None:
    """Return a sentence about pools that a job cannot use because of their sites or training plans, or None."""
    has_plan, has_sites = bool(job.pools and job.plans), has_other_sites(policy)
    project = project_of(policy, job.project) if has_plan or has_sites else None
    if project is None:
        return None
    own = job.pools or project.pools_for(interactive=job.interactive) or tuple(pool.name for pool in policy.pools)
    types = {instance_type for alternative in job.demand for instance_type in alternative}
    for pool in policy.pools:
        if pool.name not in own or not (job.pools or pool.instance_type in types):
            continue
        if why := why_not_there(job, pool, project) if has_sites else None:
            return f"It cannot run in {pool.name}: {why}."
        if has_plan and _count_in(pool, job) is None:
            return f"It cannot run in {pool.name}: its request names a training plan that this pool does not have."
    if has_sites and len(job.demand[0]) > 1 and not alternatives(job, policy):
        return "Its instance types are in pools of different regions or accounts, and a job runs in one of them."
    return None


def _why_no_bucket(buckets: Sequence[str], region: str, project: Project) -> str | None:
    """Return why these buckets have no permitted counterparts in a region, as a clause; None if all have one."""
    known = project.bucket_by_region
    if fixed := [bucket for bucket in buckets if bucket not in known.values()]:
        return f"bucket_by_region of project {project.name} does not have its bucket {fixed[0]}"
    if buckets and region not in known:
        return f"bucket_by_region of project {project.name} has no bucket of {region}"
    if buckets and (unpermitted := unpermitted_counterpart(project)):
        return f"buckets of project {project.name} permits {unpermitted[0]}, but not {unpermitted[1]}"
    return None


def project_of(policy: Policy, name: str) -> Project | None:
    """Return the project with that name, or None if there is none."""
    return next((project for project in policy.projects if project.name == name), None)


def needs_one_known_type(job: Job, policy: Policy) -> bool:
    """Return whether a job has no tag `pools` and requests only one instance type, which a pool has (most jobs)."""
    types = {pool.instance_type for pool in policy.pools}
    asked = {instance_type for alternative in job.demand for instance_type in alternative}
    return not job.pools and len(asked) == 1 and asked <= types


def slots_of(
    instance_counts: Mapping[str, int], policy: Policy, plan: str | None = None, site: Site | None = None
) -> Slots:
    """Return the slots of an external job at a site.

    Each instance type counts in one of its pools: the first pool with the job's training plan, or else the first pool.
    A job without a plan prefers pools without a plan. A type without a pool counts under its own name, followed
    by the site unless that is the home site (`key_of`).
    """
    slots: dict[str, int] = {}
    for instance_type, count in instance_counts.items():
        pools = [
            pool
            for pool in policy.pools
            if pool.instance_type in (None, instance_type) and same_place(site_of_pool(pool), site)
        ]
        pools.sort(key=lambda pool: pool.training_plan != plan)
        name = pools[0].name if pools else key_of(instance_type, site)
        slots[name] = slots.get(name, 0) + count
    return slots


def request_for_slots(request: TrainingRequest, job: Job, policy: Policy) -> dict[str, Any]:
    """Return the request for SageMaker, adapted to the slots that the job holds."""
    pools = [pool for pool in policy.pools if pool.name in job.slots]
    resources = dict(request.content["ResourceConfig"])
    if len(pools) == 1 and "InstanceGroups" not in resources:
        pool, count = pools[0], job.slots[pools[0].name]
        resources.pop("InstancePreferences", None)
        requested = next((name for choice in job.demand for name, number in choice.items() if number == count), None)
        resources |= {"InstanceType": pool.instance_type or requested, "InstanceCount": count}
    plans = [pool.training_plan for pool in pools if pool.training_plan] or _own_plans(job, resources)
    if plans:
        resources["TrainingPlanArn"] = plans[0]
    if job.keep_warm and "InstanceGroups" not in resources and not request.spot:
        resources.setdefault("KeepAlivePeriodInSeconds", job.keep_warm)
    placed_request = {**_content_for(request, job, policy), "ResourceConfig": resources}
    stopping = dict(request.content.get("StoppingCondition", {}))
    left = job.remaining_runtime
    if left is not None and left < stopping.get("MaxRuntimeInSeconds", DEFAULT_RUNTIME):
        stopping["MaxRuntimeInSeconds"] = left
        placed_request |= {"StoppingCondition": stopping}
    if any(pool.spot for pool in pools) and not request.spot:
        stopping.setdefault("MaxWaitTimeInSeconds", stopping.get("MaxRuntimeInSeconds", DEFAULT_RUNTIME))
        placed_request |= {"EnableManagedSpotTraining": True, "StoppingCondition": stopping}
    return placed_request


def _content_for(request: TrainingRequest, job: Job, policy: Policy) -> Mapping[str, Any]:
    """Return the content of a request, adapted to the region and account of the job's slots."""
    if job.site is None:
        return request.content
    project = project_of(policy, job.project)
    return localized(request.content, job.site, project.bucket_by_region if project else {})


def checkpoint_address(request: TrainingRequest, job: Job, policy: Policy) -> str | None:
    """Return the address in S3 to which a job's present attempt writes checkpoints; None if it writes none."""
    if job.site is None:
        return request.checkpoints
    return TrainingRequest.read(request_for_slots(request, job, policy)).checkpoints


def further_pools(job: Job, policy: Policy) -> tuple[str, ...]:
    """Return the pools in which the job could run if it accepted all pools of its project, its present pools first.

    The result is empty if the job can already run in all of these pools.
    """
    project = project_of(policy, job.project)
    if project is None:
        return ()
    present = _pools_of(job, policy)
    own = project.pools_for(interactive=job.interactive) or tuple(pool.name for pool in policy.pools)
    widened = replace(job, pools=tuple(dict.fromkeys([*present, *own])))
    further = [pool for pool in _pools_of(widened, policy) if pool not in present]
    return (*present, *further) if further else ()


def _pools_of(job: Job, policy: Policy) -> list[str]:
    """Return the pools in the alternatives of a job, in order of preference."""
    known = {pool.name for pool in policy.pools}
    return list(dict.fromkeys(pool for need in alternatives(job, policy) for pool in need if pool in known))


def is_changed_by_pool(request: TrainingRequest, sent: TrainingRequest) -> bool:
    """Return whether a pool has added a training plan, a market or another instance type to a request."""
    return (
        sent.resources.training_plan_arn not in request.resources.all_plans
        or sent.resources.instance_type not in request.resources.instance_types
        or sent.spot != request.spot
    )


def is_spot(job: Job, policy: Policy) -> bool:
    """Return whether a pool of the job's slots makes the attempt a spot training job, as `request_for_slots` does.

    Members, and jobs whose pools were removed from the policy, count as on demand.
    """
    return any(pool.spot for pool in policy.pools if pool.name in job.slots)


def _own_plans(job: Job, resources: Mapping[str, Any]) -> list[str]:
    """Return the training plan that the request names for its instances, as a list that may be empty."""
    for alternative, plan in zip(job.demand, job.plans, strict=False):
        if plan is not None and resources.get("InstanceType") in alternative:
            return [plan]
    return []


def _count_in(pool: Pool, job: Job) -> int | None:
    """Return the number of instances that a job requests in a pool of the tag `pools`.

    Consider the alternatives with the pool's type, or all alternatives if none has this type. Of these, the first
    without a training plan, or with the pool's training plan, counts. None: there is none.
    """
    choices = [(alternative, plan) for alternative, plan in zip_longest(job.demand, job.plans)]
    of_type = [choice for choice in choices if pool.instance_type in choice[0]]
    fitting = (alternative for alternative, plan in of_type or choices if plan in (None, pool.training_plan))
    return next((next(iter(alternative.values())) for alternative in fitting), None)


def _combinations_at_one_site(choices: list[list[_Part]], policy: Policy) -> Iterator[tuple[_Part, ...]]:
    """Yield the combinations of one choice from each list whose pools are in one account and region."""
    if len(choices) < 2:
        yield from product(*choices)
        return
    sites = {pool.name: site_of_pool(pool) for pool in policy.pools}

    def is_at_one_site(*parts: _Part) -> bool:
        known = [sites[name] for name, _ in parts if name in sites]
        return all(same_place(site, known[0]) for site in known)

    first, *others = choices
    for part in first:
        at_its_site = [[other for other in parts if is_at_one_site(part, other)] for parts in others]
        yield from (it for it in product([part], *at_its_site) if is_at_one_site(*it))


def _summed(parts: tuple[_Part, ...]) -> dict[str, int]:
    slots: dict[str, int] = {}
    for pool, count in parts:
        slots[pool] = slots.get(pool, 0) + count
    return slots
