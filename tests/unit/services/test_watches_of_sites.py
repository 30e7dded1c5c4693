"""GPUs, logs and checkpoints are looked up where a job runs, and a site that fails says nothing about another one."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from job_queue.domain.accounting.utilization import GPU, METRICS, SETTLED_SECONDS, MeasuredPeriod, Series
from job_queue.domain.errors import Unavailable
from job_queue.domain.fleet.sites import Site
from job_queue.services.outlook import OutlookService
from job_queue.services.watches.hangs import HangWatch
from job_queue.services.watches.idleness import IdleWatch
from job_queue.services.watches.measurement import AttemptMetrics, Measurement
from job_queue.services.watches.unsaved_work import UnsavedWork
from tests.unit.controller.test_sites import OHIO, a_queue

HALF_AN_HOUR = 1800.0


class Bucket:
    """The checkpoints that one site's client sees: none."""

    def __init__(self, asked: list[tuple[str, Site | None]], site: Site | None) -> None:
        self._asked = asked
        self._site = site

    def written_since(self, address: str, since: float) -> bool | None:
        self._asked.append((address, self._site))
        return False


class Watched:
    """A queue with a job at home and one in Ohio, whose GPUs do nothing and which write nothing."""

    def __init__(self) -> None:
        self.queue = a_queue(1, 1)
        self.broken: Site | None | str = "none"
        self.asked: list[tuple[str, Site | None]] = []
        measurement = Measurement(self._metrics, self.queue.repository.attempts, self.queue.clock)
        self._service = OutlookService(
            self.queue.repository,
            self.queue.dry_run.cluster,
            self.queue.clock,
            IdleWatch(self._utilization_at, 30, lambda event: None),
            measurement,
            UnsavedWork(self.queue.repository, lambda site: Bucket(self.asked, site).written_since),
            HangWatch(self.queue.repository, self._log_at, lambda site: Bucket(self.asked, site).written_since),
        )
        self.queue.submit("job1")
        self.queue.submit("job2")
        self.queue.training.run("job1-qstamp-1", self.queue.now)
        self.queue.training.at(OHIO).run("job2-qstamp-1", self.queue.now)
        assert self.queue.job("job2").site == OHIO

    def _ask(self, what: str, site: Site | None) -> None:
        self.asked.append((what, site))
        if site == self.broken:
            raise Unavailable("scripted")

    def _utilization_at(self, site: Site | None) -> Callable[..., Mapping[str, Sequence[float]]]:
        def look_up(hosts: Sequence[str], *_: object) -> Mapping[str, Sequence[float]]:
            for host in hosts:
                self._ask(host, site)
            return {host: [0.0] * 6 for host in hosts}

        return look_up

    def _log_at(self, site: Site | None) -> Callable[[str, float, float], bool | None]:
        def wrote(training_job: str, started: float, since: float) -> bool | None:
            self._ask(training_job, site)
            return False

        return wrote

    def _metrics(self, site: Site | None) -> AttemptMetrics:
        def look_up(metrics: tuple[str, ...], measured: MeasuredPeriod) -> Mapping[str, Mapping[str, Series]]:
            assert metrics == METRICS
            for host in measured.hosts:
                self._ask(host, site)
            return {GPU: {host: {measured.since: 400.0} for host in measured.hosts}}

        return look_up

    def look(self, later: float) -> set[tuple[str, Site | None]]:
        """Run the next tick, and return what was looked up where."""
        self.queue.now += later
        self.asked.clear()
        self._service.refresh(lambda: True)
        return set(self.asked)

    def measured(self) -> set[str]:
        """The jobs whose attempts have figures."""
        now = self.queue.now
        found = self.queue.repository.attempts.ended_since(now - 80_000, now)
        return {it.job for it in found if it.utilization}


def test_each_is_looked_up_where_it_runs() -> None:
    watched = Watched()
    assert watched.look(2 * HALF_AN_HOUR) == {
        ("job1-qstamp-1/algo-1", None),
        ("job1-qstamp-1", None),
        ("s3://bucket/checkpoints/job1", None),
        ("job2-qstamp-1/algo-1", OHIO),
        ("job2-qstamp-1", OHIO),
        ("s3://bucket-ohio/checkpoints/job2", OHIO),
    }
    assert all(watched.queue.job(name).hung for name in ("job1", "job2"))


@pytest.mark.parametrize(("broken", "idle"), [(OHIO, "job1-qstamp-1"), (None, "job2-qstamp-1")])
def test_a_site_that_fails_leaves_the_other_one_idle(broken: Site | None, idle: str) -> None:
    watched = Watched()
    watched.broken = broken
    watched.look(2 * HALF_AN_HOUR)
    assert list(watched.queue.repository.outlook.latest().idle) == [idle]


@pytest.mark.parametrize(("broken", "measured"), [(OHIO, "job1"), (None, "job2")])
def test_a_site_that_fails_leaves_the_attempts_of_the_other_one_to_be_measured(
    broken: Site | None, measured: str
) -> None:
    watched = Watched()
    watched.look(600)
    watched.queue.end("job1-qstamp-1")
    watched.queue.training.at(OHIO).end("job2-qstamp-1")
    watched.queue.tick()
    watched.broken = broken
    watched.look(60)
    watched.look(SETTLED_SECONDS)
    assert watched.measured() == {measured}
    watched.broken = "none"
    watched.look(60)
    assert watched.measured() == {"job1", "job2"}
