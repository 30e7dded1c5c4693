"""The outlook: how long live jobs are expected to run, and when those that wait start, from the history of attempts.

It is worked out beside the cycles, by the tick, and stored. So no submission and no cycle waits for it, and whoever
asks reads a row. What is known of the past is kept in the process; a new process reads it from the history.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.records.attempt_history import AttemptFeed
from job_queue.domain.accounting.past_use import PastUseOfAttempts, read_from
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.expectations.outlook import RECENT
from job_queue.domain.expectations.past_runtimes import PastRuntimes
from job_queue.domain.policy import AppliedPolicy
from job_queue.scheduler import PastUse, remembers
from job_queue.services.idleness import IdleWatch
from job_queue.simulation.forecast import Estimate, forecast

PAST_SECONDS = 30 * 24 * 3600  # of which attempts are learned from


class OutlookService:
    """Works out what is to be expected.

    :param read_cluster: gives the live jobs and what else uses capacity.
    :param clock: seconds since the epoch.
    :param idle_watch: looks who does nothing; None: nobody looks.
    """

    def __init__(
        self,
        repository: JobRepository,
        read_cluster: Callable[[], ClusterState],
        clock: Callable[[], float],
        idle_watch: IdleWatch | None = None,
    ) -> None:
        self._repository = repository
        self._read_cluster = read_cluster
        self._clock = clock
        self._idle_watch = idle_watch
        self._past = PastRuntimes()
        self._ended = AttemptFeed(repository.attempts, clock)
        self._use: _Use | None = None

    def refresh(self, may_go_on: Callable[[], bool]) -> None:
        """Work out the outlook anew and store it, if any job lives or plans need it.

        :param may_go_on: once it may not, what is known by then is stored.
        """
        cluster = self._read_cluster()
        if not (cluster.waiting or cluster.active or remembers(cluster.policy)):
            return
        for attempt in self._ended.new(self._clock() - PAST_SECONDS, may_go_on):
            self._past.learn(attempt)
        now = self._clock()
        past_use, counted = self._past_use(cluster.applied, now, may_go_on)
        outlook = replace(self._past.outlook(cluster, now), past_use=past_use, counted=counted)
        if self._idle_watch is not None and cluster.active:
            idle_at, idle = self._idle_watch.look(cluster, self._repository.outlook.latest(), now, may_go_on)
            outlook = replace(outlook, idle_at=idle_at, idle=idle)
        estimates = look_ahead(replace(cluster, outlook=outlook), now, may_go_on)
        self._repository.outlook.replace(replace(outlook, estimates=estimates))

    def _past_use(
        self, applied: AppliedPolicy, now: float, may_go_on: Callable[[], bool]
    ) -> tuple[Mapping[str, PastUse], frozenset[str]]:
        """What projects and owners have used, as far as plans look at it, and which late attempts are counted."""
        if not remembers(applied.policy):
            self._use = None
            return {}, frozenset()
        if self._use is None or self._use.version != applied.version:
            feed = AttemptFeed(self._repository.attempts, self._clock)
            self._use = _Use(applied.version, feed, PastUseOfAttempts(applied.policy))
        self._use.sums.add(self._use.ended.new(read_from(applied.policy, now), may_go_on))
        return self._use.sums.at(now), self._use.ended.given_since(now - RECENT)


@dataclass(frozen=True, slots=True)
class _Use:
    """What attempts have used, as one version of the policy counts it."""

    version: int
    ended: AttemptFeed
    sums: PastUseOfAttempts


def look_ahead(cluster: ClusterState, now: float, may_go_on: Callable[[], bool]) -> dict[str, Estimate]:
    """When jobs start that wait in this state, by what its outlook expects."""
    basis = cluster.outlook.basis(cluster.snapshot(now))
    return forecast(basis.snapshot, basis.runtimes, basis.overheads, basis.arrivals, may_go_on=may_go_on)
