"""Collect the facts about an ended attempt for its attempt record: times, instances, market and last checkpoint."""

from job_queue.adapters.items import stored_request
from job_queue.adapters.sagemaker import TrainingJob
from job_queue.domain.accounting.attempts import EndReport
from job_queue.domain.cluster_state import Metadata
from job_queue.domain.fleet.checkpoints import checkpoint_of
from job_queue.domain.job import Job, JobRecord, epoch
from job_queue.domain.policy import alternatives, project_of
from job_queue.scheduler import Policy


def end_report(record: JobRecord, ended: TrainingJob | None, metadata: Metadata, policy: Policy) -> EndReport:
    """Return the known facts about the ended attempt of a job.

    :param ended: the training job as SageMaker reports it; None if SageMaker no longer knows the training job.
    """
    job, request = record.job, stored_request(record.details)
    pools = {pool.name: pool for pool in policy.pools}
    held = [pools[name] for name in job.slots if name in pools]
    shared = {pool for need in alternatives(job, policy) for pool in need} if job.gpus is not None else set()
    if len(shared) == 1:
        held = [pools[name] for name in shared if name in pools]
    project = project_of(policy, job.project)
    return EndReport(
        created=ended.created if ended else None,
        began=_began(job, ended),
        ended=ended.ended_at if ended else None,
        instances=_instances(job, ended, {pool.name: pool.instance_type for pool in held}),
        market=held[0].market if held else None,
        department=project.department if project else None,
        checkpoint=checkpoint_of(job, metadata.checkpoints),
        keeps_checkpoints=request.checkpoints is not None,
        image=request.algorithm.training_image or request.algorithm.algorithm_name,
        shared_pool=shared.pop() if len(shared) == 1 else None,
    )


def _began(job: Job, ended: TrainingJob | None) -> float | None:
    """Return the time from which an attempt is charged (epoch seconds), or None if it never had instances.

    A member without a reported start is charged from its assignment.
    """
    if ended is not None and ended.began is not None:
        return ended.began
    return epoch(job.started) if job.carrier_attempt is not None and job.started is not None else None


def _instances(job: Job, ended: TrainingJob | None, types: dict[str, str | None]) -> dict[str, int]:
    """Return the number of instances by instance type.

    The numbers come from SageMaker's report, else from the instance types of the pools, else from the demand. The
    result is empty if the demand is ambiguous. It is also empty for a member, because the instance belongs to the
    carrier.

    :param types: pool -> its instance type; None: a pool of any type.
    """
    if job.gpus is not None:
        return {}
    if ended is not None and ended.instance_counts:
        return dict(ended.instance_counts)
    found: dict[str, int] = {}
    for pool, count in job.slots.items():
        if instance_type := types.get(pool):
            found[instance_type] = found.get(instance_type, 0) + count
    if sum(found.values()) == sum(job.slots.values()):
        return found
    same_size = [it for it in job.demand if len(job.demand) == 1 or sum(it.values()) == sum(job.slots.values())]
    return dict(same_size[0]) if len(same_size) == 1 else {}
