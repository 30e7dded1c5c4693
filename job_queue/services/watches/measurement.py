"""Measure ended attempts: read their utilization from CloudWatch once, some minutes after their end."""

from collections.abc import Callable, Mapping
from typing import Protocol

from job_queue.adapters.records.attempt_history import AttemptHistory
from job_queue.adapters.telemetry import log
from job_queue.domain.accounting.attempts import AttemptRecord
from job_queue.domain.accounting.utilization import (
    METRICS,
    SETTLED_SECONDS,
    MeasuredPeriod,
    Series,
    due,
    is_measurable,
    period_of,
    utilization_of,
)
from job_queue.domain.errors import QueueError
from job_queue.domain.fleet.sites import Site

MOST_MEASURED = 20  # attempts in one tick, each with one call of GetMetricData
FOLLOWED_SECONDS = 2 * SETTLED_SECONDS  # after the last active job, ticks look for attempts to measure for this time


class AttemptMetrics(Protocol):
    """A source of the metrics of instances, such as `InstanceMetrics`."""

    def __call__(self, metrics: tuple[str, ...], measured: MeasuredPeriod) -> Mapping[str, Mapping[str, Series]]:
        """Return the averages of each period: metric -> host -> series, which is empty for a host without reports."""


class Measurement:
    """The measurement of attempts that this process has read from the history.

    Two processes may measure the same attempt. Both store the same figures.

    :param metrics_at: returns the source for a site.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        metrics_at: Callable[[Site | None], AttemptMetrics],
        attempts: AttemptHistory,
        clock: Callable[[], float],
    ) -> None:
        self._metrics_at = metrics_at
        self._attempts = attempts
        self._clock = clock
        self._pending: dict[str, AttemptRecord] = {}
        self._follow_until = 0.0  # epoch seconds

    def follow(self) -> None:
        """Note that jobs are active now, so that later ticks look for their ended attempts."""
        self._follow_until = self._clock() + FOLLOWED_SECONDS

    @property
    def is_expected(self) -> bool:
        """Whether there may be attempts to measure, even if no job is active."""
        return bool(self._pending) or self._clock() < self._follow_until

    def add(self, ended: AttemptRecord) -> None:
        """Note an ended attempt, which is measured when its metrics have arrived."""
        if is_measurable(ended, self._clock()):
            self._pending[ended.training_job_name] = ended

    def measure(self, may_go_on: Callable[[], bool]) -> None:
        """Measure the attempts whose metrics have arrived, at most MOST_MEASURED, the earliest end first.

        If CloudWatch fails at a site, the next tick tries again there.
        """
        now, failed, tried = self._clock(), set[Site | None](), 0
        for record in due(self._pending.values(), now):
            if record.site in failed:
                continue
            if tried == MOST_MEASURED or not may_go_on():
                return
            tried += 1
            try:
                found = self._metrics_at(record.site)(METRICS, period_of(record))
                self._attempts.note_utilization(record, utilization_of(record, found))
            except QueueError as error:
                log.warning("attempt not measured", attempt=record.training_job_name, exc_info=error)
                failed.add(record.site)
                if is_measurable(record, now):
                    continue
            del self._pending[record.training_job_name]
