"""What is wrong with a policy that somebody wants to apply. One that was applied is not asked again."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from job_queue.domain.errors import InvalidRequest, ValidationIssue
from job_queue.domain.job import MAX_PRIORITY
from job_queue.scheduler.document import DocumentError, policy_from_document, shown
from job_queue.scheduler.model import Department, Policy, Pool, Project
from job_queue.scheduler.shares import oversubscriptions

PROBLEMS_TOLD = 10
MOST_NAMES = 10  # told of those that there are
MOST_POOLS = 100
MOST_OWNERS = 500  # departments and projects together; a cycle looks at each in each pool
MOST_INSTANCES = 1_000_000  # and of a project's weight
MOST_SECONDS = 10 * 365 * 24 * 3600
WIDEST_WINDOW = 10_000

# Names become tags' values, parts of keys in the tables, and words in lists with commas and spaces between.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/=@-]{0,62}")
_INSTANCE_TYPE = re.compile(r"ml\.[a-z0-9-]{1,40}\.[a-z0-9]{1,20}")
_TRAINING_PLAN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:training-plan/[A-Za-z0-9-]{1,64}")


def parse_policy(document: object) -> Policy:
    """A policy that may be applied.

    :raises InvalidRequest: it is not one; the message names every fault, of very many the first ones.
    """
    try:
        policy = policy_from_document(document)
    except DocumentError as error:
        raise InvalidRequest(f"{error}.", field="policy") from None
    problems = list(islice(_problems(policy), PROBLEMS_TOLD + 1))
    if problems:
        told = [f"The policy cannot be applied: {problem}." for problem in problems[:PROBLEMS_TOLD]]
        more = ["The policy has more faults than these."] if len(problems) > PROBLEMS_TOLD else []
        raise InvalidRequest.of([ValidationIssue("policy", message) for message in (*told, *more)])
    return policy


def _problems(policy: Policy) -> Iterator[str]:
    sized = list(_sizes(policy))
    yield from sized
    if sized:
        return  # the rest takes time that grows with it
    for rule in (_names, _settings, _numbers, _pools):
        yield from rule(policy)
    pools = {pool.name for pool in policy.pools}
    for owner in _owners(policy):
        yield from _owner_problems(owner, pools)
    if not policy.settings.allow_oversubscription:
        yield from oversubscriptions(policy)


def _owners(policy: Policy) -> tuple[Department | Project, ...]:
    return (*policy.departments, *policy.projects)


def _sizes(policy: Policy) -> Iterator[str]:
    if not policy.pools:
        yield "it has no pools"
    if not policy.projects:
        yield "it has no projects"
    if len(policy.pools) > MOST_POOLS:
        yield f"it has {len(policy.pools)} pools, and may have {MOST_POOLS}"
    if len(_owners(policy)) > MOST_OWNERS:
        yield f"it has {len(_owners(policy))} departments and projects, and may have {MOST_OWNERS}"


def _names(policy: Policy) -> Iterator[str]:
    for named in (*policy.pools, *_owners(policy)):
        if not _NAME.fullmatch(named.name):
            yield (
                f"{shown(named.name)} is no name: it has up to 63 letters (a to z), digits and _ . : / = @ -, "
                "and begins with a letter or digit"
            )


def _settings(policy: Policy) -> Iterator[str]:
    settings = policy.settings
    if not 1 <= settings.window <= WIDEST_WINDOW:
        yield f"settings.window must be at least 1, and at most {WIDEST_WINDOW}"
    if settings.aging is not None and settings.aging < 1:
        yield "settings.aging must be at least 1 second, or null"
    for where, seconds in _times(policy):
        if seconds is not None and seconds > MOST_SECONDS:
            yield f"{where} may be at most {MOST_SECONDS} seconds, ten years"


def _numbers(policy: Policy) -> Iterator[str]:
    """Numbers that nobody means; within these bounds, nothing that is computed of them overflows."""
    for pool in policy.pools:
        if pool.capacity > MOST_INSTANCES:
            yield f"the capacity of {pool.name} may be at most {MOST_INSTANCES}"
    for owner in _owners(policy):
        for what, slots in (("quota", owner.quota), ("limit", owner.limit)):
            if any(count > MOST_INSTANCES for count in slots.values()):
                yield f"a {what} of {owner.name} is above {MOST_INSTANCES}"
    for project in policy.projects:
        if project.over_quota is not None and project.over_quota > MOST_INSTANCES:
            yield f"over_quota of {project.name} may be at most {MOST_INSTANCES}"
        if project.priority_ceiling is not None and abs(project.priority_ceiling) > MAX_PRIORITY:
            yield f"priority_ceiling of {project.name} must be from -{MAX_PRIORITY} to {MAX_PRIORITY}"


def _pools(policy: Policy) -> Iterator[str]:
    """What a pool puts into requests must be fit for it: SageMaker would refuse the jobs, and for good."""
    for pool in policy.pools:
        if pool.instance_type is None and len(policy.pools) > 1:
            yield f"the pool {pool.name} has no instance_type, and only a pool that is alone may take any"
        if pool.instance_type is not None and not _INSTANCE_TYPE.fullmatch(pool.instance_type):
            yield f"the instance_type of {pool.name} is no type of SageMaker's, such as ml.p5.48xlarge"
        if pool.training_plan is not None and not _TRAINING_PLAN.fullmatch(pool.training_plan):
            yield f"the training_plan of {pool.name} is not the ARN of one"


def _times(policy: Policy) -> Iterator[tuple[str, float | None]]:
    settings = policy.settings
    yield "settings.min_runtime", settings.min_runtime
    yield "settings.patience", settings.patience
    yield "settings.aging", settings.aging
    owners: tuple[Pool | Project, ...] = (*policy.pools, *policy.projects)
    yield from ((f"min_runtime of {owner.name}", owner.min_runtime) for owner in owners)


def _owner_problems(owner: Department | Project, pools: set[str]) -> Iterator[str]:
    named = {"quota": owner.quota, "limit": owner.limit}
    if isinstance(owner, Project):
        named["pools"] = dict.fromkeys(owner.pools, 0)
    for what, slots in named.items():
        for pool in slots:
            if pool not in pools:
                known = some_of(pools)
                yield f"{what} of {owner.name} names the pool {shown(pool)[1:-1]}, which does not exist ({known})"
    for pool, limit in owner.limit.items():
        if owner.quota.get(pool, 0) > limit:
            yield f"the quota of {owner.name} is {owner.quota[pool]} {pool}, its limit only {limit}"


def some_of(names: Iterable[str]) -> str:
    """Names in a sentence, in order; of very many the first ones."""
    told = sorted(names)
    more = f" and {len(told) - MOST_NAMES} more" if len(told) > MOST_NAMES else ""
    return ", ".join(told[:MOST_NAMES]) + more
