"""Warm pools: instances that SageMaker keeps for a while after a training job, for the next one that matches.

They use capacity until somebody who matches starts on them, or they are released. The planner counts them as free;
this module says which of its starts can be made at once, on which warm pool, and what is in the way of the others.
docs/adr/0030-warm-pools.md has the reasons.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from job_queue.domain.job import ExternalJob, Job, epoch
from job_queue.domain.policy import alternatives, slots_of
from job_queue.scheduler import Plan, Policy, Pool, Slots, Spot, Start

if TYPE_CHECKING:
    from job_queue.domain.cluster_state import ClusterState

RELEASE_AGAIN_SECONDS = 60


def footprint(request: Mapping[str, Any]) -> str | None:
    """What a job must have in common with a warm pool, besides instance type and count, as one short text.

    None: nothing is kept warm for it, nor after it.

    Source: AWS's guide, "Matching training jobs" of managed warm pools. Session tags are compared by SageMaker; all
    launches of the queue have the same.
    """
    resources, network = request.get("ResourceConfig", {}), request.get("VpcConfig") or {}
    if resources.get("InstanceGroups") or request.get("EnableManagedSpotTraining"):
        return None
    criteria = (
        request.get("RoleArn"),
        resources.get("VolumeSizeInGB") or 0,
        resources.get("VolumeKmsKeyId") or "",
        sorted(network.get("Subnets", ())),
        sorted(network.get("SecurityGroupIds", ())),
        bool(request.get("EnableInterContainerTrafficEncryption")),
        bool(request.get("EnableNetworkIsolation")),
        bool((request.get("SessionChainingConfig") or {}).get("EnableSessionTagChaining")),
    )
    return sha256(repr(criteria).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Placement:
    """What becomes of a plan's starts."""

    plan: Plan  # without the starts that warm pools are in the way of; the slots of these are set aside
    reused: Mapping[str, ExternalJob] = field(default_factory=dict)  # job -> the warm pool that it is launched on
    in_the_way: tuple[ExternalJob, ...] = ()  # to be released
    keep: Mapping[str, int] = field(default_factory=dict)  # starting job -> seconds to keep its instances warm


@dataclass(frozen=True, slots=True)
class Claims:
    """What attempts that have to be launched again need of the warm pools."""

    reused: Mapping[str, ExternalJob] = field(default_factory=dict)  # job -> the warm pool that it will be launched on
    in_the_way: Mapping[str, tuple[ExternalJob, ...]] = field(default_factory=dict)  # to be released first, by job

    @property
    def to_release(self) -> list[ExternalJob]:
        """Each that is in the way of one of the attempts."""
        return [pool for pools in self.in_the_way.values() for pool in pools]


def idle(cluster: "ClusterState") -> list[ExternalJob]:
    """The warm pools that can be used or released; others count as external jobs."""
    return [job for job in cluster.external if job.warm is not None and not job.warm.fixed]


def warm_slots(job: ExternalJob, policy: Policy) -> Slots:
    """The slots that a warm pool uses."""
    if job.warm and any(pool.name == job.warm.pool for pool in policy.pools):
        return {job.warm.pool or "": sum(job.instance_counts.values())}
    return slots_of(job.instance_counts, policy, job.plan)


def place(cluster: "ClusterState", decided: Plan, claims: Claims) -> Placement:
    """Give each start a warm pool that matches, or free instances; else release what is in its way.

    What attempts have claimed that are launched again is no start's.
    """
    policy, keep = cluster.applied.policy, _to_keep(cluster, decided)
    warm = [pool for pool in idle(cluster) if pool not in claims.reused.values()]
    if not warm:
        return Placement(decided, claims.reused, keep=keep)
    left = [pool for pool in warm if pool not in claims.to_release]
    reused = _matches(cluster, decided.starts, left, policy)
    left = [pool for pool in left if pool not in reused.values()]
    free = _free(cluster, decided.capacities, warm, policy)
    coming = Counter(free)  # ... when what is in the way is released
    for pool in claims.to_release:
        coming.update(warm_slots(pool, policy))
    starts: list[Start] = []
    deferred: dict[str, Slots] = {}
    in_the_way: dict[str, ExternalJob] = {}
    for start in decided.starts:
        # On a warm pool it needs none besides; but others that are kept may be more than the capacity.
        needed = dict.fromkeys(start.slots, 0) if start.job in reused else start.slots
        if all(count <= free[pool] for pool, count in needed.items()):
            starts.append(start)
        else:
            deferred[start.job] = start.slots
        missing = {pool: count - coming[pool] for pool, count in needed.items() if count > coming[pool]}
        free.subtract(needed)
        coming.subtract(needed)
        for pool in _to_release(missing, left, policy, cluster):
            in_the_way[pool.name] = pool
            left.remove(pool)
            coming.update(warm_slots(pool, policy))
    plan = replace(decided, starts=tuple(starts), reservations={**decided.reservations, **deferred})
    return Placement(plan, {**claims.reused, **reused}, tuple(in_the_way.values()), keep)


def claims_of(attempts: Sequence[Job], cluster: "ClusterState", now: float) -> Claims:
    """What these attempts need to be launched again, the most important first.

    They have their slots already: each was begun before the queue knew of the warm pool. Those that nothing is in the
    way of can be launched, on free instances or on a warm pool that matches.
    """
    policy, left = cluster.applied.policy, idle(cluster)
    if not attempts or not left:
        return Claims()
    snapshot = cluster.snapshot(now)
    free = _free(cluster, {pool.name: snapshot.capacity(pool) for pool in snapshot.policy.pools}, left, policy)
    reused: dict[str, ExternalJob] = {}
    in_the_way: dict[str, tuple[ExternalJob, ...]] = {}
    for job in reversed(attempts):
        match = _match(job, job.slots, left, policy)
        missing = {name: min(count, -free[name]) for name, count in job.slots.items() if free[name] < 0}
        pools = (match,) if match else tuple(_to_release(missing, left, policy, cluster))
        if match:
            reused[job.name] = match
        elif pools:
            in_the_way[job.name] = pools
        for pool in pools:
            left.remove(pool)
            free.update(warm_slots(pool, policy))
    return Claims(reused, in_the_way)


def fitting_jobs(cluster: "ClusterState", now: float) -> set[str]:
    """Waiting jobs that go first among those of their project and priority, as they fit a warm pool.

    One for each warm pool, the first in line. None of them goes past a job that has waited longer than `patience`.
    """
    warm = [pool for pool in idle(cluster) if pool.warm and pool.warm.releasing is None]
    if not warm:
        return set()
    patience = cluster.applied.policy.settings.patience
    equals: dict[tuple[str, int], list[Job]] = defaultdict(list)
    for job in cluster.waiting.values():
        if not job.held and (job.backoff_until is None or job.backoff_until <= now):
            equals[job.project, job.priority].append(job)
    found: set[str] = set()
    for jobs in equals.values():
        found |= _first_that_fit(sorted(jobs, key=_in_line), warm, cluster.applied.policy, now, patience)
    return found


def _first_that_fit(
    jobs: Sequence[Job], warm: Sequence[ExternalJob], policy: Policy, now: float, patience: float | None
) -> set[str]:
    left, found = list(warm), set[str]()
    for job in jobs:
        match = next(
            (pool for pool in left if any(_fits(job, need, pool, policy) for need in _needs(job, policy))), None
        )
        if match is not None:
            left.remove(match)
            found.add(job.name)
        elif patience is not None and now - epoch(job.entered) > patience:
            break
        if not left:
            break
    return found


def _matches(
    cluster: "ClusterState", starts: Iterable[Start], warm: Iterable[ExternalJob], policy: Policy
) -> dict[str, ExternalJob]:
    left, reused = list(warm), dict[str, ExternalJob]()
    for start in starts:
        match = _match(cluster.waiting[start.job], start.slots, left, policy)
        if match is not None:
            left.remove(match)
            reused[start.job] = match
    return reused


def _match(job: Job, slots: Slots, warm: Iterable[ExternalJob], policy: Policy) -> ExternalJob | None:
    """The first warm pool on which an attempt on these slots would be launched."""
    kept = (pool for pool in warm if pool.warm and pool.warm.releasing is None)
    return next((pool for pool in kept if _fits(job, slots, pool, policy)), None)


def _fits(job: Job, slots: Slots, pool: ExternalJob, policy: Policy) -> bool:
    """Whether an attempt on these slots would be launched on this warm pool."""
    if pool.warm is None or job.footprint != pool.warm.footprint or len(slots) != 1:
        return False
    if slots != warm_slots(pool, policy):
        return False
    target = next(it for it in policy.pools if it.name in slots)
    if isinstance(target.market, Spot):
        return False
    return target.instance_type is not None or any(pool.instance_counts == choice for choice in job.demand)


def _free(cluster: "ClusterState", capacities: Slots, warm: Iterable[ExternalJob], policy: Policy) -> Counter[str]:
    """Instances of each pool that nobody has, and that are not kept warm."""
    free = Counter(dict(capacities))
    free.subtract(cluster.external_slots())
    for job in cluster.active.values():
        free.subtract(job.slots)
    for pool in warm:
        free.subtract(warm_slots(pool, policy))
    return free


def _to_release(
    missing: Slots, warm: Sequence[ExternalJob], policy: Policy, cluster: "ClusterState"
) -> Iterator[ExternalJob]:
    """Warm pools that leave nothing missing: those being released, then those that no waiting job fits, the oldest."""

    def order(pool: ExternalJob) -> tuple[bool, bool, float, str]:
        assert pool.warm is not None
        wanted = any(_fits(job, need, pool, policy) for job in cluster.waiting.values() for need in _needs(job, policy))
        return (pool.warm.releasing is None, wanted, pool.warm.until, pool.name)

    missing = dict(missing)
    for pool in sorted(warm, key=order):
        slots = warm_slots(pool, policy)
        if any(missing.get(name, 0) > 0 for name in slots):
            missing = {name: count - slots.get(name, 0) for name, count in missing.items()}
            yield pool


def _to_keep(cluster: "ClusterState", decided: Plan) -> dict[str, int]:
    """Which starts keep their instances warm: those after which a job that matches still waits."""
    pools = {pool.name: pool for pool in cluster.applied.policy.pools if pool.keep_warm}
    if not pools:
        return {}
    starting = {start.job for start in decided.starts}
    waiting = [job for job in cluster.waiting.values() if job.name not in starting and not job.held]
    kept = {}
    for start in decided.starts:
        pool = pools.get(next(iter(start.slots))) if len(start.slots) == 1 else None
        if pool is not None and _is_followed(cluster.waiting[start.job], start.slots, pool, waiting, cluster):
            kept[start.job] = int(pool.keep_warm or 0)
    return kept


def _is_followed(job: Job, slots: Slots, pool: Pool, waiting: Iterable[Job], cluster: "ClusterState") -> bool:
    if job.footprint is None or job.carries is not None:  # a carrier is kept itself, while nobody is on it
        return False
    return any(
        other.footprint == job.footprint
        and any(need == slots for need in _needs(other, cluster.applied.policy))
        and (pool.instance_type is not None or other.demand == job.demand)
        for other in waiting
    )


def _needs(job: Job, policy: Policy) -> tuple[Slots, ...]:
    return alternatives(job, policy)


def _in_line(job: Job) -> tuple[str, str]:
    return (job.entered, job.name)
