"""Drain pools: an admin empties a pool, now or from a later time on, and later lets jobs start there again."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from job_queue.adapters.job_repository import JobRepository
from job_queue.domain.cluster_state import ClusterState, StoredDrains
from job_queue.domain.domain_events import PoolDrained, PoolUndrained
from job_queue.domain.errors import InvalidRequest, NotFound, Refused, Unavailable
from job_queue.scheduler import MOST_POOLS, Drain, Drains, DrainStops, join
from job_queue.validation.issue import near, quoted

TRIES = 10  # tries to store the drains, since other requests may change them at the same time
LATE_SECONDS = 120  # a start at most this long ago means now, because requests take time
MOST_DRAINS = MOST_POOLS  # includes drains of pools that the policy no longer has
LONGEST_AHEAD = 366 * 24 * 3600  # seconds


@dataclass(frozen=True, slots=True)
class DrainChange:
    """The result of a request: the pool, its drain, and the active jobs in the pool."""

    pool: str
    drain: Drain | None  # the drain after the request; None: the pool is not drained
    was_drained: bool  # whether the pool was drained before the request
    stopping: int = 0  # active jobs that the drain stops, now or at its time
    staying: int = 0  # active jobs that run to their ends


class DrainService:
    """The service that drains pools and ends drains.

    :param read_cluster: returns the cluster state.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self, repository: JobRepository, read_cluster: Callable[[], ClusterState], clock: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._read_cluster = read_cluster
        self._clock = clock

    def drain(
        self,
        pool: str,
        caller: str,
        *,
        at: datetime | None = None,
        reason: str = "",
        stops: str = DrainStops.PREEMPTIBLE,
    ) -> DrainChange:
        """Drain a pool. An earlier drain of the pool is replaced.

        :param at: the time from which the drain is in force; None: now. A time without a zone is UTC.
        :param stops: the running jobs to stop: a value of DrainStops.
        :raises InvalidRequest, NotFound: nothing is changed.
        """
        cluster, now = self._read_cluster(), self._clock()
        self._check_pool(pool, cluster, known={})
        self._check_number(pool, cluster)
        drain = Drain(_start(at, now), caller, _one_line(reason), DrainStops(stops), int(now))
        before = self._store(pool, drain)
        self._repository.notify(PoolDrained(pool, drain))
        stopping, staying = _counts(cluster, pool, drain)
        return DrainChange(pool, drain, before is not None, stopping, staying)

    def undrain(self, pool: str, caller: str) -> DrainChange:
        """End the drain of a pool. If the pool is not drained, nothing changes.

        :raises NotFound: neither the policy nor a drain has such a pool.
        """
        cluster = self._read_cluster()
        self._check_pool(pool, cluster, known=cluster.metadata.drains.by_pool)
        before = self._store(pool, None)
        if before is not None:
            self._repository.notify(PoolUndrained(pool, before, caller))
        return DrainChange(pool, None, before is not None)

    def _store(self, pool: str, drain: Drain | None) -> Drain | None:
        """Store or remove the drain of a pool. Return the pool's previous drain.

        :raises Unavailable: other requests change the drains all the time.
        """
        for _ in range(TRIES):
            stored = self._repository.drains()
            before = stored.by_pool.get(pool)
            if before is None and drain is None:
                return None
            others = {name: other for name, other in stored.by_pool.items() if name != pool}
            by_pool = others if drain is None else {**others, pool: drain}
            try:
                self._repository.replace_drains(StoredDrains(stored.version + 1, by_pool))
            except Refused:
                continue
            return before
        raise Unavailable("Other requests change the drains at the same time. Send the same request again.")

    def _check_number(self, pool: str, cluster: ClusterState) -> None:
        """Check that another pool may be drained. Drains are limited, as they share a row of 400 KB with the policy.

        :raises InvalidRequest: too many pools are drained.
        """
        drains = cluster.metadata.drains.by_pool
        if pool in drains or len(drains) < MOST_DRAINS:
            return
        former = sorted(drains.keys() - {it.name for it in cluster.applied.policy.pools})
        raise InvalidRequest(
            f"{len(drains)} pools are drained, and at most {MOST_DRAINS} can be; {len(former)} of them are no longer "
            "in the policy.",
            field="pool",
            remedy=f"End a drain first: smq undrain {(former or sorted(drains))[0]}.",
        )

    def _check_pool(self, pool: str, cluster: ClusterState, known: Drains) -> None:
        names = [it.name for it in cluster.applied.policy.pools]
        if pool in names or pool in known:
            return
        suggestions = near(pool, names)
        hint = f"Did you mean {join(suggestions)}?" if suggestions else f"There are {join(names)}."
        message = f"The policy has no pool {quoted(pool)}. {hint}"
        raise NotFound(message, field="pool", remedy="See the pools: smq status.")


def _start(at: datetime | None, now: float) -> int:
    """Return the epoch seconds from which a drain is in force.

    :raises InvalidRequest: the time is in the past, or more than a year ahead.
    """
    if at is None:
        return int(now)
    seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    if seconds < now - LATE_SECONDS:
        raise InvalidRequest(
            f"{at.isoformat()} is in the past.", field="at", remedy="Leave the time out to drain the pool now."
        )
    if seconds > now + LONGEST_AHEAD:
        raise InvalidRequest(f"{at.isoformat()} is more than a year ahead.", field="at", remedy="Name an earlier time.")
    return int(max(seconds, now))


def _one_line(reason: str) -> str:
    """Return the reason on one line, without unprintable characters, because messages contain the reason."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in reason).split())


def _counts(cluster: ClusterState, pool: str, drain: Drain) -> tuple[int, int]:
    """Return how many active jobs of a pool its drain stops, and how many run to their ends."""
    stopping = staying = 0
    for job in cluster.active.values():
        if job.carries is None and pool in cluster.pools_of(job):
            if drain.stops_job(drain.at, preemptible=job.may_be_preempted):
                stopping += 1
            else:
                staying += 1
    return stopping, staying
