"""Scheduling: whoever has news wakes the scheduler, and one holder of the lease at a time runs a cycle.

A cycle reads the cluster, asks the pure core for a plan, records what it intends, and only then acts on SageMaker.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from job_queue.adapters.cluster_reader import Parallel, read_cluster_state
from job_queue.adapters.job_repository import JobRepository, transactions
from job_queue.adapters.metadata import LINE_UNUSED_SECONDS, Lease
from job_queue.adapters.observers import Observer
from job_queue.adapters.telemetry import log
from job_queue.adapters.training_service import Answer, Stopping, TrainingService
from job_queue.controller.intents import eviction_moves, leftover_moves, start_moves
from job_queue.controller.launcher import Launcher
from job_queue.controller.reconciler import Reconciler
from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.errors import LeaseLost, QueueError, Refused, Signal, Unavailable
from job_queue.domain.job import Job
from job_queue.domain.policy import Policies
from job_queue.domain.state_machine import Transition
from job_queue.scheduler.decisions import Plan
from job_queue.scheduler.model import JobState, Policy
from job_queue.scheduler.planner import plan

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


class Controller:
    """Fills the fleet.

    :param clock: seconds since the epoch.
    :param parallel: runs independent AWS calls; one by one is right too, only slower.
    :param observer: told of cycles and of news that is left to another invocation.
    """

    def __init__(
        self,
        repository: JobRepository,
        training: TrainingService,
        policies: Policies,
        clock: Callable[[], float],
        parallel: Parallel,
        observer: Observer | None = None,
    ) -> None:
        self._repository = repository
        self._training = training
        self._policies = policies
        self._clock = clock
        self._parallel = parallel
        self._observer = observer or Observer()
        self.reconciler = Reconciler(repository, training, policies, clock)
        self._launcher = Launcher(repository, training, self.reconciler, clock)

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
        requested = self._repository.add_news()
        again = False
        while invocation.remaining() > CYCLE_SECONDS:
            now = self._clock()
            expires = now + invocation.remaining() + LEASE_GRACE_SECONDS
            acquire = partial(self._repository.acquire, invocation.owner, now, expires)
            lease, control = self._parallel([acquire, self._repository.metadata])
            if lease is None:
                self._observer.lease_was_held()
                return
            log.append_keys(cycle=lease.token)
            try:
                more, again = self._cycle(lease, invocation, control, one_by_one_only=again)
            finally:
                self._repository.release(lease)
            # Read after the release: news that came while we held the lease had nobody else to turn to.
            seen = self._repository.news()
            if (seen == requested and not more and not again) or not invocation.may_go_on():
                return
            requested = seen

    # --- one cycle -------------------------------------------------------------------------------

    def _cycle(
        self, lease: Lease, invocation: Invocation, control: Metadata, *, one_by_one_only: bool
    ) -> tuple[bool, bool]:
        """One cycle. Gives whether another one may do more, and whether some of its plan could not be recorded.

        :param control: the control rows as they were read while the lease was taken.
        :param one_by_one_only: record each decision by itself, so that one that cannot be recorded keeps back no other.
        """
        began = self._clock()
        # 1. Bring in what SageMaker knows, where that is due.
        due = began - lease.reconciled >= RECONCILE_SECONDS
        if due:
            self._reconcile(lease, invocation)
        # 2. Read the cluster. The control rows, read while the lease was taken, are good if no holder wrote between.
        # A line or a policy that is younger than that read has news behind it, which will be seen at the end.
        current = not due and control.token in (lease.token - 1, lease.token)
        cluster = read_cluster_state(self._repository, self._policies, self._parallel, control if current else None)
        now = self._clock()
        # 3. Finish what was decided before: stops of cancelled jobs, launches without an answer.
        leftovers = leftover_moves(cluster, lease, now)
        cluster = cluster.with_active(move.new for move in leftovers)
        # 4. Plan.
        decided = plan(cluster.snapshot(now))
        starts, deferred = start_moves(cluster, decided, lease, now)
        moves = [*leftovers, *eviction_moves(cluster, decided, now), *starts]
        # 5. Record every intent before acting on it; what launching needs is read at the same time.
        launching = [move.new.name for move in moves if move.new.state is JobState.STARTING]
        recording = partial(self._record, lease, cluster, decided, moves, now, one_by_one_only=one_by_one_only)
        (recorded, unplanned), *records = self._parallel(
            [recording, *(partial(self._repository.record, name) for name in launching)]
        )
        # 6. Act on what is recorded.
        details = {record.job.name: record.details for record in records if record}
        more = self._stop_all(cluster, recorded)
        more = self._launch_all(lease, invocation, cluster.applied.policy, recorded, details) or more
        # 7. Tidy up.
        self._forget_lines(cluster)
        for pause in cluster.metadata.pauses.values():
            if pause.is_forgotten(now):
                self._repository.end_pause(pause)
        loads = cluster.loads(move.new for move in recorded)
        self._observer.cycled(decided, loads, self._clock() - began)
        return more or deferred, unplanned

    def _reconcile(self, lease: Lease, invocation: Invocation) -> None:
        try:
            self.reconciler.reconcile(lease, lambda: invocation.remaining() > CYCLE_SECONDS and invocation.may_go_on())
        except LeaseLost:
            raise
        except Exception as error:  # SageMaker did not answer: planning goes on with what is known
            log.exception("reconciliation broke off", exc_info=error)
        lease.reconciled = int(self._clock())

    def _record(
        self,
        lease: Lease,
        cluster: ClusterState,
        decided: Plan,
        moves: list[Transition],
        now: float,
        *,
        one_by_one_only: bool,
    ) -> tuple[list[Transition], bool]:
        """Record the moves; gives those that are recorded, and whether to plan again for the others."""
        unchanged = cluster.metadata.reservations == decided.reservations
        reservations = None if unchanged else decided.reservations
        recorded: list[Transition] = []
        if not moves and unchanged:
            return recorded, False
        for part in [[move] for move in moves] if one_by_one_only and moves else transactions(moves):
            try:
                self._repository.commit(
                    lease, part, now, policy_version=cluster.applied.version, reservations=reservations
                )
            except LeaseLost:
                if not self._repository.still_held(lease):
                    raise
                return recorded, True
            except (Refused, Unavailable) as error:
                if not one_by_one_only:
                    log.info("not recorded: planning again", why=repr(error))
                    return recorded, True
                log.error("a decision that cannot be recorded", jobs=[move.old.name for move in part], exc_info=error)
                continue
            recorded += part
            reservations = None
        return recorded, False

    def _stop_all(self, cluster: ClusterState, recorded: list[Transition]) -> bool:
        """Ask for every stop that is intended, again in each cycle. True if one has ended already."""
        intended = {job.name: job for job in cluster.active.values() if job.state is JobState.STOPPING}
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
        recorded: list[Transition],
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

    def _forget_lines(self, cluster: ClusterState) -> None:
        waited_in = {job.line for job in cluster.waiting.values()}
        for line, used in cluster.metadata.lines.items():
            if line not in waited_in and used + LINE_UNUSED_SECONDS < self._clock():
                self._repository.forget_line(line, used)
