"""The outlook: expected runtimes of live jobs and expected starts of waiting jobs, from the history of attempts.

The tick computes and stores the outlook after its cycle. So no submission and no cycle waits for it, and readers read
one row. A process keeps the part of the history that it has read. A new process reads the history again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.records.attempt_history import AttemptFeed
from job_queue.domain.accounting.attempts import PastUseOfAttempts
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.expectations.outlook import RECENT_SECONDS
from job_queue.domain.expectations.past_runtimes import PastRuntimes
from job_queue.domain.policy import AppliedPolicy
from job_queue.scheduler import PastUse, looks_back_to, remembers
from job_queue.services.idleness import IdleWatch
from job_queue.simulation.forecast import Estimate, forecast

PAST_SECONDS = 30 * 24 * 3600  # attempts that ended in this period are used


class OutlookService:
    """The service that computes and stores the outlook.

    :param read_cluster: returns the cluster state.
    :param clock: seconds since the epoch.
    :param idle_watch: finds jobs with idle GPUs; None: idle jobs are not looked up.
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
        self._use: _PastUseSums | None = None

    def refresh(self, may_go_on: Callable[[], bool]) -> None:
        """Compute and store the outlook, if there are live jobs or the policy counts past use.

        :param may_go_on: once it returns False, the outlook as computed so far is stored.
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
        """Return the past use by project, and the recently ended attempts that are included in it.

        Both results are empty if the policy does not count past use.
        """
        if not remembers(applied.policy):
            self._use = None
            return {}, frozenset()
        if self._use is None or self._use.version != applied.version:
            feed = AttemptFeed(self._repository.attempts, self._clock)
            self._use = _PastUseSums(applied.version, feed, PastUseOfAttempts(applied.policy))
        self._use.sums.add(self._use.ended.new(looks_back_to(applied.policy, now), may_go_on))
        return self._use.sums.at(now), self._use.ended.given_since(now - RECENT_SECONDS)


@dataclass(frozen=True, slots=True)
class _PastUseSums:
    """Sums of past use by the rules of one version of the policy."""

    version: int  # the policy's
    ended: AttemptFeed
    sums: PastUseOfAttempts


def look_ahead(cluster: ClusterState, now: float, may_go_on: Callable[[], bool]) -> dict[str, Estimate]:
    """Return the estimated starts of a cluster state's waiting jobs, by name, computed from the state's outlook.

    :param now: epoch seconds.
    :param may_go_on: once it returns False, the forecast ends with the futures computed so far.
    """
    basis = cluster.outlook.basis(cluster.snapshot(now))
    return forecast(basis.snapshot, basis.runtimes, basis.overheads, basis.arrivals, may_go_on=may_go_on)
