"""Ended attempts are measured once, some minutes after their end, and nothing is called if none had GPUs."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from job_queue.domain.accounting.attempts import AttemptRecord, MeasuredUtilization
from job_queue.domain.accounting.utilization import GPU, METRICS, SETTLED_SECONDS, MeasuredPeriod, Series
from job_queue.domain.errors import Unavailable
from job_queue.services.outlook import OutlookService
from job_queue.services.watches.measurement import FOLLOWED_SECONDS, MOST_MEASURED, Measurement
from tests.queue_harness import Harness


class Measured:
    """A queue whose instances report metrics as the test says, by host."""

    def __init__(self, slots: int = 4) -> None:
        self.queue = Harness(slots=slots)
        self.gpus: dict[str, float] = {}
        self.asked: list[MeasuredPeriod] = []
        self.broken = False
        self.new_process()

    def new_process(self) -> None:
        measurement = Measurement(lambda site: self._metrics, self.queue.repository.attempts, self.queue.clock)
        self._service = OutlookService(
            self.queue.repository, self.queue.dry_run.cluster, self.queue.clock, measurement=measurement
        )

    def _metrics(self, metrics: tuple[str, ...], measured: MeasuredPeriod) -> Mapping[str, Mapping[str, Series]]:
        assert metrics == METRICS
        self.asked.append(measured)
        if self.broken:
            raise Unavailable("CloudWatch did not return the metrics of instances.")
        return {GPU: {host: {measured.since: self.gpus[host]} for host in measured.hosts if host in self.gpus}}

    def look(self, later: float = 0) -> None:
        """Run the next tick."""
        self.queue.now += later
        self._service.refresh(lambda: True)

    def run(self, name: str, seconds: float = 600.0) -> None:
        """Have a job run for this long; a tick sees it while it runs."""
        self.queue.submit(name)
        self.queue.training.run(f"{name}-qstamp-1", self.queue.now)
        self.look(seconds)
        self.queue.end(f"{name}-qstamp-1")

    def record(self, name: str) -> AttemptRecord:
        now = self.queue.now
        (found,) = [it for it in self.queue.repository.attempts.ended_since(now - 80_000, now) if it.job == name]
        return found


@pytest.fixture
def measured() -> Measured:
    return Measured()


def test_an_attempt_is_measured_once_ten_minutes_after_its_end(measured: Measured) -> None:
    measured.gpus = {"a-qstamp-1/algo-1": 400.0}
    measured.run("a")
    before = measured.record("a")
    measured.look(SETTLED_SECONDS - 1)
    assert (measured.asked, before.utilization) == ([], None)
    measured.look(1)
    assert measured.record("a").utilization == MeasuredUtilization(gpu_mean=50, gpu_p95=50, idle=0)
    assert replace(measured.record("a"), utilization=None) == before
    for _ in range(3):
        measured.look(60)
    measured.new_process()
    measured.queue.submit("b")
    measured.look(60)
    assert len(measured.asked) == 1


def test_no_data_is_none_and_is_not_requested_again(measured: Measured) -> None:
    measured.run("a")
    measured.look(SETTLED_SECONDS)
    assert measured.record("a").utilization == MeasuredUtilization()
    measured.new_process()
    measured.queue.submit("b")
    measured.look(60)
    assert len(measured.asked) == 1


def test_another_process_measures_what_the_first_has_not(measured: Measured) -> None:
    measured.run("a")
    measured.new_process()
    measured.look(SETTLED_SECONDS)
    assert measured.asked == [], "no job is live, and the process knows of none that was"
    measured.queue.submit("b")
    measured.look(60)
    assert len(measured.asked) == 1


def test_an_error_of_cloudwatch_is_tried_again_with_the_next_tick(measured: Measured) -> None:
    measured.gpus = {"a-qstamp-1/algo-1": 400.0}
    measured.run("a")
    measured.broken = True
    measured.look(SETTLED_SECONDS)
    assert measured.record("a").utilization is None
    measured.broken = False
    measured.look(60)
    assert measured.record("a").utilization == MeasuredUtilization(gpu_mean=50, gpu_p95=50, idle=0)


def test_a_tick_measures_a_bounded_number_of_attempts() -> None:
    measured = Measured(slots=50)
    for number in range(MOST_MEASURED + 5):
        measured.queue.submit(f"j{number}")
        measured.queue.training.run(f"j{number}-qstamp-1", measured.queue.now)
    measured.look(600)
    for number in range(MOST_MEASURED + 5):
        measured.queue.end(f"j{number}-qstamp-1")
    measured.look(SETTLED_SECONDS)
    assert len(measured.asked) == MOST_MEASURED
    measured.look(60)
    assert len(measured.asked) == MOST_MEASURED + 5


def test_a_queue_without_jobs_reads_nothing(measured: Measured) -> None:
    measured.run("a")
    measured.look(SETTLED_SECONDS)
    measured.queue.now += FOLLOWED_SECONDS
    read: list[float] = []
    page = measured.queue.repository.attempts.page
    measured.queue.repository.attempts.page = lambda since, *more: read.append(since) or page(since, *more)  # type: ignore[method-assign, func-returns-value]
    measured.look(60)
    assert (read, len(measured.asked)) == ([], 1)
