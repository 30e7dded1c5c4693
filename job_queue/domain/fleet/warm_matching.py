"""Decide which jobs fit a warm pool: instances that SageMaker keeps for a while after a training job.

docs/developers/adr/0030-warm-pools.md has the reasons.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from job_queue.domain.fleet.sites import same_place, site_of_pool
from job_queue.domain.job import ExternalTrainingJob, Job, epoch
from job_queue.domain.policy import alternatives, slots_of
from job_queue.scheduler import Policy, Pool, Slots


def usable_warm_pools(external: Iterable[ExternalTrainingJob]) -> list[ExternalTrainingJob]:
    """Return the warm pools that can be used or released; other warm pools count as external jobs."""
    return [job for job in external if job.warm is not None and not job.warm.fixed]


def warm_slots(job: ExternalTrainingJob, policy: Policy) -> Slots:
    """Return the slots that a warm pool uses.

    The slots are in the pool of the attempt that had the instances, if that pool can have such instances. The check is
    needed because other people may launch a copy under the attempt's name, with instances of another type.
    """
    kept_in = job.warm.pool if job.warm else None
    for pool in policy.pools:
        if pool.name == kept_in and _can_be_in(job, pool):
            return {pool.name: sum(job.instance_counts.values())}
    return slots_of(job.instance_counts, policy, job.plan, job.site)


def _can_be_in(job: ExternalTrainingJob, pool: Pool) -> bool:
    """Return whether the pool has instances of the job's types, under the job's training plan."""
    there = same_place(site_of_pool(pool), job.site) and pool.training_plan in (None, job.plan)
    return there and all(pool.instance_type in (None, instance_type) for instance_type in job.instance_counts)


def matching_pool(
    job: Job, slots: Slots, warm: Iterable[ExternalTrainingJob], policy: Policy
) -> ExternalTrainingJob | None:
    """Return the first warm pool on which SageMaker would launch an attempt on these slots; None if there is none."""
    kept = (pool for pool in warm if pool.warm and pool.warm.releasing is None)
    return next((pool for pool in kept if fits_warm_pool(job, slots, pool, policy)), None)


def fits_warm_pool(job: Job, slots: Slots, pool: ExternalTrainingJob, policy: Policy) -> bool:
    """Return whether an attempt on these slots would be launched on this warm pool."""
    if pool.warm is None or job.footprint != pool.warm.footprint or len(slots) != 1:
        return False
    if slots != warm_slots(pool, policy):
        return False
    target = next((it for it in policy.pools if it.name in slots), None)
    if target is None or target.spot:  # the policy no longer has the pool, or spot instances are not kept warm
        return False
    return target.instance_type is not None or any(pool.instance_counts == choice for choice in job.demand)


def fitting_jobs(
    waiting: Iterable[Job], external: Iterable[ExternalTrainingJob], policy: Policy, now: float
) -> set[str]:
    """Return the waiting jobs that come first among jobs of their project and priority, because they fit a warm pool.

    In each project and priority, each warm pool is given to the first job in line that fits it. A job never overtakes
    another job that has waited longer than `patience` and fits no warm pool.
    """
    warm = [pool for pool in usable_warm_pools(external) if pool.warm and pool.warm.releasing is None]
    if not warm:
        return set()
    patience = policy.settings.patience
    same_priority: dict[tuple[str, int], list[Job]] = defaultdict(list)
    for job in waiting:
        if not job.held and (job.backoff_until is None or job.backoff_until <= now):
            same_priority[job.project, job.priority].append(job)
    fitting: set[str] = set()
    for jobs in same_priority.values():
        fitting |= _first_that_fit(sorted(jobs, key=_in_line), warm, policy, now, patience)
    return fitting


def _first_that_fit(
    jobs: Sequence[Job], warm: Sequence[ExternalTrainingJob], policy: Policy, now: float, patience: float | None
) -> set[str]:
    left, found = list(warm), set[str]()
    for job in jobs:
        match = next(
            (
                pool
                for pool in left
                if any(fits_warm_pool(job, need, pool, policy) for need in alternatives(job, policy))
            ),
            None,
        )
        if match is not None:
            left.remove(match)
            found.add(job.name)
        elif patience is not None and now - epoch(job.entered) > patience:
            break
        if not left:
            break
    return found


def _in_line(job: Job) -> tuple[str, str]:
    return (job.entered, job.name)
