"""Decide which starts take a warm pool, which take free instances, and which warm pools must be released for a start.

A warm pool uses capacity until a matching job starts on it, or until it is released. The planner counts the
instances of warm pools as free, so a start may have to wait for a release.
docs/developers/adr/0030-warm-pools.md has the reasons.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.fleet.warm_matching import fits_warm_pool, matching_pool, usable_warm_pools, warm_slots
from job_queue.domain.job import ExternalTrainingJob, Job
from job_queue.domain.policy import alternatives
from job_queue.scheduler import Plan, Policy, Pool, Slots, Start

RELEASE_AGAIN_SECONDS = 60  # time between two requests to release a warm pool


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of a plan's starts."""

    plan: Plan  # the plan without the starts that warm pools block; the slots of these starts are reserved
    reused: Mapping[str, ExternalTrainingJob] = field(
        default_factory=dict
    )  # job -> the warm pool on which it is launched
    in_the_way: tuple[ExternalTrainingJob, ...] = ()  # the warm pools to release
    keep: Mapping[str, int] = field(default_factory=dict)  # starting job -> seconds to keep its instances warm


@dataclass(frozen=True, slots=True)
class WarmPoolClaims:
    """The warm pools on which relaunched attempts will be launched, and the warm pools that block such attempts."""

    reused: Mapping[str, ExternalTrainingJob] = field(
        default_factory=dict
    )  # job -> the warm pool on which it will be launched
    in_the_way: Mapping[str, tuple[ExternalTrainingJob, ...]] = field(
        default_factory=dict
    )  # job -> the warm pools to release before its launch

    @property
    def to_release(self) -> list[ExternalTrainingJob]:
        """The warm pools that block an attempt."""
        return [pool for pools in self.in_the_way.values() for pool in pools]


def place_starts(cluster: ClusterState, decided: Plan, claims: WarmPoolClaims) -> Placement:
    """Give each start a matching warm pool or free instances; else release the warm pools that block the start.

    Warm pools claimed by relaunched attempts are not offered to new starts.
    """
    policy, keep = cluster.applied.policy, _to_keep(cluster, decided)
    warm = [pool for pool in usable_warm_pools(cluster.external) if pool not in claims.reused.values()]
    if not warm:
        return Placement(decided, claims.reused, keep=keep)
    unassigned = [pool for pool in warm if pool not in claims.to_release]
    reused = _matches(cluster, decided.starts, unassigned, policy)
    unassigned = [pool for pool in unassigned if pool not in reused.values()]
    free = _free(cluster, decided.capacities, warm, policy)
    free_after_releases = Counter(free)  # instances that are free after the planned releases
    for pool in claims.to_release:
        free_after_releases.update(warm_slots(pool, policy))
    starts: list[Start] = []
    deferred: dict[str, Slots] = {}
    in_the_way: dict[str, ExternalTrainingJob] = {}
    for start in decided.starts:
        # A start on a warm pool needs no free instances. But the start waits if warm pools exceed the pool's capacity.
        needed = dict.fromkeys(start.slots, 0) if start.job in reused else start.slots
        if all(count <= free[pool] for pool, count in needed.items()):
            starts.append(start)
        else:
            deferred[start.job] = start.slots
        missing = {
            pool: count - free_after_releases[pool]
            for pool, count in needed.items()
            if count > free_after_releases[pool]
        }
        free.subtract(needed)
        free_after_releases.subtract(needed)
        for pool in _to_release(missing, unassigned, policy, cluster):
            in_the_way[pool.name] = pool
            unassigned.remove(pool)
            free_after_releases.update(warm_slots(pool, policy))
    plan = replace(decided, starts=tuple(starts), reservations={**decided.reservations, **deferred})
    return Placement(plan, {**claims.reused, **reused}, tuple(in_the_way.values()), keep)


def in_drained_pools(cluster: ClusterState, placement: Placement, now: float) -> list[ExternalTrainingJob]:
    """Return the warm pools to release because a drain of their pool is in force. Reused warm pools are left out."""
    drained = {pool for pool, drain in cluster.drains.items() if drain.is_in_force(now)}
    warm = (
        [pool for pool in usable_warm_pools(cluster.external) if pool not in placement.reused.values()]
        if drained
        else []
    )
    return [pool for pool in warm if drained & warm_slots(pool, cluster.applied.policy).keys()]


def claims_of(attempts: Sequence[Job], cluster: ClusterState, now: float) -> WarmPoolClaims:
    """Return the warm pools on which these attempts will be launched again, or that block these attempts.

    The attempts already hold their slots: each attempt began before the queue knew of the warm pool. First, each
    attempt gets a matching warm pool if there is one. Then warm pools are released for the other attempts, as far as
    free instances are missing. So no warm pool that an attempt can reuse is released for another attempt.

    :param attempts: the attempts, the most important first.
    """
    policy, unclaimed = cluster.applied.policy, usable_warm_pools(cluster.external)
    if not attempts or not unclaimed:
        return WarmPoolClaims()
    snapshot = cluster.snapshot(now)
    free = _free(cluster, {pool.name: snapshot.capacity(pool) for pool in snapshot.policy.pools}, unclaimed, policy)
    reused: dict[str, ExternalTrainingJob] = {}
    in_the_way: dict[str, tuple[ExternalTrainingJob, ...]] = {}

    def claim(pool: ExternalTrainingJob) -> None:
        unclaimed.remove(pool)
        free.update(warm_slots(pool, policy))

    for job in attempts:
        if match := matching_pool(job, job.slots, unclaimed, policy):
            reused[job.name] = match
            claim(match)
    for job in reversed(attempts):
        missing = {name: min(count, -free[name]) for name, count in job.slots.items() if free[name] < 0}
        if job.name in reused or not missing:
            continue
        if pools := tuple(_to_release(missing, unclaimed, policy, cluster)):
            in_the_way[job.name] = pools
            for pool in pools:
                claim(pool)
    return WarmPoolClaims(reused, in_the_way)


def _matches(
    cluster: ClusterState, starts: Iterable[Start], warm: Iterable[ExternalTrainingJob], policy: Policy
) -> dict[str, ExternalTrainingJob]:
    left, reused = list(warm), dict[str, ExternalTrainingJob]()
    for start in starts:
        match = matching_pool(cluster.waiting[start.job], start.slots, left, policy)
        if match is not None:
            left.remove(match)
            reused[start.job] = match
    return reused


def _free(
    cluster: ClusterState, capacities: Slots, warm: Iterable[ExternalTrainingJob], policy: Policy
) -> Counter[str]:
    """Return the instances of each pool that are neither used nor kept warm."""
    free = Counter(dict(capacities))
    free.subtract(cluster.external_slots())
    for job in cluster.active.values():
        free.subtract(job.slots)
    for pool in warm:
        free.subtract(warm_slots(pool, policy))
    return free


def _to_release(
    missing: Slots, warm: Sequence[ExternalTrainingJob], policy: Policy, cluster: ClusterState
) -> Iterator[ExternalTrainingJob]:
    """Yield the warm pools to release for the missing slots.

    Warm pools that are being released come first, then those that fit no waiting job. Among equals, the warm pool that
    SageMaker keeps for the shortest time comes first.
    """

    def order(pool: ExternalTrainingJob) -> tuple[bool, bool, float, str]:
        assert pool.warm is not None
        wanted = any(
            fits_warm_pool(job, need, pool, policy)
            for job in cluster.waiting.values()
            for need in alternatives(job, policy)
        )
        return (pool.warm.releasing is None, wanted, pool.warm.until, pool.name)

    missing = dict(missing)
    for pool in sorted(warm, key=order):
        slots = warm_slots(pool, policy)
        if any(missing.get(name, 0) > 0 for name in slots):
            missing = {name: count - slots.get(name, 0) for name, count in missing.items()}
            yield pool


def _to_keep(cluster: ClusterState, decided: Plan) -> dict[str, int]:
    """Return how many seconds to keep the instances of each starting job warm, if a waiting job can follow on them."""
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


def _is_followed(job: Job, slots: Slots, pool: Pool, waiting: Iterable[Job], cluster: ClusterState) -> bool:
    if job.footprint is None or job.carries is not None:  # an empty carrier itself keeps its instance for a while
        return False
    return any(
        other.footprint == job.footprint
        and any(need == slots for need in alternatives(other, cluster.applied.policy))
        and (pool.instance_type is not None or other.demand == job.demand)
        for other in waiting
    )
