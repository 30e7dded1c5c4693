"""Brings the queue's records in line with SageMaker: by events as they come, by a comparison with each tick.

Events may be late, repeated, out of order or lost; nothing here depends on their order. Ends are final.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from job_queue.adapters.carriers.training import Training
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import Lease, Policies
from job_queue.adapters.sagemaker import CLOCK_SECONDS, DELETING, TrainingJob, training_job
from job_queue.adapters.telemetry import log
from job_queue.controller.accounts import end_report
from job_queue.controller.fleet.survey import survey
from job_queue.domain import state_machine
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.capacity_backoff import (
    CapacityBackoff,
    CapacityBackoffs,
    after_end,
    after_refusal,
    after_success,
    instances_by_capacity_key,
)
from job_queue.domain.cluster_state import Metadata
from job_queue.domain.errors import LeaseLost, Refused, Unavailable
from job_queue.domain.fleet.listing import Walk, next_listing
from job_queue.domain.fleet.training_plans import cut_off_by
from job_queue.domain.job import ExternalJob, Job, JobRecord, WarmPool, epoch, iso
from job_queue.domain.launching.proof import is_named_as_attempt
from job_queue.domain.launching.quota_lag import of_the_quota
from job_queue.domain.launching.refusals import QuotaExceeded
from job_queue.domain.names import JOB_TAG, is_stamped
from job_queue.domain.policy import slots_of
from job_queue.domain.state_machine import Transition
from job_queue.scheduler import JobState, Policy

TRIES = 10  # against writers that change the same job at the same time
MOST_DESCRIBED = 20  # of each kind in one comparison: each takes two calls, and others use SageMaker's API, too

T = TypeVar("T")


class Known(NamedTuple):
    """What was read of the job of an event, and of the queue, before the event is applied."""

    record: JobRecord | None
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class Adoption:
    """An attempt that runs, and that its waiting job would launch next: it takes slots, so only a cycle records it."""

    job: str
    found: TrainingJob


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison of the records with SageMaker's leaves to do."""

    adoptions: list[Adoption] = field(default_factory=list)  # only the holder of the lease may record them
    has_carriers: bool = True  # some may have to be listened to
    reconciled: int | None = None  # epoch seconds of the last comparison that succeeded; None: none has yet


class Reconciler:
    """Compares the queue's records with SageMaker's and corrects the records."""

    def __init__(
        self, repository: JobRepository, training: Training, policies: Policies, clock: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._training = training
        self._policies = policies
        self._clock = clock

    # --- events ----------------------------------------------------------------------------------

    def job_of(self, detail: Mapping[str, Any]) -> str | None:
        """The job whose attempt an event says has ended."""
        reported = _reported(detail)
        return reported.tags.get(JOB_TAG) if reported and reported.of_queue and reported.ended else None

    def handle_event(self, detail: Mapping[str, Any], known: Known | None = None) -> bool:
        """Apply a `SageMaker Training Job State Change`. True if a cycle may do more now: slots are free, or taken.

        :param known: what was read for it already.
        """
        reported = _reported(detail)
        if reported is None:
            return self.examine(str(detail["TrainingJobName"]))
        if reported.of_queue and reported.ended:
            self._tell_if_forged(reported, known)
        resumed = reported.of_queue and self._end_capacity_backoffs(reported, known)
        if reported.ended and reported.keep_alive:
            return self.examine(reported.name, reported) or resumed  # its instances may be kept warm
        if reported.ended:
            ours = reported.of_queue and self.apply_end(reported, None if resumed else known)
            return ours or self._repository.drop_external(reported.name) or resumed
        if reported.of_queue and is_named_as_attempt(reported.name, reported.tags):
            return resumed  # the next comparison looks whether it is one
        counted = self._repository.external_job(reported.name)
        if counted and counted.instance_counts == reported.instance_counts:  # described once is enough
            return False
        return self.examine(reported.name)

    def count_external(self, found: TrainingJob) -> None:
        """Count a training job that is alive and that no job records.

        One that has the queue's tags and no proof is told of, and otherwise as anybody's.
        """
        record = self._repository.record(found.tags.get(JOB_TAG, "")) if found.of_queue else None
        orphan = record is not None and found.is_leftover_of(record)
        forged = found.of_queue and not orphan
        before = self._repository.external_job(found.name) if forged else None
        log.warning("external job", attempt=found.name, orphan=orphan, forged=forged)
        seen = iso(self._clock())
        self._repository.add_external(ExternalJob(found.name, found.instance_counts, seen, orphan, forged, found.plan))
        if forged and not (before and before.forged):
            self._repository.report_forged(found.name, found.tags.get(JOB_TAG, ""))

    def apply_end(self, ended: TrainingJob, known: Known | None = None) -> bool:
        """Record the end of an attempt, if it is the one that its job records."""
        for _ in range(TRIES):
            record, metadata = known or Known(self._repository.record(ended.tags.get(JOB_TAG, "")))
            if record is None or not record.job.state.holds_slots or not ended.is_attempt_of(record.job):
                return False
            if not ended.tells_end:  # it is being deleted: `_check` waits for an event that tells
                return False
            if self.end(record, ended, metadata):
                return True
            known = None
        raise Unavailable("The job is being changed by many at once.", remedy="Try again.")

    def examine(self, name: str, reported: TrainingJob | None = None) -> bool:
        """Describe a training job; apply its end, or count it as an external job. True if a cycle may do more now.

        That is so, too, if an external job takes the slots for which others are being stopped: more have to be. It is
        described first, so that a late event does not count a training job that has ended.

        :param reported: its end as an event tells it, which counts if the training job was deleted since.
        """
        found = self._training.describe(name)
        if found is None or found.ended:
            told = found or reported
            if told and told.of_queue and self.apply_end(told):
                return True
            counted = self._repository.external_job(name) if found and found.warm else None
            return self._drop_or_keep_warm(name, found, counted.warm if counted else None)
        if self._is_known(found):
            return self._end_capacity_backoffs(found)
        self.count_external(found)
        return True

    def backoffs_after_refusal(
        self, job: Job, sent_at: float, at_fault: str | None = None, metadata: Metadata | None = None
    ) -> tuple[CapacityBackoff, ...]:
        """The backoff after SageMaker had no instances for the call that was sent then (epoch seconds).

        :param at_fault: what it said, where it refuses what the pool puts into requests.
        """
        return after_refusal(*self._backoffs_and_instances(job, metadata), sent_at, self._clock(), at_fault)

    def backoffs_after_lag(
        self, job: Job, sent_at: float, quota: QuotaExceeded, lag: str
    ) -> tuple[CapacityBackoff, ...]:
        """Return the backoff after SageMaker has refused a call as it still counts instances of jobs that have ended.

        :param sent_at: epoch seconds.
        :param lag: what it counts.
        """
        metadata = self._repository.metadata()
        known, wanted = self._backoffs_and_instances(job, metadata)
        counted = of_the_quota(quota, wanted, self._policies.of(metadata.policy).policy)
        return after_refusal(known, counted, sent_at, self._clock(), lag=lag)

    def examine_attempt(self, job: Job) -> bool:
        """Ask for a job's recorded attempt and apply its end. Return whether a cycle may do more now."""
        if job.on_board is None:
            return self.examine(job.launched or "")
        found = self._training.describe_attempt(job)
        return found is not None and found.ended and self.apply_end(found)

    # --- the comparison with each tick -----------------------------------------------------------

    def compare(self, metadata: Metadata, enough_time: Callable[[], bool]) -> Comparison:
        """Compare the records with SageMaker's list. No lease is needed: nothing that it records takes a slot.

        Absence from the list proves nothing, so each absent training job is described. At most `MOST_DESCRIBED` of
        each kind are described, others each minute.

        A comparison succeeds if the list was read, and if a training job was described where some had to be. A walk
        that ends after `MOST_PAGES` pages is a success: the newest training jobs are known, and the next walk goes on.

        :param metadata: as it was read before.
        :param enough_time: asked before each training job; the next comparison continues where this one stops.
        """
        now = self._clock()
        walk = survey(self._training.training_jobs(), next_listing(metadata.listing, now), now)
        active = self._repository.active()  # after the list: what was launched before is in the list or described
        external = self._repository.external()
        # The name of a training job that was deleted may be another's.
        same = [job for job in external if not walk.is_newer(job.name, epoch(job.since) + CLOCK_SECONDS)]
        known = {job.launched for job in active if job.on_board is None} | {job.name for job in same}
        refused_since = min((backoff.since for backoff in metadata.capacity_backoffs.values()), default=None)
        steps: list[tuple[str, Callable[[], Adoption | None]]] = []
        unclear = [job for job in active if job.seat is None and _must_be_described(job, walk, refused_since)]
        steps += [(job.name, partial(self._check, job, metadata)) for job in self._batch(unclear)]
        accepted = {job.launched for job in active if _is_accepted(job)}
        gone = [
            job
            for job in external
            if job.name not in (walk.warm if job.warm else walk.alive) or job.orphan or job.name in accepted
        ]
        steps += [(job.name, partial(self._check_external, job)) for job in self._batch(gone)]
        strangers = sorted((walk.alive | walk.warm) - known)
        steps += [(name, partial(self._find, name)) for name in self._batch(strangers)]
        adoptions, left, progress = [], set(strangers), not steps
        for name, step in steps:
            done, adoption = self._try(name, step) if enough_time() else (False, None)
            progress = progress or done
            if adoption is not None:
                adoptions.append(adoption)
            elif done:
                left.discard(name)
        reconciled = int(now) if progress else metadata.reconciled
        self._repository.note_listing(walk.result(left), reconciled)
        return Comparison(adoptions, any(job.carries is not None for job in active), reconciled)

    def adopt(self, lease: Lease, adoptions: Iterable[Adoption]) -> None:
        """Record what a comparison has left for the holder of the lease."""
        for adoption in adoptions:
            record = self._repository.record(adoption.job)
            if record is None or not record.job.state.waits or not adoption.found.is_attempt_of(record.job):
                continue
            found, policy = adoption.found, self._policies.of(self._repository.policy()).policy
            slots = slots_of(found.instance_counts, policy, found.plan)
            log.warning("attempt adopted", job=record.job.name, attempt=adoption.found.name)
            try:
                adopted = state_machine.adopted(record.job, slots, self._clock())
                self._repository.commit(lease, [adopted], self._clock())
            except LeaseLost:
                raise
            except Refused:
                log.info("job changed meanwhile", job=record.job.name)

    def _batch(self, found: list[T]) -> list[T]:
        """The part that is described in this comparison; another one each minute."""
        first = int(self._clock() / 60) * MOST_DESCRIBED % max(1, len(found))
        return [*found[first:], *found[:first]][:MOST_DESCRIBED]

    def _try(self, name: str, step: Callable[[], Adoption | None]) -> tuple[bool, Adoption | None]:
        """Whether a step was done. An error with one training job does not keep the others from being compared."""
        try:
            return True, step()
        except Exception as error:
            log.exception("not reconciled", job=name, exc_info=error)
            return False, None

    def _check(self, job: Job, metadata: Metadata) -> None:
        found = self._training.describe_attempt(job)
        record = self._repository.record(job.name)
        if record is None or record.job.launched != job.launched or not record.job.state.holds_slots:
            return
        if found is not None and found.is_newer_than_launch_of(record.job):
            if not found.ended:
                self._count_and_stop(found)
            elif found.warm:
                self._drop_or_keep_warm(found.name, found)
            found = None  # the attempt was deleted, and its name taken again
        if found is None or (found.ended and not found.tells_end):
            self._wait_for_an_event(record, metadata)
            return
        self._end_capacity_backoffs(found)
        if found.ended:
            self.end(record, found)
        elif job.missing_since:
            self._note(state_machine.found_again(record.job, self._clock()))

    def _wait_for_an_event(self, record: JobRecord, metadata: Metadata) -> None:
        """Wait for `MISSING_SECONDS` for an event that tells how a deleted attempt has ended; then end it without."""
        job = record.job
        if job.missing_since is None:
            self._note(state_machine.missing(job, self._clock()))
        elif job.missing_since + state_machine.MISSING_SECONDS <= self._clock():
            since, began = float(job.missing_since), epoch(job.started) if job.started else None
            deleted = TrainingJob(job.launched or "", "", DELETING, "", None, {}, {}, ended_at=since, began=began)
            log.warning("attempt was deleted before its end was known", job=job.name, attempt=job.launched)
            self.end(record, deleted, metadata)

    def _check_external(self, job: ExternalJob) -> Adoption | None:
        found = self._training.describe(job.name)
        if found is None or found.ended:
            self._drop_or_keep_warm(job.name, found, job.warm)
        elif self._is_launched(found):
            self._repository.drop_external(job.name)
        elif job.orphan:
            record = self._recording(found)
            if record is None:
                self._count_and_stop(found)
            elif record.job.state.waits:
                return Adoption(record.job.name, found)
            else:
                self._repository.drop_external(job.name)
        return None

    def _find(self, name: str) -> Adoption | None:
        """A training job that no record names."""
        found = self._training.describe(name)
        if found is None or found.ended:
            if found is not None and found.warm:
                self._drop_or_keep_warm(name, found)
            return None
        if not found.of_queue:
            self.count_external(found)
            return None
        record = self._recording(found)
        if record is None:
            self._count_and_stop(found)
        elif record.job.state.waits:
            return Adoption(record.job.name, found)
        return None

    def _recording(self, found: TrainingJob) -> JobRecord | None:
        """The job that has recorded this attempt meanwhile, or that waits with its number and adopts it."""
        record = self._repository.record(found.tags.get(JOB_TAG, ""))
        if record is None or record.job.state.finished or not found.is_attempt_of(record.job):
            return None
        return record

    def _count_and_stop(self, found: TrainingJob) -> None:
        """Count an attempt that no job records, and stop it: what the queue did not launch is left alone."""
        self.count_external(found)
        record = self._repository.record(found.tags.get(JOB_TAG, ""))
        if record is not None and found.is_leftover_of(record):
            log.warning("training job of a finished attempt", job=record.job.name, attempt=found.name)
            self._training.stop(found.name)

    def _tell_if_forged(self, ended: TrainingJob, known: Known | None) -> None:
        """Tell of an end that says to be an attempt's and is not."""
        record = known.record if known else self._repository.record(ended.tags.get(JOB_TAG, ""))
        if record is None or ended.is_attempt_of(record.job) or ended.is_proven_of(record.job):
            return
        is_earlier = any(it.training_job_name == ended.name for it in record.attempts)  # of a version without proofs
        if not is_earlier and (ended.name != record.job.launched or record.job.on_board is not None):
            self._repository.report_forged(ended.name, record.job.name)

    # --- pieces ----------------------------------------------------------------------------------

    def end(self, record: JobRecord, ended: TrainingJob, metadata: Metadata | None = None) -> bool:
        """Record how an attempt has ended. False: its job has changed meanwhile."""
        job, metadata = record.job, metadata or self._repository.metadata()
        policy = self._policies.of(metadata.policy).policy
        ending = self._ending(record, ended, metadata, policy)
        if ending.lacks_capacity:
            backoffs = self.backoffs_after_refusal(job, epoch(job.started or job.since), metadata=metadata)
            transition = state_machine.end(record, ending, self._clock(), backoffs)
        else:
            held = instances_by_capacity_key(job, job.slots, policy)
            backoffs = after_end(metadata.capacity_backoffs, held, self._clock())
            transition = replace(state_machine.end(record, ending, self._clock()), backoffs=backoffs)
        if ended.warm:
            pool = next(iter(job.slots), None)
            ended = replace(ended, warm=replace(ended.warm, pool=pool))
            self._drop_or_keep_warm(ended.name, ended)  # before its slots are free
        try:
            self._repository.apply(transition, self._clock(), metadata)
        except Refused:
            return False
        self._training.forget_attempt(job)
        return True

    def _drop_or_keep_warm(self, name: str, found: TrainingJob | None, before: WarmPool | None = None) -> bool:
        """Count the instances of a training job that has ended as long as they are kept.

        True if a cycle may use them now: they are free, or have just become warm, which makes room for who needs them.
        """
        if found is None or found.warm is None:
            return self._repository.drop_external(name)
        warm = replace(before, until=found.warm.until) if before else found.warm
        seen = iso(self._clock())
        self._repository.add_external(ExternalJob(name, found.instance_counts, seen, plan=found.plan, warm=warm))
        return before is None

    def _ending(self, record: JobRecord, ended: TrainingJob, metadata: Metadata, policy: Policy) -> Ending:
        at = self._clock() if ended.ended_at is None else ended.ended_at
        plan = cut_off_by(record.job, metadata.training_plans, policy, at)
        report = end_report(record, ended, metadata, policy)
        return Ending(ended.status, ended.secondary, ended.failure, ended.starved, plan.name if plan else None, report)

    def _end_capacity_backoffs(self, reported: TrainingJob, known: Known | None = None) -> bool:
        """End the backoffs of an attempt's capacity key, once it has its instances. True if one has ended."""
        if reported.instances_came is None:
            return False
        metadata = (known and known.metadata) or self._repository.metadata()
        if not metadata.capacity_backoffs:
            return False
        record = known.record if known else self._repository.record(reported.tags.get(JOB_TAG, ""))
        if record is None or not reported.is_attempt_of(record.job):
            return False
        resumed = False
        for backoff, left in after_success(
            *self._backoffs_and_instances(record.job, metadata), reported.instances_came
        ):
            resumed = self._repository.end_capacity_backoff(backoff, left) or resumed
        return resumed

    def _backoffs_and_instances(
        self, job: Job, metadata: Metadata | None = None
    ) -> tuple[CapacityBackoffs, Mapping[str, int]]:
        """All capacity backoffs, and the instances that this active job holds by capacity key."""
        metadata = metadata or self._repository.metadata()
        policy = self._policies.of(metadata.policy).policy
        return metadata.capacity_backoffs, instances_by_capacity_key(job, job.slots, policy)

    def _note(self, transition: Transition) -> None:
        try:
            self._repository.apply(transition, self._clock())
        except Refused:
            log.info("job changed meanwhile", job=transition.old.name)

    def _is_known(self, found: TrainingJob) -> bool:
        record = self._repository.record(found.tags.get(JOB_TAG, ""))
        if record and record.job.state.holds_slots and found.is_attempt_of(record.job):
            return True
        return self._is_launched(found)

    def _is_launched(self, found: TrainingJob) -> bool:
        """Return whether SageMaker has accepted this attempt. Its tags do not matter any more.

        The name alone does not tell: the attempt may have been deleted, and its name taken again later. The name of an
        attempt on a carrier is free in SageMaker: a training job of that name is another's.
        """
        if not is_stamped(found.name):
            return False
        accepted = (job for job in self._repository.active() if job.launched == found.name and _is_accepted(job))
        return any(not found.is_newer_than_launch_of(job) for job in accepted)


def _is_accepted(job: Job) -> bool:
    return job.state is not JobState.STARTING and job.on_board is None


def _reported(detail: Mapping[str, Any]) -> TrainingJob | None:
    """The training job of an event; None if it has no tags or cannot be read."""
    tags = detail.get("Tags")
    try:
        return None if tags is None else training_job(detail, tags)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        log.warning("event cannot be read", attempt=detail.get("TrainingJobName"), exc_info=error)
        return None


def _must_be_described(job: Job, walk: Walk, refused_since: int | None) -> bool:
    """Whether an active job must be described: it may have ended, or have got instances where some were lacking."""
    if job.state is JobState.STARTING:
        return False
    probes = refused_since is not None and job.started is not None and epoch(job.started) >= refused_since
    name, started = job.launched or "", epoch(job.started or job.since)
    absent = name not in walk.alive or walk.is_newer(name, started + CLOCK_SECONDS)
    return absent or job.missing_since is not None or probes
