"""Estimate when waiting jobs will start: simulate the queue's own plans in several equally likely futures.

Runtimes and later submissions are unknown. So the snapshot is simulated several times, with different runtimes and
arrivals in each future. For n futures, a job's distribution of runtimes is divided into n parts, and each future gets a
runtime from another part (Latin hypercube sampling). The estimate is the median start. The module `past_estimates`
learns how wrong estimates usually are.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, inf, log
from random import Random

from job_queue.scheduler import UNTIL_POLICY_CHANGES, Snapshot, WaitReason, plan
from job_queue.simulation.simulator import CYCLES, Simulator, Step
from job_queue.simulation.workload import Overheads, SimulatedJob

HORIZON = 2 * 24 * 3600.0  # seconds that are simulated; the estimate of a longer wait only says that the wait is longer
CLOSE_SECONDS = 600.0  # tolerance in seconds of a near estimate
CLOSE_PART = 0.25  # tolerance as a part of the wait; the larger of the two tolerances counts
FEWEST_FUTURES, MOST_FUTURES = 3, 7  # bounds of the number of futures
JOBS_IN_ALL_FUTURES = 2000  # live jobs x futures; limits the number of futures, down to FEWEST_FUTURES
SHORTEST_STEP = 300.0  # seconds; one plan follows all events of a step
SMALLEST_STEP_PART, LARGEST_STEP_PART = 0.03, 0.25  # smallest and largest ratio of a step to the elapsed time
LIVE_JOBS_PER_STEP_PART = 5500  # within these two bounds, the ratio is live jobs divided by this number
MANY_LIVE_JOBS = 750  # live jobs above which steps are largest and each step has only one plan


HOPELESS = UNTIL_POLICY_CHANGES | {WaitReason.HELD_BY_USER, WaitReason.DRAINED}
"""Reasons that last until a person acts: changes the policy, releases the job, or ends the drain."""


class Doubt(StrEnum):
    """The reason why an estimate has no start."""

    NEVER = "NEVER"  # the job never starts unless a person changes something; see `reason`
    UNKNOWN_RUNTIMES = "UNKNOWN_RUNTIMES"  # the job waits for jobs whose ends are unknown
    FAR = "FAR"  # the job starts after the horizon
    NO_TIME = "NO_TIME"  # so many jobs wait that no future was simulated
    REFUSED = "REFUSED"  # SageMaker refuses to launch the job, for example because of a quota of the account


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated start of a waiting job, in seconds since the epoch."""

    job: str
    start: float | None = None  # the median of the futures; None: unknown
    doubt: Doubt | None = None  # why there is no start
    reason: WaitReason | None = None  # why the job waits, if there is no start and the reason is known
    earliest: float | None = None  # the first start in any future; None: no start, or too few futures were simulated
    latest: float | None = None  # the last start; None as for `earliest`, or if the job does not start in some future


Arrivals = Callable[[Random], Iterable[SimulatedJob]]
"""Function that draws the jobs that arrive later in one future."""


def no_arrivals(_: Random) -> Iterable[SimulatedJob]:
    """Return no jobs. This is the default of `arrivals`."""
    return ()


def repeat_arrivals(
    lately: Sequence[SimulatedJob], now: float, span: float, work: Callable[[SimulatedJob, Random], float]
) -> Arrivals:
    """Repeat the arrivals of the last `span` seconds, starting at a random offset in each future, and wrap around.

    Because days differ, the number of arrivals is multiplied in each future by a random factor from 0 to 2.

    :param work: draws the seconds of training of a repeated job.
    """

    def draw(random: Random) -> Iterable[SimulatedJob]:
        offset, factor = random.uniform(0, span), random.uniform(0, 2)
        for turn in range(ceil(HORIZON / span) + 1):
            for job in lately:
                submitted = now + (job.submitted - now + offset) % span + turn * span
                for copy in range(int(factor + random.random())):
                    name = f"{job.name} (again, {turn}, {copy})"
                    yield replace(job, name=name, submitted=submitted, work=work(job, random))

    return draw


def steps_for(live: int) -> Step:
    """Return the function for the length of steps with this number of live jobs. Steps grow with the elapsed time."""
    part = _step_part(live)
    return lambda elapsed: max(SHORTEST_STEP, part * elapsed)


def finished_part(simulator: Simulator, waiting: int, live: int, elapsed: float, horizon: float) -> float:
    """Estimate the finished part of a future, from 0 to 1.

    The result is the largest of three ratios: started waiting jobs, simulated moments and elapsed steps, each divided
    by the total that is expected at the end of the future.

    :param waiting: waiting jobs at the beginning of the future.
    :param live: live jobs at the beginning of the future.
    :param elapsed: seconds that have been simulated.
    """
    steps = max(1.0, _steps(live, horizon))
    started = 1 - simulator.unstarted / max(1, waiting)
    moments = simulator.moments / (steps + simulator.expected_timers)
    return min(1.0, max(started, moments, _steps(live, elapsed) / steps))


def _steps(live: int, seconds: float) -> float:
    part = _step_part(live)
    even = SHORTEST_STEP / part  # seconds after the snapshot until which all steps have the length SHORTEST_STEP
    if seconds <= even:
        return seconds / SHORTEST_STEP
    return 1 / part + log(seconds / even) / log(1 + part)


def _step_part(live: int) -> float:
    return LARGEST_STEP_PART if live > MANY_LIVE_JOBS else max(SMALLEST_STEP_PART, live / LIVE_JOBS_PER_STEP_PART)


def forecast(
    snapshot: Snapshot,
    runtimes: Mapping[str, Sequence[float]],
    overheads: Overheads | None = None,
    arrivals: Arrivals = no_arrivals,
    *,
    futures: int | None = None,
    step: Step | None = None,
    horizon: float = HORIZON,
    may_go_on: Callable[[], bool] = lambda: True,
    on_progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Estimate]:
    """Estimate the starts of all waiting jobs.

    :param runtimes: equally likely runtimes of each job in seconds, the shortest first. A runtime begins with the next
        start; for an active job, with the start of its attempt. A job without runtimes never ends in the futures.
    :param arrivals: draws the jobs that arrive later.
    :param futures: number of futures; None: between FEWEST_FUTURES and MOST_FUTURES, by the number of live jobs.
    :param step: the length of a step by the elapsed time; None: the result of `steps_for`.
    :param may_go_on: called before each moment. After False, only the finished futures count.
    :param on_progress: called before each moment with the finished part of the present future. An error that this
        function raises ends the forecast.
    """
    hopeless = {hold.job: hold.reason for hold in plan(snapshot).holds if hold.reason in HOPELESS}
    refused = {job.name for job in snapshot.waiting if job.on_free_slots_only} - hopeless.keys()
    without_estimate = _never_starting(hopeless) | {
        name: Estimate(name, None, Doubt.REFUSED, WaitReason.BACKOFF) for name in refused
    }
    snapshot = replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job.name not in without_estimate))
    live = [*(job.name for job in snapshot.active), *(job.name for job in snapshot.waiting)]
    number = futures or max(FEWEST_FUTURES, min(MOST_FUTURES, JOBS_IN_ALL_FUTURES // max(1, len(live))))
    draw = Random(0)  # noqa: S311  (no secret: the same snapshot gives the same estimates)
    places = {name: draw.sample(range(number), number) for name in sorted(live)}
    starts: dict[str, list[float]] = {job.name: [] for job in snapshot.waiting}
    unstarted: dict[str, WaitReason] = {}
    far = False
    for future in range(number if starts else 0):
        drawn = {
            name: likely[int((places[name][future] + 0.5) / number * len(likely))]
            for name, likely in runtimes.items()
            if name in places and likely
        }
        cycles = 1 if step is None and len(live) > MANY_LIVE_JOBS else CYCLES
        simulator = Simulator(snapshot.policy, overheads, step=step or steps_for(len(live)), cycles=cycles)
        arriving = list(arrivals(draw))

        def continues(simulator: Simulator = simulator) -> bool:
            elapsed = simulator.now - snapshot.now
            on_progress(finished_part(simulator, len(snapshot.waiting), len(live), elapsed, horizon))
            return may_go_on()

        runs = simulator.carry_forward(snapshot, drawn, arriving, horizon, continues)
        if not may_go_on():
            break
        for run in runs:
            starts[run.job.name].append(run.starts[0] if run.starts else inf)
        if all(found[-1] < inf for found in starts.values()):
            continue
        far = far or not simulator.has_ended
        if simulator.has_ended and not unstarted:
            unstarted = {hold.job: hold.reason for hold in plan(simulator.snapshot()).holds}
    done = min(map(len, starts.values()), default=number)
    if not done:
        return {name: Estimate(name, None, Doubt.NO_TIME) for name in starts} | without_estimate
    all_known = all(runtimes.get(job.name) for job in snapshot.active)
    unknown = Doubt.FAR if far and all_known else Doubt.UNKNOWN_RUNTIMES
    estimates = {name: _estimate(name, sorted(found), unknown, unstarted.get(name)) for name, found in starts.items()}
    if done < min(FEWEST_FUTURES, number):
        estimates = {name: replace(estimate, earliest=None, latest=None) for name, estimate in estimates.items()}
    return estimates | without_estimate


def _never_starting(hopeless: Mapping[str, WaitReason]) -> dict[str, Estimate]:
    return {name: Estimate(name, None, Doubt.NEVER, reason) for name, reason in hopeless.items()}


def _estimate(name: str, starts: Sequence[float], unknown: Doubt, reason: WaitReason | None) -> Estimate:
    """Combine the starts of a job in the futures, in ascending order, into an estimate."""
    middle, last = starts[len(starts) // 2], starts[-1]
    if middle == inf:
        return Estimate(name, None, Doubt.NEVER if reason in HOPELESS else unknown, reason)
    return Estimate(name, middle, earliest=starts[0], latest=None if last == inf else last)


def is_close(estimated: float, actual: float) -> bool:
    """Return whether the estimate of a wait is near the actual wait, both in seconds.

    The tolerance is CLOSE_SECONDS or, if larger, CLOSE_PART of the actual wait.
    """
    return abs(estimated - actual) <= max(CLOSE_SECONDS, CLOSE_PART * actual)
