"""What SageMaker says happened, brought into the queue: by events as they come, by listing once a minute.

Events may be late, repeated, out of order or lost; nothing here depends on their order. Ends are final.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from job_queue import lifecycle
from job_queue.errors import LeaseLost, Refused, Unavailable
from job_queue.lifecycle import Ending, Move
from job_queue.names import JOB_TAG
from job_queue.policy import Policies, slots_of
from job_queue.records import ExternalJob, Job, JobRecord, iso
from job_queue.scheduler.model import JobState
from job_queue.store import Lease, Store
from job_queue.telemetry import log
from job_queue.training import ENDED, TrainingJob, TrainingService, is_attempt_of, is_of_queue

TRIES = 10  # against writers that change the same job at the same time


class Reconciler:
    """Compares the queue's records with SageMaker's and corrects the records."""

    def __init__(self, store: Store, training: TrainingService, policies: Policies, clock: Callable[[], float]) -> None:
        self._store = store
        self._training = training
        self._policies = policies
        self._clock = clock

    # --- events ----------------------------------------------------------------------------------

    def handle_event(self, detail: Mapping[str, Any]) -> bool:
        """Take in a `SageMaker Training Job State Change`. True if it is news: slots may have come free."""
        name, status = str(detail["TrainingJobName"]), detail["TrainingJobStatus"]
        tags = detail.get("Tags")
        if tags is None:  # the event does not say whose it is
            return self.look_at(name)
        if status not in ENDED:
            # Our own attempts' progress changes nothing; anything else that runs uses capacity.
            return False if is_of_queue(tags) else self.look_at(name)
        ending = Ending(status, detail.get("SecondaryStatus", ""), detail.get("FailureReason"))
        if is_of_queue(tags) and self.apply_end(tags, ending):
            return True
        return self._store.drop_external(name)

    def apply_end(self, tags: Mapping[str, str], ending: Ending) -> bool:
        """Record the end of the attempt that these tags name, if it is the one its job records."""
        for _ in range(TRIES):
            record = self._store.record(tags.get(JOB_TAG, ""))
            if record is None or not record.job.state.holds_slots or not is_attempt_of(tags, record.job):
                return False
            if self._end(record, ending):
                return True
        raise Unavailable("The job is being changed by many at once; try again.")

    def look_at(self, name: str) -> bool:
        """Ask SageMaker about a training job that is no known attempt, and count it or forget it. True if it is news.

        Describing first keeps a late event from bringing a dead job back.
        """
        found = self._training.describe(name)
        if found is None or found.ended:
            if found and found.of_queue:
                ending = Ending(found.status, found.secondary, found.failure)
                if self.apply_end(found.tags, ending):
                    return True
            return self._store.drop_external(name)
        if found.of_queue and self._is_known(found):
            return False
        self._count(found)
        return False

    # --- the minute's comparison -----------------------------------------------------------------

    def reconcile(self, lease: Lease, enough_time: Callable[[], bool]) -> None:
        """Compare with SageMaker's list, as the holder of the lease.

        Absence from the list proves nothing, so each absent one is described. Stops early where time runs out:
        the next tick goes on.
        """
        alive = set(self._training.alive())
        active = self._store.active()  # after the list: what was launched before it is either in it or described
        external = self._store.external()
        known = {job.launched for job in active} | {row.name for row in external}
        for job in active:
            unseen = job.launched not in alive or job.missing_since
            if enough_time() and job.state is not JobState.STARTING and unseen:
                self._guarded(job.name, partial(self._check, lease, job))
        for row in external:
            if enough_time() and (row.name not in alive or row.orphan):
                self._guarded(row.name, partial(self._check_external, lease, row))
        for name in sorted(alive - known):
            if enough_time():
                self._guarded(name, partial(self._find, lease, name))

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
        record = self._store.record(job.name)
        if record is None or record.job.launched != job.launched or not record.job.state.holds_slots:
            return
        if found is None:
            overdue = job.missing_since and job.missing_since + lifecycle.MISSING_SECONDS <= self._clock()
            if job.missing_since is None or overdue:
                self._commit(lease, lifecycle.missing(record, self._clock()))
        elif found.ended:
            self._end(record, Ending(found.status, found.secondary, found.failure))
        elif job.missing_since:
            self._commit(lease, lifecycle.found_again(record.job))

    def _check_external(self, lease: Lease, row: ExternalJob) -> None:
        found = self._training.describe(row.name)
        if found is None or found.ended or row.orphan and self._is_taken_in(lease, found):
            self._store.drop_external(row.name)
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
        record = self._store.record(found.tags.get(JOB_TAG, ""))
        if record is None or record.job.state.finished or not found.is_attempt_of(record.job):
            return False
        if record.job.state.waits:
            slots = slots_of(found.demand, self._policies.of(self._store.policy()).policy)
            log.warning("adopting an attempt that was thought never launched", job=record.job.name, attempt=found.name)
            self._commit(lease, lifecycle.adopted(record.job, slots, self._clock()))
        return True

    # --- pieces ----------------------------------------------------------------------------------

    def _end(self, record: JobRecord, ending: Ending) -> bool:
        move = lifecycle.end(record, ending, self._clock())
        if move.new.state.waits:
            self._store.enter_line(move.new.line, self._clock())
        try:
            self._store.move(move, self._clock())
        except Refused:
            return False
        return True

    def _commit(self, lease: Lease, move: Move) -> None:
        try:
            self._store.commit(lease, [move], self._clock())
        except LeaseLost:
            raise
        except Refused:
            log.info("somebody else changed the job first", job=move.old.name)

    def _is_known(self, found: TrainingJob) -> bool:
        record = self._store.record(found.tags.get(JOB_TAG, ""))
        return bool(record and record.job.state.holds_slots and found.is_attempt_of(record.job))

    def _count(self, found: TrainingJob) -> None:
        orphan = found.of_queue
        log.warning("a training job outside the queue uses capacity", attempt=found.name, orphan=orphan)
        self._store.add_external(ExternalJob(found.name, found.demand, iso(self._clock()), orphan))
