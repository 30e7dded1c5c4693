"""Simulate a fleet event by event: make the queue's plan after each event, and apply the plan to simulated jobs.

Events are submissions, ends of jobs, of stops and of carriers, and the times at which carriers can take jobs. Further
events are the times at which a backoff, a training plan or another condition changes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from math import inf

from job_queue.scheduler import (
    NOTHING,
    ActiveJob,
    Carrier,
    GpuAllocation,
    Guarantees,
    JobState,
    Launch,
    Plan,
    Policy,
    Slots,
    Snapshot,
    UseLedger,
    WaitingJob,
    depends_on_past_use,
    plan,
    recent_preemptions,
)
from job_queue.simulation.events import Events
from job_queue.simulation.fleet.attempts import (
    JobRun,
    SimulatedAttempt,
    evictions_before,
    expiries,
    free_slots,
    guarantee_ends,
    simulated_job,
    use_timers,
    waiting_job,
)
from job_queue.simulation.fleet.carriers import SimulatedCarriers
from job_queue.simulation.fleet.free_slots import FreeSlots
from job_queue.simulation.fleet.waiting_queues import WaitingQueues
from job_queue.simulation.knowledge import RuntimeKnowledge
from job_queue.simulation.workload import Overheads, SimulatedJob

CYCLES = 20  # largest number of plans at one moment; a plan may make further decisions possible
MINUTE = 60.0
# With steps, a plan reads at most this many jobs of each waiting queue, or one for each free slot if these are more.
FEWEST_READ = 10

Step = Callable[[float], float]
"""Function: elapsed seconds -> length of the next step in seconds. The queue plans after all events of a step.

With a length of 0, each time with events has its own plan."""


def without_steps(elapsed: float) -> float:
    """Return 0, so that each event has its own plan."""
    return 0.0


class Simulator:
    """A fleet under a policy, in simulated time.

    A moment is one step with all its events. Without steps, a moment is one time with its events.

    :param progress: called after each moment with the number of finished jobs.
    :param predicted: whether the planner gets expected runtimes, learned from the jobs that have finished in the
        simulation.
    :param step: the length of each step, by the elapsed time. A job may take slots that were freed within the step. The
        job then starts at the time when these slots were freed, or when the job could first start if that is later.
    :param cycles: largest number of plans at one moment.
    """

    def __init__(
        self,
        policy: Policy,
        overheads: Overheads | None = None,
        progress: Callable[[int], object] = lambda ended: None,
        *,
        predicted: bool = False,
        step: Step = without_steps,
        cycles: int = CYCLES,
    ) -> None:
        self._cycles = cycles
        self._policy = policy
        self._constants = Snapshot(policy, 0.0)  # the constant parts: external jobs, backoffs, calendars
        self._step = step
        self._begins_at = 0.0
        self._cut = False  # whether more jobs wait than the last plan has read
        self._free = FreeSlots()
        self._overheads = overheads or Overheads()
        self._knowledge = RuntimeKnowledge(self._overheads, predicted=predicted)
        self._progress = progress
        self._now = 0.0
        self._events = Events()
        self._waiting: dict[str, JobRun] = {}
        self._queues = WaitingQueues(policy.settings)  # as the planner sees them; without jobs that depend on others
        self._dependents: dict[str, list[str]] = defaultdict(list)  # live job -> waiting jobs that depend on it
        self._startable_since: dict[str, float] = {}  # job -> end of its last stop, or of its last dependency
        self._active: dict[str, SimulatedAttempt] = {}
        self._carriers = SimulatedCarriers(policy)
        self._reserved: dict[str, Slots] = {}
        self._as_waiting: dict[str, WaitingJob] = {}
        self._shared = any(pool.gpus is not None for pool in policy.pools)
        self._guarantees = Guarantees(policy)
        self._ledger = UseLedger(policy) if depends_on_past_use(policy) else None
        self._unstarted: set[str] = set()  # jobs that waited in the snapshot and have not started since
        self._next_timer: float | None = None
        self._order_settles_at = 0.0  # time after which aging changes no order without a new event
        self._timers = 0  # number of timers among the events
        self._ended = 0
        self.moments = 0  # number of simulated moments
        self.expected_timers = 0  # number of times within the horizon at which the patience of waiting jobs ends

    def run(self, jobs: Iterable[SimulatedJob]) -> list[JobRun]:
        """Run all jobs to their ends and return their histories. A job that can never start has no end."""
        runs = [JobRun(job) for job in jobs]
        for run in runs:
            self._events.enter(run.job.submitted, partial(self._submit, run))
        self._pass_time()
        return runs

    def carry_forward(
        self,
        snapshot: Snapshot,
        runtimes: Mapping[str, float],
        arrivals: Iterable[SimulatedJob] = (),
        horizon: float = inf,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> list[JobRun]:
        """Carry a snapshot forward until all its waiting jobs have started once, or for `horizon` seconds.

        :param runtimes: seconds that each live job runs, from the next start of a waiting job or the last start of an
            active job. A job without a runtime runs for ever.
        :param arrivals: jobs that arrive later.
        :param may_go_on: called before each moment; False ends the simulation.
        :return: the histories of the jobs that wait in the snapshot.
        """
        self._constants, self._now, self._begins_at = snapshot, snapshot.now, snapshot.now
        self._reserved = dict(snapshot.reserved)
        if self._ledger:
            self._ledger = UseLedger(self._policy, snapshot.past_use, self._now)
        for carrier in snapshot.carriers:
            self._continue_carrier(carrier)
        for active in snapshot.active:
            self._continue_attempt(active, runtimes.get(active.name, inf))
        for carrier in snapshot.carriers:
            if carrier.state is JobState.STOPPING:
                self._stop_carrier(carrier.name)
        waiting = [JobRun(simulated_job(job, runtimes.get(job.name, inf), self._overheads)) for job in snapshot.waiting]
        for run, job in zip(waiting, snapshot.waiting, strict=True):
            run.evictions = evictions_before(job, self._now)
        self._waiting = {run.job.name: run for run in waiting}
        self._as_waiting.update((job.name, job) for job in snapshot.waiting)
        for job in snapshot.waiting:
            if not job.after:
                self._queues.enter(job)
            for other in {name for name, _ in job.after}:
                self._dependents[other].append(job.name)
        for arrival in arrivals:
            self._events.enter(arrival.submitted, partial(self._submit, JobRun(arrival)))
        self._enter_known_changes(snapshot)
        self._unstarted = set(self._waiting)
        self._note_event()
        self._cycle()
        end = snapshot.now + horizon
        patience = self._policy.settings.patience
        if patience is not None:
            ends = {run.job.submitted + patience + 1 for run in waiting}
            self.expected_timers = sum(self._now < time <= end for time in ends)
        self._pass_time(is_enough=lambda: not self._unstarted or self._events.next > end or not may_go_on())
        return waiting

    def _enter_known_changes(self, snapshot: Snapshot) -> None:
        """Enter the known times after which the queue may decide otherwise.

        These are the ends of backoffs, begins and ends of training plans, `not_before`, and begins of drains.
        """
        for time in expiries(snapshot):
            self._events.enter(time)
        for pool, calendar in snapshot.calendars.items():
            if snapshot.now < calendar.closes < inf:
                self._events.enter(calendar.closes, partial(self._close_training_plan, pool))
        for pool, drain in snapshot.drains.items():
            self._events.enter(max(self._now, drain.at), partial(self._drain, pool))

    def _pass_time(self, is_enough: Callable[[], bool] = lambda: False) -> None:
        while self._events and not is_enough():
            self.moments += 1
            self._next_moment()
            self._cycle()
            self._progress(self._ended)

    def _next_moment(self) -> None:
        """Handle all events of the next step, and set the time to the time of the last event."""
        first, moment = self._events.next, self._now
        self._free.begin()
        for time, event in self._events.until(max(moment, first + self._step(first - self._begins_at))):
            self._now = time
            event()
            moment = max(moment, time)
        self._now = moment

    # --- events -------------------------------------------------------------------------------------

    def _submit(self, run: JobRun) -> None:
        job = run.job
        self._as_waiting[job.name] = waiting_job(job, self._knowledge.expected(run))
        self._waiting[job.name] = run
        self._queues.enter(self._as_waiting[job.name])

    def _launch(self, name: str, slots: Slots, allocation: GpuAllocation | None = None) -> None:
        run, since = self._waiting.pop(name), self._free.take(slots)
        self._queues.remove(name)
        launched = self._now if since is None else max(since, self._first_possible_start(run))
        self._unstarted.discard(name)
        run.starts.append(launched)
        run.provisioned = self._overheads.starting(run.job)
        attempt = SimulatedAttempt(run, slots, launched, launched + run.provisioned, allocation=allocation)
        attempt.expected = self._as_waiting[name].expected
        attempt.preemptions = recent_preemptions(run.evictions, launched)
        attempt.preempted_in_all = len(run.evictions)
        self._add_attempt(attempt)

    def _first_possible_start(self, run: JobRun) -> float:
        waiting = self._as_waiting[run.job.name]
        earliest = self._startable_since.get(run.job.name, 0.0)
        return max(run.job.submitted, earliest, waiting.not_before or 0.0, waiting.backoff_until or 0.0)

    def _add_attempt(self, attempt: SimulatedAttempt) -> None:
        run = attempt.run
        self._active[run.job.name] = attempt
        if attempt.allocation is not None:
            self._carriers.add_member(attempt.allocation.carrier)
        slots = attempt.slots or self._carriers.slots_of(attempt.allocation)
        attempt.guaranteed = self._guarantees.runtime(run.job.project, slots, attempt.preemptions)
        ends = attempt.training_begins + run.job.work - run.done
        if ends < inf and not attempt.stopping:
            self._events.enter(ends, partial(self._end, attempt))

    def _continue_attempt(self, job: ActiveJob, runtime: float) -> None:
        """Continue an attempt of the snapshot."""
        simulated = simulated_job(job, runtime, self._overheads)
        self._as_waiting[job.name] = waiting_job(simulated, job.expected)
        launched = self._now if job.started is None else job.started
        run, trains = JobRun(simulated, starts=[launched]), launched + self._overheads.starting(simulated)
        run.evictions = evictions_before(job, launched)
        attempt = SimulatedAttempt(
            run, job.slots, launched, trains, expected=job.expected, original=job, allocation=job.allocation
        )
        attempt.preemptions = job.preemptions
        attempt.stopping = job.state is JobState.STOPPING
        self._add_attempt(attempt)
        if attempt.stopping:
            run.done = self._overheads.kept(0, max(0.0, self._now - attempt.training_begins))
            self._events.enter(self._now + self._stop_seconds(attempt), partial(self._end_stop, attempt))

    def _end(self, attempt: SimulatedAttempt) -> None:
        run = attempt.run
        if attempt.stopping or self._active.get(run.job.name) is not attempt:
            return
        self._remove_attempt(attempt)
        del self._as_waiting[run.job.name]
        run.done, run.ended = run.job.work, self._now
        if run.preemptions:
            run.restarts += self._overheads.starting(run.job)
        self._ended += 1
        self._knowledge.learn(run.job)
        for name in self._dependents.pop(run.job.name, ()):
            self._end_dependency(name, run.job.name)

    def _end_dependency(self, name: str, other: str) -> None:
        """Remove a waiting job's dependency on a job that has ended. In a simulation, each end is a success."""
        job = self._as_waiting[name]
        job = replace(job, after=tuple(it for it in job.after if it[0] != other))
        self._as_waiting[name] = job
        if not job.after:
            self._startable_since[name] = self._now
            self._queues.enter(job)

    def _close_training_plan(self, pool: str) -> None:
        """Stop the attempts of a pool, because SageMaker takes the instances of its training plan back."""
        for name, attempt in list(self._active.items()):
            if attempt.slots.get(pool) and not attempt.stopping:
                self._stop(name, evicted=False)

    def _drain(self, pool: str) -> None:
        """Stop the attempts that a pool's drain stops (`Drain.stops_job`), because the drain is now in force."""
        for name, attempt in list(self._active.items()):
            slots = attempt.slots or self._carriers.slots_of(attempt.allocation)
            if pool in slots and not attempt.stopping:
                preemptible = attempt.run.job.preemptible
                if self._constants.drains[pool].stops_job(self._now, preemptible=preemptible):
                    self._stop(name, evicted=False)

    def _stop_seconds(self, attempt: SimulatedAttempt) -> float:
        """Return the seconds from a stop until the slots or the GPU allocation of an attempt are free."""
        allocation = attempt.allocation
        alone = allocation is not None and not self._carriers.is_leaving(allocation.carrier)
        return self._overheads.member_overhead if alone else self._overheads.stopping

    def _stop(self, name: str, *, evicted: bool = True) -> None:
        """Stop an attempt.

        :param evicted: whether the attempt is stopped to make room for another job.
        """
        attempt = self._active[name]
        attempt.stopping = True
        run, worked = attempt.run, max(0.0, self._now - attempt.training_begins)
        kept = self._overheads.kept(run.done, worked)
        run.lost += run.done + worked - kept
        run.done = kept
        if run.preemptions:
            run.restarts += min(self._now, attempt.training_begins) - attempt.launched
        stopping = self._stop_seconds(attempt)
        run.restarts += stopping
        run.preemptions += 1
        if evicted:
            run.evictions.append(self._now)
        self._events.enter(self._now + stopping, partial(self._end_stop, attempt))

    def _end_stop(self, attempt: SimulatedAttempt) -> None:
        name = attempt.run.job.name
        self._remove_attempt(attempt)
        if (
            attempt.original is not None
            and attempt.original.state is JobState.STOPPING
            and not attempt.original.comes_back
        ):
            return
        self._waiting[name] = attempt.run
        self._startable_since[name] = self._now
        before = self._as_waiting[name]
        self._as_waiting[name] = replace(
            before,
            expected=self._knowledge.expected(attempt.run, known=before.expected),
            preemptions=recent_preemptions(attempt.run.evictions, self._now),
            preempted_in_all=len(attempt.run.evictions),
        )
        self._queues.enter(self._as_waiting[name])

    def _remove_attempt(self, attempt: SimulatedAttempt) -> None:
        """Free the slots or the GPU allocation of an attempt that has ended."""
        job = attempt.run.job
        self._free.free(self._now, attempt.slots)
        del self._active[job.name]
        attempt.run.training_periods.append((attempt.training_begins, self._now))
        if attempt.allocation is not None:
            self._carriers.remove_member(attempt.allocation.carrier, self._now)
        if self._ledger:
            self._ledger.enter(job.project, job.owner, attempt.slots, attempt.training_begins, self._now)

    def _note_event(self) -> None:
        """Note that other events than timers are left. Without them, orders by aging repeat with the period `aging`."""
        self._order_settles_at = self._now + (self._policy.settings.aging or 0.0) + MINUTE

    def _end_timer(self) -> None:
        self._next_timer = None
        self._timers -= 1

    # --- carriers -----------------------------------------------------------------------------------

    def _launch_carrier(self, launch: Launch) -> None:
        self._free.take(launch.slots)
        self._continue_carrier(self._carriers.launch(self._as_waiting[launch.members[0]], launch.slots, self._now))

    def _continue_carrier(self, carrier: Carrier) -> None:
        """Add a carrier in its present state. Unless it is stopping, it takes members when its instance is up."""
        self._carriers.enter(carrier)
        if not (carrier.takes_members or self._carriers.is_leaving(carrier.name)):
            up = max(self._now, carrier.started + self._overheads.provisioning)
            self._events.enter(up, lambda: self._carriers.mark_running(carrier.name, up))

    def _stop_carrier(self, name: str) -> None:
        """Stop a carrier and all its members."""
        self._carriers.stop(name)
        for job, attempt in list(self._active.items()):
            if attempt.allocation is not None and attempt.allocation.carrier == name and not attempt.stopping:
                self._stop(job)
        self._events.enter(self._now + self._overheads.stopping, partial(self._end_carrier, name))

    def _end_carrier(self, name: str) -> None:
        carrier = self._carriers.remove(name)
        self._free.free(self._now, {carrier.pool: 1})
        if self._ledger:
            self._ledger.enter(carrier.project, carrier.owner, {carrier.pool: 1}, carrier.started, self._now)

    # --- cycles -------------------------------------------------------------------------------------

    def _cycle(self) -> None:
        for _ in range(self._cycles):
            if not self._waiting and not self._carriers.times_to_close():
                return
            decided = plan(self._snapshot(), explained=False)
            if self._step is not without_steps:
                self._free.record_idle(self._free_slots())
            if not self._carry_out(decided):
                break
            if self._step is not without_steps and not self._cut:
                break  # the plan of the next moment takes the consequences into account
        self._enter_next_timer()

    def _carry_out(self, decided: Plan) -> bool:
        """Carry out a plan, and return whether the plan contained any decision."""
        self._reserved = dict(decided.reservations)
        leaving = [it.job for it in decided.evictions]
        for name in (*leaving, *decided.carriers_to_close):
            if name in self._carriers:
                self._stop_carrier(name)
            else:
                self._stop(name)
        for start in decided.starts:
            self._launch(start.job, start.slots)
        for launch in decided.launches:
            self._launch_carrier(launch)
        for it in decided.allocations:
            self._launch(it.job, NOTHING, it.allocation)
        return bool(leaving or decided.carriers_to_close or decided.starts or decided.launches or decided.allocations)

    def _free_slots(self) -> dict[str, int]:
        held = (attempt.slots for attempt in self._active.values())
        return free_slots(self._constants, self._now, chain(held, self._carriers.held()))

    def _enter_next_timer(self) -> None:
        """Enter the next timer: an event that only makes another plan.

        A timer is due when a job's patience or guaranteed runtime ends, when an empty carrier was kept long enough, and
        when past use or a budget may change the plan. With aging, a timer is due each minute until orders repeat.
        """
        settings, now = self._policy.settings, self._now
        # If only timers are left, no active job ever ends. Timers for aging and past use would then never stop.
        only_timers = len(self._events) == self._timers
        if not only_timers:
            self._note_event()
        times = self._carriers.times_to_close()
        if settings.patience is not None:
            times += [it.job.submitted + settings.patience + 1 for it in self._waiting.values()]
        times += guarantee_ends(self._active.values())
        if settings.aging and now < self._order_settles_at:
            times.append(now + MINUTE)
        if self._ledger and not (only_timers and self._active):
            times += use_timers(self._snapshot())
        due = min((time for time in times if now < time < inf), default=None)
        if due is not None and (self._next_timer is None or due < self._next_timer):
            self._next_timer = due
            self._timers += 1
            self._events.enter(due, self._end_timer)

    # --- snapshots ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the present state with all waiting and active jobs, regardless of the policy's `window`."""
        return self._snapshot(whole=True)

    def runtimes(self, count: int) -> dict[str, tuple[float, ...]]:
        """Return equally likely runtimes of each job of `snapshot` that has a prediction, the shortest first.

        The runtimes are seconds from the next start to the end; for an active job, from the start of its attempt.
        """
        runs = [(run, 0.0) for run in self._waiting.values()]
        runs += [(it.run, max(0.0, self._now - it.training_begins)) for it in self._active.values()]
        return self._knowledge.likely(runs, count)

    @property
    def has_ended(self) -> bool:
        """Whether no events are left."""
        return not self._events

    @property
    def unstarted(self) -> int:
        """The number of waiting jobs of the snapshot that have not started yet."""
        return len(self._unstarted)

    @property
    def now(self) -> float:
        """The simulated time in seconds, with the same origin as `SimulatedJob.submitted` and `Snapshot.now`."""
        return self._now

    def _snapshot(self, *, whole: bool = False) -> Snapshot:
        return replace(
            self._constants,
            now=self._now,
            active=tuple(self._as_active(attempt) for attempt in self._active.values()),
            waiting=tuple(map(self._as_waiting.__getitem__, self._waiting) if whole else self._jobs_read_by_cycle()),
            reserved=self._reserved,
            carriers=self._carriers.all,
            past_use=self._ledger.past_use(self._now) if self._ledger else {},
        )

    def _jobs_read_by_cycle(self) -> Iterable[WaitingJob]:
        """Return the jobs that a cycle would read: the first jobs of each waiting queue, by priority and submission."""
        enough = self._policy.settings.window
        # No more jobs can start than there are free slots, unless jobs share instances. With past use, the planner's
        # order differs from the order of the waiting queues.
        if self._step is not without_steps and not self._ledger and not self._shared:
            enough = min(enough, max(FEWEST_READ, sum(max(0, slots) for slots in self._free_slots().values())))
        read, self._cut = self._queues.read(self._now, enough)
        return read

    def _as_active(self, attempt: SimulatedAttempt) -> ActiveJob:
        worked = self._now - attempt.training_begins
        if attempt.expected is not None and attempt.launched + attempt.expected <= self._now:
            attempt.expected = self._knowledge.expected(attempt.run, worked, attempt.expected)
        kept = self._overheads.kept(0, worked) if worked > 0 else 0
        return attempt.as_active(
            attempt.training_begins + kept if kept else None, at_first=self._now == self._begins_at
        )
