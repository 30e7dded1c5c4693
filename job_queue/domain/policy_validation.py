"""Validation of a policy before it is applied: the bounds of its schema, and the rules across fields.

A stored policy is not validated again.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from job_queue.domain.access.resources import bucket_issue, role_issue, unpermitted_counterpart
from job_queue.domain.errors import InvalidRequest, ValidationIssue
from job_queue.domain.fleet.sites import HomeSite, same_place, site_of_pool
from job_queue.domain.identity import pattern_issue
from job_queue.domain.policy import total_capacity
from job_queue.scheduler import (
    MOST_FAILURE_RULES,
    MOST_POOLS,
    MOST_PRICES,
    MOST_QUOTA_HOLDERS,
    Department,
    DocumentError,
    FailureClass,
    FailureRule,
    Policy,
    Pool,
    Project,
    out_of_bounds,
    oversubscriptions,
    policy_from_document,
    shown,
)

ISSUES_SHOWN = 10
NAMES_SHOWN = 10
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
MOST_PATTERNS = 500  # patterns of one project, because a request may be compared with each pattern


def parse_policy(
    document: object, max_capacity: int | None = None, *, may_share: bool = True, home: HomeSite | None = None
) -> Policy:
    """Read a policy document and validate it.

    :param max_capacity: limit on the sum of the pools' instances; None: no limit.
    :param may_share: whether the stack supports shared instances.
    :param home: the region and account of the stack; None: not known.
    :raises InvalidRequest: the policy is not valid. The error has the first `ISSUES_SHOWN` issues.
    """
    try:
        policy = policy_from_document(document)
    except DocumentError as error:
        raise InvalidRequest(f"{error}.", field=error.path) from None
    named_twice = _places(policy, home) if home else ()
    found = chain(_issues(policy), named_twice, _ceiling(policy, max_capacity), () if may_share else _shared(policy))
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
        return  # the other rules would take time that grows with these sizes
    for rule in (out_of_bounds, _pools, _sites, _patterns, _failure_rules):
        yield from rule(policy)
    pools = {pool.name for pool in policy.pools}
    for holder in _quota_holders(policy):
        yield from _quota_issues(holder, pools)
    if not policy.settings.allow_oversubscription:
        yield from oversubscriptions(policy)


def _shared(policy: Policy) -> Iterator[str]:
    for pool in policy.pools:
        if pool.gpus is not None:
            yield f"{pool.name} is shared, and the stack has no WorkBucket, which shared instances need"


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
    for holder, rules in _rule_lists(policy):
        if len(rules) > MOST_FAILURE_RULES:
            yield f"{holder} has {len(rules)} failure_rules, and may have {MOST_FAILURE_RULES}"


def _rule_lists(policy: Policy) -> Iterator[tuple[str, tuple[FailureRule, ...]]]:
    yield "it", policy.failure_rules
    for project in policy.projects:
        yield project.name, project.failure_rules


def _failure_rules(policy: Policy) -> Iterator[str]:
    for holder, rules in _rule_lists(policy):
        for number, rule in enumerate(rules, 1):
            place = f"number {number} of the failure_rules" + (f" of {holder}" if holder != "it" else "")
            if rule.match is None and rule.exit_code is None and rule.failure_class is None:
                yield f"{place} says of no failure that it applies: it needs match, exit_code or failure_class"
            if rule.match is not None and not rule.match.strip("* "):
                yield f"{place} has a match without a text, which every failure contains"
            if rule.failure_class is FailureClass.CAPACITY:
                yield f"{place} is about capacity, for which a job waits in any case"


def _pools(policy: Policy) -> Iterator[str]:
    """Yield the faults of single pools, such as two fields that exclude each other."""
    for pool in policy.pools:
        if pool.instance_type is None and len(policy.pools) > 1:
            yield f"the pool {pool.name} has no instance_type, which is allowed only if it is the only pool"
        if pool.gpus is not None and pool.market != "on_demand":
            yield f"{pool.name} is shared, but pools of spot instances and of training plans cannot be shared yet"
        if pool.keep_warm and pool.spot:
            yield f"{pool.name} has both spot and keep_warm, and SageMaker keeps no spot instances warm"


def _sites(policy: Policy) -> Iterator[str]:
    """Yield the faults in the regions and roles of pools, and in `bucket_by_region` of projects."""
    roles: dict[str, str | None] = {}
    for pool in policy.pools:
        site = site_of_pool(pool)
        if site is None:
            continue
        if pool.gpus is not None:
            yield f"{pool.name} is shared, but pools of another region or account cannot be shared yet"
        if roles.setdefault(site.key, site.role) != site.role:
            yield f"{pool.name} has another role than the other pools of {site.text}"
        if pool.training_plan and pool.region and f":{pool.region}:" not in pool.training_plan:
            yield f"{pool.name} is in {pool.region}, and its training plan is not"
    by_bucket: dict[str, Project] = {}
    for project in policy.projects:
        for bucket in project.bucket_by_region.values():
            first = by_bucket.setdefault(bucket, project)
            if first.bucket_by_region != project.bucket_by_region:
                yield (
                    f"bucket_by_region of {project.name} and that of {first.name} have the bucket {shown(bucket)}, but "
                    "are not equal, so jobs of both could write to one place"
                )
        if len(set(project.bucket_by_region.values())) < len(project.bucket_by_region):
            yield f"bucket_by_region of {project.name} has one bucket twice"
        if wrong := next((it for it in project.bucket_by_region.values() if not _BUCKET.fullmatch(it)), None):
            yield f"bucket_by_region of {project.name} has {shown(wrong)}, which is not the name of a bucket"
        elif unpermitted := unpermitted_counterpart(project):
            entry, there = map(shown, unpermitted)
            yield (
                f"buckets of {project.name} has {entry}, but nothing that permits {there}: its jobs of other regions "
                "use the same addresses in the bucket of their region"
            )


def _places(policy: Policy, home: HomeSite) -> Iterator[str]:
    """Yield the faults of pools that name the home site, or that name another site in two ways.

    A pool of the home site must have neither region nor role. All pools of another site must have the same region and
    role.
    """
    first_in: dict[tuple[str, str], Pool] = {}
    for pool in policy.pools:
        site = site_of_pool(pool)
        if site is None:
            continue
        if home.is_at(site):
            yield f"{pool.name} is in the queue's own region and account: leave out its region and role"
        elif not same_place(site_of_pool(first := first_in.setdefault(home.place_of(site), pool)), site):
            yield (
                f"{pool.name} is in the same region and account as {first.name}, under another name: give both the "
                "same region and role"
            )


def _ceiling(policy: Policy, max_capacity: int | None) -> Iterator[str]:
    """Yield a fault if the capacities together exceed the limit."""
    total = total_capacity(policy)
    if max_capacity is not None and total > max_capacity:
        yield (
            f"its pools have {total} instances together, and the queue may use {max_capacity}: lower a capacity, or "
            "have the stack's parameter MaxCapacity raised (on the local cloud: --slots)"
        )


def _patterns(policy: Policy) -> Iterator[str]:
    """Yield the faults in the patterns of projects: members, admins, roles and buckets."""
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
    """Return sorted names as a part of a sentence: the first `NAMES_SHOWN` names, and the number of further names."""
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMES_SHOWN} more" if len(ordered) > NAMES_SHOWN else ""
    return ", ".join(ordered[:NAMES_SHOWN]) + more
