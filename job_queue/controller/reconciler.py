"""What SageMaker says happened, brought into the queue: by events as they come, by listing once a minute.

Events may be late, repeated, out of order or lost; nothing here depends on their order. Ends are final.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Lease
from job_queue.adapters.telemetry import log
from job_queue.adapters.training_service import TrainingJob, TrainingService, training_job
from job_queue.domain import state_machine
from job_queue.domain.capacity_backoff import (
    CapacityBackoff,
    CapacityBackoffs,
    after_end,
    after_refusal,
    after_success,
    places,
)
from job_queue.domain.errors import LeaseLost, Refused, Unavailable
from job_queue.domain.job import ExternalJob, Job, JobRecord, epoch, iso
from job_queue.domain.names import JOB_TAG
from job_queue.domain.policy import Policies, slots_of
from job_queue.domain.state_machine import Ending, Transition
from job_queue.scheduler.model import JobState

TRIES = 10  # against writers that change the same job at the same time
MOST_DESCRIBED = 20  # of each kind in one comparison: each takes two calls, and others use SageMaker's API, too

T = TypeVar("T")


class Reconciler:
    """Compares the queue's records with SageMaker's and corrects the records."""

    def __init__(
        self, repository: JobRepository, training: TrainingService, policies: Policies, clock: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._training = training
        self._policies = policies
        self._clock = clock

    # --- events ----------------------------------------------------------------------------------

    def handle_event(self, detail: Mapping[str, Any]) -> bool:
        """Take in a `SageMaker Training Job State Change`. True if it is news: slots may have come free."""
        told = _told(detail)
        if told is None:
            return self.look_at(str(detail["TrainingJobName"]))
        resumed = told.of_queue and self._end_pauses(told)
        if told.ended:
            ours = told.of_queue and self.apply_end(told)
            return ours or self._repository.drop_external(told.name) or resumed
        if told.of_queue:
            return resumed
        counted = self._repository.external_job(told.name)
        if counted and counted.demand == told.demand:  # described once is enough
            return False
        return self.look_at(told.name)

    def apply_end(self, ended: TrainingJob) -> bool:
        """Record the end of an attempt, if it is the one that its job records."""
        for _ in range(TRIES):
            record = self._repository.record(ended.tags.get(JOB_TAG, ""))
            if record is None or not record.job.state.holds_slots or not ended.is_attempt_of(record.job):
                return False
            if self._end(record, ended):
                return True
        raise Unavailable("The job is being changed by many at once.", remedy="Try again.")

    def look_at(self, name: str) -> bool:
        """Ask SageMaker about a training job that is no known attempt, and count it or forget it. True if it is news.

        Describing first keeps a late event from bringing a dead job back.
        """
        found = self._training.describe(name)
        if found is None or found.ended:
            if found and found.of_queue and self.apply_end(found):
                return True
            return self._repository.drop_external(name)
        if found.of_queue and self._is_known(found):
            return self._end_pauses(found)
        self._count(found)
        return False

    def pauses_after(self, job: Job, asked: float) -> tuple[CapacityBackoff, ...]:
        """What it means for the pool that SageMaker had no instances for the attempt that was asked for then."""
        return after_refusal(*self._pauses_and_places(job), asked, self._clock())

    # --- the minute's comparison -----------------------------------------------------------------

    def reconcile(self, lease: Lease, enough_time: Callable[[], bool]) -> None:
        """Compare with SageMaker's list, as the holder of the lease.

        Absence from the list proves nothing, so each absent one is described. Stops early where time runs out, and
        describes a bounded number of each kind, each time from where the last one stopped: the next tick goes on.
        """
        alive = set(self._training.alive())
        active = self._repository.active()  # after the list: what was launched before it is either in it or described
        external = self._repository.external()
        known = {job.launched for job in active} | {row.name for row in external}
        refused_since = min((pause.since for pause in self._repository.metadata().pauses.values()), default=None)
        steps: list[tuple[str, Callable[[], None]]] = []
        doubtful = [job for job in active if _is_doubtful(job, alive, refused_since)]
        steps += [(job.name, partial(self._check, lease, job)) for job in self._some(doubtful)]
        gone = [row for row in external if row.name not in alive or row.orphan]
        steps += [(row.name, partial(self._check_external, lease, row)) for row in self._some(gone)]
        steps += [(name, partial(self._find, lease, name)) for name in self._some(sorted(alive - known))]
        for name, step in steps:
            if enough_time():
                self._guarded(name, step)

    def _some(self, found: list[T]) -> list[T]:
        """As many as are described in one comparison, others each minute."""
        first = int(self._clock() / 60) * MOST_DESCRIBED % max(1, len(found))
        return [*found[first:], *found[:first]][:MOST_DESCRIBED]

    def _guarded(self, name: str, step: Callable[[], None]) -> None:
        """One job's trouble keeps no other from being looked at."""
        try:
            step()
        except LeaseLost:
            raise
        except Exception as error:
            log.exception("not reconciled", job=name, exc_info=error)

    def _check(self, lease: Lease, job: Job) -> None:
        found = self._training.describe(job.launched or "")
        record = self._repository.record(job.name)
        if record is None or record.job.launched != job.launched or not record.job.state.holds_slots:
            return
        if found is None:
            overdue = job.missing_since and job.missing_since + state_machine.MISSING_SECONDS <= self._clock()
            if job.missing_since is None or overdue:
                self._commit(lease, state_machine.missing(record, self._clock()))
            return
        self._end_pauses(found)
        if found.ended:
            self._end(record, found)
        elif job.missing_since:
            self._commit(lease, state_machine.found_again(record.job))

    def _check_external(self, lease: Lease, row: ExternalJob) -> None:
        found = self._training.describe(row.name)
        if found is None or found.ended or row.orphan and self._is_taken_in(lease, found):
            self._repository.drop_external(row.name)
        elif row.orphan:
            self._training.stop(row.name)

    def _find(self, lease: Lease, name: str) -> None:
        """A training job that no row names."""
        found = self._training.describe(name)
        if found is None or found.ended:
            return
        if not found.of_queue:
            self._count(found)
            return
        if not self._is_taken_in(lease, found):
            self._count(found)
            self._training.stop(name)

    def _is_taken_in(self, lease: Lease, found: TrainingJob) -> bool:
        """Whether a job records this attempt, launched after we looked, or waits at its number and adopts it."""
        record = self._repository.record(found.tags.get(JOB_TAG, ""))
        if record is None or record.job.state.finished or not found.is_attempt_of(record.job):
            return False
        if record.job.state.waits:
            slots = slots_of(found.demand, self._policies.of(self._repository.policy()).policy)
            log.warning("adopting an attempt that was thought never launched", job=record.job.name, attempt=found.name)
            self._commit(lease, state_machine.adopted(record.job, slots, self._clock()))
        return True

    # --- pieces ----------------------------------------------------------------------------------

    def _end(self, record: JobRecord, ended: TrainingJob) -> bool:
        job, ending = record.job, Ending(ended.status, ended.secondary, ended.failure, ended.starved)
        if ending.lacks_capacity:
            pauses = self.pauses_after(job, epoch(job.started or job.since))
            move = state_machine.end(record, ending, self._clock(), pauses)
        else:
            known, taken = self._pauses_and_places(job)
            pauses = after_end(known, taken, self._clock())
            move = replace(state_machine.end(record, ending, self._clock()), pauses=pauses)
        if move.new.state.waits:
            self._repository.enter_line(move.new.line, self._clock())
        try:
            self._repository.move(move, self._clock())
        except Refused:
            return False
        return True

    def _end_pauses(self, told: TrainingJob) -> bool:
        """An attempt has its instances, so SageMaker has some again where it runs. True if a pause is over."""
        if told.instances_came is None or not self._repository.metadata().pauses:
            return False
        record = self._repository.record(told.tags.get(JOB_TAG, ""))
        if record is None or not told.is_attempt_of(record.job):
            return False
        resumed = False
        for pause, left in after_success(*self._pauses_and_places(record.job), told.instances_came):
            resumed = self._repository.end_pause(pause, left) or resumed
        return resumed

    def _pauses_and_places(self, job: Job) -> tuple[CapacityBackoffs, Mapping[str, int]]:
        """The pauses, and where this active job takes how many instances."""
        control = self._repository.metadata()
        return control.pauses, places(job, job.slots, self._policies.of(control.policy).policy)

    def _commit(self, lease: Lease, move: Transition) -> None:
        try:
            self._repository.commit(lease, [move], self._clock())
        except LeaseLost:
            raise
        except Refused:
            log.info("somebody else changed the job first", job=move.old.name)

    def _is_known(self, found: TrainingJob) -> bool:
        record = self._repository.record(found.tags.get(JOB_TAG, ""))
        return bool(record and record.job.state.holds_slots and found.is_attempt_of(record.job))

    def _count(self, found: TrainingJob) -> None:
        orphan = found.of_queue
        log.warning("a training job outside the queue uses capacity", attempt=found.name, orphan=orphan)
        self._repository.add_external(ExternalJob(found.name, found.demand, iso(self._clock()), orphan))


def _told(detail: Mapping[str, Any]) -> TrainingJob | None:
    """The training job of an event; None if it does not say whose it is, or is not as events are."""
    tags = detail.get("Tags")
    try:
        return None if tags is None else training_job(detail, tags)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        log.warning("an event that cannot be read", attempt=detail.get("TrainingJobName"), exc_info=error)
        return None


def _is_doubtful(job: Job, alive: set[str], refused_since: int | None) -> bool:
    """Whether SageMaker must be asked about an active job: it may have ended, or its start may have ended a pause."""
    if job.state is JobState.STARTING:
        return False
    probes = refused_since is not None and job.started is not None and epoch(job.started) >= refused_since
    return job.launched not in alive or job.missing_since is not None or probes
