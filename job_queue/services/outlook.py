"""Compute the outlook: expected runtimes of live jobs, and expected starts of waiting jobs, from past attempts.

The tick computes and stores the outlook after its cycle. So no submission and no cycle waits for this computation, and
readers read one row. A process keeps the part of the history that it has read. A new process reads the history again.

The tick also compares past estimates with the starts of their jobs. The errors of past estimates determine the
intervals of new ones.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.records.attempt_history import AttemptFeed
from job_queue.domain.accounting.attempts import AttemptRecord, PastUseOfAttempts
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.domain_events import UnsavedJob
from job_queue.domain.expectations.outlook import RECENT_SECONDS
from job_queue.domain.expectations.past_estimates import PastEstimates, depends_on_queue, estimated_wait
from job_queue.domain.expectations.past_runtimes import PastRuntimes
from job_queue.domain.expectations.unsaved import SavedWork, unsaved_candidates
from job_queue.domain.job import epoch
from job_queue.domain.policy import AppliedPolicy
from job_queue.scheduler import PastUse, depends_on_past_use, oldest_counted_time
from job_queue.services.watches.hangs import HangWatch
from job_queue.services.watches.idleness import IdleWatch
from job_queue.services.watches.measurement import Measurement
from job_queue.services.watches.unsaved_work import UnsavedWork
from job_queue.simulation.forecast import Estimate, forecast

PAST_SECONDS = 30 * 24 * 3600  # attempts that ended in this period, up to now, are used


class OutlookService:
    """The service that computes and stores the outlook.

    :param read_cluster: returns the cluster state.
    :param clock: seconds since the epoch.
    :param idle_watch: finds jobs with idle GPUs; None: idle jobs are not looked up.
    :param hang_watch: finds jobs that hang, among those with idle GPUs; None: hangs are not looked up.
    :param measurement: measures ended attempts; None: attempts are not measured.
    :param unsaved_work: finds long-running jobs without a checkpoint; None: these are not looked up.
    """

    def __init__(
        self,
        repository: JobRepository,
        read_cluster: Callable[[], ClusterState],
        clock: Callable[[], float],
        idle_watch: IdleWatch | None = None,
        measurement: Measurement | None = None,
        unsaved_work: UnsavedWork | None = None,
        hang_watch: HangWatch | None = None,
    ) -> None:
        self._repository = repository
        self._read_cluster = read_cluster
        self._clock = clock
        self._idle_watch = idle_watch
        self._unsaved_work = unsaved_work
        self._measurement = measurement
        self._hang_watch = hang_watch
        self._past = PastRuntimes()
        self._ended = AttemptFeed(repository.attempts, clock)
        self._use: _PastUseSums | None = None

    def refresh(self, may_go_on: Callable[[], bool]) -> None:
        """Compute and store the outlook, if there are live jobs or the policy counts past use. Measure ended attempts.

        :param may_go_on: after its first result of False, the results so far are stored.
        """
        cluster = self._read_cluster()
        if cluster.waiting or cluster.active or depends_on_past_use(cluster.policy):
            self._look_ahead(cluster, may_go_on)
        elif self._measurement is not None and self._measurement.is_expected:
            for attempt in self._ended.new(self._clock() - PAST_SECONDS, may_go_on):
                self._learn(attempt)
        if self._measurement is not None:
            if cluster.active:
                self._measurement.follow()
            self._measurement.measure(may_go_on)

    def _learn(self, ended: AttemptRecord) -> None:
        self._past.learn(ended)
        if self._measurement is not None:
            self._measurement.add(ended)

    def _look_ahead(self, cluster: ClusterState, may_go_on: Callable[[], bool]) -> None:
        past_estimates = self._repository.outlook.past_estimates()
        starts = _starts_of_active(cluster)
        pending = past_estimates.pending()
        for attempt in self._ended.new(self._clock() - PAST_SECONDS, may_go_on):
            self._learn(attempt)
            if attempt.submission in pending:
                starts[attempt.submission].append(epoch(attempt.launched))
        now = self._clock()
        past_use, counted = self._past_use(cluster.applied, now, may_go_on)
        outlook = replace(self._past.outlook(cluster, now), past_use=past_use, counted=counted)
        if self._idle_watch is not None and cluster.active:
            idle_at, idle = self._idle_watch.check(cluster, self._repository.outlook.latest(), now, may_go_on)
            outlook = replace(outlook, idle_at=idle_at, idle=idle)
            if self._hang_watch is not None and idle and idle_at == now:  # `idle` is new, not an earlier result
                self._hang_watch.check(cluster, idle, now, may_go_on)
        saved_work, unsaved = self._check_unsaved_work(cluster, now, may_go_on)
        outlook = replace(outlook, saved_work=saved_work)
        estimates = look_ahead(replace(cluster, outlook=outlook), now, may_go_on)
        learned = _with_outcomes(past_estimates, cluster, estimates, starts, now)
        self._repository.outlook.replace(replace(outlook, estimates=estimates, errors=learned.usual_errors(now)))
        for event in unsaved:  # after the results are stored, so that an event is not sent twice
            self._repository.notify(event)
        if learned != past_estimates:
            self._repository.outlook.replace_past_estimates(learned)

    def _check_unsaved_work(
        self, cluster: ClusterState, now: float, may_go_on: Callable[[], bool]
    ) -> tuple[SavedWork, list[UnsavedJob]]:
        """Return the results about unsaved work, and an event for each attempt that is newly unsaved.

        No row is read if there are no candidates (`unsaved_candidates`).
        """
        jobs = unsaved_candidates(cluster.active.values(), now)
        if self._unsaved_work is None or not jobs:
            return SavedWork(), []
        before = self._repository.outlook.latest().saved_work
        return self._unsaved_work.check(jobs, cluster.policy, before, now, may_go_on)

    def _past_use(
        self, applied: AppliedPolicy, now: float, may_go_on: Callable[[], bool]
    ) -> tuple[Mapping[str, PastUse], frozenset[str]]:
        """Return the past use by project, and the recently ended attempts that this use includes.

        Both results are empty if the policy does not count past use.
        """
        if not depends_on_past_use(applied.policy):
            self._use = None
            return {}, frozenset()
        if self._use is None or self._use.version != applied.version:
            feed = AttemptFeed(self._repository.attempts, self._clock)
            self._use = _PastUseSums(applied.version, feed, PastUseOfAttempts(applied.policy))
        self._use.sums.add(self._use.ended.new(oldest_counted_time(applied.policy, now), may_go_on))
        return self._use.sums.at(now), self._use.ended.given_since(now - RECENT_SECONDS)


@dataclass(frozen=True, slots=True)
class _PastUseSums:
    """Sums of past use, counted according to one version of the policy."""

    version: int  # version of the policy
    ended: AttemptFeed
    sums: PastUseOfAttempts


def _starts_of_active(cluster: ClusterState) -> defaultdict[str, list[float]]:
    """Return the starts of the active jobs: submission -> epoch seconds."""
    starts = defaultdict[str, list[float]](list)
    for job in cluster.active.values():
        if job.started is not None:
            starts[job.submission].append(epoch(job.started))
    return starts


def _with_outcomes(
    past: PastEstimates,
    cluster: ClusterState,
    estimates: Mapping[str, Estimate],
    starts: Mapping[str, Sequence[float]],
    now: float,
) -> PastEstimates:
    """Return the past estimates with the outcomes that are known now. If a look is due, add the new estimates.

    :param estimates: the new estimates, by the names of waiting jobs.
    :param starts: submission -> epoch seconds of its starts.
    """
    expected_waits = {
        job.submission: estimated_wait(estimate, now, epoch(job.entered))
        for name, estimate in estimates.items()
        if depends_on_queue(estimate) and (job := cluster.waiting.get(name)) is not None
    }
    past = past.with_starts(starts, None if cluster.truncated_queues else expected_waits)
    return past.with_look(now, expected_waits) if past.is_due(now) else past


def look_ahead(cluster: ClusterState, now: float, may_go_on: Callable[[], bool]) -> dict[str, Estimate]:
    """Return the estimated starts of a cluster state's waiting jobs, by name, computed from the state's outlook.

    :param now: epoch seconds.
    :param may_go_on: after its first result of False, the forecast ends with the futures computed so far.
    """
    inputs = cluster.outlook.forecast_input(cluster.snapshot(now))
    return forecast(inputs.snapshot, inputs.runtimes, inputs.overheads, inputs.arrivals, may_go_on=may_go_on)
