"""When waiting jobs will start: the queue's own plan, carried forward through futures that are equally likely.

Nobody knows how long a job will run, nor who will come. So a snapshot is carried on several times, each time with other
runtimes, of which each job has each part of its distribution once (a Latin hypercube), and with other jobs that come.
What most of the futures agree on is an estimate. Where they do not agree, nobody can know, and the estimate says so.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, inf, log
from random import Random

from job_queue.scheduler import Reason, Snapshot, WaitingJob, plan
from job_queue.simulation.simulator import CYCLES, Simulator, Step
from job_queue.simulation.workload import Overheads, SimulatedJob

HORIZON = 2 * 24 * 3600.0  # seconds; who waits longer is told that much
CLOSE = 600.0  # seconds by which an estimate may be wrong
CLOSE_PART = 0.25  # or the part of the wait
AGREE = 0.8  # the part of the futures that have to be half as far from it at most
MARGIN, MARGIN_SECONDS = 3, 1800.0  # `not after`: by how much longer a wait may be than in any future
MOST_OF_THEM = 0.5  # of those who come in its project: if so many go before a job, nobody can tell when it starts
FEWEST, MOST = 3, 7  # futures
TOGETHER = 2000  # live jobs in all futures together, as far as there are more than the fewest
SHORTEST_STEP = 300.0  # seconds that are looked at together
FINEST, COARSEST = 0.03, 0.25  # or a part of the time since now: the more live jobs there are, the more
COARSE = 5500  # live jobs by which their number is divided for that part
MANY = 750  # live jobs from which on steps are coarsest, and each has one plan


HOPELESS = (Reason.HELD_BY_USER, Reason.NO_SUCH_POOL, Reason.NEVER_FITS)  # as long as nobody does anything about it


class Doubt(StrEnum):
    """Why an estimate is no good, or why there is none."""

    NEVER = "NEVER"  # nothing that is to be expected lets it start: the reason says what keeps it
    UNKNOWN_RUNTIMES = "UNKNOWN_RUNTIMES"  # it waits for jobs of which nobody knows when they end
    FAR = "FAR"  # it starts later than anybody can tell
    OUTRANKED = "OUTRANKED"  # most who come to its project have a higher priority
    SPREAD = "SPREAD"  # likely runtimes and arrivals make for very different starts
    NO_TIME = "NO_TIME"  # so many jobs wait that hardly any future was looked at, or none
    NOT_ALL_READ = "NOT_ALL_READ"  # more jobs wait than were looked at, and may come before it
    REFUSED = "REFUSED"  # SageMaker refuses to launch it, such as beyond a quota of the account


@dataclass(frozen=True, slots=True)
class Estimate:
    """When a waiting job will start, in seconds since the epoch."""

    job: str
    start: float | None  # as likely earlier as later; None: nobody can tell
    not_after: float | None  # later only if something happens that was not to be expected; None: nobody can tell
    doubt: Doubt | None = None  # why the start is no more than a guess; None: it is a good one
    reason: Reason | None = None  # what keeps a job that is not seen to start


Arrivals = Callable[[Random], Iterable[SimulatedJob]]
"""Jobs that may come later, drawn anew for each future."""


def nobody_comes(_: Random) -> Iterable[SimulatedJob]:
    """Nobody comes."""
    return ()


def as_lately(
    lately: Sequence[SimulatedJob], now: float, span: float, work: Callable[[SimulatedJob, Random], float]
) -> Arrivals:
    """Who came in the last `span` seconds comes again, from another time of that on in each future, and over again.

    No day is like the one before: in each future more or fewer come, from nobody to twice as many.

    :param work: draws how long one like it trains, in seconds.
    """

    def draw(random: Random) -> Iterable[SimulatedJob]:
        offset, as_many = random.uniform(0, span), random.uniform(0, 2)
        for turn in range(ceil(HORIZON / span) + 1):
            for job in lately:
                comes = now + (job.submitted - now + offset) % span + turn * span
                for copy in range(int(as_many + random.random())):
                    name = f"{job.name} (again, {turn}, {copy})"
                    yield replace(job, name=name, submitted=comes, work=work(job, random))

    return draw


def steps_for(live: int) -> Step:
    """What is looked at together with so many live jobs: the farther away, the more."""
    part = _step_part(live)
    return lambda elapsed: max(SHORTEST_STEP, part * elapsed)


def part_done(simulator: Simulator, waiting: int, live: int, elapsed: float, horizon: float) -> float:
    """Estimate the part of a future that is done, by the jobs that have started, the time, and the moments looked at.

    :param waiting: jobs that waited when it began.
    :param live: jobs that were live then.
    :param elapsed: seconds that have been simulated.
    """
    steps = max(1.0, _steps(live, horizon))
    started = 1 - simulator.awaited / max(1, waiting)
    moments = simulator.moments / (steps + simulator.expected_looks)
    return min(1.0, max(started, moments, _steps(live, elapsed) / steps))


def _steps(live: int, seconds: float) -> float:
    part = _step_part(live)
    even = SHORTEST_STEP / part  # seconds from now up to which all steps are the shortest
    if seconds <= even:
        return seconds / SHORTEST_STEP
    return 1 / part + log(seconds / even) / log(1 + part)


def _step_part(live: int) -> float:
    return COARSEST if live > MANY else max(FINEST, live / COARSE)


def forecast(
    snapshot: Snapshot,
    runtimes: Mapping[str, Sequence[float]],
    overheads: Overheads | None = None,
    arrivals: Arrivals = nobody_comes,
    *,
    futures: int | None = None,
    step: Step | None = None,
    horizon: float = HORIZON,
    may_go_on: Callable[[], bool] = lambda: True,
    on_progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Estimate]:
    """Estimates of all waiting jobs.

    :param runtimes: of each job equally likely runtimes, the shortest first, in seconds from its next start to its end;
        of an active job, from the start of its attempt. Who is not named may run for ever.
    :param arrivals: draws jobs that come later.
    :param futures: how many are looked at; None: as many as do not take long.
    :param step: what is looked at together; None: what does not take long.
    :param may_go_on: once it may not, the futures that are done count; few of them make for a guess.
    :param on_progress: called after each step with the part of its future that is done; its errors end the forecast.
    """
    hopeless = {hold.job: hold.reason for hold in plan(snapshot).holds if hold.reason in HOPELESS}
    refused = {job.name for job in snapshot.waiting if job.on_free_slots_only} - hopeless.keys()
    without_estimate = _never(hopeless) | {
        name: Estimate(name, None, None, Doubt.REFUSED, Reason.BACKOFF) for name in refused
    }
    snapshot = replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job.name not in without_estimate))
    live = [*(job.name for job in snapshot.active), *(job.name for job in snapshot.waiting)]
    number = futures or max(FEWEST, min(MOST, TOGETHER // max(1, len(live))))
    draw = Random(0)  # noqa: S311  (no secret: the same snapshot gives the same estimates)
    places = {name: draw.sample(range(number), number) for name in sorted(live)}
    starts: dict[str, list[float]] = {job.name: [] for job in snapshot.waiting}
    left: dict[str, Reason] = {}
    later: Counter[tuple[str, int]] = Counter()
    far = False
    for future in range(number if starts else 0):
        drawn = {
            name: likely[int((places[name][future] + 0.5) / number * len(likely))]
            for name, likely in runtimes.items()
            if name in places and likely
        }
        cycles = 1 if step is None and len(live) > MANY else CYCLES
        simulator = Simulator(snapshot.policy, overheads, step=step or steps_for(len(live)), cycles=cycles)
        comers = list(arrivals(draw))

        def goes_on(simulator: Simulator = simulator) -> bool:
            elapsed = simulator.now - snapshot.now
            on_progress(part_done(simulator, len(snapshot.waiting), len(live), elapsed, horizon))
            return may_go_on()

        runs = simulator.carry_on(snapshot, drawn, comers, horizon, goes_on)
        if not may_go_on():
            break
        later.update((job.project, job.priority) for job in comers)
        for run in runs:
            starts[run.job.name].append(run.starts[0] if run.starts else inf)
        if all(found[-1] < inf for found in starts.values()):
            continue
        far = far or not simulator.over
        if simulator.over and not left:
            left = {hold.job: hold.reason for hold in plan(simulator.snapshot()).holds}
    done = min(map(len, starts.values()), default=number)
    if not done:
        return {name: Estimate(name, None, None, Doubt.NO_TIME) for name in starts} | without_estimate
    all_known = all(runtimes.get(job.name) for job in snapshot.active)
    unknown = Doubt.FAR if far and all_known else Doubt.UNKNOWN_RUNTIMES
    estimates = {
        name: _estimate(name, snapshot.now, sorted(found), unknown, left.get(name)) for name, found in starts.items()
    }
    if done < min(FEWEST, number):
        estimates = {
            name: replace(told, not_after=None, doubt=told.doubt or Doubt.NO_TIME) for name, told in estimates.items()
        }
    estimates |= without_estimate
    _doubt_where_outranked(estimates, snapshot.waiting, later)
    _doubt_where_not_all_were_read(estimates, snapshot.waiting)
    return estimates


def _never(hopeless: Mapping[str, Reason]) -> dict[str, Estimate]:
    return {name: Estimate(name, None, None, Doubt.NEVER, reason) for name, reason in hopeless.items()}


def _estimate(name: str, now: float, starts: Sequence[float], unknown: Doubt, left: Reason | None) -> Estimate:
    """What the futures say, the earliest start first."""
    middle, last = starts[len(starts) // 2], starts[-1]
    if middle == inf:
        return Estimate(name, None, None, unknown, left)
    near = sum(is_close(middle - now, start - now, by=0.5) for start in starts)
    doubt = None if near >= AGREE * len(starts) else Doubt.SPREAD
    return Estimate(name, middle, None if last == inf else now + MARGIN * (last - now) + MARGIN_SECONDS, doubt)


def _doubt_where_outranked(
    estimates: dict[str, Estimate], waiting: Iterable[WaitingJob], later: Counter[tuple[str, int]]
) -> None:
    """A job that most who come go before: its start depends on them more than on all that is known."""
    for job in waiting:
        told = estimates[job.name]
        come = sum(number for (project, _), number in later.items() if project == job.project)
        above = sum(
            number for (project, level), number in later.items() if project == job.project and level > job.priority
        )
        if told.start is not None and above > MOST_OF_THEM * come:
            estimates[job.name] = replace(told, not_after=None, doubt=Doubt.OUTRANKED)


def _doubt_where_not_all_were_read(estimates: dict[str, Estimate], waiting: Iterable[WaitingJob]) -> None:
    """Where a waiting queue was not read to its end, nobody knows what comes once those that were read have started."""
    lines: dict[tuple[str, frozenset[str]], list[WaitingJob]] = defaultdict(list)
    for job in waiting:
        lines[job.project, frozenset(pool for need in job.demand for pool in need)].append(job)
    known_until: dict[str, float] = defaultdict(lambda: inf)
    for (_, pools), jobs in lines.items():
        if any(job.more_wait for job in jobs):
            until = max(inf if (start := estimates[job.name].start) is None else start for job in jobs)
            for pool in pools:
                known_until[pool] = min(until, known_until[pool])
    for (_, pools), jobs in lines.items():
        until = min((known_until[pool] for pool in pools), default=inf)
        for job in jobs:
            told = estimates[job.name]
            if told.start is not None and told.start > until:
                estimates[job.name] = replace(told, not_after=None, doubt=told.doubt or Doubt.NOT_ALL_READ)


def is_close(told: float, was: float, by: float = 1.0) -> bool:
    """Whether a wait is near what was told of it, both in seconds.

    :param by: what part of the usual distance is near.
    """
    return abs(told - was) <= by * max(CLOSE, CLOSE_PART * was)
