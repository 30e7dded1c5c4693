"""Runs a workload through the planner. Time passes by events: arrivals, ends, ends of stops, and what expires."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf

from job_queue.prediction.runtimes import RuntimePredictor
from job_queue.scheduler import (
    ActiveJob,
    JobState,
    Plan,
    Policy,
    Slots,
    Snapshot,
    UseLedger,
    WaitingJob,
    plan,
    remembers,
)
from job_queue.simulation.attempts import (
    Attempt,
    JobRun,
    expiries,
    free_slots,
    guarantees,
    in_window,
    looks_at_use,
    waiting_job,
)
from job_queue.simulation.free_slots import FreeSlots
from job_queue.simulation.workload import Overheads, SimulatedJob

CYCLES = 20  # at one moment: each may do what the one before has made possible
MINUTE = 60.0
FEW = 10  # jobs of a waiting queue that are looked at where steps are; more, where more slots are free

Step = Callable[[float], float]
"""After so many seconds: how many seconds of events are looked at together. What is exact takes none."""


def no_step(elapsed: float) -> float:
    """Each moment at which something happens is looked at by itself."""
    return 0.0


class Simulator:
    """A fleet under a policy.

    :param progress: told how many jobs have ended, after each moment.
    :param predicted: whether the planner is told what is expected of a job, from those that have ended before.
    :param step: how much is looked at together. A job that starts on slots that came free meanwhile has started then.
    :param cycles: how often a moment is planned at most.
    """

    def __init__(
        self,
        policy: Policy,
        overheads: Overheads | None = None,
        progress: Callable[[int], object] = lambda ended: None,
        *,
        predicted: bool = False,
        step: Step = no_step,
        cycles: int = CYCLES,
    ) -> None:
        self._cycles = cycles
        self._policy = policy
        self._world = Snapshot(policy, 0.0)  # what stays as it is: jobs of others, backoffs, calendars
        self._step = step
        self._began = 0.0
        self._cut = False  # whether more jobs wait than the last plan saw
        self._free = FreeSlots()
        self._predictor = RuntimePredictor() if predicted else None
        self._overheads = overheads or Overheads()
        self._progress = progress
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._waiting: dict[str, JobRun] = {}
        self._active: dict[str, Attempt] = {}
        self._reserved: dict[str, Slots] = {}
        self._as_waiting: dict[str, WaitingJob] = {}
        self._guarantees = guarantees(policy)
        self._ledger = UseLedger(policy) if remembers(policy) else None
        self._awaited: set[str] = set()  # who waited in the snapshot, and has not started since
        self._next_look: float | None = None
        self._looks = 0  # of the events
        self._ended = 0
        self.plans = 0

    def run(self, jobs: Iterable[SimulatedJob]) -> list[JobRun]:
        """Run all jobs to their ends. A job that can never start stays without one."""
        runs = [JobRun(job) for job in jobs]
        for run in runs:
            self._at(run.job.submitted, partial(self._enter, run))
        self._pass_time()
        return runs

    def carry_on(
        self,
        snapshot: Snapshot,
        runtimes: Mapping[str, float],
        arrivals: Iterable[SimulatedJob] = (),
        horizon: float = inf,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> list[JobRun]:
        """Go on from a snapshot until all that wait in it have started once, or for so long. Gives the waiting jobs.

        :param runtimes: of its jobs, in seconds from their next start until their ends; of an active job, from the
            start of its attempt. Who is not named runs for ever.
        :param arrivals: jobs that come later.
        :param may_go_on: asked after each moment.
        """
        self._world, self._now, self._began = snapshot, snapshot.now, snapshot.now
        self._reserved = dict(snapshot.reserved)
        if self._ledger:
            self._ledger = UseLedger(self._policy, snapshot.past_use, self._now)
        for active in snapshot.active:
            self._go_on(active, runtimes.get(active.name, inf))
        waiting = [JobRun(self._simulated(job, job.demand, runtimes.get(job.name, inf))) for job in snapshot.waiting]
        self._waiting = {run.job.name: run for run in waiting}
        self._as_waiting.update((job.name, job) for job in snapshot.waiting)
        for arrival in arrivals:
            self._at(arrival.submitted, partial(self._enter, JobRun(arrival)))
        for time in expiries(snapshot):
            self._at(time, _nothing)
        for pool, calendar in snapshot.calendars.items():
            if snapshot.now < calendar.closes < inf:
                self._at(calendar.closes, partial(self._take_back, pool))
        self._awaited = set(self._waiting)
        self._cycle()
        end = snapshot.now + horizon
        self._pass_time(enough=lambda: not self._awaited or self._events[0][0] > end or not may_go_on())
        return waiting

    def _pass_time(self, enough: Callable[[], bool] = lambda: False) -> None:
        while self._events and not enough():
            self._next_moment()
            self._cycle()
            self._progress(self._ended)

    def _next_moment(self) -> None:
        """All that happens up to the end of a step. The moment is that of the last of it."""
        first, moment = self._events[0][0], self._now
        until = max(moment, first + self._step(first - self._began))
        self._free.begin()
        while self._events and self._events[0][0] <= until:
            self._now, _, event = heappop(self._events)
            event()
            moment = max(moment, self._now)
        self._now = moment

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._order), event))

    # --- events -------------------------------------------------------------------------------------

    def _enter(self, run: JobRun) -> None:
        job = run.job
        self._as_waiting[job.name] = waiting_job(job, self._expected(run))
        self._waiting[job.name] = run

    def _launch(self, name: str, slots: Slots) -> None:
        run, since = self._waiting.pop(name), self._free.take(slots)
        launched = self._now if since is None else max(since, run.job.submitted)
        self._awaited.discard(name)
        run.starts.append(launched)
        run.provisioned = self._overheads.provisioning
        attempt = Attempt(run, slots, launched, launched + self._overheads.provisioning)
        attempt.expected = self._as_waiting[name].expected
        self._enter_attempt(attempt)

    def _enter_attempt(self, attempt: Attempt) -> None:
        run = attempt.run
        self._active[run.job.name] = attempt
        ends = attempt.trains + run.job.work - run.done
        if ends < inf:
            self._at(ends, partial(self._end, attempt))

    def _go_on(self, job: ActiveJob, runtime: float) -> None:
        """An attempt of a snapshot goes on."""
        simulated = self._simulated(job, job.demand or (job.slots,), runtime)
        self._as_waiting[job.name] = waiting_job(simulated, job.expected)
        launched = self._now if job.started is None else job.started
        run = JobRun(simulated, starts=[launched])
        attempt = Attempt(run, job.slots, launched, launched + self._overheads.provisioning, expected=job.expected)
        attempt.seen, attempt.stopping = job, job.state is JobState.STOPPING
        if attempt.stopping:
            self._active[job.name] = attempt
            run.done = self._kept(0, max(0.0, self._now - attempt.trains))
            self._at(self._now + self._overheads.stopping, partial(self._stopped, attempt))
        else:
            self._enter_attempt(attempt)

    def _simulated(self, job: WaitingJob | ActiveJob, demand: tuple[Slots, ...], runtime: float) -> SimulatedJob:
        """A job of a snapshot that runs for so long, from its start to its end."""
        named = (job.name, job.project, job.priority, demand, job.entered)
        work = max(0.0, runtime - self._overheads.provisioning)
        return SimulatedJob(*named, work, job.owner, job.preemptible, job.max_runtime)

    def _end(self, attempt: Attempt) -> None:
        run = attempt.run
        if attempt.stopping or self._active.get(run.job.name) is not attempt:
            return
        self._leave(attempt)
        del self._as_waiting[run.job.name]
        run.done, run.ended = run.job.work, self._now
        if run.preemptions:
            run.restarts += self._overheads.provisioning
        self._ended += 1
        if self._predictor:
            self._predictor.learn(run.job.traits, run.job.work)

    def _take_back(self, pool: str) -> None:
        """SageMaker takes the instances of a training plan back."""
        for name, attempt in list(self._active.items()):
            if attempt.slots.get(pool) and not attempt.stopping:
                self._stop(name)

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

    def _stopped(self, attempt: Attempt) -> None:
        name = attempt.run.job.name
        self._leave(attempt)
        if attempt.seen is not None and attempt.seen.state is JobState.STOPPING and not attempt.seen.comes_back:
            return
        self._waiting[name] = attempt.run
        before = self._as_waiting[name]
        self._as_waiting[name] = replace(before, expected=self._expected(attempt.run, known=before.expected))

    def _leave(self, attempt: Attempt) -> None:
        """An attempt is over, and its slots are free."""
        job = attempt.run.job
        self._free.free(self._now, attempt.slots)
        del self._active[job.name]
        if self._ledger:
            self._ledger.enter(job.project, job.owner, attempt.slots, attempt.trains, self._now)

    def _expected(self, run: JobRun, worked: float = 0, known: float | None = None) -> float | None:
        """Seconds that an attempt is expected to take, from its launch on.

        :param worked: for so long it has worked already in the attempt.
        :param known: what was expected of it before. Without a predictor that is what it is, if it is anything.
        """
        if not self._predictor:
            return None if known is None else self._overheads.provisioning + run.job.work - run.done
        found = self._predictor.predict(run.job.traits, run.done + worked, run.job.max_runtime)
        return None if found is None else self._overheads.provisioning + found.median - run.done

    def _kept(self, done: float, worked: float) -> float:
        """What its last checkpoint holds, in seconds of work."""
        every = self._overheads.checkpoint_every
        return 0.0 if every is None else done + worked // every * every

    def _look(self) -> None:
        self._next_look = None
        self._looks -= 1

    # --- cycles -------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        for _ in range(self._cycles):
            if not self._waiting:
                return
            decided = plan(self._snapshot(), explained=False)
            self.plans += 1
            if self._step is not no_step:
                self._free.idle_before(free_slots(self._world, self._now, self._active.values()))
            self._carry_out(decided)
            if not decided.starts and not decided.evictions:
                break
            if self._step is not no_step and not self._cut:
                break  # what this has made possible is seen at the next moment
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
        times: list[float] = []
        if settings.patience is not None:
            times += [it.job.submitted + settings.patience + 1 for it in self._waiting.values()]
        for guaranteed in self._guarantees:
            times += [it.launched + guaranteed for it in self._active.values()]
        if settings.aging:
            times.append(now + MINUTE)
        if self._ledger and (len(self._events) > self._looks or not self._active):  # else nobody who runs ever ends
            times += looks_at_use(self._snapshot())
        due = min((time for time in times if now < time < inf), default=None)
        if due is not None and (self._next_look is None or due < self._next_look):
            self._next_look = due
            self._looks += 1
            self._at(due, self._look)

    # --- snapshots ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """All that wait and all that run, as it stands, however many there are."""
        return self._snapshot(whole=True)

    def runtimes(self, count: int) -> dict[str, tuple[float, ...]]:
        """Of those jobs of `snapshot` of which anything can be predicted: equally likely runtimes, the shortest first.

        They are seconds from the next start to the end; of an active job, from the start of its attempt.
        """
        found: dict[str, tuple[float, ...]] = {}
        runs = [(run, 0.0) for run in self._waiting.values()]
        runs += [(it.run, max(0.0, self._now - it.trains)) for it in self._active.values()]
        for run, worked in runs if self._predictor else ():
            assert self._predictor is not None
            likely = self._predictor.likely(run.job.traits, count, run.done + worked, run.job.max_runtime)
            if likely:
                found[run.job.name] = tuple(self._overheads.provisioning + it - run.done for it in likely)
        return found

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return not self._events

    @property
    def now(self) -> float:
        """The time, in seconds since the beginning."""
        return self._now

    def _snapshot(self, *, whole: bool = False) -> Snapshot:
        return replace(
            self._world,
            now=self._now,
            active=tuple(self._as_active(attempt) for attempt in self._active.values()),
            waiting=tuple(map(self._as_waiting.__getitem__, self._waiting) if whole else self._windowed()),
            reserved=self._reserved,
            past_use=self._ledger.past_use(self._now) if self._ledger else {},
        )

    def _windowed(self) -> Iterable[WaitingJob]:
        """Of each waiting queue as many as the queue reads: by priority and submission, whatever the order."""
        settings = self._policy.settings
        enough = settings.window
        if self._step is not no_step and not self._ledger:  # more than there are free slots will not start
            free = free_slots(self._world, self._now, self._active.values())
            enough = min(enough, max(FEW, sum(max(0, slots) for slots in free.values())))
        jobs = map(self._as_waiting.__getitem__, self._waiting)
        read, self._cut = in_window(jobs, settings, self._now, enough)
        return read

    def _as_active(self, attempt: Attempt) -> ActiveJob:
        job, seen = attempt.run.job, attempt.seen
        every, worked = self._overheads.checkpoint_every, self._now - attempt.trains
        if attempt.expected is not None and attempt.launched + attempt.expected <= self._now:
            attempt.expected = self._expected(attempt.run, worked, attempt.expected)
        saved = attempt.trains + worked // every * every if every and worked >= every else None
        state = JobState.STOPPING if attempt.stopping else JobState.RUNNING
        if seen is not None:
            state = seen.state if self._now == self._began and not attempt.stopping else state
            saved = saved if saved is not None else seen.checkpoint
            comes_back = seen.comes_back if seen.state is JobState.STOPPING else attempt.stopping
            return replace(seen, state=state, checkpoint=saved, expected=attempt.expected, comes_back=comes_back)
        return ActiveJob(
            job.name,
            job.project,
            job.priority,
            attempt.slots,
            state,
            job.submitted,
            attempt.launched,
            job.preemptible,
            job.demand,
            saved,
            job.max_runtime,
            attempt.expected,
            comes_back=attempt.stopping,
            owner=job.owner,
        )


def _nothing() -> None:
    """Something expires: there is nothing to do but to plan."""
