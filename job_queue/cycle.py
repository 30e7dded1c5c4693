"""Scheduling: whoever has news wakes the scheduler, and one holder of the lease at a time runs a cycle.

A cycle reads the world, asks the pure core for a plan, records what it intends, and only then acts on SageMaker.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from job_queue.control import LINE_UNUSED_SECONDS, Control, Lease
from job_queue.errors import LeaseLost, QueueError, Refused, Signal, Unavailable
from job_queue.intents import eviction_moves, leftover_moves, start_moves
from job_queue.launching import Launcher
from job_queue.lifecycle import Move
from job_queue.observing import Observer
from job_queue.policy import Policies
from job_queue.reconcile import Reconciler
from job_queue.records import Job
from job_queue.scheduler import JobState, Plan, Policy, plan
from job_queue.store import Store, transactions
from job_queue.telemetry import log
from job_queue.training import Answer, Stopping, TrainingService
from job_queue.world import Parallel, World, read_world

LEASE_GRACE_SECONDS = 10  # the lease outlives the invocation, so nobody else starts while it may still act
LAUNCH_SECONDS = 15  # what must be left of an invocation to ask for a launch
CYCLE_SECONDS = LAUNCH_SECONDS + 5  # ... and to begin a cycle
RECONCILE_SECONDS = 50


@dataclass(frozen=True, slots=True)
class Invocation:
    """The process that the queue runs in, for as long as it runs."""

    owner: str  # unique
    remaining: Callable[[], float]  # seconds until it is killed
    may_go_on: Callable[[], bool]  # whether to start a further cycle


class Scheduler:
    """Fills the fleet.

    :param clock: seconds since the epoch.
    :param parallel: runs independent AWS calls; one by one is right too, only slower.
    :param observer: told of cycles and of news that is left to another invocation.
    """

    def __init__(
        self,
        store: Store,
        training: TrainingService,
        policies: Policies,
        clock: Callable[[], float],
        parallel: Parallel,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._training = training
        self._policies = policies
        self._clock = clock
        self._parallel = parallel
        self._observer = observer or Observer()
        self.reconciler = Reconciler(store, training, policies, clock)
        self._launcher = Launcher(store, training, self.reconciler, clock)

    def wake(self, invocation: Invocation) -> None:
        """Look at the news, or leave it to the holder of the lease, who will look again.

        What fails here fails for this invocation only: what is recorded stays, and the next one goes on from there.
        """
        try:
            self._wake(invocation)
        except Signal as signal:
            log.info("left to the next cycle", why=repr(signal))
        except QueueError as error:
            log.warning("left to the next cycle", why=error.message, exc_info=error)
        except Exception as error:
            log.exception("left to the next cycle", exc_info=error)  # whoever submitted a job need not know

    def _wake(self, invocation: Invocation) -> None:
        requested = self._store.add_news()
        again = False
        while invocation.remaining() > CYCLE_SECONDS:
            now = self._clock()
            expires = now + invocation.remaining() + LEASE_GRACE_SECONDS
            acquire = partial(self._store.acquire, invocation.owner, now, expires)
            lease, control = self._parallel([acquire, self._store.control])
            if lease is None:
                self._observer.lease_was_held()
                return
            log.append_keys(cycle=lease.token)
            try:
                more, again = self._cycle(lease, invocation, control, singly=again)
            finally:
                self._store.release(lease)
            # Read after the release: news that came while we held the lease had nobody else to turn to.
            seen = self._store.news()
            if (seen == requested and not more and not again) or not invocation.may_go_on():
                return
            requested = seen

    # --- one cycle -------------------------------------------------------------------------------

    def _cycle(self, lease: Lease, invocation: Invocation, control: Control, *, singly: bool) -> tuple[bool, bool]:
        """One cycle. Gives whether another one may do more, and whether some of its plan could not be recorded.

        :param control: the control rows as they were read while the lease was taken.
        :param singly: record each decision by itself, so that one that cannot be recorded keeps back no other.
        """
        began = self._clock()
        # 1. Bring in what SageMaker knows, where that is due.
        due = began - lease.reconciled >= RECONCILE_SECONDS
        if due:
            self._reconcile(lease, invocation)
        # 2. Read the world. The control rows, read while the lease was taken, are good if no holder wrote between.
        # A line or a policy that is younger than that read has news behind it, which will be seen at the end.
        current = not due and control.token in (lease.token - 1, lease.token)
        world = read_world(self._store, self._policies, self._parallel, control if current else None)
        now = self._clock()
        # 3. Finish what was decided before: stops of cancelled jobs, launches without an answer.
        leftovers = leftover_moves(world, lease, now)
        world = world.with_active(move.new for move in leftovers)
        # 4. Plan.
        decided = plan(world.snapshot(now))
        starts, left_out = start_moves(world, decided, lease, now)
        moves = [*leftovers, *eviction_moves(world, decided, now), *starts]
        # 5. Record every intent before acting on it; what launching needs is read at the same time.
        launching = [move.new.name for move in moves if move.new.state is JobState.STARTING]
        recording = partial(self._record, lease, world, decided, moves, now, singly=singly)
        (recorded, unplanned), *records = self._parallel(
            [recording, *(partial(self._store.record, name) for name in launching)]
        )
        # 6. Act on what is recorded.
        details = {record.job.name: record.details for record in records if record}
        more = self._stop_all(world, recorded)
        more = self._launch_all(lease, invocation, world.applied.policy, recorded, details) or more
        # 7. Tidy up.
        self._forget_lines(world)
        for pause in world.control.pauses.values():
            if pause.is_forgotten(now):
                self._store.end_pause(pause)
        loads = world.loads(move.new for move in recorded)
        self._observer.cycled(decided, loads, self._clock() - began)
        return more or left_out, unplanned

    def _reconcile(self, lease: Lease, invocation: Invocation) -> None:
        try:
            self.reconciler.reconcile(lease, lambda: invocation.remaining() > CYCLE_SECONDS and invocation.may_go_on())
        except LeaseLost:
            raise
        except Exception as error:  # SageMaker did not answer: planning goes on with what is known
            log.exception("reconciliation broke off", exc_info=error)
        lease.reconciled = int(self._clock())

    def _record(
        self, lease: Lease, world: World, decided: Plan, moves: list[Move], now: float, *, singly: bool
    ) -> tuple[list[Move], bool]:
        """Record the moves; gives those that are recorded, and whether to plan again for the others."""
        unchanged = world.control.reservations == decided.reservations
        reservations = None if unchanged else decided.reservations
        recorded: list[Move] = []
        if not moves and unchanged:
            return recorded, False
        for part in [[move] for move in moves] if singly and moves else transactions(moves):
            try:
                self._store.commit(lease, part, now, policy_version=world.applied.version, reservations=reservations)
            except LeaseLost:
                if not self._store.still_held(lease):
                    raise
                return recorded, True
            except (Refused, Unavailable) as error:
                if not singly:
                    log.info("not recorded: planning again", why=repr(error))
                    return recorded, True
                log.error("a decision that cannot be recorded", jobs=[move.old.name for move in part], exc_info=error)
                continue
            recorded += part
            reservations = None
        return recorded, False

    def _stop_all(self, world: World, recorded: list[Move]) -> bool:
        """Ask for every stop that is intended, again in each cycle. True if one has ended already."""
        intended = {job.name: job for job in world.active.values() if job.state is JobState.STOPPING}
        intended |= {move.new.name: move.new for move in recorded if move.new.state is JobState.STOPPING}
        return any(self._parallel([partial(self._stop, job) for job in intended.values()]))

    def _stop(self, job: Job) -> bool:
        if self._training.stop(job.launched or "") is not Stopping.ENDED_ALREADY:
            return False
        try:
            return self.reconciler.look_at(job.launched or "")
        except QueueError as error:
            log.warning("an attempt that cannot be stopped", job=job.name, attempt=job.launched, why=error.message)
            return False

    def _launch_all(
        self,
        lease: Lease,
        invocation: Invocation,
        policy: Policy,
        recorded: list[Move],
        details: Mapping[str, str],
    ) -> bool:
        """Ask SageMaker for every recorded launch, and record its answers one after the other."""
        launches = [move.new for move in recorded if move.new.state is JobState.STARTING and move.new.name in details]
        answers = self._parallel(
            [partial(self._launch, invocation, policy, job, details[job.name]) for job in launches]
        )
        more = False
        for job, answer in zip(launches, answers, strict=True):
            if answer is not None:
                more = self._settle(lease, job, answer) or more
        return more

    def _settle(self, lease: Lease, job: Job, answer: tuple[Answer, str]) -> bool:
        try:
            return self._launcher.settle(lease, job, *answer)
        except LeaseLost:
            raise
        except (QueueError, Refused) as error:  # this launch stays in doubt; the other answers are recorded
            log.warning("an answer was not recorded", job=job.name, exc_info=error)
            return False

    def _launch(self, invocation: Invocation, policy: Policy, job: Job, details: str) -> tuple[Answer, str] | None:
        if invocation.remaining() < LAUNCH_SECONDS:
            return None  # its intent stands; a later cycle asks
        return self._launcher.create(job, details, policy)

    def _forget_lines(self, world: World) -> None:
        waited_in = {job.line for job in world.waiting.values()}
        for line, used in world.control.lines.items():
            if line not in waited_in and used + LINE_UNUSED_SECONDS < self._clock():
                self._store.forget_line(line, used)
