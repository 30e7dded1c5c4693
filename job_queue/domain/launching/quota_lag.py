"""Quota lag: for some minutes SageMaker counts the instances of finished training jobs against the quota.

A refusal includes the number of instances that SageMaker counts. If the queue knows fewer instances, the others belong
to training jobs that ended recently or that the next comparison will find. `domain/capacity_backoff.py` decides when
the launch is tried again.
docs/developers/adr/0090-quota-lag.md has the reasons and the sources.
"""

from collections.abc import Mapping

from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.fleet.sites import same_place
from job_queue.domain.job import Job
from job_queue.domain.launching.refusals import QuotaExceeded
from job_queue.domain.policy import is_spot
from job_queue.scheduler import Policy


def lag_of(quota: QuotaExceeded, job: Job, cluster: ClusterState) -> str | None:
    """Return a message if SageMaker counts more instances than the queue knows (quota lag), else None.

    :param job: the refused job.
    :param cluster: live jobs, external jobs and warm pools, with all jobs that were launched together with this job.
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
        f"{known} (ResourceLimitExceeded)."
    )


def wanted_within_quota(quota: QuotaExceeded, wanted: Mapping[str, int], policy: Policy) -> Mapping[str, int]:
    """Return the part of a job's instances, by capacity key, that counts toward a quota."""
    if len(wanted) == 1 or quota.instance_type is None:
        return wanted
    pools = {pool.name for pool in policy.pools if pool.instance_type == quota.instance_type}
    return {key: count for key, count in wanted.items() if key in pools}


def _known_instances(quota: QuotaExceeded, job: Job, cluster: ClusterState) -> int:
    """Return the known instances at the job's site that count toward the quota, without those of the refused job.

    External jobs count both for on-demand and for spot quotas, because the queue does not know their market.
    """
    policy = cluster.applied.policy
    there = (it for it in cluster.active.values() if it.name != job.name and same_place(it.site, job.site))
    counts = (_instances_of(it, policy) for it in there if is_spot(it, policy) == quota.is_for_spot)
    outside = (it for it in cluster.external if same_place(it.site, job.site))
    of_others = (it.instance_counts for it in outside if it.plan is None)
    return sum(
        count
        for instances in (*counts, *of_others)
        for kind, count in instances.items()
        if quota.instance_type in (None, kind)
    )


def _instances_of(job: Job, policy: Policy) -> dict[str, int]:
    """Return the instances that a job holds, by type. Instances of training plans are left out: they need no quota."""
    found: dict[str, int] = {}
    for pool in policy.pools:
        count = job.slots.get(pool.name, 0)
        if not count or pool.training_plan:
            continue
        by_type = job.alternative_of(count) if pool.instance_type is None else {pool.instance_type: count}
        for kind, number in by_type.items():
            found[kind] = found.get(kind, 0) + number
    return found
