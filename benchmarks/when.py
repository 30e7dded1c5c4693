"""Quality of expected starts: `python benchmarks/when.py TRACE.csv ... [--synthetic] [--days N] [--seed N]`.

Each trace is simulated, with predicted runtimes. Every three hours the starts of all waiting jobs are estimated, and
intervals are computed from the errors of earlier estimates, as in the queue. Then both are compared with the simulated
starts. An estimate uses no later information. Runtimes are predicted from finished jobs, and the arrivals of the last
day are repeated. Errors of earlier estimates count only if their outcomes were known at the time of the estimate.

- told: number of estimates, one for each waiting job at each moment
- no start: part of the estimates whose simulations have no start
- near: part of the other estimates for which the wait was within 25 % or 10 minutes of the estimate
- interval: part of the estimates that have an interval
- 80 %: part of the intervals that contain the start
- 95 %: part of the bounds (by which jobs should start, with 95 % probability) that are not before the start
- width: median ratio of the interval's upper end to its lower end, as waits, each plus five minutes
- bound: median ratio of the wait until the bound to the actual wait, each plus five minutes
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from random import Random
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from job_queue.domain.expectations.past_estimates import (  # noqa: E402
    LOOK_SECONDS,
    PastEstimates,
    StartInterval,
    estimated_wait,
    interval,
)
from job_queue.prediction.conformal import OFFSET_SECONDS  # noqa: E402
from job_queue.scheduler import (  # noqa: E402
    DEFAULT,
    ActiveJob,
    JobState,
    Policy,
    Pool,
    Project,
    Snapshot,
    WaitingJob,
)
from job_queue.simulation.fleet.attempts import JobRun  # noqa: E402
from job_queue.simulation.forecast import Estimate, forecast, is_close, no_arrivals, repeat_arrivals  # noqa: E402
from job_queue.simulation.simulator import Simulator  # noqa: E402
from job_queue.simulation.trace import TraceConversion, TraceJob, capacity_for, read_trace, shares_of_work  # noqa: E402
from job_queue.simulation.workload import Overheads, SimulatedJob  # noqa: E402

HOUR = 3600.0
DAY = 24 * HOUR
LOAD = 0.9  # part of the time for which instances are busy
GANG = 2  # minimum number of instances of the jobs in the row "several"
LIKELY = 20  # number of equally likely runtimes of each job


@dataclass(frozen=True)
class Checked:
    """An estimate, the simulated time of the estimate (`at`), its interval, and the run of its job."""

    run: JobRun
    at: float
    estimate: Estimate
    interval: StartInterval

    @property
    def waited(self) -> float:
        """Seconds that the job still waited; infinite if the job never started."""
        return next((start for start in self.run.starts if start > self.at), float("inf")) - self.at

    @property
    def is_near(self) -> bool:
        """Whether the estimated start was close to the start in the simulation."""
        return self.estimate.start is not None and is_close(self.estimate.start - self.at, self.waited)

    @property
    def held(self) -> bool:
        """Whether the job started within the interval."""
        earliest, latest, _ = self._ends
        return earliest <= self.waited <= latest

    @property
    def bound_held(self) -> bool:
        """Whether the job started by the bound."""
        return self.waited <= self._ends[2]

    @property
    def width(self) -> float:
        """The wait until the interval's upper end, divided by that until its lower end, each plus five minutes."""
        earliest, latest, _ = self._ends
        return (latest + OFFSET_SECONDS) / (earliest + OFFSET_SECONDS)

    @property
    def excess(self) -> float:
        """The wait until the bound, divided by the actual wait, each plus five minutes."""
        return (self._ends[2] + OFFSET_SECONDS) / (self.waited + OFFSET_SECONDS)

    @property
    def _ends(self) -> tuple[float, float, float]:
        found = self.interval
        assert found.earliest is not None and found.latest is not None and found.not_after is not None
        return found.earliest - self.at, found.latest - self.at, found.not_after - self.at


def with_intervals(found: Iterable[tuple[JobRun, float, Estimate]]) -> Iterator[Checked]:
    """Yield the estimates with their intervals, computed from outcomes that were known at the estimates' times.

    :param found: the estimates with the runs of their jobs and their times, in the order of times.
    """
    past, seen = PastEstimates(), dict[str, JobRun]()
    for at, several in groupby(found, key=lambda it: it[1]):
        look = list(several)
        seen |= {run.job.name: run for run, _, _ in look}
        past = past.with_starts({name: [it for it in run.starts if it <= at] for name, run in seen.items()}, None)
        errors = past.usual_errors(at)
        for run, _, estimate in look:
            yield Checked(run, at, estimate, interval(estimate, at, run.job.submitted, errors))
        past = past.with_look(at, {run.job.name: estimated_wait(it, at, run.job.submitted) for run, _, it in look})


def synthetic(days: float, *, changes: bool, seed: int = 1) -> list[TraceJob]:
    """Return a made-up load for about six instances: groups of similar jobs of a few users.

    :param changes: whether the second half has a third as many jobs, which run three times as long.
    """
    random, rows, now = Random(seed), list[TraceJob](), 0.0
    while now < days * DAY:
        factor = 3.0 if changes and now > days / 2 * DAY else 1.0
        now += random.expovariate(1 / (900 * factor))
        kind = random.randrange(8)
        duration = factor * random.lognormvariate(6.5 + kind / 4, 0.7)
        gpus = random.choice((8.0, 8.0, 8.0, 16.0))
        rows.append(TraceJob(f"kind-{'abcdefgh'[kind]}-{len(rows)}", now, duration, gpus, user=f"user{kind % 3}"))
    return rows


class Replay:
    """A trace in simulated time, and the estimates that are made meanwhile.

    :param every: seconds between two moments at which starts are estimated.
    :param arrivals: whether estimates expect further jobs.
    :param futures: number of futures for each estimate; None: the forecast chooses a number that it can compute fast.
    :param seed: seed of the drawn priorities.
    """

    def __init__(
        self, trace: Sequence[TraceJob], every: float, *, arrivals: bool, futures: int | None, seed: int = 0
    ) -> None:
        reading = TraceConversion(priorities=(10, 60, 30), longest=2 * DAY, seed=seed)
        anyone = Policy((Pool(DEFAULT),), (Project(DEFAULT),))
        capacity = capacity_for(reading.jobs(trace, anyone), LOAD)
        work = ((row.group or DEFAULT, reading.work(row) * reading.instances(row)) for row in trace)
        quotas = shares_of_work(work, capacity)
        projects = tuple(Project(name, quota={DEFAULT: quota}) for name, quota in quotas.items())
        self._policy = Policy((Pool(DEFAULT, capacity),), projects)
        self._jobs = reading.jobs(trace, self._policy)
        self._overheads = Overheads()
        self._every, self._next = every, DAY + every / 2
        self._arrivals, self._futures = arrivals, futures
        self._simulator = Simulator(self._policy, self._overheads, self._look, predicted=True)
        self._estimates: list[tuple[float, Estimate]] = []
        self.seconds = 0.0  # processor time of the slowest forecast
        self.most = 0  # waiting jobs of the largest forecast

    def checked(self) -> list[Checked]:
        """Simulate the trace; return all estimates with the runs of their jobs."""
        runs = {run.job.name: run for run in self._simulator.run(self._jobs)}
        return list(with_intervals((runs[estimate.job], at, estimate) for at, estimate in self._estimates))

    def _look(self, _: int) -> None:
        now = self._simulator.now
        if now < self._next or now > self._jobs[-1].submitted:
            return
        snapshot, runtimes = self._simulator.snapshot(), self._simulator.runtimes(LIKELY)
        if not snapshot.waiting:
            return
        self._next = now + self._every
        lately = [job for job in self._jobs if now - DAY <= job.submitted < now]
        live = {job.name for job in snapshot.active} | {job.name for job in snapshot.waiting}

        def work(job: SimulatedJob, random: Random) -> float:
            """Return a repeated job's work: the actual work of an ended job, else likely work; 0 if none is known."""
            if job.name not in live or job.name not in runtimes:
                return 0.0 if job.name in live else job.work
            return max(0.0, random.choice(runtimes[job.name]) - self._overheads.provisioning)

        arrivals = repeat_arrivals(lately, now, DAY, work) if self._arrivals else no_arrivals
        began = time.process_time()
        estimates = forecast(snapshot, runtimes, self._overheads, arrivals, futures=self._futures)
        self.seconds = max(self.seconds, time.process_time() - began)
        self.most = max(self.most, len(estimates))
        self._estimates += [(now, estimate) for estimate in estimates.values()]


def speed(futures: int | None) -> Iterator[str]:
    """Yield the time of one forecast with 100 active and 1,000 waiting jobs, without and with 1,000 arrivals a day."""
    random, now, projects = Random(1), 10 * DAY, 10
    policy = Policy((Pool("p5", 100),), tuple(Project(f"p{n}", quota={"p5": 10}) for n in range(projects)))
    active = tuple(
        ActiveJob(f"a{n}", f"p{n % projects}", 1, {"p5": 1}, JobState.RUNNING, now - 9000 - n, now - 9000)
        for n in range(100)
    )
    waiting = tuple(
        WaitingJob(
            f"w{n}", f"p{n % projects}", random.choice((1, 2, 3)), ({"p5": random.choice((1, 1, 1, 2, 4))},), now
        )
        for n in range(1000)
    )
    likely = {job.name: sorted(random.lognormvariate(8, 1.5) for _ in range(LIKELY)) for job in waiting}
    likely |= {job.name: sorted(9000 + random.lognormvariate(8, 1.5) for _ in range(LIKELY)) for job in active}
    arrived = [
        SimulatedJob(job.name, job.project, job.priority, job.demand, now - n * DAY / 1000, 0)
        for n, job in enumerate(waiting, start=1)
    ]
    repeated = repeat_arrivals(arrived, now, DAY, lambda job, draw: draw.choice(likely[job.name]))
    for what, arrivals in (("no arrivals", no_arrivals), ("1,000 arrivals a day", repeated)):
        began = time.process_time()
        estimates = forecast(Snapshot(policy, now, active, waiting), likely, None, arrivals, futures=futures)
        last = max((it.start or now) - now for it in estimates.values())
        yield f"{what}: {time.process_time() - began:.1f} s; the latest expected start is in {last / HOUR:.0f} hours"


def rows(name: str, checked: Sequence[Checked]) -> Iterator[str]:
    """Yield the rows of a trace: one for all jobs, and one for each kind of job."""
    kinds: list[tuple[str, Callable[[Checked], bool]]] = [
        ("all", lambda it: True),
        ("highest priority", lambda it: it.run.job.priority == 3),
        ("middle", lambda it: it.run.job.priority == 2),
        ("lowest", lambda it: it.run.job.priority == 1),
        ("one instance", lambda it: it.run.job.instances < GANG),
        ("several", lambda it: it.run.job.instances >= GANG),
    ]
    for kind, belongs in kinds:
        if own := [it for it in checked if belongs(it)]:
            yield row(f"{name}, {kind}", own)


def row(what: str, checked: Sequence[Checked]) -> str:
    """Return a row of the table."""
    started = [it for it in checked if it.estimate.start is not None]
    known = [it for it in checked if it.interval.level is not None]
    cells = [
        what,
        str(len(checked)),
        f"{1 - len(started) / len(checked):.0%}",
        part(it.is_near for it in started),
        f"{len(known) / len(checked):.0%}",
        part(it.held for it in known),
        part(it.bound_held for it in known),
        f"{median(it.width for it in known):.1f}" if known else "-",
        f"{median(it.excess for it in known):.1f}" if known else "-",
    ]
    return f"| {' | '.join(cells)} |"


def part(found: Iterable[bool]) -> str:
    """Return the part of the values that are true, as a percentage; - without values."""
    values = list(found)
    return f"{sum(values) / len(values):.0%}" if values else "-"


def main() -> None:
    """Print the speed of a forecast if requested, and the table of the traces."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument(
        "--every", type=float, default=LOOK_SECONDS / HOUR, metavar="HOURS", help="between two moments (3)"
    )
    parser.add_argument("--days", type=float, metavar="N", help="only the first days of each trace")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of drawn priorities and made-up loads (0)")
    parser.add_argument("--alone", action="store_true", help="estimate without further arrivals of jobs")
    parser.add_argument("--futures", type=int, metavar="N", help="how many each estimate looks at")
    parser.add_argument("--synthetic", action="store_true", help="a made-up load of 60 days, with and without a change")
    parser.add_argument("--speed", action="store_true", help="how long a forecast takes, with 1,000 waiting jobs")
    options = parser.parse_args()
    for line in speed(options.futures) if options.speed else ():
        print(line, flush=True)
    loads = [(path.name.partition(".")[0], read_trace(path)) for path in options.traces]
    if options.synthetic:
        for name, changes in (("stationary", False), ("with a change", True)):
            loads.append((name, synthetic(60, changes=changes, seed=options.seed + 1)))
    if not loads:
        return
    print("| trace | told | no start | near | interval | 80 % | 95 % | width | bound |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, load in loads:
        trace = [row for row in load if options.days is None or row.submitted < options.days * DAY]
        replay = Replay(
            trace, options.every * HOUR, arrivals=not options.alone, futures=options.futures, seed=options.seed
        )
        for line in rows(name, replay.checked()):
            print(line, flush=True)
        print(f"at most {replay.seconds:.1f} s for one look, at most {replay.most} jobs waited", file=sys.stderr)


if __name__ == "__main__":
    main()
