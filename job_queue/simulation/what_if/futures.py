"""Estimate the starts of waiting jobs under two policies, in the same futures, so that only the policies differ."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from job_queue.scheduler import Policy
from job_queue.simulation.forecast import JOBS_IN_ALL_FUTURES, Doubt, Estimate, forecast
from job_queue.simulation.forecast_input import ForecastInput
from job_queue.simulation.workload import SimulatedJob

MOST_PAIRED_FUTURES = 5
GOLDEN_RATIO = 0.618033988749895  # its first n multiples, modulo 1, are spread evenly for every n


@dataclass(frozen=True, slots=True)
class Starts:
    """The start of each waiting job under each policy: epoch seconds, or `inf` for never or after the horizon.

    A job is left out if its start is unknown, for example because the ends of other jobs are unknown.
    """

    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    futures: int = 0  # number of simulated futures; each start is the median over the futures


class PairedFutures:
    """A series of futures, each simulated under both policies. If many jobs are live, fewer futures are simulated.

    :param horizon: seconds from now that are simulated.
    :param may_go_on: called before each moment of a future. After False, only the finished futures count.
    :param on_progress: called before each moment of the first future, with the finished part of the future's two
        simulations together. An error that this function raises ends the simulation.
    """

    def __init__(
        self,
        before: ForecastInput,
        after: ForecastInput,
        horizon: float,
        may_go_on: Callable[[], bool],
        on_progress: Callable[[float], None] = lambda done: None,
    ) -> None:
        # `after` is often slower. So it is simulated first, so that on_progress can end a slow comparison early.
        self._policies = (after, before)
        self._horizon = horizon
        self._may_go_on = may_go_on
        self._on_progress = on_progress
        self._found: tuple[defaultdict[str, list[float | None]], ...] = (defaultdict(list), defaultdict(list))
        live = len(before.snapshot.active) + len(before.snapshot.waiting)
        self._most = max(1, min(MOST_PAIRED_FUTURES, JOBS_IN_ALL_FUTURES // max(1, live)))
        self._done = 0

    def simulate(self, most: int = MOST_PAIRED_FUTURES) -> None:
        """Simulate futures until `most` are done, or fewer if there are many live jobs or `may_go_on` returns False."""
        while self._done < min(most, self._most) and self._may_go_on():
            simulated = [self._future(inputs, done) for inputs, done in zip(self._policies, (0.0, 0.5), strict=True)]
            if not self._may_go_on():
                break  # the second simulation was cut off
            for starts, of_all in zip(simulated, self._found, strict=True):
                for name, start in starts.items():
                    of_all[name].append(start)
            self._done += 1

    def starts(self) -> Starts:
        """Return the median starts of the finished futures."""
        after, before = self._found
        return Starts(dict(_medians(before)), dict(_medians(after)), self._done)

    def _future(self, inputs: ForecastInput, done: float) -> dict[str, float | None]:
        def on_progress(part: float) -> None:
            if self._done == 0:
                self._on_progress(done + part / 2)

        return _future(inputs, self._done, self._horizon, self._may_go_on, on_progress)


def _future(
    inputs: ForecastInput,
    number: int,
    horizon: float,
    may_go_on: Callable[[], bool],
    on_progress: Callable[[float], None],
) -> dict[str, float | None]:
    """Return the start of each job in one future; `inf`: never, or after the horizon; None: unknown.

    Runtimes depend only on the number of the future and the job's name. Arrivals depend only on the number.
    """
    runtimes = {
        name: (likely[int(_quantile(name, number) * len(likely))],)
        for name, likely in inputs.runtimes.items()
        if likely
    }
    arriving = tuple(_served(inputs.arrivals(Random(number)), inputs.snapshot.policy))  # noqa: S311  (no secret)
    estimates = forecast(
        inputs.snapshot,
        runtimes,
        inputs.overheads,
        lambda _: arriving,
        futures=1,
        horizon=horizon,
        may_go_on=may_go_on,
        on_progress=on_progress,
    )
    end = inputs.snapshot.now + horizon
    return {name: _start(estimate, end) for name, estimate in estimates.items()}


def _quantile(name: str, number: int) -> float:
    """Return the quantile of a job's runtime in the future with this number.

    The quantiles of a job in many futures are spread evenly.
    """
    return (Random(name).random() + number * GOLDEN_RATIO) % 1  # noqa: S311  (no secret)


def _served(arriving: Iterable[SimulatedJob], policy: Policy) -> Iterator[SimulatedJob]:
    """Yield the arriving jobs for which the policy has a project and pools. Other jobs would be refused."""
    projects, pools = {project.name for project in policy.projects}, {pool.name for pool in policy.pools}
    for job in arriving:
        demand = tuple(need for need in job.demand if need.keys() <= pools)
        if demand and job.project in projects:
            yield replace(job, demand=demand)


def _start(estimate: Estimate, end: float) -> float | None:
    """Return the estimated start; `inf`: never, or after `end`; None: unknown."""
    if estimate.start is not None:
        return estimate.start if estimate.start <= end else inf
    return inf if estimate.doubt in (Doubt.NEVER, Doubt.FAR) else None


def _medians(of_all: Mapping[str, Sequence[float | None]]) -> Iterator[tuple[str, float]]:
    for name, starts in of_all.items():
        middle = sorted(inf if start is None else start for start in starts)[len(starts) // 2]
        if middle < inf or None not in starts:
            yield name, middle
