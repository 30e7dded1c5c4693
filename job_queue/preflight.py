"""Pre-flight: what SageMaker would take and what would come to nothing all the same, hours later.

Unlike SageMaker's own rules (`validation/`) this is judgement: who knows better switches it off, and is only warned.
docs/preflight.md lists every rule.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from job_queue.control import Control
from job_queue.policy import AppliedPolicy, alternatives, placed
from job_queue.records import Job, epoch
from job_queue.scheduler import Policy, Reason, plan
from job_queue.validation import Problem, against_sagemaker
from job_queue.validation.checkpoints import CHECKPOINT_RULES
from job_queue.validation.parallelism import PARALLELISM_RULES
from job_queue.validation.problem import fault
from job_queue.world import World

Request = Mapping[str, Any]

_RULES = (*CHECKPOINT_RULES, *PARALLELISM_RULES)
_REMEDIES: Mapping[Reason, str] = {
    Reason.NO_SUCH_POOL: "Ask for an instance type that a pool of its project has, or have the policy changed.",
    Reason.NEVER_FITS: "Ask for fewer instances, or have the pool's capacity raised.",
    Reason.OVER_LIMIT: "Ask for fewer instances, or have the limit raised.",
    Reason.OVER_QUOTA_NON_PREEMPTIBLE: (
        "Ask for fewer instances, let it be stopped to make room (tag preemptible=true), or have the quota raised."
    ),
}
"""What an idle fleet may lack for a job; any other reason to wait comes from other jobs."""


def of_request(request: Request) -> list[Problem]:
    """What is hopeless under any policy."""
    return list(chain.from_iterable(rule(request) for rule in _RULES))


def of_policy(request: Request, job: Job, applied: AppliedPolicy) -> list[Problem]:
    """What is hopeless as long as the policy is as it is."""
    return [*_never(request, job, applied), *_elsewhere(request, job, applied.policy)]


def _never(request: Request, job: Job, applied: AppliedPolicy) -> Iterator[Problem]:
    """It would not start even if the whole fleet were idle: found out by planning just that.

    A pool without any instances is being drained (docs/operations.md): what asks for it waits until they are back.
    """
    sizes = {pool.name: pool.capacity for pool in applied.policy.pools}
    if any(sizes.get(pool) == 0 for need in alternatives(job, applied.policy) for pool in need):
        return
    idle = World(Control(), _alone(job, applied), active={}, waiting={job.name: job}, external=())
    for hold in plan(idle.snapshot(epoch(job.entered))).holds:
        if remedy := _REMEDIES.get(hold.reason):
            yield fault(
                _asked(request, hold.reason), f"cannot be met under the present policy. {hold.message} {remedy}"
            )


def _alone(job: Job, applied: AppliedPolicy) -> AppliedPolicy:
    """The policy as far as it concerns a job whose project is the only one with jobs; it is planned with faster."""
    projects = tuple(it for it in applied.policy.projects if it.name == job.project)
    names = {it.department for it in projects}
    departments = tuple(it for it in applied.policy.departments if it.name in names)
    return replace(applied, policy=replace(applied.policy, projects=projects, departments=departments))


def _elsewhere(request: Request, job: Job, policy: Policy) -> Iterator[Problem]:
    """In a pool that it accepts, the request would become one that SageMaker refuses, or that comes to nothing.

    A pool may be spot, have a training plan, or another instance type than the request.
    """
    pools = {pool.name for pool in policy.pools}
    told = {problem.message for problem in of_request(request)}
    for slots in alternatives(job, policy):
        if not slots.keys() <= pools:
            continue
        there = placed(dict(request), replace(job, slots=slots), policy)
        for problem in [*against_sagemaker(there), *chain.from_iterable(rule(there) for rule in PARALLELISM_RULES)]:
            if problem.message not in told:
                what = f"In the pool {' and '.join(sorted(slots))}, as the policy has it, {problem.message}"
                yield Problem(problem.field, f"{what} Change that, or name other pools in a tag `pools`.")


def _asked(request: Request, reason: Reason) -> str:
    """The field that asks for too much."""
    config = request["ResourceConfig"]
    several = next((name for name in ("InstanceGroups", "InstancePreferences") if config.get(name)), None)
    return f"ResourceConfig.{several or ('InstanceType' if reason is Reason.NO_SUCH_POOL else 'InstanceCount')}"
