"""Other schedulers on the same jobs: `python benchmarks/policies.py TRACE.csv ... [--seeds 0,1,2] [--ours]`.

A small simulator, separate from the queue's own, runs published policies on a fleet of equal slots. Slots, overheads
and drawn priorities are those of `smq simulate`. Only the queue (`--ours`) uses the priorities, in two of its rows.

- FIFO: strict order of submission; the first job that does not fit blocks all others.
- EASY: FIFO with backfill. A later job may start if it does not delay the first one. Runtimes are exact.
  Lifka, The ANL/IBM SP scheduling system, JSSPP 1995.
- EASY, predicted: the same with runtimes that the queue's predictor predicts from finished jobs. A job without a
  prediction only uses slots that the first job does not need.
- Tiresias: the least attained service first (GPUs x time, 2D-LAS), in two queues, with preemption. A job leaves the
  first queue after 3,250 GPU-seconds, as in the authors' simulator; each queue is FIFO. Gu et al., NSDI 2019.
- QSSF: the smallest predicted GPUs x runtime first, in strict order. Hu et al., SC 2021 (Helios). The predictions are
  those of `job_queue/prediction`, and a job without a prediction counts as the mean of the finished ones.
- shortest first: the shortest job first, by exact runtimes, which only an oracle knows. Jobs that do not fit are
  passed, or (strict) block all others.

The columns are:

- wait: mean, and the 99.9th percentile (nearest rank); time from submission to end, without work and first provisioning
- highest: mean wait of the tenth of the jobs that has the highest priority in the queue
- JCT: mean time from submission to end
- rho: mean JCT of a project divided by its mean JCT if it runs alone on its quota under the same policy; the maximum
  of all projects (finish-time fairness; Mahajan et al., Themis, NSDI 2020); only with --groups
- preempted: preemptions of a job, mean and most
"""

import argparse
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parents[1]))

from job_queue.prediction.runtimes import JobTraits, RuntimePredictor  # noqa: E402
from job_queue.scheduler import DEFAULT, Order, Policy, Pool, Project, Settings  # noqa: E402
from job_queue.simulation.experiments.experiment import Experiment  # noqa: E402
from job_queue.simulation.metrics import wait  # noqa: E402
from job_queue.simulation.trace import (  # noqa: E402
    DRAWN_PRIORITIES,
    TraceConversion,
    TraceJob,
    read_trace,
    shares_of_work,
    traits_of,
)

DAY = 24 * 3600.0
PROVISIONING, STOPPING, CHECKPOINT = 180.0, 120.0, 1800.0  # seconds, the values of `smq simulate`
LONGEST = 2 * DAY  # seconds; longer durations are cut
SLOTS = {"philly_sample": 124, "helios_venus_sample": 145, "alibaba_lingjun2023_sample": 93}
FIRST_QUEUE = 3250.0  # GPU-seconds of attained service in Tiresias' first queue
TAIL = 99.9  # percentile
HIGHEST = 3  # the highest of the three drawn priorities


@dataclass(slots=True, eq=False)
class ClusterJob:
    """A job and its history. Times are seconds since the beginning."""

    name: str
    number: int  # place in the trace: the order of submission, also of jobs that were submitted at the same time
    submitted: float
    work: float
    slots: int
    gpus: float
    group: str = ""
    priority: int = 0
    traits: JobTraits = JobTraits()
    started: float | None = None  # launch of the present attempt; None: the job waits
    stopping: bool = False
    done: float = 0  # seconds of work that are kept
    lost: float = 0  # seconds of work that preemptions lost
    ended: float | None = None
    preemptions: int = 0
    attempt: int = 0

    @property
    def jct(self) -> float:
        """The seconds from submission to end."""
        assert self.ended is not None
        return self.ended - self.submitted

    @property
    def wait(self) -> float:
        """The seconds from submission to end, without the job's work and without its first provisioning."""
        return self.jct - self.work - PROVISIONING

    def worked(self, now: float) -> float:
        """Return the seconds of work, including all work of the present attempt, even without a checkpoint."""
        present = 0.0 if self.started is None or self.stopping else max(0.0, now - self.started - PROVISIONING)
        return self.done + present

    def end(self) -> float:
        """Return the time at which the present attempt ends if it is not stopped."""
        assert self.started is not None
        return self.started + PROVISIONING + self.work - self.done


class Scheduler(ABC):
    """A policy that decides after each event which jobs stop and start."""

    def __init__(self) -> None:
        self.predictor = RuntimePredictor()

    @abstractmethod
    def starts(self, cluster: "Cluster") -> Iterable[ClusterJob]:
        """Yield waiting jobs to start now. The cluster starts each job before it requests the next job."""

    def stops(self, cluster: "Cluster") -> Iterable[ClusterJob]:
        """Return running jobs to stop now."""
        return ()

    def next_look(self, cluster: "Cluster") -> float:
        """Return the next time at which the policy decides even without an event; infinite if there is none."""
        return inf

    def learn(self, job: ClusterJob) -> None:
        """Learn from a finished job."""
        self.predictor.learn(job.traits, job.work)

    def predicted(self, job: ClusterJob, now: float) -> float | None:
        """Return the predicted seconds of all the work of a job; None: unknown."""
        found = self.predictor.predict(job.traits, job.worked(now))
        return None if found is None else found.median


class Cluster:
    """A fleet of equal slots under a policy. Time advances from event to event."""

    def __init__(self, capacity: int, scheduler: Scheduler) -> None:
        self.capacity = self.free = capacity
        self.now = 0.0
        self.waiting: dict[str, ClusterJob] = {}  # in the order of submission, or of the last stop
        self.running: dict[str, ClusterJob] = {}  # includes stopping jobs
        self._scheduler = scheduler
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._look = inf

    def run(self, jobs: Iterable[ClusterJob]) -> list[ClusterJob]:
        """Run the jobs to their ends, and return them. A job that is larger than the fleet is left out."""
        fitting = [job for job in jobs if job.slots <= self.capacity]
        for job in fitting:
            self._enter(job.submitted, partial(self.waiting.__setitem__, job.name, job))
        while self._events:
            self.now = self._events[0][0]
            while self._events and self._events[0][0] <= self.now:
                heappop(self._events)[2]()
            self._decide()
        return fitting

    def _enter(self, when: float, event: Callable[[], None]) -> None:
        heappush(self._events, (when, next(self._order), event))

    def _decide(self) -> None:
        for job in self._scheduler.stops(self):
            self._stop(job)
        for job in self._scheduler.starts(self):
            self._start(job)
        look = self._scheduler.next_look(self)
        if self.now < look < inf and not self.now < self._look <= look:
            self._look = look
            self._enter(look, lambda: None)

    def _start(self, job: ClusterJob) -> None:
        assert job.slots <= self.free
        del self.waiting[job.name]
        self.free -= job.slots
        self.running[job.name] = job
        job.started = self.now
        job.attempt += 1
        self._enter(job.end(), partial(self._end, job, job.attempt))

    def _end(self, job: ClusterJob, attempt: int) -> None:
        if job.stopping or job.started is None or job.attempt != attempt:
            return
        job.ended, job.started = self.now, None
        self._release(job)
        self._scheduler.learn(job)

    def _stop(self, job: ClusterJob) -> None:
        assert job.started is not None
        worked = max(0.0, self.now - job.started - PROVISIONING)
        kept = worked // CHECKPOINT * CHECKPOINT
        job.done += kept
        job.lost += worked - kept
        job.stopping = True
        job.preemptions += 1
        self._enter(self.now + STOPPING, partial(self._stopped, job))

    def _stopped(self, job: ClusterJob) -> None:
        job.started, job.stopping = None, False
        self._release(job)
        self.waiting[job.name] = job

    def _release(self, job: ClusterJob) -> None:
        del self.running[job.name]
        self.free += job.slots


# --- policies ----------------------------------------------------------------------------------------


Key = tuple[float, ...]


class InOrder(Scheduler):
    """A policy that starts waiting jobs in a given order, without preemption.

    :param passes: whether later jobs may start if an earlier job does not fit; else that job blocks later jobs.
    """

    def __init__(self, key: Callable[[ClusterJob, float], Key], *, passes: bool = False) -> None:
        super().__init__()
        self._key = key
        self._passes = passes

    def starts(self, cluster: Cluster) -> Iterator[ClusterJob]:
        """Yield the jobs that fit, in order."""
        if not cluster.free:
            return
        for job in sorted(cluster.waiting.values(), key=lambda job: self._key(job, cluster.now)):
            if job.slots <= cluster.free:
                yield job
            elif not self._passes:
                return


class Easy(Scheduler):
    """FIFO with backfill: a later job may start if it does not delay the first job that does not fit.

    :param exact: whether runtimes are known; else they are predicted, and a job without a prediction uses only slots
        that the first job does not need.
    """

    def __init__(self, *, exact: bool) -> None:
        super().__init__()
        self._exact = exact

    def starts(self, cluster: Cluster) -> Iterator[ClusterJob]:
        """Yield jobs up to the first one that does not fit, then later jobs that do not delay that job."""
        waiting = list(cluster.waiting.values())
        while waiting and waiting[0].slots <= cluster.free:
            yield waiting.pop(0)
        if not waiting or not cluster.free:
            return
        start, spare = self._reservation(cluster, waiting[0])
        for job in waiting[1:]:
            if job.slots > cluster.free:
                continue
            end = cluster.now + self._runtime(job, cluster.now)
            if end < inf and end <= start:
                yield job
            elif job.slots <= spare:
                spare -= job.slots
                yield job
            if not cluster.free:
                return

    def _reservation(self, cluster: Cluster, first: ClusterJob) -> tuple[float, int]:
        """Return when the first job can start, and the slots that are left over then."""
        free, start = cluster.free, inf
        for end, slots in sorted((self._end(job, cluster.now), job.slots) for job in cluster.running.values()):
            if end > start:
                break
            free += slots
            if free >= first.slots:
                start = end  # continue, since jobs that end at the same time free more slots
        return start, free - first.slots

    def _end(self, job: ClusterJob, now: float) -> float:
        assert job.started is not None
        return job.end() if self._exact else max(now, job.started + self._runtime(job, now))

    def _runtime(self, job: ClusterJob, now: float) -> float:
        work = job.work if self._exact else self.predicted(job, now)
        return inf if work is None else PROVISIONING + work


class Tiresias(Scheduler):
    """Two queues by attained GPU-seconds, each in the order of submission, with preemption."""

    def _service(self, job: ClusterJob, now: float) -> float:
        # Lost work counts: else a job without a checkpoint would return to the first queue, again and again.
        return (job.worked(now) + job.lost) * max(job.gpus, 1)

    def _queue(self, job: ClusterJob, now: float) -> int:
        return int(self._service(job, now) >= FIRST_QUEUE - 1e-6)

    def _chosen(self, cluster: Cluster) -> set[ClusterJob]:
        """Return the jobs that should hold slots, chosen in order; a job that does not fit is skipped."""
        live = [*cluster.running.values(), *cluster.waiting.values()]
        live = [job for job in live if not job.stopping]
        live.sort(key=lambda job: (self._queue(job, cluster.now), job.number))
        left, chosen = cluster.capacity, set()
        for job in live:
            if job.slots <= left:
                left -= job.slots
                chosen.add(job)
        return chosen

    def stops(self, cluster: Cluster) -> list[ClusterJob]:
        """Return running jobs to stop, from the end of the order: only as many as the chosen waiting jobs need."""
        chosen = self._chosen(cluster)
        needed = sum(job.slots for job in chosen if job.started is None)
        stopping = sum(job.slots for job in cluster.running.values() if job.stopping)
        short = needed - cluster.free - stopping
        others = [job for job in cluster.running.values() if job not in chosen and not job.stopping]
        others.sort(key=lambda job: (self._queue(job, cluster.now), job.number), reverse=True)
        found = []
        for job in others:
            if short <= 0:
                break
            short -= job.slots
            found.append(job)
        return found

    def starts(self, cluster: Cluster) -> Iterator[ClusterJob]:
        """Yield the chosen jobs that fit now, in order; free slots are kept for chosen jobs that wait for a stop."""
        chosen = [job for job in self._chosen(cluster) if job.started is None]
        chosen.sort(key=lambda job: (self._queue(job, cluster.now), job.number))
        left = cluster.free
        for job in chosen:
            left -= job.slots
            if left >= 0:
                yield job

    def next_look(self, cluster: Cluster) -> float:
        """Return when the next running job leaves the first queue."""
        now = cluster.now
        times = (
            job.started + PROVISIONING + max(0.0, FIRST_QUEUE / max(job.gpus, 1) - job.done - job.lost)
            for job in cluster.running.values()
            if job.started is not None and not job.stopping and not self._queue(job, now)
        )
        return min((time for time in times if time > now), default=inf)


class Qssf(InOrder):
    """The smallest predicted service first; a job is predicted once, when it is first considered."""

    def __init__(self) -> None:
        super().__init__(lambda job, now: (self._priority(job, now), job.number))
        self._priorities: dict[str, float] = {}
        self._works: list[float] = []

    def learn(self, job: ClusterJob) -> None:
        """Learn from a finished job."""
        super().learn(job)
        self._works.append(job.work)

    def _priority(self, job: ClusterJob, now: float) -> float:
        if job.name not in self._priorities:
            work = self.predicted(job, now)
            work = work if work is not None else fmean(self._works) if self._works else 0.0
            self._priorities[job.name] = work * max(job.gpus, 1)
        return self._priorities[job.name]


def _by_work(job: ClusterJob, now: float) -> Key:
    return (job.work, job.number)


def _by_submission(job: ClusterJob, now: float) -> Key:
    return (job.number,)


POLICIES: Mapping[str, Callable[[], Scheduler]] = {
    "FIFO": lambda: InOrder(_by_submission),
    "EASY, exact runtimes": lambda: Easy(exact=True),
    "EASY, predicted": lambda: Easy(exact=False),
    "Tiresias": Tiresias,
    "QSSF, predicted": Qssf,
    "shortest first, an oracle": lambda: InOrder(_by_work, passes=True),
    "shortest first, an oracle, strict": lambda: InOrder(_by_work),
}

OURS: Mapping[str, tuple[Settings, Sequence[float]]] = {  # settings, and the weights of the drawn priorities
    "the queue, as shipped": (Settings(), DRAWN_PRIORITIES),
    "the queue, order: shortest": (Settings(order=Order.SHORTEST), DRAWN_PRIORITIES),
    "the queue, as shipped, one priority for all": (Settings(), ()),
    "the queue, order: shortest, one priority for all": (Settings(order=Order.SHORTEST), ()),
}


# --- figures -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """The figures of a policy on a trace."""

    waits: Sequence[float]  # seconds, for each job
    jct: float  # mean seconds
    highest: float  # mean wait in seconds of the jobs with the highest drawn priority
    rho: float | None = None
    preemptions: Sequence[int] = field(default_factory=tuple)

    def row(self, name: str) -> str:
        """Return a row of the table."""
        waits = sorted(self.waits)
        cells = [
            name,
            f"{fmean(waits):,.0f}",
            f"{tail(waits):,.0f}",
            f"{self.highest:,.0f}",
            f"{self.jct:,.0f}",
            "-" if self.rho is None else f"{self.rho:.2f}",
            f"{fmean(self.preemptions):.2f}",
            str(max(self.preemptions)),
        ]
        return f"| {' | '.join(cells)} |"


def tail(ordered: Sequence[float]) -> float:
    """Return the percentile TAIL of ascending values, by the nearest-rank method."""
    return ordered[max(0, ceil(len(ordered) * TAIL / 100) - 1)]


class Workload:
    """The jobs of a trace, as the published policies and the queue get them."""

    def __init__(self, path: Path, capacity: int, seed: int, *, groups: bool) -> None:
        self._reading = TraceConversion(priorities=DRAWN_PRIORITIES, longest=LONGEST, seed=seed)
        self._trace = read_trace(path)
        self._capacity = capacity
        quotas = {DEFAULT: capacity}
        if groups:
            work = ((row.group or DEFAULT, self._reading.work(row) * self._slots(row)) for row in self._trace)
            quotas = shares_of_work(work, capacity)
        self._quotas = quotas
        projects = tuple(Project(name, quota={DEFAULT: quota}) for name, quota in quotas.items())
        self._policy = Policy((Pool(DEFAULT, capacity),), projects)
        self._priorities = {job.name: job.priority for job in self._reading.jobs(self._trace, self._policy)}

    def _slots(self, row: TraceJob) -> int:
        return self._reading.instances(row)

    def jobs(self, group: str | None = None) -> list[ClusterJob]:
        """Return new jobs, of one group or of all."""
        return [
            ClusterJob(
                row.name,
                number,
                row.submitted,
                self._reading.work(row),
                self._slots(row),
                row.gpus,
                row.group,
                self._priorities[row.name],
                traits_of(row, row.group),
            )
            for number, row in enumerate(self._trace)
            if group is None or (row.group or DEFAULT) == group
        ]

    def figures(self, make: Callable[[], Scheduler]) -> PolicyFigures:
        """Return the figures of a published policy."""
        jobs = Cluster(self._capacity, make()).run(self.jobs())
        rhos = [rho for group in self._quotas if (rho := self._rho(make, jobs, group)) is not None]
        highest = [job.wait for job in jobs if job.priority == HIGHEST]
        preemptions = [job.preemptions for job in jobs]
        waits = [job.wait for job in jobs]
        jct = fmean(job.jct for job in jobs)
        return PolicyFigures(waits, jct, fmean(highest or waits), max(rhos, default=None), preemptions)

    def _rho(self, make: Callable[[], Scheduler], jobs: Sequence[ClusterJob], group: str) -> float | None:
        """Return rho of a project; None if there is only one project, or if no job of the project fits its quota."""
        if len(self._quotas) == 1 or not self._quotas[group]:
            return None
        alone = {job.name: job.jct for job in Cluster(self._quotas[group], make()).run(self.jobs(group))}
        here = [job.jct for job in jobs if job.name in alone]
        return fmean(here) / fmean(alone.values()) if here else None

    def figures_of_queue(self, settings: Settings, priorities: Sequence[float]) -> PolicyFigures:
        """Return the figures of the queue itself.

        :param priorities: weights of the drawn priorities; empty: all jobs have the same priority.
        """
        experiment = Experiment(replace(self._reading, priorities=tuple(priorities)), runtimes="predicted")
        policy = replace(self._policy, settings=settings)
        outcome = experiment.outcome("", policy, self._trace, lambda title, ended, jobs: None)
        runs = [run for run in outcome.runs if run.ended is not None]
        waits = [wait(run) for run in runs]
        highest = [wait(run) for run in runs if self._priorities[run.job.name] == HIGHEST]
        jct = fmean(run.ended - run.job.submitted for run in runs if run.ended is not None)
        rho = max(outcome.fairness.values(), default=None)
        return PolicyFigures(waits, jct, fmean(highest or waits), rho, [run.preemptions for run in runs])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument(
        "--capacity", type=int, metavar="N", help="slots (default: as in docs/developers/simulations.md)"
    )
    parser.add_argument("--seeds", default="0", metavar="A,B,..", help="seeds of the drawn priorities (0)")
    parser.add_argument("--groups", action="store_true", help="a project for each group, by its part of the work")
    parser.add_argument("--only", metavar="TEXT", help="only policies with this text in their names")
    parser.add_argument("--ours", action="store_true", help="the queue as well, which takes minutes for each row")
    options = parser.parse_args()
    print("| trace, policy | wait | 99.9 % | highest | JCT | rho | preempted | most |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for path in options.traces:
        name = path.name.partition(".")[0]
        capacity = options.capacity or SLOTS.get(name)
        if capacity is None:
            parser.error(f"{name} needs --capacity")
        for seed in map(int, options.seeds.split(",")):
            workload = Workload(path, capacity, seed, groups=options.groups)
            rows = [(label, partial(workload.figures, make)) for label, make in POLICIES.items()]
            ours = OURS.items() if options.ours else ()
            rows += [(label, partial(workload.figures_of_queue, *settings)) for label, settings in ours]
            for label, measure in rows:
                if options.only is None or options.only in label:
                    began = time.process_time()
                    print(measure().row(f"{name}, seed {seed}, {label}"), flush=True)
                    print(f"{label}: {time.process_time() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
