"""Quota lag: for some minutes SageMaker counts the instances of training jobs that have ended against the quota.

A refusal tells how many instances SageMaker counts. Where these are more than the queue knows of, the difference has
ended a short while ago, or belongs to training jobs that the next comparison will find. docs/adr/0090-quota-lag.md has
the reasons and the sources.
"""

from collections.abc import Mapping

from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.job import Job
from job_queue.domain.launching.refusals import QuotaExceeded
from job_queue.domain.policy import is_spot
from job_queue.scheduler import Policy, TrainingPlan


def lag_of(quota: QuotaExceeded, job: Job, cluster: ClusterState) -> str | None:
    """Return what SageMaker counts, where that is more than the queue knows of; None: the refusal is no quota lag.

    :param job: that was refused.
    :param cluster: live jobs, external jobs and warm pools, with all that was launched together with the job.
    """
    if not quota.is_full or quota.is_for_spot != is_spot(job, cluster.applied.policy):
        return None
    if quota.instance_type is None and not quota.is_for_all_types:
        return None
    known = _known_instances(quota, job, cluster)
    if quota.used <= known:
        return None
    kind = f" of {quota.instance_type}" if quota.instance_type else ""
    return (
        f"SageMaker still counts {quota.used:g} of {quota.limit:g} instances{kind} as in use, and the queue knows of "
        f"{known}."
    )


def of_the_quota(quota: QuotaExceeded, wanted: Mapping[str, int], policy: Policy) -> Mapping[str, int]:
    """Return the part of a job's instances, by capacity key, that a quota counts."""
    if len(wanted) == 1 or quota.instance_type is None:
        return wanted
    pools = {pool.name for pool in policy.pools if pool.instance_type == quota.instance_type}
    return {key: count for key, count in wanted.items() if key in pools}


def _known_instances(quota: QuotaExceeded, job: Job, cluster: ClusterState) -> int:
    """Count the instances that count toward the quota, as far as the queue knows, without those of the job.

    Training jobs that are not the queue's count in each market: the queue does not know theirs.
    """
    policy = cluster.applied.policy
    others = (it for it in cluster.active.values() if it.name != job.name and is_spot(it, policy) == quota.is_for_spot)
    counts = (_instances_of(it, policy) for it in others)
    of_others = (it.instance_counts for it in cluster.external if it.plan is None)
    return sum(
        count
        for instances in (*counts, *of_others)
        for kind, count in instances.items()
        if quota.instance_type in (None, kind)
    )


def _instances_of(job: Job, policy: Policy) -> dict[str, int]:
    """Return the instances that a job holds, by type; those of training plans count toward no quota."""
    found: dict[str, int] = {}
    for pool in policy.pools:
        count = job.slots.get(pool.name, 0)
        if not count or isinstance(pool.market, TrainingPlan):
            continue
        by_type = job.alternative_of(count) if pool.instance_type is None else {pool.instance_type: count}
        for kind, number in by_type.items():
            found[kind] = found.get(kind, 0) + number
    return found
