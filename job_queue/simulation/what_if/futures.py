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


def starts_in_both(before: Basis, after: Basis, horizon: float, may_go_on: Callable[[], bool]) -> Starts:
    """Look into futures, as many as do not take long, and there is time for.

    :param horizon: seconds from now that are looked at.
    :param may_go_on: asked at each moment of a future. Where it says no, the futures that are done count.
    """
    as_it_is: dict[str, list[float | None]] = defaultdict(list)
    changed: dict[str, list[float | None]] = defaultdict(list)
    futures = 0
    live = len(before.snapshot.active) + len(before.snapshot.waiting)
    while futures < max(1, min(MOST_FUTURES, TOGETHER // max(1, live))) and may_go_on():
        looked = [_future(basis, futures, horizon, may_go_on) for basis in (before, after)]
        if not may_go_on():
            break  # the second was not looked at to its end
        for starts, of_all in zip(looked, (as_it_is, changed), strict=True):
            for name, start in starts.items():
                of_all[name].append(start)
        futures += 1
    return Starts(dict(_medians(as_it_is)), dict(_medians(changed)), futures)


def _future(basis: Basis, number: int, horizon: float, may_go_on: Callable[[], bool]) -> dict[str, float | None]:
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
