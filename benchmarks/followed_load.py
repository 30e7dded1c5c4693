"""The simulated part of `benchmarks/load.py`: people follow jobs while many jobs end and others are submitted."""

import random
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest.mock import patch

from benchmarks.simulated_cloud import SimulatedCloud
from local_cloud.dynamodb.key_throttle import KeyAccess
from sagemaker_queue.queue.config.pace import LONGEST_SECONDS, POLL_SECONDS, PollingPace
from tests.jobs import a_body

OWNERS = 50
TICK_SECONDS = 60.0
ENDS_AT = 15.0  # seconds after the beginning at which all running jobs end
HEADER = (
    "| followers | concurrency | read units/s, hottest key | write units/s, hottest key | throttled calls | cycles | "
    "median s | 95 % s | longest s | ends recorded after s | submissions refused | requests answered | "
    "requests refused |"
)


@dataclass(frozen=True)
class Polling:
    """The schedule of followers' requests.

    :param fixed: seconds between two requests; None: the client's own schedule.
    :param followed: seconds for which a follower has already followed its job at the beginning.
    """

    fixed: float | None = None
    followed: float = 0.0

    def follower(self) -> "FollowerPace":
        """Return the pauses of one follower."""
        return FollowerPace(self)


class FollowerPace:
    """The pauses of one follower between two requests."""

    def __init__(self, polling: Polling) -> None:
        self._polling = polling
        self._pace = PollingPace(draw=random.random)
        self._has_asked = False

    def first(self) -> float:
        """Return random seconds until the first request, since followers do not begin at the same time."""
        return random.uniform(0, self._polling.fixed or min(LONGEST_SECONDS, max(POLL_SECONDS, self._polling.followed)))

    def after(self, status: int, job: Mapping[str, Any] | None) -> float:
        """Return the pause after an answer, in seconds.

        :param status: HTTP status of the answer.
        :param job: the job as described by the answer.
        """
        if self._polling.fixed is not None:
            return self._polling.fixed
        if status != 200 or job is None:  # noqa: PLR2004
            self._pace.failed()
            return self._pace.seconds()
        self._pace.observe((job["state"], job["attempt"]), job.get("askAgainAfter"))
        if not self._has_asked:
            self._has_asked = True
            skipped = 0.0
            while skipped < self._polling.followed:
                skipped += self._pace.seconds()
        return self._pace.seconds()


@dataclass(frozen=True)
class Scenario:
    """The parameters of the load."""

    followers: int = 1000
    active: int = 500  # running jobs, which all end at once
    waiting: int = 500  # waiting jobs
    per_minute: int = 500  # submissions
    seconds: float = 60.0
    concurrency: int = 1000  # Lambda executions that the account may have at once
    polling: Polling = field(default_factory=Polling)


@dataclass
class Outcome:
    """The result of a scenario."""

    cycles: list[float]  # seconds of each cycle
    refused: int = 0  # submissions that were refused after all tries of the client
    looks: int = 0  # answered requests of followers
    looks_refused: int = 0  # requests of followers that were refused after all tries of the client
    ends_after: float = 0.0  # seconds until the queue had recorded the end of the last job


class Load:
    """A scenario in a simulated cloud."""

    def __init__(self, scenario: Scenario, filled: SimulatedCloud) -> None:
        self._scenario = scenario
        reads = 0 if scenario.concurrency <= 10 else 10  # noqa: PLR2004  (a new account reserves nothing)
        self.cloud = SimulatedCloud(
            concurrency=scenario.concurrency,
            reads=reads,
            slots=scenario.active,
            create_rate=10,
            create_burst=10,
            idle_minutes=0,
        )
        self.cloud.take_over(filled)
        self.outcome = Outcome([])
        self._over = False

    def run(self) -> str:
        """Run the scenario; return its row of the table."""
        cloud, scenario = self.cloud, self._scenario
        timeline = cloud.timeline
        with cloud.running():
            began = timeline.now
            cloud.tables.throttle.throttled = 0  # type: ignore[union-attr]
            cloud.counts.clear()
            cloud.cycles.clear()
            attempts = list(cloud.training.jobs)[: scenario.active]
            for number in range(scenario.followers):
                name, pace = f"job{scenario.active + number % scenario.waiting:05}", scenario.polling.follower()
                timeline.spawn(partial(self._follow, name, pace), pace.first())
            for number in range(int(scenario.per_minute * scenario.seconds / 60)):
                name = f"new{number:05}"
                timeline.spawn(partial(self._submit, name), 60 * number / scenario.per_minute)
            for at in range(0, int(scenario.seconds), int(TICK_SECONDS)):
                timeline.spawn(cloud.tick, at + 5.0)
            for attempt in attempts:
                timeline.spawn(partial(cloud.end, attempt), ENDS_AT)
            timeline.spawn(lambda: self._watch_ends(attempts), ENDS_AT)
            timeline.run(began + scenario.seconds)
            self._over = True
            timeline.run(began + scenario.seconds + 60)
        self.outcome.cycles = [seconds for _, seconds in cloud.cycles]
        return self._row(began)

    def _row(self, began: float) -> str:
        cloud, outcome, scenario = self.cloud, self.outcome, self._scenario
        cycles = sorted(outcome.cycles) or [0.0]
        reads, read_key = cloud.tables.hottest(KeyAccess.READ, began)
        writes, write_key = cloud.tables.hottest(KeyAccess.WRITE, began)
        throttled = cloud.tables.throttle.throttled  # type: ignore[union-attr]
        cells = (
            f"{scenario.followers:,}",
            f"{scenario.concurrency:,}",
            f"{reads:,.0f} ({read_key.split('#')[0]})",
            f"{writes:,.0f} ({write_key.split('#')[0]})",
            f"{throttled:,}",
            f"{len(outcome.cycles):,}",
            f"{statistics.median(cycles):.2f}",
            f"{cycles[int(len(cycles) * 0.95)]:.2f}",
            f"{cycles[-1]:.2f}",
            f"{outcome.ends_after:.0f}" if outcome.ends_after else "-",
            f"{outcome.refused:,}",
            f"{outcome.looks:,}",
            f"{outcome.looks_refused:,}",
        )
        return f"| {' | '.join(cells)} |"

    def _submit(self, name: str) -> None:
        self.outcome.refused += add(self.cloud, name, int(name[-5:]))[0] != 202  # noqa: PLR2004

    def _follow(self, name: str, pace: FollowerPace) -> None:
        while not self._over:
            status, job = self.cloud.ask("GET", f"/jobs/{name}", caller=_owner(int(name[-5:])))
            if status == 200:  # noqa: PLR2004
                self.outcome.looks += 1
            else:
                self.outcome.looks_refused += 1
            self.cloud.timeline.sleep(pace.after(status, job))

    def _watch_ends(self, attempts: list[str]) -> None:
        """Record the seconds until none of these attempts' jobs is active."""
        began, rows = self.cloud.timeline.now, self.cloud.tables.rows
        names = {attempt.partition("-qstamp-")[0] for attempt in attempts}
        while any(place[2] in names for place in rows if place[1] == "active"):
            self.cloud.timeline.sleep(1)
            if self.cloud.timeline.now > began + self._scenario.seconds + 60:
                return
        self.outcome.ends_after = self.cloud.timeline.now - began


def add(cloud: SimulatedCloud, name: str, number: int) -> tuple[int, object]:
    """Submit a job of one of the owners; return the status and the content of the answer."""
    place = {"S3Uri": f"s3://bucket/user{number % OWNERS}/{name}"}
    return cloud.ask("POST", "/add-job", body=a_body(name, 1, CheckpointConfig=place), caller=_owner(number))


def filled(active: int, waiting: int) -> SimulatedCloud:
    """Return a cloud with the given numbers of running and waiting jobs."""
    cloud = SimulatedCloud(slots=active, create_rate=1000, create_burst=1000, idle_minutes=0)
    with cloud.running():
        with patch("job_queue.controller.cycle.Controller.wake"):
            for number in range(active + waiting):
                cloud.timeline.sleep(0.1)
                while (answer := add(cloud, f"job{number:05}", number))[0] == 503:  # noqa: PLR2004
                    cloud.timeline.sleep(30)
                assert answer[0] == 202, answer  # noqa: PLR2004, S101
        for _ in range(20):
            if len(cloud.training.jobs) == active:
                return cloud
            cloud.tick()
            cloud.timeline.run(cloud.timeline.now + TICK_SECONDS)
    raise AssertionError(f"{len(cloud.training.jobs)} jobs run, and not {active}")


def _owner(number: int) -> str:
    return f"arn:aws:iam::123456789012:user/user{number % OWNERS}"


def table(scenario: Scenario, followers: tuple[int, ...], concurrencies: tuple[int, ...]) -> Iterator[str]:
    """Yield the lines of the table, with a row for each number of followers and each concurrency."""
    yield HEADER
    yield f"|{'---|' * (HEADER.count('|') - 1)}"
    cloud = filled(scenario.active, scenario.waiting)
    for concurrency in concurrencies:
        for count in followers:
            yield Load(replace(scenario, followers=count, concurrency=concurrency), cloud).run()
