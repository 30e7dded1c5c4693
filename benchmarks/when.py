"""Quality of estimated starts: `python benchmarks/when.py TRACE.csv ... [--every HOURS] [--days N]`.

Each trace is simulated, with predicted runtimes. Every few hours the starts of all waiting jobs are estimated. The
estimates are compared with the simulated starts. An estimate uses no later information: runtimes are predicted from
finished jobs, and the arrivals of the last day are repeated.

- told: number of estimates, one for each waiting job at each moment
- none: part of the estimates without a start
- no good: part of the estimates with a start that is only a guess
- within: part of the other estimates with a start for which the wait was within 25 % or 10 minutes of the estimate
- all within: the same part of all estimates with a start, including guesses
- not after: part of the estimates with a latest start; held: part of these whose job started by then
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

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
from job_queue.simulation.trace import Reading, TraceJob, capacity_for, read_trace, shares_of_work  # noqa: E402
from job_queue.simulation.workload import Overheads, SimulatedJob  # noqa: E402

HOUR = 3600.0
DAY = 24 * HOUR
LOAD = 0.9
GANG = 2  # instances; jobs with so many or more are in the row "several"
LIKELY = 20  # equally likely runtimes of each job


@dataclass(frozen=True)
class Checked:
    """An estimate, the simulated time of the estimate (`at`), and the run of its job."""

    run: JobRun
    at: float
    estimate: Estimate

    @property
    def waited(self) -> float:
        """Seconds that the job still waited; infinite if the job never started."""
        return next((start for start in self.run.starts if start > self.at), float("inf")) - self.at

    @property
    def is_right(self) -> bool:
        """Whether the estimated start was close to the start in the simulation."""
        return self.estimate.start is not None and is_close(self.estimate.start - self.at, self.waited)

    @property
    def held(self) -> bool:
        """Whether the job started by its latest start."""
        assert self.estimate.not_after is not None
        return self.at + self.waited <= self.estimate.not_after


class Replay:
    """A trace in simulated time, and the estimates that are made meanwhile.

    :param every: seconds between two moments at which starts are estimated.
    :param arrivals: whether estimates expect further jobs.
    :param futures: number of futures for each estimate; None: the forecast chooses a number that it can compute fast.
    """

    def __init__(self, trace: Sequence[TraceJob], every: float, *, arrivals: bool, futures: int | None) -> None:
        reading = Reading(priorities=(10, 60, 30), longest=2 * DAY)
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
        return [Checked(runs[estimate.job], at, estimate) for at, estimate in self._estimates]

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
            """Return the work of a repeated job: the actual work if the job has ended, else a likely one, or 0."""
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
    came = [
        SimulatedJob(job.name, job.project, job.priority, job.demand, now - n * DAY / 1000, 0)
        for n, job in enumerate(waiting, start=1)
    ]
    come = repeat_arrivals(came, now, DAY, lambda job, draw: draw.choice(likely[job.name]))
    for what, arrivals in (("nobody comes", no_arrivals), ("1,000 come a day", come)):
        began = time.process_time()
        estimates = forecast(Snapshot(policy, now, active, waiting), likely, None, arrivals, futures=futures)
        last = max((it.start or now) - now for it in estimates.values())
        yield f"{what}: {time.process_time() - began:.1f} s; the last to start is told {last / HOUR:.0f} hours"


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
    good = [it for it in started if it.estimate.doubt is None]
    bounded = [it for it in checked if it.estimate.not_after is not None]
    cells = [
        what,
        str(len(checked)),
        f"{1 - len(started) / len(checked):.0%}",
        f"{(len(started) - len(good)) / len(checked):.0%}",
        part(it.is_right for it in good),
        part(it.is_right for it in started),
        f"{len(bounded) / len(checked):.0%}",
        part(it.held for it in bounded),
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
    parser.add_argument("--every", type=float, default=6, metavar="HOURS", help="between two moments (6)")
    parser.add_argument("--days", type=float, metavar="N", help="only the first days of each trace")
    parser.add_argument("--alone", action="store_true", help="estimate as if nobody came later")
    parser.add_argument("--futures", type=int, metavar="N", help="how many each estimate looks at")
    parser.add_argument("--speed", action="store_true", help="how long a forecast takes, with 1,000 waiting jobs")
    options = parser.parse_args()
    for line in speed(options.futures) if options.speed else ():
        print(line, flush=True)
    if not options.traces:
        return
    print("| trace | told | none | no good | within | all within | not after | held |")
    print("|---|---|---|---|---|---|---|---|")
    for path in options.traces:
        trace = [row for row in read_trace(path) if options.days is None or row.submitted < options.days * DAY]
        replay = Replay(trace, options.every * HOUR, arrivals=not options.alone, futures=options.futures)
        for line in rows(path.name.partition(".")[0], replay.checked()):
            print(line, flush=True)
        print(f"at most {replay.seconds:.1f} s for one look, at most {replay.most} jobs waited", file=sys.stderr)


if __name__ == "__main__":
    main()
