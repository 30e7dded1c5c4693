"""Validation of a policy before it is applied. A stored policy is not validated again."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from job_queue.domain.access.resources import bucket_issue, role_issue
from job_queue.domain.errors import InvalidRequest, ValidationIssue
from job_queue.domain.identity import pattern_issue
from job_queue.domain.job import MAX_PRIORITY
from job_queue.scheduler import (
    UNLIMITED,
    Department,
    DocumentError,
    OnDemand,
    Policy,
    Pool,
    Project,
    Spot,
    TrainingPlan,
    oversubscriptions,
    policy_from_document,
    shown,
)

ISSUES_SHOWN = 10
NAMES_SHOWN = 10
MOST_POOLS = 100
MOST_QUOTA_HOLDERS = 500  # departments and projects together; planning time grows with them
MOST_INSTANCES = 1_000_000  # also the maximum of a project's weight
MOST_PRICES = 500
HIGHEST_PRICE = 1_000_000  # an hour, in any currency
MOST_SECONDS = 10 * 365 * 24 * 3600
MOST_STRETCH = 10_000
SHORTEST_HALF_LIFE = 60  # seconds
MOST_BUDGET_HOURS = 1_000_000_000
LONGEST_PERIOD_DAYS = 366
WIDEST_WINDOW = 10_000
MOST_WAITING = 100_000
MOST_PATTERNS = 500  # of a project; each pattern is compared with a caller
LONGEST_WARM_SECONDS = 3600  # SageMaker's maximum for warm instances

# Names become values of tags, parts of keys in the tables, and items of lists that are separated by commas and spaces.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/=@-]{0,62}")
_INSTANCE_TYPE = re.compile(r"ml\.[a-z0-9-]{1,40}\.[a-z0-9]{1,20}")
_TRAINING_PLAN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:training-plan/[A-Za-z0-9-]{1,64}")


def parse_policy(document: object, max_capacity: int | None = None, *, may_share: bool = True) -> Policy:
    """Return a valid policy.

    :param max_capacity: limit on the instances of its pools together; None: no limit.
    :param may_share: whether the stack supports shared instances.
    :raises InvalidRequest: the policy is not valid; the message has the first issues.
    """
    try:
        policy = policy_from_document(document)
    except DocumentError as error:
        raise InvalidRequest(f"{error}.", field=error.path) from None
    found = chain(_issues(policy), _ceiling(policy, max_capacity), () if may_share else _shared(policy))
    issues = list(islice(found, ISSUES_SHOWN + 1))
    if issues:
        messages = [f"The policy cannot be applied: {issue}." for issue in issues[:ISSUES_SHOWN]]
        more = ["The policy has more faults than these."] if len(issues) > ISSUES_SHOWN else []
        raise InvalidRequest.of([ValidationIssue("policy", message) for message in (*messages, *more)])
    return policy


def _issues(policy: Policy) -> Iterator[str]:
    sized = list(_sizes(policy))
    yield from sized
    if sized:
        return  # the other rules take time that grows with the sizes
    for rule in (_names, _settings, _numbers, _budgets, _pools, _patterns, _prices):
        yield from rule(policy)
    pools = {pool.name for pool in policy.pools}
    for holder in _quota_holders(policy):
        yield from _quota_issues(holder, pools)
    if not policy.settings.allow_oversubscription:
        yield from oversubscriptions(policy)


def _shared(policy: Policy) -> Iterator[str]:
    for pool in policy.pools:
        if pool.gpus is not None:
            yield f"{pool.name} is to be shared, and the stack has no WorkBucket, which that takes"


def _quota_holders(policy: Policy) -> tuple[Department | Project, ...]:
    return (*policy.departments, *policy.projects)


def _sizes(policy: Policy) -> Iterator[str]:
    if not policy.pools:
        yield "it has no pools"
    if not policy.projects:
        yield "it has no projects"
    if len(policy.pools) > MOST_POOLS:
        yield f"it has {len(policy.pools)} pools, and may have {MOST_POOLS}"
    if len(policy.prices) > MOST_PRICES:
        yield f"it has prices of {len(policy.prices)} instance types, and may have {MOST_PRICES}"
    if len(_quota_holders(policy)) > MOST_QUOTA_HOLDERS:
        yield f"it has {len(_quota_holders(policy))} departments and projects, and may have {MOST_QUOTA_HOLDERS}"


def _names(policy: Policy) -> Iterator[str]:
    for named in (*policy.pools, *_quota_holders(policy)):
        if not _NAME.fullmatch(named.name):
            yield (
                f"{shown(named.name)} is not a name: it has up to 63 letters (a to z), digits and _ . : / = @ -, "
                "and begins with a letter or digit"
            )


def _settings(policy: Policy) -> Iterator[str]:
    settings = policy.settings
    if not 1 <= settings.window <= WIDEST_WINDOW:
        yield f"settings.window must be at least 1, and at most {WIDEST_WINDOW}"
    if not 1 <= settings.max_waiting <= MOST_WAITING:
        yield f"settings.max_waiting must be at least 1, and at most {MOST_WAITING}"
    if settings.aging is not None and settings.aging < 1:
        yield "settings.aging must be at least 1 second, or null"
    if not 0 < settings.stretch <= MOST_STRETCH:
        yield f"settings.stretch must be above 0, and at most {MOST_STRETCH}"
    if settings.usage_half_life is not None and settings.usage_half_life < SHORTEST_HALF_LIFE:
        yield f"settings.usage_half_life must be at least {SHORTEST_HALF_LIFE} seconds, or null"
    if policy.interactive.max_per_owner == 0:
        yield "interactive.max_per_owner must be at least 1, or null for any number"
    for where, seconds in _times(policy):
        if seconds is not None and seconds > MOST_SECONDS:
            yield f"{where} may be at most {MOST_SECONDS} seconds, ten years"


def _numbers(policy: Policy) -> Iterator[str]:
    """Check bounds of numbers, so that no computation overflows."""
    for pool in policy.pools:
        if pool.capacity > MOST_INSTANCES and pool.capacity != UNLIMITED:
            yield f"the capacity of {pool.name} may be at most {MOST_INSTANCES}"
    for holder in _quota_holders(policy):
        for what, slots in (("quota", holder.quota), ("limit", holder.limit)):
            if any(count > MOST_INSTANCES for count in slots.values()):
                yield f"a {what} of {holder.name} is above {MOST_INSTANCES}"
    for project in policy.projects:
        if project.over_quota is not None and project.over_quota > MOST_INSTANCES:
            yield f"over_quota of {project.name} may be at most {MOST_INSTANCES}"
        if project.priority_ceiling is not None and abs(project.priority_ceiling) > MAX_PRIORITY:
            yield f"priority_ceiling of {project.name} must be from -{MAX_PRIORITY} to {MAX_PRIORITY}"


def _budgets(policy: Policy) -> Iterator[str]:
    for project in policy.projects:
        for what, budget in (("budget", project.budget), ("owner_budget", project.owner_budget)):
            if budget and not 0 < budget.instance_hours <= MOST_BUDGET_HOURS:
                yield (
                    f"instance_hours in the {what} of {project.name} must be above 0, and at most {MOST_BUDGET_HOURS}; "
                    "who is to have nothing has a limit of 0"
                )
            if budget and budget.days is not None and budget.days > LONGEST_PERIOD_DAYS:
                yield f"period in the {what} of {project.name} may be at most {LONGEST_PERIOD_DAYS} days"


def _pools(policy: Policy) -> Iterator[str]:
    """Check the values that a pool adds to requests: SageMaker would refuse all jobs with a wrong value."""
    for pool in policy.pools:
        if pool.instance_type is None and len(policy.pools) > 1:
            yield f"the pool {pool.name} has no instance_type, and only a pool that is alone may take any"
        if pool.instance_type is not None and not _INSTANCE_TYPE.fullmatch(pool.instance_type):
            yield f"the instance_type of {pool.name} is not a SageMaker instance type, such as ml.p5.48xlarge"
        if isinstance(pool.market, TrainingPlan) and not _TRAINING_PLAN.fullmatch(pool.market.arn):
            yield f"the training_plan of {pool.name} is not the ARN of one"
        if pool.keep_warm is not None and not (pool.keep_warm.is_integer() and pool.keep_warm <= LONGEST_WARM_SECONDS):
            yield f"keep_warm of {pool.name} must be a whole number of seconds, at most {LONGEST_WARM_SECONDS}"
        if pool.gpus is not None and not isinstance(pool.market, OnDemand):
            yield f"{pool.name} is to be shared, which pools of spot instances and of training plans are not yet"
        if pool.keep_warm and isinstance(pool.market, Spot):
            yield f"{pool.name} has both spot and keep_warm, and SageMaker keeps no spot instances warm"


def _prices(policy: Policy) -> Iterator[str]:
    for instance_type, prices in policy.prices.items():
        if not _INSTANCE_TYPE.fullmatch(instance_type):
            yield f"prices has {shown(instance_type)}, which is not a SageMaker instance type, such as ml.p5.48xlarge"
        known = (prices.on_demand, prices.spot, prices.training_plan)
        if any(price is not None and price > HIGHEST_PRICE for price in known):
            yield f"a price of {shown(instance_type)[1:-1]} is above {HIGHEST_PRICE} an hour"


def _ceiling(policy: Policy, max_capacity: int | None) -> Iterator[str]:
    """Check the stack's ceiling. The pool of a training plan without a capacity has what the ceiling leaves."""
    total = sum(pool.capacity for pool in policy.pools if pool.capacity != UNLIMITED)
    if max_capacity is not None and total > max_capacity:
        yield (
            f"its pools have {total} instances together, and the queue may use {max_capacity}: lower a capacity, or "
            "have the stack's parameter MaxCapacity raised (on the local cloud: --slots)"
        )


def _patterns(policy: Policy) -> Iterator[str]:
    """Check the patterns of a project's members and admins, and of its resources."""
    for project in policy.projects:
        if len(project.members) + len(project.admins) + len(project.roles) + len(project.buckets) > MOST_PATTERNS:
            yield f"{project.name} has more than {MOST_PATTERNS} members, admins, roles and buckets together"
            continue
        parts = (
            ("members", project.members, pattern_issue),
            ("admins", project.admins, pattern_issue),
            ("roles", project.roles, role_issue),
            ("buckets", project.buckets, bucket_issue),
        )
        for what, patterns, issue_of in parts:
            for pattern in patterns:
                if issue := issue_of(pattern):
                    yield f"{shown(pattern)} among the {what} of {project.name} {issue}"


def _times(policy: Policy) -> Iterator[tuple[str, float | None]]:
    settings = policy.settings
    yield "settings.min_runtime", settings.min_runtime
    yield "settings.patience", settings.patience
    yield "settings.aging", settings.aging
    yield "settings.usage_half_life", settings.usage_half_life
    yield "settings.idle_after", settings.idle_after
    yield "interactive.idle_end", policy.interactive.idle_end
    limited: tuple[Pool | Project, ...] = (*policy.pools, *policy.projects)
    yield from ((f"min_runtime of {holder.name}", holder.min_runtime) for holder in limited)


def _quota_issues(holder: Department | Project, pools: set[str]) -> Iterator[str]:
    named = {"quota": holder.quota, "limit": holder.limit}
    if isinstance(holder, Project):
        named["pools"] = dict.fromkeys(holder.pools, 0)
        named["interactive_pools"] = dict.fromkeys(holder.interactive_pools, 0)
        named["training_pools"] = dict.fromkeys(holder.training_pools, 0)
    for what, slots in named.items():
        for pool in slots:
            if pool not in pools:
                known = listing(pools)
                yield f"{what} of {holder.name} names the pool {shown(pool)[1:-1]}, which does not exist ({known})"
    for pool, limit in holder.limit.items():
        if holder.quota.get(pool, 0) > limit:
            yield f"the quota of {holder.name} is {holder.quota[pool]} {pool}, its limit only {limit}"


def listing(names: Iterable[str]) -> str:
    """Return names as a sorted list in a sentence; of very many names only the first."""
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMES_SHOWN} more" if len(ordered) > NAMES_SHOWN else ""
    return ", ".join(ordered[:NAMES_SHOWN]) + more
