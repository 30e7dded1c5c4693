"""When waiting jobs start under two policies, in the same futures: so what differs is the policies' doing."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from random import Random

from job_queue.scheduler import Policy
from job_queue.simulation.basis import Basis
from job_queue.simulation.forecast import TOGETHER, Doubt, Estimate, forecast
from job_queue.simulation.workload import SimulatedJob

MOST_FUTURES = 5
GOLDEN = 0.618033988749895  # a step by which any number of places is spread evenly


@dataclass(frozen=True, slots=True)
class Starts:
    """Of each waiting job when it starts under each policy: epoch seconds, or `inf` if not within the time looked at.

    Who is not named is not known: it waits for jobs of which nobody knows when they end.
    """

    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    futures: int = 0  # that were looked at; each start is the median of them


class FuturesOfBoth:
    """Looks at futures one after the other, each under both policies: as many as do not take long.

    :param horizon: seconds from now that are looked at.
    :param may_go_on: asked at each moment of a future. Where it says no, the futures that are done count.
    :param on_progress: called at each moment of the first future with the part of it that is done, under both policies
        together. An error that it raises ends the look.
    """

    def __init__(
        self,
        before: Basis,
        after: Basis,
        horizon: float,
        may_go_on: Callable[[], bool],
        on_progress: Callable[[float], None] = lambda done: None,
    ) -> None:
        self._policies = (after, before)  # the proposed policy first: the one in force is seldom the slow one
        self._horizon = horizon
        self._may_go_on = may_go_on
        self._on_progress = on_progress
        self._found: tuple[defaultdict[str, list[float | None]], ...] = (defaultdict(list), defaultdict(list))
        live = len(before.snapshot.active) + len(before.snapshot.waiting)
        self._most = max(1, min(MOST_FUTURES, TOGETHER // max(1, live)))
        self._done = 0

    def look(self, most: int = MOST_FUTURES) -> None:
        """Look at futures until `most` are done, fewer where that would take long."""
        while self._done < min(most, self._most) and self._may_go_on():
            looked = [self._future(basis, done) for basis, done in zip(self._policies, (0.0, 0.5), strict=True)]
            if not self._may_go_on():
                break  # the second was not looked at to its end
            for starts, of_all in zip(looked, self._found, strict=True):
                for name, start in starts.items():
                    of_all[name].append(start)
            self._done += 1

    def starts(self) -> Starts:
        """Return the medians of the futures that are done."""
        after, before = self._found
        return Starts(dict(_medians(before)), dict(_medians(after)), self._done)

    def _future(self, basis: Basis, done: float) -> dict[str, float | None]:
        def on_progress(part: float) -> None:
            if self._done == 0:
                self._on_progress(done + part / 2)

        return _future(basis, self._done, self._horizon, self._may_go_on, on_progress)


def starts_in_both(before: Basis, after: Basis, horizon: float, may_go_on: Callable[[], bool]) -> Starts:
    """Look at as many futures as do not take long; see `FuturesOfBoth`."""
    futures = FuturesOfBoth(before, after, horizon, may_go_on)
    futures.look()
    return futures.starts()


def _future(
    basis: Basis,
    number: int,
    horizon: float,
    may_go_on: Callable[[], bool],
    on_progress: Callable[[float], None],
) -> dict[str, float | None]:
    """One of them: what each job's runtime is in it, and who comes, depends on its number and on names alone."""
    runtimes = {
        name: (likely[int(_place(name, number) * len(likely))],) for name, likely in basis.runtimes.items() if likely
    }
    comers = tuple(_served(basis.arrivals(Random(number)), basis.snapshot.policy))  # noqa: S311  (no secret)
    estimates = forecast(
        basis.snapshot,
        runtimes,
        basis.overheads,
        lambda _: comers,
        futures=1,
        horizon=horizon,
        may_go_on=may_go_on,
        on_progress=on_progress,
    )
    end = basis.snapshot.now + horizon
    return {name: _start(estimate, end) for name, estimate in estimates.items()}


def _place(name: str, number: int) -> float:
    """Where in its distribution a job's runtime is: over many futures each part has its turn."""
    return (Random(name).random() + number * GOLDEN) % 1  # noqa: S311  (no secret)


def _served(comers: Iterable[SimulatedJob], policy: Policy) -> Iterator[SimulatedJob]:
    """Those that a policy has a project and pools for; others would be refused when they come."""
    projects, pools = {project.name for project in policy.projects}, {pool.name for pool in policy.pools}
    for job in comers:
        demand = tuple(need for need in job.demand if need.keys() <= pools)
        if demand and job.project in projects:
            yield replace(job, demand=demand)


def _start(estimate: Estimate, end: float) -> float | None:
    """When; `inf`: not before the end; None: nobody can tell."""
    if estimate.start is not None:
        return estimate.start if estimate.start <= end else inf
    return inf if estimate.doubt in (Doubt.NEVER, Doubt.FAR) else None


def _medians(of_all: Mapping[str, Sequence[float | None]]) -> Iterator[tuple[str, float]]:
    for name, starts in of_all.items():
        middle = sorted(inf if start is None else start for start in starts)[len(starts) // 2]
        if middle < inf or None not in starts:
            yield name, middle
