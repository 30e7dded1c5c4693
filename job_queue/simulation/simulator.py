"""Runs a workload through the planner. Time passes by events: arrivals, ends, ends of stops, and what expires."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush, nsmallest
from itertools import count

from job_queue.prediction.runtimes import RuntimePredictor
from job_queue.scheduler import ActiveJob, JobState, Plan, Policy, Slots, Snapshot, WaitingJob, plan
from job_queue.simulation.workload import Overheads, SimulatedJob

CYCLES = 20  # at one moment: each may do what the one before has made possible
MINUTE = 60.0


@dataclass(slots=True)
class JobRun:
    """What became of a job. Times are seconds since the simulation's beginning."""

    job: SimulatedJob
    ended: float | None = None  # None: it never was
    starts: list[float] = field(default_factory=list)  # of its attempts
    preemptions: int = 0
    done: float = 0  # seconds of its work that are not lost
    lost: float = 0  # seconds of work that had to be done again
    provisioned: float = 0  # seconds that its instances took to come for the first time
    restarts: float = 0  # seconds of stopping, and of provisioning again


@dataclass(eq=False, slots=True)
class _Attempt:
    run: JobRun
    slots: Slots
    launched: float
    trains: float  # when its instances are up
    stopping: bool = False
    expected: float | None = None  # seconds from the launch until its end


class Simulator:
    """A fleet under a policy.

    :param progress: told how many jobs have ended, after each moment.
    :param predicted: whether the planner is told what is expected of a job, from those that have ended before.
    """

    def __init__(
        self,
        policy: Policy,
        overheads: Overheads | None = None,
        progress: Callable[[int], object] = lambda ended: None,
        *,
        predicted: bool = False,
    ) -> None:
        self._policy = policy
        self._predictor = RuntimePredictor() if predicted else None
        self._overheads = overheads or Overheads()
        self._progress = progress
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._waiting: dict[str, JobRun] = {}
        self._active: dict[str, _Attempt] = {}
        self._reserved: dict[str, Slots] = {}
        self._as_waiting: dict[str, WaitingJob] = {}
        self._next_look: float | None = None
        self._ended = 0
        self.plans = 0

    def run(self, jobs: Iterable[SimulatedJob]) -> list[JobRun]:
        """Run all jobs to their ends. A job that can never start stays without one."""
        runs = [JobRun(job) for job in jobs]
        for run in runs:
            self._at(run.job.submitted, partial(self._enter, run))
        while self._events:
            self._now = self._events[0][0]
            while self._events and self._events[0][0] == self._now:
                heappop(self._events)[2]()
            self._cycle()
            self._progress(self._ended)
        return runs

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._order), event))

    # --- events -------------------------------------------------------------------------------------

    def _enter(self, run: JobRun) -> None:
        job = run.job
        self._as_waiting[job.name] = WaitingJob(
            job.name,
            job.project,
            job.priority,
            job.demand,
            job.submitted,
            job.preemptible,
            max_runtime=job.max_runtime,
            expected=self._expected(run),
        )
        self._waiting[job.name] = run

    def _launch(self, name: str, slots: Slots) -> None:
        run = self._waiting.pop(name)
        run.starts.append(self._now)
        run.provisioned = self._overheads.provisioning
        attempt = _Attempt(run, slots, self._now, self._now + self._overheads.provisioning)
        self._active[name] = attempt
        attempt.expected = self._as_waiting[name].expected
        self._at(attempt.trains + run.job.work - run.done, partial(self._end, attempt))

    def _end(self, attempt: _Attempt) -> None:
        run = attempt.run
        if attempt.stopping or self._active.get(run.job.name) is not attempt:
            return
        del self._active[run.job.name], self._as_waiting[run.job.name]
        run.done, run.ended = run.job.work, self._now
        if run.preemptions:
            run.restarts += self._overheads.provisioning
        self._ended += 1
        if self._predictor:
            self._predictor.learn(run.job.traits, run.job.work)

    def _stop(self, name: str) -> None:
        attempt = self._active[name]
        attempt.stopping = True
        run, worked = attempt.run, max(0.0, self._now - attempt.trains)
        kept = self._kept(run.done, worked)
        run.lost += run.done + worked - kept
        run.done = kept
        if run.preemptions:
            run.restarts += min(self._now, attempt.trains) - attempt.launched
        run.restarts += self._overheads.stopping
        run.preemptions += 1
        self._at(self._now + self._overheads.stopping, partial(self._stopped, attempt))

    def _stopped(self, attempt: _Attempt) -> None:
        name = attempt.run.job.name
        del self._active[name]
        self._waiting[name] = attempt.run
        self._as_waiting[name] = replace(self._as_waiting[name], expected=self._expected(attempt.run))

    def _expected(self, run: JobRun, worked: float = 0) -> float | None:
        """Seconds that an attempt is expected to take, from its launch on.

        :param worked: for so long it has worked already in the attempt.
        """
        if not self._predictor:
            return None
        found = self._predictor.predict(run.job.traits, run.done + worked, run.job.max_runtime)
        return None if found is None else self._overheads.provisioning + found.median - run.done

    def _kept(self, done: float, worked: float) -> float:
        """What its last checkpoint holds, in seconds of work."""
        every = self._overheads.checkpoint_every
        return 0.0 if every is None else done + worked // every * every

    def _look(self) -> None:
        self._next_look = None

    # --- cycles -------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        for _ in range(CYCLES):
            if not self._waiting:
                return
            decided = plan(self._snapshot(), explained=False)
            self.plans += 1
            self._carry_out(decided)
            if not decided.starts and not decided.evictions:
                break
        self._look_again()

    def _carry_out(self, decided: Plan) -> None:
        self._reserved = dict(decided.reservations)
        for eviction in decided.evictions:
            self._stop(eviction.job)
        for start in decided.starts:
            self._launch(start.job, start.slots)

    def _look_again(self) -> None:
        """Plan again when a job's patience ends, or a guarantee; with aging, each minute."""
        settings, now = self._policy.settings, self._now
        times = []
        if settings.patience is not None:
            times += [it.job.submitted + settings.patience + 1 for it in self._waiting.values()]
        guaranteed = settings.min_runtime
        if guaranteed:
            times += [it.launched + guaranteed for it in self._active.values()]
        if settings.aging:
            times.append(now + MINUTE)
        due = min((time for time in times if time > now), default=None)
        if due is not None and (self._next_look is None or due < self._next_look):
            self._next_look = due
            self._at(due, self._look)

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            policy=self._policy,
            now=self._now,
            active=tuple(self._as_active(attempt) for attempt in self._active.values()),
            waiting=tuple(self._windowed()),
            reserved=self._reserved,
        )

    def _windowed(self) -> Iterable[WaitingJob]:
        """Of each waiting queue as many as the queue reads: by priority and submission, whatever the order."""
        window = self._policy.settings.window
        queues: dict[tuple[str, tuple[frozenset[str], ...]], list[WaitingJob]] = defaultdict(list)
        for name in self._waiting:
            job = self._as_waiting[name]
            queues[job.project, tuple(map(frozenset, job.demand))].append(job)
        for queue in queues.values():
            if len(queue) > window:
                first, *others = nsmallest(window, queue, key=lambda job: (-job.priority, job.entered, job.name))
                yield replace(first, more_wait=True)
                yield from others
            else:
                yield from queue

    def _as_active(self, attempt: _Attempt) -> ActiveJob:
        job = attempt.run.job
        every, worked = self._overheads.checkpoint_every, self._now - attempt.trains
        if attempt.expected is not None and attempt.launched + attempt.expected <= self._now:
            attempt.expected = self._expected(attempt.run, worked)
        saved = attempt.trains + worked // every * every if every and worked >= every else None
        return ActiveJob(
            job.name,
            job.project,
            job.priority,
            attempt.slots,
            JobState.STOPPING if attempt.stopping else JobState.RUNNING,
            job.submitted,
            attempt.launched,
            job.preemptible,
            job.demand,
            saved,
            job.max_runtime,
            attempt.expected,
            comes_back=attempt.stopping,
        )
