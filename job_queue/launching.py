"""Launching exactly once: ask SageMaker for an attempt whose intent is recorded, and record its answer.

Fencing guards our tables, not SageMaker, where a late call still lands. Names and the order of these steps
make that harmless: see the design, "Launching exactly once".
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from job_queue import lifecycle
from job_queue.control import Lease
from job_queue.errors import Refused, Unavailable
from job_queue.lifecycle import Move
from job_queue.names import JOB_TAG
from job_queue.policy import placed
from job_queue.reconcile import Reconciler
from job_queue.records import Call, Job, epoch
from job_queue.scheduler import JobState, Policy
from job_queue.store import Store
from job_queue.telemetry import log
from job_queue.training import Answer, TrainingJob, TrainingService, attempt_tags

SIGNATURE_SECONDS = 16 * 60  # a signed request is good for 15 minutes at most; one more for clocks that differ
RELAUNCH_SECONDS = 10  # an unanswered launch is asked again no sooner: the first call itself may take as long


def new_call(lease: Lease, now: float) -> Call:
    """A call that the holder of this lease is about to make."""
    return Call(asked=int(now), dead=lease.expires + SIGNATURE_SECONDS)


def is_unanswered(job: Job, now: float) -> bool:
    """Whether a launch has been waiting for its answer for so long that it should be asked again."""
    if job.state is not JobState.STARTING:
        return False
    return all(call.asked + RELAUNCH_SECONDS <= now for call in job.calls)


def is_asked_again(job: Job) -> bool:
    """Whether its latest call was not the first one under this name."""
    return job.calls[-1].asked > epoch(job.since)


def attempt_request(job: Job, details: str, policy: Policy) -> dict[str, Any]:
    """The CreateTrainingJob request of a job's current attempt: the user's own, placed, named and tagged."""
    request = placed(json.loads(details), job, policy)
    request["TrainingJobName"] = job.launched
    request["Tags"] = [*request.get("Tags", []), *attempt_tags(job)]
    return request


class Launcher:
    """Records what SageMaker answered, as the holder of the lease."""

    def __init__(
        self, store: Store, training: TrainingService, reconciler: Reconciler, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._training = training
        self._reconciler = reconciler
        self._clock = clock

    def create(self, job: Job, details: str, policy: Policy) -> tuple[Answer, str]:
        """Ask SageMaker once."""
        return self._training.create(attempt_request(job, details, policy))

    def settle(self, lease: Lease, job: Job, answer: Answer, words: str) -> bool:
        """Record an answer. True if planning again may now do more.

        :raises LeaseLost: the lease is no longer ours; the launch stays in doubt and a later cycle asks again.
        """
        log.info("launch answered", job=job.name, attempt=job.launched, answer=answer.name, words=words)
        match answer:
            case Answer.LAUNCHED:
                recorded = self._record(lease, job, lambda latest: lifecycle.accepted(latest, self._clock()))
                # It may be stopped or preempted only now, if it has been in doubt for a while.
                return recorded is not None and (recorded.cancelled or is_asked_again(job))
            case Answer.NAME_TAKEN:
                return self._name_taken(lease, job)
            case Answer.REFUSED | Answer.NO_CAPACITY | Answer.NOT_NOW:
                return self._refused(lease, job, answer, words)
            case Answer.UNKNOWN:
                return False

    def _name_taken(self, lease: Lease, job: Job) -> bool:
        try:
            found = self._training.describe(job.launched or "")
        except Unavailable:
            return False
        return self._neither_free_nor_found(lease, job) if found is None else self._found(lease, job, found)

    def _refused(self, lease: Lease, job: Job, answer: Answer, words: str) -> bool:
        asked = job.calls[-1].asked
        if is_asked_again(job):
            # An earlier call may have taken effect unheard, and SageMaker may refuse before it looks at the name.
            try:
                found = self._training.describe(job.launched or "")
            except Unavailable:
                return False
            if found is not None:
                return self._found(lease, job, found)
        for_good = answer is Answer.REFUSED
        pauses = self._reconciler.pauses_after(job, asked) if answer is Answer.NO_CAPACITY else ()
        recorded = self._give_up(
            lease,
            job,
            lambda latest: lifecycle.refused(latest, asked, words, for_good=for_good, now=self._clock(), pauses=pauses),
        )
        return recorded is not None and not recorded.state.holds_slots

    def _found(self, lease: Lease, job: Job, found: TrainingJob) -> bool:
        """The name of the attempt is taken, by this training job."""
        if found.is_attempt_of(job):
            if found.ended:
                return self._reconciler.apply_end(found)
            return self.settle(lease, job, Answer.LAUNCHED, "")
        # An attempt of an earlier submission of this very job is ours to stop; a job of another name is not.
        earlier = found.of_queue and not found.ended and found.tags.get(JOB_TAG) == job.name
        if earlier:
            self._training.stop(found.name)
        self._give_up(lease, job, lambda latest: lifecycle.name_is_anothers(latest, alive=earlier, now=self._clock()))
        return True

    def _neither_free_nor_found(self, lease: Lease, job: Job) -> bool:
        """Conclude nothing from one such answer: the next cycle asks again. After long enough, it was deleted."""
        now, asked = self._clock(), job.calls[-1].asked
        overdue = job.missing_since is not None and job.missing_since + lifecycle.MISSING_SECONDS <= now
        if not overdue or any(call.dead > asked for call in job.calls[:-1]):
            self._record(lease, job, lambda latest: lifecycle.missing_at_launch(latest, asked, now))
            return False
        self._give_up(lease, job, lambda latest: lifecycle.name_is_anothers(latest, alive=False, now=now))
        return True

    def _give_up(self, lease: Lease, job: Job, transition: Callable[[Job], Move]) -> Job | None:
        """Make a transition that may bring the job back to its line, which must be known again before."""
        self._store.enter_line(job.line, self._clock())
        record = self._store.record(job.name)
        if record is None or not is_current(record.job, job):
            return None
        # The whole row is at hand, so that a job that is refused again and again does not grow without end.
        return self._record(lease, record.job, lambda latest: replace(transition(latest), record=record))

    def _record(self, lease: Lease, job: Job, transition: Callable[[Job], Move]) -> Job | None:
        """Make a transition of a launch, for this job alone; None if an event was first and ended the attempt."""
        latest = job
        while True:
            move = transition(latest)
            try:
                self._store.commit(lease, [move], self._clock())
            except Refused as refused:
                if 0 in refused.items:
                    raise
                record = self._store.record(job.name)
                if record is None or not is_current(record.job, job):
                    return None
                latest = record.job  # the user cancelled meanwhile: same launch, later version
                continue
            return move.new


def is_current(recorded: Job, launched: Job) -> bool:
    """Whether the launch in hand is still the one that the job's row records as being under way."""
    return (
        recorded.submission == launched.submission
        and recorded.attempt == launched.attempt
        and recorded.state is JobState.STARTING
    )
