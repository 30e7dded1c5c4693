"""Pre-flight: checks of requests that SageMaker would accept, but whose jobs would fail or never start.

The user can turn these checks into warnings, unlike SageMaker's own rules. docs/reference/preflight.md lists them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.errors import InvalidRequest
from job_queue.domain.job import Job, epoch
from job_queue.domain.policy import AppliedPolicy, alternatives, request_for_slots
from job_queue.domain.requests.scheduling_tags import accepted_sizes
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import REMEDIES, Policy, WaitReason, plan
from job_queue.validation import ValidationIssue, against_sagemaker
from job_queue.validation.checkpoint_rules import CHECKPOINT_RULES
from job_queue.validation.issue import field_issue
from job_queue.validation.parallelism import PARALLELISM_RULES

_RULES = (*CHECKPOINT_RULES, *PARALLELISM_RULES)
_REMEDIES: Mapping[WaitReason, str] = {
    **REMEDIES,
    WaitReason.OVER_LIMIT: "Request fewer instances, or ask an admin to raise the limit.",
    WaitReason.OVER_QUOTA_NON_PREEMPTIBLE: (
        "Request fewer instances, allow preemption (tag preemptible=true), or ask an admin to raise the quota."
    ),
}
"""The reasons why a job never starts even on an idle fleet, with remedies.

All other reasons can end without a change of the job or the policy.
"""


def request_issues(request: TrainingRequest) -> list[ValidationIssue]:
    """Return the issues that exist under any policy, for each number of instances that the job accepts."""
    found = chain.from_iterable(rule(it) for it in _in_each_size(request) for rule in _RULES)
    return list({(issue.field, issue.message): issue for issue in found}.values())


def _in_each_size(request: TrainingRequest) -> Iterator[Mapping[str, Any]]:
    sizes: tuple[int, ...] = ()
    with suppress(InvalidRequest):  # the submission refuses such a request anyway
        sizes = accepted_sizes(request)
    yield request.content
    for size in sizes[1:]:
        yield {**request.content, "ResourceConfig": {**request.content["ResourceConfig"], "InstanceCount": size}}


def policy_issues(
    request: TrainingRequest, job: Job, applied: AppliedPolicy, known: Iterable[ValidationIssue]
) -> list[ValidationIssue]:
    """Return the issues that exist under the applied policy.

    :param known: the issues that exist under any policy. These issues are not repeated for each pool.
    """
    messages = {issue.message for issue in known}
    return [*_unschedulable(request, job, applied), *_in_its_pools(request, job, applied.policy, messages)]


def _unschedulable(request: TrainingRequest, job: Job, applied: AppliedPolicy) -> Iterator[ValidationIssue]:
    """Yield an issue if the planner would not start the job on an idle fleet, once its dependencies have finished.

    A pool with a capacity of 0 is drained (docs/operate/runbook.md). A job that accepts such a pool waits without an
    issue.
    """
    capacities = {pool.name: pool.capacity for pool in applied.policy.pools}
    if any(capacities.get(pool) == 0 for need in alternatives(job, applied.policy) for pool in need):
        return
    idle = ClusterState(
        Metadata(),
        _without_other_projects(job, applied),
        active={},
        waiting={job.name: replace(job, after=(), not_before=None)},
        external=(),
    )
    # Calendars are ignored: the job may wait for its training plan to begin.
    for hold in plan(replace(idle.snapshot(epoch(job.entered)), calendars={})).holds:
        remedy = _REMEDIES.get(hold.reason)
        if remedy and job.gpus is not None and hold.reason is WaitReason.NEVER_FITS:
            yield _impossible_gpus(request, hold.message)
        elif remedy:
            yield field_issue(
                _field_of(request, hold.reason), f"cannot be met under the present policy. {hold.message} {remedy}"
            )


def _impossible_gpus(request: TrainingRequest, message: str) -> ValidationIssue:
    """Return the issue of a job that requests GPUs of a shared instance, if no pool can provide these GPUs."""
    remedy = (
        "Leave it out to get whole instances, request fewer GPUs, or ask an admin to share the pool (shared: true)."
    )
    text = f"The tag gpus cannot be met under the present policy. {message} {remedy}"
    return ValidationIssue(request.tag_values["gpus"].field, text)


def _without_other_projects(job: Job, applied: AppliedPolicy) -> AppliedPolicy:
    """Return the policy with only the job's project: the plan on an idle fleet is the same, and faster to make."""
    projects = tuple(project for project in applied.policy.projects if project.name == job.project)
    names = {project.department for project in projects}
    departments = tuple(department for department in applied.policy.departments if department.name in names)
    return replace(applied, policy=replace(applied.policy, projects=projects, departments=departments))


def _in_its_pools(
    request: TrainingRequest, job: Job, policy: Policy, known: Collection[str]
) -> Iterator[ValidationIssue]:
    """For each pool that the job accepts, yield the issues of the request that would be sent to SageMaker there.

    Issues whose messages are in `known` are left out. A pool may be spot, have a training plan, or have another
    instance type than the request.
    """
    pools = {pool.name for pool in policy.pools}
    for slots in alternatives(job, policy):
        if not slots.keys() <= pools:
            continue
        in_pool = request_for_slots(request, replace(job, slots=slots), policy)
        for issue in [*against_sagemaker(in_pool), *chain.from_iterable(rule(in_pool) for rule in PARALLELISM_RULES)]:
            if issue.message not in known:
                what = f"In the pool {' and '.join(sorted(slots))}, as the policy has it, {issue.message}"
                yield ValidationIssue(issue.field, f"{what} Change that, or name other pools in a tag `pools`.")


def _field_of(request: TrainingRequest, reason: WaitReason) -> str:
    """Return the field of the request that causes a job to wait for this reason."""
    config = request.content["ResourceConfig"]
    several = next((name for name in ("InstanceGroups", "InstancePreferences") if config.get(name)), None)
    return f"ResourceConfig.{several or ('InstanceType' if reason is WaitReason.NO_SUCH_POOL else 'InstanceCount')}"
