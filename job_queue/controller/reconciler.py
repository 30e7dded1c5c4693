"""Reconcile the records with SageMaker, by events and at each tick: record ends, adopt attempts, count external jobs.

Events may be late, repeated, out of order or lost. No result depends on their order. Ends are final.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from job_queue.adapters.items import stored_request
from job_queue.adapters.metadata import Lease
from job_queue.adapters.sagemaker import CLOCK_SECONDS, DELETING, TrainingJob, training_job
from job_queue.adapters.telemetry import log
from job_queue.controller.accounts import end_report
from job_queue.controller.fleet.survey import walk_list
from job_queue.controller.part import Backend, ControllerPart
from job_queue.domain import state_machine
from job_queue.domain.access.program_output import is_failure_of_program
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.capacity_backoff import (
    CapacityBackoff,
    CapacityBackoffs,
    after_end,
    after_refusal,
    after_success,
    backoffs_of_silent_site,
    instances_by_capacity_key,
)
from job_queue.domain.carriers import transitions
from job_queue.domain.cluster_state import Metadata
from job_queue.domain.domain_events import ForgedAttempt
from job_queue.domain.errors import LeaseLost, Refused, SiteSilent, Unavailable
from job_queue.domain.failures import FailureClass, GpuFailure, LoggedLine, NamedRule, returned_gpus, rules_for
from job_queue.domain.fleet.listing import Walk, next_listing
from job_queue.domain.fleet.sites import (
    Site,
    has_other_sites,
    key_of,
    name_in,
    same_place,
    site_of_pool,
    sites_of,
)
from job_queue.domain.fleet.training_plans import cut_off_by
from job_queue.domain.job import (
    LAUNCHED,
    STAGES,
    ExternalTrainingJob,
    FailedAttempt,
    Job,
    JobRecord,
    WarmPool,
    epoch,
    iso,
)
from job_queue.domain.launching.proof import is_named_as_attempt
from job_queue.domain.launching.quota_lag import wanted_within_quota
from job_queue.domain.launching.refusals import QuotaExceeded
from job_queue.domain.names import JOB_TAG, is_stamped
from job_queue.domain.policy import slots_of
from job_queue.domain.state_machine import JobTransition, failed_attempt, new_failure
from job_queue.scheduler import JobState, Policy, Pool

TRIES = 10  # tries to change a job that other invocations change at the same time
MOST_LOGS = 5  # logs of failed attempts read in one comparison, because the next cycle waits for the comparison
WALK_SECONDS = 15  # longest time of one walk, so that a slow region does not delay the next cycle and other sites
MOST_DESCRIBED = 20  # training jobs of each kind described in one comparison; other programs share the rate limit

T = TypeVar("T")
LastLines = Callable[[str, str | None, float, Site | None], list[LoggedLine]]
"""Returns the last log lines of an attempt, by its name, its carrier's attempt, the time of its end, and its site."""


class Prefetched(NamedTuple):
    """Data that is read before an event is applied: the record of the event's job, and the metadata."""

    record: JobRecord | None
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class Adoption:
    """A live attempt that its waiting job has not recorded. Only a cycle may record it, because it takes slots."""

    job: str
    found: TrainingJob


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison of the records with SageMaker."""

    adoptions: list[Adoption] = field(default_factory=list)  # only the holder of the lease may record these
    has_carriers: bool = True  # whether there may be mailboxes to read
    reconciled: int | None = None  # epoch seconds of the last successful comparison; None: there was none
    missed_ends: int = 0  # ends of attempts that the comparison has found, and that no event has reported
    sites_with_missed_ends: int | None = None  # number of other sites with missed ends; None: there is no other site


class Reconciler(ControllerPart):
    """The comparison of the queue's records with SageMaker, and the correction of the records.

    The log of a failed attempt is read, with a strict limit, before the end is recorded. So one write records the end
    and its class. In a cycle, an end is classified without the log, because a cycle must not wait for a log.
    """

    def __init__(self, backend: Backend, last_lines: LastLines | None = None) -> None:
        super().__init__(backend)
        self._last_lines = last_lines

    # --- events ----------------------------------------------------------------------------------

    def job_of_ended_attempt(self, detail: Mapping[str, Any], site: Site | None = None) -> str | None:
        """Return the name of the job whose attempt has ended according to an event, or None if no attempt has ended."""
        reported = _training_job_of_event(detail, site)
        return reported.tags.get(JOB_TAG) if reported and reported.of_queue and reported.ended else None

    def handle_event(
        self, detail: Mapping[str, Any], prefetched: Prefetched | None = None, site: Site | None = None
    ) -> bool:
        """Apply a `SageMaker Training Job State Change`. Return whether a cycle may do more now.

        A cycle may do more if slots were freed or taken, or if a backoff has ended.

        :param prefetched: the data if it was already read; None: read it.
        :param site: the site of the event; None: the home site.
        """
        reported = _training_job_of_event(detail, site)
        if reported is None:
            return self.examine(str(detail["TrainingJobName"]), logs=_LogReads(1), site=site)
        if reported.of_queue and reported.ended:
            self._report_if_forged(reported, prefetched)
        resumed = reported.of_queue and self._end_capacity_backoffs(reported, prefetched)
        if reported.ended and reported.keep_alive:  # the instances may be kept warm
            return self.examine(reported.name, reported, _LogReads(1), site) or resumed
        if reported.ended:
            valid = None if resumed else prefetched  # the end of a backoff has changed the metadata
            has_recorded_end = reported.of_queue and self.apply_end(reported, valid, _LogReads(1))
            return has_recorded_end or self._recheck_external(reported) or resumed
        if reported.of_queue and is_named_as_attempt(reported.name, reported.tags):
            self._note_stage(reported)
            return resumed  # the next comparison checks whether the training job is an attempt
        external_job = self._repository.external_job(reported.key)
        # If a warm pool is counted under this key, its training job was deleted, and this one has the same name.
        if (
            external_job is not None
            and external_job.warm is None
            and external_job.instance_counts == reported.instance_counts
        ):
            return False  # the training job was described before
        return self.examine(reported.name, logs=_LogReads(1), site=site)

    def _recheck_external(self, ended: TrainingJob) -> bool:
        """Describe the external job that is counted under the key of an ended training job, if there is one.

        The event does not prove that the external job has ended. A late event may be about a training job that was
        deleted, and a newer training job may have its name.

        Return whether to run a cycle.
        """
        if self._repository.external_job(ended.key) is None:
            return False
        return self.examine(ended.name, ended, _LogReads(1), ended.site)

    def count_external(self, found: TrainingJob) -> None:
        """Count a live training job as an external job, because no job records it as a current attempt.

        A training job with the queue's tags is also reported as forged, unless a valid proof shows that the queue
        launched the training job.
        """
        record = self._repository.record(found.tags.get(JOB_TAG, "")) if found.of_queue else None
        orphan = record is not None and found.may_be_stopped_as_ended(record)
        forged = found.of_queue and not orphan
        before = self._repository.external_job(found.key) if forged else None
        log.warning("external job", attempt=found.key, orphan=orphan, forged=forged)
        seen = iso(self._clock())
        self._repository.add_external(
            ExternalTrainingJob(found.key, found.instance_counts, seen, orphan, forged, found.plan, site=found.site)
        )
        if forged and not (before and before.forged):
            self._repository.notify(ForgedAttempt(found.name, found.tags.get(JOB_TAG, "")))

    def apply_end(
        self, ended: TrainingJob, prefetched: Prefetched | None = None, logs: "_LogReads | None" = None
    ) -> bool:
        """Record the end of an attempt if it is the current attempt of its job. Return whether the end was recorded.

        :param logs: the logs that may still be read; None in a cycle: no log.
        :raises Unavailable: other requests change the job all the time.
        """
        logs = logs or _LogReads(0)
        for _ in range(TRIES):
            record, metadata = prefetched or Prefetched(self._repository.record(ended.tags.get(JOB_TAG, "")))
            if record is None or not record.job.state.holds_slots or not ended.is_current_attempt_of(record.job):
                return False
            if not ended.outcome_known:  # the training job is being deleted: `_check` waits for an event with the end
                return False
            if self.end(record, ended, metadata, logs):
                return True
            prefetched = None
        raise Unavailable("Other requests are changing this job at the same time.", remedy="Try again.")

    def examine(
        self,
        name: str,
        reported: TrainingJob | None = None,
        logs: "_LogReads | None" = None,
        site: Site | None = None,
    ) -> bool:
        """Describe a training job, and apply its end or count it as an external job. Return whether to run a cycle.

        A new external job also needs a cycle: it may take slots that evictions are freeing, so that more jobs must be
        evicted. The training job is described first, because a late event could report an ended training job as alive.

        :param reported: the end according to an event, used if the training job was deleted since.
        :param logs: the logs that may still be read; None in a cycle: no log.
        :param site: the site of the training job; None: the home site.
        """
        found, key = self._training.at(site).describe(name), key_of(name, site)
        if found is None or found.ended:
            end = found or reported
            if end and end.of_queue and self.apply_end(end, logs=logs):
                return True
            return self._update_warm_pool(key, found)
        if self._is_known(found):
            return self._end_capacity_backoffs(found)
        self.count_external(found)
        return True

    def backoffs_after_refusal(
        self,
        job: Job,
        sent_at: float,
        at_fault: str | None = None,
        metadata: Metadata | None = None,
        unreachable: str | None = None,
    ) -> tuple[CapacityBackoff, ...]:
        """Return the backoff of a job's capacity key after a refusal, for example for lack of instances.

        :param sent_at: epoch seconds of the refused call.
        :param at_fault: SageMaker's message, if it refused fields that the pool adds to requests.
        :param unreachable: message, if the region or account did not respond.
        """
        known, wanted = self._backoffs_and_instances(job, metadata)
        return after_refusal(known, wanted, sent_at, self._clock(), at_fault, unreachable=unreachable)

    def backoffs_after_lag(
        self, job: Job, sent_at: float, quota: QuotaExceeded, lag: str
    ) -> tuple[CapacityBackoff, ...]:
        """Return the backoff after a refusal by quota lag: SageMaker still counts instances of finished jobs.

        :param sent_at: epoch seconds of the refused call.
        :param lag: message about the instances that SageMaker counts.
        """
        metadata = self._repository.metadata()
        known, wanted = self._backoffs_and_instances(job, metadata)
        counted = wanted_within_quota(quota, wanted, self._policies.of(metadata.policy).policy)
        return after_refusal(known, counted, sent_at, self._clock(), lag=lag)

    def examine_attempt(self, job: Job, *, in_cycle: bool = False) -> bool:
        """Describe a job's recorded attempt and apply its end. Return whether a cycle may do more now."""
        logs = None if in_cycle else _LogReads(1)
        if job.carrier_attempt is None:
            return self.examine(job.launched or "", logs=logs, site=job.site)
        found = self._training.describe_attempt(job)
        return found is not None and found.ended and self.apply_end(found, logs=logs)

    # --- the comparison with each tick -----------------------------------------------------------

    def compare(self, metadata: Metadata, enough_time: Callable[[], bool]) -> Comparison:
        """Compare the records with SageMaker's lists. No lease is needed, because no job gets a slot here.

        All sites are compared at the same time. A site that does not respond is left to a later comparison.

        :param metadata: the metadata, as read before.
        :param enough_time: called before each training job. If False, the next comparison continues with the rest.
        """
        policy = self._policies.of(metadata.policy).policy
        others = self._other_sites(policy, metadata)
        home, *compared = self._parallel(
            [
                partial(self._compare_home, metadata, enough_time),
                *(partial(self._compare_other, site, metadata, enough_time) for site in others),
            ]
        )
        if isinstance(home, Exception):
            raise home
        comparison: Comparison = home
        found: list[Comparison] = compared
        return replace(
            comparison,
            adoptions=[*comparison.adoptions, *chain.from_iterable(it.adoptions for it in found)],
            sites_with_missed_ends=sum(it.missed_ends > 0 for it in found) if found else None,
        )

    def _other_sites(self, policy: Policy, metadata: Metadata) -> tuple[Site, ...]:
        """Return the other sites of the policy, and former sites that still have active or external jobs."""
        if not has_other_sites(policy) and not metadata.site_listings:
            return ()
        live = [job.site for job in self._repository.active()] + [job.site for job in self._repository.external()]
        return sites_of(policy, live)

    def _compare_home(self, metadata: Metadata, enough_time: Callable[[], bool]) -> Comparison | Exception:
        """Compare the home site. Return an error in place of raising it, so that the other sites are compared."""
        try:
            return self._compare_at(None, metadata, enough_time)
        except Exception as error:
            return error

    def _compare_other(self, site: Site, metadata: Metadata, enough_time: Callable[[], bool]) -> Comparison:
        """Compare another site. An error is only logged, so that the remaining sites are compared."""
        try:
            return self._compare_or_back_off(site, metadata, enough_time)
        except Exception as error:
            log.warning("site not compared", site=site.key, why=str(error))
            return Comparison()

    def _compare_or_back_off(self, site: Site, metadata: Metadata, enough_time: Callable[[], bool]) -> Comparison:
        """Compare another site. Begin backoffs of its pools if it does not respond, else end such backoffs."""
        try:
            found = self._compare_at(site, metadata, enough_time)
        except SiteSilent as error:
            log.warning("site does not respond", site=site.key, why=str(error))
            self._repository.note_capacity_backoffs(self._backoffs_at(site, metadata, str(error)))
            return Comparison()
        pools = self._pools_at(site, metadata)
        for backoff in metadata.capacity_backoffs.values():
            if backoff.unreachable and any(map(backoff.has_key_of, pools)):
                self._repository.end_capacity_backoff(backoff)
        return found

    def _backoffs_at(self, site: Site, metadata: Metadata, message: str) -> tuple[CapacityBackoff, ...]:
        """Return the backoffs of the pools of a site that does not respond, so that plans use no slots there."""
        typed = [pool.name for pool in self._pools_at(site, metadata) if pool.instance_type]
        return backoffs_of_silent_site(metadata.capacity_backoffs, typed, self._clock(), message)

    def _pools_at(self, site: Site, metadata: Metadata) -> list[Pool]:
        policy = self._policies.of(metadata.policy).policy
        return [pool for pool in policy.pools if same_place(site_of_pool(pool), site)]

    def _compare_at(self, site: Site | None, metadata: Metadata, enough_time: Callable[[], bool]) -> Comparison:
        """Compare the records of one site with SageMaker's list there.

        Absence from the list proves nothing, so each absent training job is described. At most `MOST_DESCRIBED` of each
        kind are described, and the others in later minutes.

        A comparison succeeds if the list was read, and at least one training job was described or none had to be. A
        walk that ends early, after `MOST_PAGES` pages or `WALK_SECONDS`, is enough: it has read the newest training
        jobs, and the next walk continues from there.

        :param site: None: the home site.
        """
        now = self._clock()
        listing = metadata.site_listings.get(site.key) if site else metadata.listing
        reconciled_before = metadata.site_reconciled.get(site.key) if site else metadata.reconciled
        may_go_on = lambda: self._clock() < now + WALK_SECONDS and enough_time()  # noqa: E731
        walk = walk_list(self._training.at(site).training_jobs(), next_listing(listing, now), now, may_go_on, site)
        # Read the jobs after the list: each attempt launched before this read is in the list or is described.
        all_active = self._repository.active()
        active = [job for job in all_active if same_place(job.site, site)]
        external = [job for job in self._repository.external() if same_place(job.site, site)]
        # If the list has a newer training job of the same name, the external job was deleted.
        not_replaced = [job for job in external if not walk.is_newer(job.name, epoch(job.since) + CLOCK_SECONDS)]
        counted = {job.name for job in not_replaced}
        known = {job.training_job for job in active if job.carrier_attempt is None} | counted
        oldest_refusal = min((backoff.since for backoff in metadata.capacity_backoffs.values()), default=None)
        # The last item of a step is the training job that the step looks at, if the queue does not know it.
        steps: list[tuple[str, Callable[[], Adoption | None], str | None]] = []
        logs, missed_ends = _LogReads(MOST_LOGS), list[str]()
        unclear = [job for job in active if job.allocation is None and _must_be_described(job, walk, oldest_refusal)]
        steps += [
            (job.name, partial(self._check, job, metadata, logs, missed_ends), None)
            for job in self._rotating_batch(unclear)
        ]
        accepted = {job.training_job for job in active if _is_accepted(job)}
        external_to_check = [
            job
            for job in external
            if job.name not in (walk.warm if job.warm else walk.alive) or job.orphan or job.name in accepted
        ]
        steps += [
            (job.name, partial(self._check_external, job), None) for job in self._rotating_batch(external_to_check)
        ]
        # Another training job may have the name of a starting attempt. The launch counts the instances of a live one,
        # but not those of a warm pool. So warm pools with such names are described here.
        unknown_keys = sorted((walk.alive - known) | (walk.warm - accepted - counted))
        steps += [(key, partial(self._check_unknown, key, site), key) for key in self._rotating_batch(unknown_keys)]
        adoptions, unchecked, has_progress = [], set(unknown_keys), not steps
        for name, step, unknown_key in steps:
            done, adoption = self._run_step(name, step) if enough_time() else (False, None)
            has_progress = has_progress or done
            if adoption is not None:
                adoptions.append(adoption)
            elif done and unknown_key is not None:
                unchecked.discard(unknown_key)
        self._note_listed_stages(active, walk, enough_time)
        reconciled = int(now) if has_progress else reconciled_before
        self._repository.note_listing(walk.progress_after(unchecked), reconciled, site)
        has_carriers = any(job.carries is not None for job in all_active)
        return Comparison(adoptions, has_carriers, reconciled, len(missed_ends))

    def adopt(self, lease: Lease, adoptions: Iterable[Adoption]) -> None:
        """Record the attempts that a comparison has left for the holder of the lease."""
        for adoption in adoptions:
            record = self._repository.record(adoption.job)
            if record is None or not record.job.state.waits or not adoption.found.is_current_attempt_of(record.job):
                continue
            found, policy = adoption.found, self._policies.of(self._repository.policy()).policy
            slots = slots_of(found.instance_counts, policy, found.plan, found.site)
            log.warning("attempt adopted", job=record.job.name, attempt=adoption.found.name)
            try:
                adopted = state_machine.adopted(record.job, slots, self._clock(), found.site)
                self._repository.commit(lease, [adopted], self._clock())
            except LeaseLost:
                raise
            except Refused:
                log.info("job changed meanwhile", job=record.job.name)

    def _rotating_batch(self, found: list[T]) -> list[T]:
        """Return the part of a list that is described in this comparison. The part changes each minute."""
        first = int(self._clock() / 60) * MOST_DESCRIBED % max(1, len(found))
        return [*found[first:], *found[:first]][:MOST_DESCRIBED]

    def _run_step(self, name: str, step: Callable[[], Adoption | None]) -> tuple[bool, Adoption | None]:
        """Return whether a step succeeded, and its result. An error must not prevent the comparison of other jobs."""
        try:
            return True, step()
        except Exception as error:
            log.exception("not reconciled", job=name, exc_info=error)
            return False, None

    def _check(self, job: Job, metadata: Metadata, logs: "_LogReads", missed_ends: list[str]) -> None:
        """Describe an attempt, and record its end or progress. Add a recorded end to `missed_ends`."""
        found = self._training.describe_attempt(job)
        record = self._repository.record(job.name)
        if record is None or record.job.launched != job.launched or not record.job.state.holds_slots:
            return
        if found is not None and found.is_newer_than_launch_of(record.job):
            if not found.ended:
                self._count_and_stop(found)
            elif found.warm:
                self._drop_or_keep_warm(found.key, found)
            found = None  # the attempt was deleted, and another training job has its name
        if found is None or (found.ended and not found.outcome_known):
            self._wait_for_an_event(record, metadata)
            return
        self._end_capacity_backoffs(found)
        if found.ended:
            if self.end(record, found, logs=logs):
                missed_ends.append(found.name)
        elif job.missing_since:
            self._record_unless_changed(state_machine.found_again(record.job, self._clock()))
        elif found.modified is not None and (
            progressed := self._progressed(record.job, found.secondary, found.modified)
        ):
            self._record_unless_changed(progressed)

    def _note_stage(self, reported: TrainingJob) -> None:
        """Record the stage that an event reports for an attempt. The first stage was recorded with the launch."""
        if reported.modified is None or reported.secondary not in STAGES - {LAUNCHED}:
            return
        for _ in range(TRIES):
            record = self._repository.record(reported.tags.get(JOB_TAG, ""))
            if record is None or not reported.is_current_attempt_of(record.job):
                return
            transition = self._progressed(record.job, reported.secondary, reported.modified)
            if transition is None:
                return
            try:
                self._repository.apply(transition, self._clock())
            except Refused:
                continue  # the job was changed meanwhile, for example by the end of its launch
            return

    def _note_listed_stages(self, active: Iterable[Job], walk: Walk, enough_time: Callable[[], bool]) -> None:
        """Record the stages that SageMaker's list shows, in case their events were lost. No attempt is described."""
        for job in active:
            secondary, modified = walk.stages.get(job.training_job or "", ("", 0.0))
            transition = self._progressed(job, secondary, modified)
            newer = walk.is_newer(job.training_job or "", epoch(job.started or job.since) + CLOCK_SECONDS)
            if transition is not None and job.state is JobState.RUNNING and not newer:
                if not enough_time():
                    return
                self._record_unless_changed(transition)

    def _progressed(self, job: Job, secondary: str, modified: float) -> JobTransition | None:
        return state_machine.progressed(job, secondary, round(modified * 1000), self._clock())

    def _wait_for_an_event(self, record: JobRecord, metadata: Metadata) -> None:
        """Wait `MISSING_SECONDS` for an event with the end of a deleted attempt, then record an unknown end."""
        job = record.job
        if job.missing_since is None:
            self._record_unless_changed(state_machine.missing(job, self._clock()))
        elif job.missing_since + state_machine.MISSING_SECONDS <= self._clock():
            since, began = float(job.missing_since), epoch(job.started) if job.started else None
            deleted = TrainingJob(
                job.launched or "", "", DELETING, "", None, {}, {}, ended_at=since, began=began, site=job.site
            )
            log.warning("attempt was deleted before its end was known", job=job.name, attempt=job.launched)
            self.end(record, deleted, metadata)

    def _check_external(self, job: ExternalTrainingJob) -> Adoption | None:
        found = self._training.at(job.site).describe(job.training_job_name)
        if found is None or found.ended:
            self._drop_or_keep_warm(job.name, found, job.warm)
        elif self._is_accepted_attempt(found):
            self._repository.drop_external(job.name, unless_warm=True)
        elif job.orphan or job.warm is not None:  # a live training job may have the name of a warm pool's deleted one
            record = self._record_with_attempt(found)
            if record is None:
                self._count_and_stop(found)
            elif record.job.state.waits:
                return Adoption(record.job.name, found)
            else:
                self._repository.drop_external(job.name, unless_warm=True)
        return None

    def _check_unknown(self, key: str, site: Site | None) -> Adoption | None:
        """Describe a training job that is not recorded. Return an adoption if it is a waiting job's next attempt."""
        found = self._training.at(site).describe(name_in(key))
        if found is None or found.ended:
            # The end of a recorded attempt is recorded together with its warm pool.
            if found is not None and found.warm and not self._is_known(found):
                self._update_warm_pool(key, found)
            return None
        if not found.of_queue:
            self.count_external(found)
            return None
        record = self._record_with_attempt(found)
        if record is None:
            self._count_and_stop(found)
        elif record.job.state.waits:
            return Adoption(record.job.name, found)
        return None

    def _record_with_attempt(self, found: TrainingJob) -> JobRecord | None:
        """Return the record of an attempt's job if the job has recorded the attempt by now, or can adopt it."""
        record = self._repository.record(found.tags.get(JOB_TAG, ""))
        if record is None or record.job.state.finished or not found.is_current_attempt_of(record.job):
            return None
        return record

    def _count_and_stop(self, found: TrainingJob) -> None:
        """Count a training job that is not the recorded attempt of any job as external.

        Stop the training job if a valid proof shows that the queue launched it.
        """
        self.count_external(found)
        record = self._repository.record(found.tags.get(JOB_TAG, ""))
        if record is not None and found.may_be_stopped_as_ended(record):
            log.warning("training job of a finished attempt", job=record.job.name, attempt=found.name)
            self._training.at(found.site).stop(found.name)

    def _report_if_forged(self, ended: TrainingJob, prefetched: Prefetched | None) -> None:
        """Report the end of a training job that claims to be an attempt, but is not."""
        record = prefetched.record if prefetched else self._repository.record(ended.tags.get(JOB_TAG, ""))
        if record is None or ended.is_current_attempt_of(record.job) or ended.has_valid_proof_of(record.job):
            return
        is_earlier = any(
            it.training_job_name == ended.name and same_place(it.site, ended.site) for it in record.attempts
        )  # an attempt that an earlier version of the queue launched without a proof
        if not is_earlier and (ended.key != record.job.training_job or record.job.carrier_attempt is not None):
            self._repository.notify(ForgedAttempt(ended.name, record.job.name))

    # --- ends and warm pools ----------------------------------------------------------------------------------

    def end(
        self,
        record: JobRecord,
        ended: TrainingJob,
        metadata: Metadata | None = None,
        logs: "_LogReads | None" = None,
    ) -> bool:
        """Record how an attempt has ended. Return False if its job was changed by another invocation.

        :param logs: the logs that may still be read; None in a cycle: no log.
        """
        job, metadata = record.job, metadata or self._repository.metadata()
        policy = self._policies.of(metadata.policy).policy
        ending = self._ending(record, ended, metadata, policy)
        if ending.must_be_classified(job):
            lines = self._last_lines_of(ended, job, logs or _LogReads(0))
            classified = failed_attempt(record.job, ending, lines, _rules_for(record, policy))
            ending = replace(ending, failed=self._with_returned_gpus(classified, ended, job))
        if ending.lacks_capacity:
            backoffs = self.backoffs_after_refusal(job, epoch(job.started or job.since), metadata=metadata)
            transition = state_machine.end(record, ending, self._clock(), backoffs)
        else:
            held = instances_by_capacity_key(job, job.slots, policy)
            backoffs = after_end(metadata.capacity_backoffs, held, self._clock())
            transition = replace(state_machine.end(record, ending, self._clock()), backoffs=backoffs)
        transition = self._with_covering_notice(transition)
        if job.carries is not None and transitions.failed_without_agent(job, ending):
            # This is recorded before the carrier's end. Otherwise a cycle could launch another carrier at once.
            for member in job.first_members:
                self._back_off(member, transition.new)
        if ended.warm:
            warm = replace(ended.warm, pool=next(iter(job.slots), None))
            failed = transition.new.failure
            if failed and failed.attempt == job.attempt and failed.fresh_instances:
                warm = self._release_instances(ended, warm)
            ended = replace(ended, warm=warm)
            self._drop_or_keep_warm(ended.key, ended)  # this must be recorded before the attempt's slots are free
        try:
            self._repository.apply(transition, self._clock(), metadata)
        except Refused:
            return False
        self._training.forget_attempt(job)
        return True

    def _back_off(self, member: str, carrier: Job) -> None:
        """Make a member back off because its carrier has failed, unless the member backs off already."""
        record, now = self._repository.record(member), self._clock()
        if record is not None and record.job.state.waits and (record.job.backoff_until or 0) <= now:
            self._record_unless_changed(
                replace(transitions.back_off_after_failure(record.job, carrier, now), record=record)
            )

    def _release_instances(self, ended: TrainingJob, warm: WarmPool) -> WarmPool:
        """Release the instances of a failed attempt, so that no job starts on them. Return the updated warm pool.

        If SageMaker does not answer, the release is requested again when a job needs the capacity.
        """
        try:
            fixed = not self._training.at(ended.site).release(ended.name)
        except Unavailable as error:
            log.warning("instances of a failed attempt not released", attempt=ended.name, why=error.message)
            fixed = False
        return replace(warm, releasing=int(self._clock()), fixed=fixed)

    def _update_warm_pool(self, key: str, found: TrainingJob | None) -> bool:
        """Call `_drop_or_keep_warm`, and keep the pool and the release that are recorded for the warm pool."""
        counted = self._repository.external_job(key) if found and found.warm else None
        return self._drop_or_keep_warm(key, found, counted.warm if counted else None)

    def _drop_or_keep_warm(self, key: str, found: TrainingJob | None, before: WarmPool | None = None) -> bool:
        """Count the instances of an ended training job while SageMaker keeps them warm. Otherwise stop counting them.

        Return whether a cycle may use the instances now: they are free, or have just become warm and can be released.
        """
        if found is None or found.warm is None:
            return self._repository.drop_external(key)
        warm = replace(before, until=found.warm.until) if before else found.warm
        seen = iso(self._clock())
        self._repository.add_external(
            ExternalTrainingJob(key, found.instance_counts, seen, plan=found.plan, warm=warm, site=found.site)
        )
        return before is None

    def _ending(self, record: JobRecord, ended: TrainingJob, metadata: Metadata, policy: Policy) -> Ending:
        ended_at = self._clock() if ended.ended_at is None else ended.ended_at
        plan = cut_off_by(record.job, metadata.training_plans, policy, ended_at)
        report = end_report(record, ended, metadata, policy)
        return Ending(ended.status, ended.secondary, ended.failure, ended.starved, plan, report)

    def _with_returned_gpus(self, failed: FailedAttempt, ended: TrainingJob, job: Job) -> FailedAttempt:
        """Return the failure with `returned_gpus`: its GPUs that failed in other attempts within the day before."""
        if not failed.gpu_uuids:
            return failed
        ended_at = self._clock() if ended.ended_at is None else ended.ended_at
        failure = GpuFailure(f"{job.submission}#{job.attempt}", ended_at, failed.gpu_uuids)
        return replace(failed, returned_gpus=returned_gpus(failure, self._repository.failed_gpus.record(failure)))

    def _with_covering_notice(self, transition: JobTransition) -> JobTransition:
        """Return the transition with `covered_by` set if the notice of a similar, earlier failure also covers it."""
        failure = new_failure(transition)
        if failure is None or transition.new.state is not JobState.FAILED:
            return transition
        if failure.failure_class == FailureClass.UNKNOWN:  # the causes of two such failures may differ
            return transition
        notices = self._repository.failure_notices
        first = notices.covered_by(transition.new, failure.failure_class, self._clock())
        return replace(transition, covered_by=first)

    def _last_lines_of(self, ended: TrainingJob, job: Job, logs: "_LogReads") -> list[LoggedLine]:
        """Return the last log lines of a failed attempt, if its program failed and its log may be read."""
        if self._last_lines is None or not is_failure_of_program(ended.failure):
            return []
        ended_at = self._clock() if ended.ended_at is None else ended.ended_at
        read = partial(self._last_lines, job.launched or ended.name, job.carrier_attempt, ended_at, job.site)
        return logs.lines(ended.name, read)

    def _end_capacity_backoffs(self, reported: TrainingJob, prefetched: Prefetched | None = None) -> bool:
        """End the backoffs of an attempt's capacity keys if its instances have arrived.

        Return whether a backoff has ended.
        """
        if reported.provisioned_at is None:
            return False
        metadata = (prefetched and prefetched.metadata) or self._repository.metadata()
        if not metadata.capacity_backoffs:
            return False
        record = prefetched.record if prefetched else self._repository.record(reported.tags.get(JOB_TAG, ""))
        if record is None or not reported.is_current_attempt_of(record.job):
            return False
        resumed = False
        for backoff, remaining in after_success(
            *self._backoffs_and_instances(record.job, metadata), reported.provisioned_at
        ):
            resumed = self._repository.end_capacity_backoff(backoff, remaining) or resumed
        return resumed

    def _backoffs_and_instances(
        self, job: Job, metadata: Metadata | None = None
    ) -> tuple[CapacityBackoffs, Mapping[str, int]]:
        """Return all capacity backoffs, and the instances that this active job holds by capacity key."""
        metadata = metadata or self._repository.metadata()
        policy = self._policies.of(metadata.policy).policy
        return metadata.capacity_backoffs, instances_by_capacity_key(job, job.slots, policy)

    def _record_unless_changed(self, transition: JobTransition) -> None:
        try:
            self._repository.apply(transition, self._clock())
        except Refused:
            log.info("job changed meanwhile", job=transition.old.name)

    def _is_known(self, found: TrainingJob) -> bool:
        record = self._repository.record(found.tags.get(JOB_TAG, ""))
        if record and record.job.state.holds_slots and found.is_current_attempt_of(record.job):
            return True
        return self._is_accepted_attempt(found)

    def _is_accepted_attempt(self, found: TrainingJob) -> bool:
        """Return whether a training job is an attempt that a job has recorded as accepted, regardless of its tags.

        The name alone proves nothing, because the attempt may have been deleted, and its name reused. An attempt on a
        carrier does not use its name in SageMaker, so a training job of that name is not the attempt.
        """
        if not is_stamped(found.name):
            return False
        accepted = (job for job in self._repository.active() if job.training_job == found.key and _is_accepted(job))
        return any(not found.is_newer_than_launch_of(job) for job in accepted)


class _LogReads:
    """The reading of logs of failed attempts, for a limited number of attempts, each log once."""

    def __init__(self, remaining: int) -> None:
        self._remaining = remaining
        self._known: dict[str, list[LoggedLine]] = {}

    def lines(self, attempt: str, read: Callable[[], list[LoggedLine]]) -> list[LoggedLine]:
        """Return the lines of an attempt, or none if no further log may be read."""
        if attempt not in self._known and self._remaining > 0:
            self._remaining -= 1
            self._known[attempt] = read()
        return self._known.get(attempt, [])


def _rules_for(record: JobRecord, policy: Policy) -> Iterator[NamedRule]:
    """Yield the failure rules for a job: those of its tag `retry_on`, of its project and of the policy."""
    tag = stored_request(record.details).tag_values.get("retry_on")
    yield from rules_for(tag.text if tag else None, record.job.project, policy)


def _is_accepted(job: Job) -> bool:
    return job.state is not JobState.STARTING and job.carrier_attempt is None


def _training_job_of_event(detail: Mapping[str, Any], site: Site | None) -> TrainingJob | None:
    """Return the training job of an event, or None if the event has no tags or cannot be read."""
    tags = detail.get("Tags")
    try:
        return None if tags is None else training_job(detail, tags, site)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        log.warning("event cannot be read", attempt=detail.get("TrainingJobName"), exc_info=error)
        return None


def _must_be_described(job: Job, walk: Walk, oldest_refusal: int | None) -> bool:
    """Return whether an active job must be described, because it may have ended or received its instances."""
    if job.state is JobState.STARTING:
        return False
    is_probe = oldest_refusal is not None and job.started is not None and epoch(job.started) >= oldest_refusal
    name, started = job.training_job or "", epoch(job.started or job.since)
    may_be_absent = name not in walk.alive or walk.is_newer(name, started + CLOCK_SECONDS)
    return may_be_absent or job.missing_since is not None or is_probe
