"""Seventy-six bugs to plant, each as near as possible to what a programmer's slip would be.

The simulation has to find every one of them: this is what it is worth.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from boto3.dynamodb.conditions import Attr, ConditionBase

from job_queue.adapters.dynamodb import FIRST_PAUSE_SECONDS, TRANSACTION_TRIES, Postponed, Update, Write
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.metadata import LEASE_SECONDS, Lease
from job_queue.adapters.sagemaker import LaunchResult, TrainingJob
from job_queue.carrier_agent.mailbox import LARGEST, Mailbox, verified
from job_queue.controller.cycle import Controller
from job_queue.controller.launcher import Launcher
from job_queue.controller.reconciler import Comparison, Reconciler, _LogReads
from job_queue.domain import cluster_state, policy, state_machine
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.failures.classes import DEFAULT_ACTIONS, FailureAction, FailureClass
from job_queue.domain.fleet.warm_pools import Placement, WarmPoolClaims
from job_queue.domain.job import Job, JobRecord, LaunchCall, iso
from job_queue.domain.launching.proof import is_ended_attempt, is_of_queue
from job_queue.domain.names import JOB_TAG, SUBMISSION_TAG, apply_qstamp
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import ActiveJob, JobState, Plan, Policy, Slots, Snapshot, WaitReason
from job_queue.scheduler.candidates import Candidate
from job_queue.scheduler.carriers.packing import Packing
from job_queue.scheduler.plan_state import PlanState
from job_queue.scheduler.victims import Guarantees
from tests.torture.setups import Kind

Slip = tuple[str, Any]  # what is replaced, and by what


def _token_not_checked() -> list[Slip]:
    return [("job_queue.adapters.metadata.fencing_token_is", lambda token: Attr("token").exists())]


def _token_checked_but_not_moved() -> list[Slip]:
    commit, renewal = JobRepository.commit, JobRepository._renewal

    def renewal_without_moving(self: JobRepository, lease: Lease, now: float) -> Update:
        return replace(renewal(self, lease, now), add={})

    def commit_without_moving(self: JobRepository, lease: Lease, *args: Any, **named: Any) -> None:
        commit(self, lease, *args, **named)
        lease.fencing_token -= 1

    return [
        ("job_queue.adapters.job_repository.JobRepository._renewal", renewal_without_moving),
        ("job_queue.adapters.job_repository.JobRepository.commit", commit_without_moving),
    ]


def _no_intent() -> list[Slip]:
    """The start is written down only when SageMaker has answered."""
    record, settle = Controller._record, Launcher.settle
    begun: dict[str, JobTransition] = {}

    def record_the_others(
        self: Controller,
        lease: Lease,
        cluster: Any,
        plan: Any,
        transitions: list[JobTransition],
        now: float,
        **named: bool,
    ) -> tuple[list[JobTransition], bool]:
        starts = [transition for transition in transitions if transition.old.state.waits]
        begun.update({transition.new.submission: transition for transition in starts})
        others = [transition for transition in transitions if not transition.old.state.waits]
        recorded, unplanned = record(self, lease, cluster, plan, others, now, **named)
        return [*recorded, *starts], unplanned

    def settle_and_record(self: Launcher, lease: Lease, job: Job, *answer: Any) -> bool:
        if job.submission in begun:
            self._repository.commit(lease, [begun.pop(job.submission)], self._clock())
        return settle(self, lease, job, *answer)

    return [
        ("job_queue.controller.cycle.Controller._record", record_the_others),
        ("job_queue.controller.launcher.Launcher.settle", settle_and_record),
    ]


def _intent_given_up() -> list[Slip]:
    refused = state_machine.record_refusal

    def forgetful(job: Job, sent_at: int, message: str, **named: Any) -> JobTransition:
        own = tuple(call for call in job.calls if call.sent_at == sent_at)
        return replace(refused(replace(job, calls=own), sent_at, message, **named), old=job)

    return [("job_queue.domain.state_machine.record_refusal", forgetful)]


def _attempt_raised_after_refusal() -> list[Slip]:
    refused = state_machine.record_refusal

    def raising(*args: Any, **named: Any) -> JobTransition:
        transition = refused(*args, **named)
        return (
            replace(transition, new=replace(transition.new, attempt=transition.new.attempt + 1))
            if transition.new.state.waits
            else transition
        )

    return [("job_queue.domain.state_machine.record_refusal", raising)]


def _sdk_retries() -> list[Slip]:
    create = Launcher.create

    def retrying(self: Launcher, *args: Any, **named: Any) -> tuple[LaunchResult, str]:
        answer = create(self, *args, **named)
        for _ in range(2):
            if answer[0] is LaunchResult.UNKNOWN:
                answer = create(self, *args, **named)
        return answer

    return [("job_queue.controller.launcher.Launcher.create", retrying)]


def _release_without_looking() -> list[Slip]:
    """The holder looks for news before it gives the lease back, and not after."""
    generation, release = JobRepository.generation, JobRepository.release
    seen: dict[int, int] = {}

    def looking_first(self: JobRepository, lease: Lease) -> None:
        seen[id(self)] = generation(self)
        release(self, lease)

    return [
        ("job_queue.adapters.job_repository.JobRepository.release", looking_first),
        ("job_queue.adapters.job_repository.JobRepository.generation", lambda self: seen[id(self)]),
    ]


def _news_before_it_is_stored() -> list[Slip]:
    raise_generation, add, apply = JobRepository.raise_generation, JobRepository.add, JobRepository.apply

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def counting_first(self: JobRepository, *args: Any, **named: Any) -> Any:
            raise_generation(self)
            return write(self, *args, **named)

        return counting_first

    return [
        ("job_queue.adapters.job_repository.JobRepository.raise_generation", JobRepository.generation),
        ("job_queue.adapters.job_repository.JobRepository.add", counted(add)),
        ("job_queue.adapters.job_repository.JobRepository.apply", counted(apply)),
    ]


def _event_of_another_attempt() -> list[Slip]:
    def of_any_attempt(name: str, tags: Mapping[str, str], job: Job) -> bool:
        return is_of_queue(tags) and tags.get(JOB_TAG) == job.name and tags.get(SUBMISSION_TAG) == job.submission

    return [("job_queue.adapters.sagemaker.is_current_attempt_of", of_any_attempt)]


def _slot_freed_at_stop_request() -> list[Slip]:
    evict = state_machine.evict

    def freeing(*args: Any, **how: Any) -> JobTransition:
        transition = evict(*args, **how)
        return replace(transition, new=replace(transition.new, slots={}))

    return [("job_queue.domain.state_machine.evict", freeing)]


def _requeue_frees_slot_at_stop_request() -> list[Slip]:
    stop = state_machine.stop_requeued

    def freeing(job: Job, now: float) -> JobTransition:
        transition = stop(job, now)
        return replace(transition, new=replace(transition.new, slots={}, allocation=None))

    return [("job_queue.domain.state_machine.stop_requeued", freeing)]


def _requeue_is_an_eviction() -> list[Slip]:
    """A requeue is recorded as an eviction, and so counts as a preemption by another job."""

    def evicting(job: Job, now: float) -> JobTransition:
        return state_machine.evict(job, str(job.requeued_by), "preempt", now)

    return [("job_queue.domain.state_machine.stop_requeued", evicting)]


def _plan_from_before_a_drain() -> list[Slip]:
    """A plan is recorded although a pool was drained after the plan was made."""

    def in_any_version(version: int) -> ConditionBase:  # noqa: ARG001
        return Attr("drainsVersion").exists() | Attr("drainsVersion").not_exists()

    return [("job_queue.adapters.job_repository.drains_are", in_any_version)]


def _drain_leaves_members() -> list[Slip]:
    """A drain looks for the slots of jobs. Members have none."""

    def own_slots(self: ClusterState, job: Job) -> Iterable[str]:  # noqa: ARG001
        return job.slots.keys()

    return [("job_queue.domain.cluster_state.ClusterState.pools_of", own_slots)]


def _drained_job_counts_as_stopped() -> list[Slip]:
    """The end of an attempt that a drain has stopped is taken for a stop by other people."""
    interrupted = Job.is_interrupted.fget  # type: ignore[attr-defined]

    def without_drains(self: Job) -> bool:
        return bool(interrupted(replace(self, drained_by=None)))

    return [("job_queue.domain.job.Job.is_interrupted", property(without_drains))]


def _hang_frees_slot_at_stop_request() -> list[Slip]:
    stop = state_machine.stop_hung

    def freeing(job: Job, now: float) -> JobTransition:
        transition = stop(job, now)
        return replace(transition, new=replace(transition.new, slots={}))

    return [("job_queue.domain.state_machine.stop_hung", freeing)]


def _hang_ends_the_job() -> list[Slip]:
    """The stop of an attempt that hangs is taken for a stop by other people, so the job does not wait again."""
    stop = state_machine.stop_hung

    def forgetting(job: Job, now: float) -> JobTransition:
        transition = stop(job, now)
        return replace(transition, new=replace(transition.new, requeue_hung=False))

    return [("job_queue.domain.state_machine.stop_hung", forgetting)]


def _write_without_version() -> list[Slip]:
    def is_the_same_job(job: Job) -> ConditionBase:
        return Attr("submission").eq(job.submission)

    return [("job_queue.adapters.job_repository.is_as_read", is_the_same_job)]


def _cancel_finishes_a_starting_job() -> list[Slip]:
    cancel = state_machine.cancel

    def finishing(job: Job, by: str, now: float) -> JobTransition:
        if job.state is not JobState.STARTING:
            return cancel(job, by, now)
        waiting = cancel(replace(job, state=JobState.PENDING, launched=None, calls=(), slots={}), by, now)
        return replace(waiting, old=job)

    return [("job_queue.domain.state_machine.cancel", finishing)]


def _reconciliation_off() -> list[Slip]:
    return [("job_queue.controller.reconciler.Reconciler.compare", lambda self, metadata, enough_time: Comparison())]


def _external_jobs_ignored() -> list[Slip]:
    count = Reconciler.count_external

    def ignoring(self: Reconciler, found: TrainingJob) -> None:
        if found.of_queue:
            count(self, found)

    return [("job_queue.controller.reconciler.Reconciler.count_external", ignoring)]


def _throttled_launch_given_up() -> list[Slip]:
    """As if SageMaker had refused it: an older call may still land."""

    def giving_up(job: Job, sent_at: int, now: float) -> JobTransition:
        own = tuple(call for call in job.calls if call.sent_at == sent_at)
        return replace(
            state_machine.record_refusal(replace(job, calls=own), sent_at, "", for_good=False, now=now), old=job
        )

    return [("job_queue.domain.state_machine.throttled", giving_up)]


def _call_expires_with_the_lease() -> list[Slip]:
    def new_call(now: float, remaining: float) -> LaunchCall:
        return LaunchCall(sent_at=int(now), expires_at=int(now) + LEASE_SECONDS)

    return [("job_queue.controller.cycle.new_call", new_call)]


def _failure_while_making_room() -> list[Slip]:
    stopped = state_machine._after_stop

    def failing(record: JobRecord, ending: Ending, now: float, backoffs: Any) -> JobTransition:
        judge = state_machine._after_failure if ending.status == "Failed" else stopped
        return judge(record, ending, now, backoffs)

    return [("job_queue.domain.state_machine._after_stop", failing)]


def _refusal_fails_what_ran_before() -> list[Slip]:
    refused = state_machine.record_refusal

    def failing(job: Job, sent_at: int, message: str, **named: Any) -> JobTransition:
        return refused(job, sent_at, message, **{**named, "for_good": message.startswith("ValidationException")})

    return [("job_queue.domain.state_machine.record_refusal", failing)]


def _refused_launch_asks_again_at_once() -> list[Slip]:
    return [("job_queue.domain.state_machine.RETRY_SECONDS", 0)]


def _warm_pools_count_as_free() -> list[Slip]:
    def place(cluster: ClusterState, decided: Plan, claims: WarmPoolClaims) -> Placement:
        return Placement(decided, claims.reused)

    return [("job_queue.controller.cycle.place_starts", place)]


def _warm_pool_not_released() -> list[Slip]:
    return [("job_queue.controller.fleet.warm_pools.WarmPools.release", lambda self, pools: False)]


def _promise_not_withdrawn() -> list[Slip]:
    return [("job_queue.adapters.job_repository.JobRepository.withdraw", lambda self, by: None)]


def _proof_not_checked() -> list[Slip]:
    def by_tags(name: str, tags: Mapping[str, str], job: Job) -> bool:
        expected = job.launched or apply_qstamp(job.name, job.attempt)
        return name == expected and tags.get(JOB_TAG) == job.name and tags.get(SUBMISSION_TAG) == job.submission

    return [("job_queue.adapters.sagemaker.is_current_attempt_of", by_tags)]


def _unclear_name_given_up() -> list[Slip]:
    return [("job_queue.adapters.sagemaker.TrainingJob.is_older_than_launch_of", lambda self, job: True)]


def _end_and_account_apart() -> list[Slip]:
    together = JobRepository._transition_writes

    def apart(self: JobRepository, transition: JobTransition, now: float) -> list[Write]:
        writes = together(self, transition, now)
        if transition.account:
            self._tables.transact([writes.pop()])
        return writes

    return [("job_queue.adapters.job_repository.JobRepository._transition_writes", apart)]


def _unseen_job_counts_as_ended() -> list[Slip]:
    """Whoever is behind the window has ended, for those that wait for it."""
    return [("job_queue.controller.waiting.dependencies._is_alive", lambda dependency, record: False)]


def _size_asked_for() -> list[Slip]:
    """A job that accepts several sizes is launched with the first, whatever it holds."""
    request_for_slots = policy.request_for_slots

    def placed_in_full(request: TrainingRequest, job: Job, *args: Any) -> dict[str, Any]:
        sent = request_for_slots(request, job, *args)
        count = {"InstanceCount": job.sizes[0]} if job.sizes else {}
        return {**sent, "ResourceConfig": {**sent["ResourceConfig"], **count}}

    return [("job_queue.controller.launcher.request_for_slots", placed_in_full)]


def _allocation_freed_at_stop_request() -> list[Slip]:
    """Another member sits down while the one before it still has its GPUs."""
    allocation = Packing.allocate

    def hasty(self: Packing, *args: Any, **named: Any) -> bool:
        self._free = self._soon_free
        return allocation(self, *args, **named)

    return [("job_queue.scheduler.carriers.packing.Packing.allocate", hasty)]


def _report_unheard() -> list[Slip]:
    """Nobody looks for reports of which no event told."""
    return [("job_queue.controller.carriers.Carriers.check_mailboxes", lambda self, enough_time: False)]


def _lost_carrier_ignored() -> list[Slip]:
    """Members whose carrier has ended are taken for running on."""
    return [("job_queue.controller.carriers.Carriers._end_orphan", lambda self, job: None)]


def _report_by_anybody() -> list[Slip]:
    """A report counts without the authentication code of the agent."""
    return [("job_queue.carrier_agent.seal.is_authentic", lambda key, text, context, code: True)]


def _order_by_anybody() -> list[Slip]:
    """An agent obeys orders that the deployment's key has not signed."""
    return [("job_queue.carrier_agent.seal.is_signed", lambda message, signature, modulus: True)]


def _order_moved() -> list[Slip]:
    """An agent obeys orders for other carriers and other attempts."""

    def of_anything(self: Mailbox, attempt: str, do: str) -> dict[str, Any] | None:
        found = self._s3.read(self._bucket, f"{self._prefix}in/{attempt}/{do}.json", LARGEST)
        order = verified(found[0], self._modulus) if found else None
        return order if order and order["do"] == do else None

    return [("job_queue.carrier_agent.mailbox.Mailbox._order", of_anything)]


def _order_replayed() -> list[Slip]:
    """An agent accepts an assignment a second time."""
    assignment = Mailbox.assignment

    def forgetful(self: Mailbox, attempt: str) -> dict[str, Any] | None:
        self._seen.clear()
        return assignment(self, attempt)

    return [("job_queue.carrier_agent.mailbox.Mailbox.assignment", forgetful)]


def _carrier_freed_at_stop_request() -> list[Slip]:
    """A carrier that is asked to stop counts as gone."""
    snapshot = ClusterState.snapshot

    def without_those_that_stop(self: ClusterState, now: float) -> Snapshot:
        whole = snapshot(self, now)
        return replace(whole, carriers=tuple(it for it in whole.carriers if it.state is not JobState.STOPPING))

    return [("job_queue.domain.cluster_state.ClusterState.snapshot", without_those_that_stop)]


def _interactive_beyond_quota() -> list[Slip]:
    """An interactive job starts wherever its project may."""
    within_quota = PlanState.within_quota

    def anywhere(self: PlanState, candidate: Candidate, need: Slots) -> bool:
        return candidate.job.interactive or within_quota(self, candidate, need)

    return [("job_queue.scheduler.plan_state.PlanState.within_quota", anywhere)]


def _interactive_preempted() -> list[Slip]:
    """Whether a job may be stopped to make room is asked for its start alone."""
    allow_to_evict = Guarantees.allow_to_evict

    def of_anybody(self: Guarantees, job: ActiveJob, now: float) -> bool:
        return allow_to_evict(self, replace(job, preemptible=job.preemptible or job.interactive), now)

    return [("job_queue.scheduler.victims.Guarantees.allow_to_evict", of_anybody)]


def _owner_limit_of_active_jobs_alone() -> list[Slip]:
    """An owner's limit counts what is active, and not what starts in the same plan."""

    def limited(candidates: list[Candidate], snapshot: Snapshot, refused: dict[str, WaitReason]) -> Iterator[Candidate]:
        most = snapshot.policy.interactive.max_per_owner
        used = Counter(job.owner for job in snapshot.active if job.interactive)
        for it in candidates:
            if it.job.interactive and most is not None and used[it.job.owner] >= most:
                refused[it.name] = WaitReason.OWNER_LIMIT
            else:
                yield it

    return [("job_queue.scheduler.candidates._within_owner_limit", limited)]


def _lease_kept_after_an_error() -> list[Slip]:
    """A read that fails beside the acquisition leaves the lease taken."""
    return [("job_queue.controller.opening.CycleOpener._give_back", lambda self: None)]


def _throttled_counts_as_written() -> list[Slip]:
    """A transaction that a throttled key postpones each time counts as written."""

    def hopeful(transaction: Callable[[], object], sleep: Callable[[float], None]) -> None:
        for number in range(TRANSACTION_TRIES):
            try:
                transaction()
            except Postponed:
                sleep(FIRST_PAUSE_SECONDS * 2**number)
            else:
                return

    return [("tests.torture.aws.try_again", hopeful)]


def _lag_counts_as_failure() -> list[Slip]:
    """A refusal for quota lag counts as a failure of the pool."""
    return [("job_queue.controller.launcher.lag_of", lambda quota, job, cluster: None)]


def _freed_name_is_the_attempt() -> list[Slip]:
    """A training job that has taken the name of a deleted attempt counts as that attempt."""
    return [("job_queue.adapters.sagemaker.TrainingJob.is_newer_than_launch_of", lambda self, job: False)]


def _copy_is_stopped() -> list[Slip]:
    """A training job with copied tags, under the name of a deleted attempt, counts as a leftover of the queue."""

    def by_proof(self: TrainingJob, record: JobRecord) -> bool:
        return self.has_valid_proof_of(record.job) or is_ended_attempt(self.name, self.tags, record)

    return [("job_queue.adapters.sagemaker.TrainingJob.may_be_stopped_as_ended", by_proof)]


def _late_end_of_another_external_job() -> list[Slip]:
    """The end of a deleted external job ends the count of a newer one that has its name."""

    def drop(self: Reconciler, ended: TrainingJob) -> bool:
        return self._repository.drop_external(ended.key)

    return [("job_queue.controller.reconciler.Reconciler._recheck_external", drop)]


def _deleted_counts_as_failed() -> list[Slip]:
    """The job of an attempt that was deleted before its end was known has failed."""
    stopped = state_machine._after_stop

    def failing(record: JobRecord, ending: Ending, now: float, backoffs: Any) -> JobTransition:
        judge = stopped if ending.is_known else state_machine._after_failure
        return judge(record, ending, now, backoffs)

    return [("job_queue.domain.state_machine._after_stop", failing)]


def _late_call_forgotten() -> list[Slip]:
    """The next attempt does not wait for a call that could launch the deleted one again."""
    return [("job_queue.domain.state_machine._late", lambda job, calls: None)]


def _every_call_proves() -> list[Slip]:
    """An attempt that was launched again is ended by the end of the deleted one."""
    accepted = state_machine.accepted
    return [("job_queue.domain.state_machine.accepted", lambda job, now, call: accepted(job, now))]


def _missing_attempt_stopped() -> list[Slip]:
    """An attempt that was deleted is asked to stop again, by its name."""
    return [("job_queue.controller.stops._can_be_stopped", lambda job: job.state is JobState.STOPPING)]


def _preemptions_not_counted() -> list[Slip]:
    """A job that was preempted is guaranteed no runtime."""
    return [("job_queue.domain.job.Job.preemptions", lambda self, now: 0)]


def _preemption_limit_ignored() -> list[Slip]:
    """The planner does not keep a job that was preempted as often as allowed."""
    return [("job_queue.scheduler.victims.PreemptionLimits.active", lambda self, job: job)]


def _free_retries_without_end() -> list[Slip]:
    """Free retries in a row have no limit."""
    return [("job_queue.domain.failures.rules.MOST_FREE_RETRIES", 1000)]


def _retries_not_counted() -> list[Slip]:
    """A retry that should count uses none of the job's retries."""
    after_failure = state_machine._after_failure

    def without_count(record: JobRecord, *args: Any) -> JobTransition:
        transition = after_failure(record, *args)
        return replace(transition, new=replace(transition.new, retried=record.job.retried))

    return [("job_queue.domain.state_machine._after_failure", without_count)]


def _user_error_retried() -> list[Slip]:
    """An error of the program is retried by default if the job has retries."""
    actions = {**DEFAULT_ACTIONS, FailureClass.USER_ERROR: FailureAction.RETRY}
    return [("job_queue.domain.failures.rules.DEFAULT_ACTIONS", actions)]


def _breaker_ignored() -> list[Slip]:
    """A job is tried again although it has failed in the same way twice, soon after each start."""
    return [("job_queue.domain.failures.rules._fails_early_again", lambda before, failed: False)]


def _retried_job_goes_to_the_back() -> list[Slip]:
    """A job that waits again after a failure has the time of the failure as the time of its submission."""
    after_failure = state_machine._after_failure

    def to_the_back(record: JobRecord, ending: Ending, now: float, backoffs: Any) -> JobTransition:
        transition = after_failure(record, ending, now, backoffs)
        return replace(transition, new=replace(transition.new, entered=iso(now)))

    return [("job_queue.domain.state_machine._after_failure", to_the_back)]


def _failure_class_not_recorded() -> list[Slip]:
    """The attempt does not have the class of its failure."""
    return [("job_queue.domain.state_machine._with_failure_class", lambda transition, failure_class: transition)]


def _log_read_in_a_cycle() -> list[Slip]:
    """A cycle that records the end of a failed attempt reads its log."""
    return [("job_queue.controller.reconciler._LogReads", lambda remaining: _LogReads(max(remaining, 1)))]


def _instances_not_checked() -> list[Slip]:
    """The attempt after a hardware failure does not ask for a check of its instances."""
    return [("job_queue.controller.launcher.with_instance_check", lambda request, sent, job: dict(sent))]


def _failed_instances_kept() -> list[Slip]:
    """The instances of a hardware failure stay warm, and the next attempt starts on them."""
    return [("job_queue.controller.reconciler.Reconciler._release_instances", lambda self, name, warm: warm)]


def _late_report_turns_back() -> list[Slip]:
    """Each report of a stage is recorded, however late it comes."""
    progressed = state_machine.progressed

    def without_time(job: Job, stage: str, at: int, now: float) -> JobTransition | None:
        return progressed(replace(job, stage_at=0), stage, at, now) and JobTransition(
            job, job.with_changes(stage=stage, stage_at=at), None, now
        )

    return [("job_queue.domain.state_machine.progressed", without_time)]


def _stage_by_name() -> list[Slip]:
    """A report of a stage is recorded for the job that its tags name, whatever training job it is about."""

    def note(self: Reconciler, reported: TrainingJob) -> None:
        record = self._repository.record(reported.tags.get(JOB_TAG, ""))
        if record is not None and reported.modified is not None:
            transition = self._progressed(record.job, reported.secondary, reported.modified)
            if transition is not None:
                self._record_unless_changed(transition)

    return [("job_queue.controller.reconciler.Reconciler._note_stage", note)]


def _not_before_ignored() -> list[Slip]:
    """A job may start at any time."""
    waiting = cluster_state._waiting

    def at_once(*args: Any, **named: Any) -> Any:
        return replace(waiting(*args, **named), not_before=None)

    return [("job_queue.domain.cluster_state._waiting", at_once)]


def _runtime_not_summed() -> list[Slip]:
    """Each attempt gets the total runtime again."""
    return [("job_queue.domain.state_machine.run_seconds", lambda job, at, report: 0)]


def _site_ignored() -> list[Slip]:
    """A training job with the name, tags and proof of an attempt is the attempt, in whichever region it is."""
    return [("job_queue.adapters.sagemaker.same_place", lambda one, other: True)]  # noqa: ARG005


def _resumes_anywhere() -> list[Slip]:
    """A job starts again in any region, and not where its checkpoints are."""
    return [("job_queue.domain.job.Job.has_work", property(lambda self: False))]  # noqa: ARG005


def _external_in_the_wrong_region() -> list[Slip]:
    """External jobs of another region take slots of the home region."""

    def slots_at_home(counts: Mapping[str, int], of: Policy, plan: str | None = None, site: object = None) -> Slots:  # noqa: ARG001
        return policy.slots_of(counts, of, plan)

    return [("job_queue.domain.fleet.warm_matching.slots_of", slots_at_home)]


def _silence_not_noted() -> list[Slip]:
    """A region that does not respond to a comparison counts like any other one."""
    return [("job_queue.controller.reconciler.backoffs_of_silent_site", lambda *_: ())]


def _folder_with_two_names() -> list[Slip]:
    """A folder is another place in the bucket of another region, as if no job wrote to it under that name."""
    return [("job_queue.services.submission.in_each_bucket", lambda place, _: (place,))]


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, and where it shows at once.

    The ordinary tests look there first, and everywhere where a change of the product has moved it.
    `python -m tests.torture planted` tells where it is.

    :param seeds: of the first walks that have found it.
    :param scenarios: that find it by search, where walks do not.
    :param kind: of the walks that find it.
    """

    slips: Callable[[], list[Slip]]
    seeds: tuple[int, ...] = ()
    scenarios: tuple[str, ...] = ()
    kind: Kind = Kind.PLAIN


def _quota_below_running_jobs() -> list[Slip]:
    """A policy may lower a quota below running non-preemptible jobs."""
    return [("job_queue.services.policy_conflicts._lowered", lambda cluster, policy: ())]


BUGS = {
    "token-not-checked": Bug(_token_not_checked, (6,)),
    "token-not-moved": Bug(_token_checked_but_not_moved, (949,)),
    "no-intent": Bug(_no_intent, (0,)),
    "intent-given-up": Bug(_intent_given_up, scenarios=("submission-and-tick-in-doubt",)),
    "attempt-raised-after-refusal": Bug(_attempt_raised_after_refusal, (3,)),
    "sdk-retries": Bug(_sdk_retries, (793,)),
    "release-without-looking": Bug(_release_without_looking, (4,)),
    "news-before-stored": Bug(_news_before_it_is_stored, scenarios=("submission-and-tick-in-doubt",)),
    "event-of-another-attempt": Bug(_event_of_another_attempt, (1,)),
    "slot-freed-at-stop-request": Bug(_slot_freed_at_stop_request, (2,)),
    "requeue-frees-slot-at-stop-request": Bug(_requeue_frees_slot_at_stop_request, (72,)),
    "requeue-is-an-eviction": Bug(_requeue_is_an_eviction, (78,)),
    "plan-from-before-a-drain": Bug(_plan_from_before_a_drain, (568,)),
    "drain-leaves-members": Bug(_drain_leaves_members, (21,), kind=Kind.SHARED),
    "drained-counts-as-stopped": Bug(_drained_job_counts_as_stopped, (21,)),
    "hang-frees-slot-at-stop-request": Bug(_hang_frees_slot_at_stop_request, (28,)),
    "hang-ends-the-job": Bug(_hang_ends_the_job, (42,)),
    "write-without-version": Bug(_write_without_version, (19,)),
    "cancel-finishes-starting": Bug(_cancel_finishes_a_starting_job, (175,)),
    "reconciliation-off": Bug(_reconciliation_off, (0,)),
    "external-ignored": Bug(_external_jobs_ignored, (20,)),
    "throttled-given-up": Bug(_throttled_launch_given_up, (2429,)),
    "call-expires-with-lease": Bug(_call_expires_with_the_lease, scenarios=("submission-and-tick-in-doubt",)),
    "failure-while-making-room": Bug(_failure_while_making_room, (133,)),
    "refusal-fails-what-ran": Bug(_refusal_fails_what_ran_before, (509,)),
    "refused-asks-at-once": Bug(_refused_launch_asks_again_at_once, (8,), kind=Kind.INTERACTIVE),
    "warm-counts-as-free": Bug(_warm_pools_count_as_free, (8,)),
    "warm-not-released": Bug(_warm_pool_not_released, (33,)),
    "no-proof": Bug(_proof_not_checked, (23,)),
    "unclear-name-given-up": Bug(_unclear_name_given_up, (175,)),
    "promise-not-withdrawn": Bug(_promise_not_withdrawn, (1264,)),
    "end-and-account-apart": Bug(_end_and_account_apart, (0,)),
    "unseen-counts-as-ended": Bug(_unseen_job_counts_as_ended, (2131,)),
    "size-asked-for": Bug(_size_asked_for, (18,)),
    "seat-freed-at-stop-request": Bug(_allocation_freed_at_stop_request, (3,), kind=Kind.SHARED),
    "report-unheard": Bug(_report_unheard, (0,), kind=Kind.SHARED),
    "lost-carrier-ignored": Bug(_lost_carrier_ignored, (3,), kind=Kind.SHARED),
    "report-by-anybody": Bug(_report_by_anybody, (19,), kind=Kind.SHARED),
    "order-by-anybody": Bug(_order_by_anybody, (1,), kind=Kind.SHARED),
    "order-moved": Bug(_order_moved, (111,), kind=Kind.SHARED),
    "order-replayed": Bug(_order_replayed, (5,), kind=Kind.SHARED),
    "carrier-freed-at-stop-request": Bug(_carrier_freed_at_stop_request, (2,), kind=Kind.SHARED),
    "interactive-beyond-quota": Bug(_interactive_beyond_quota, (0,), kind=Kind.INTERACTIVE),
    "interactive-preempted": Bug(_interactive_preempted, (28,), kind=Kind.INTERACTIVE),
    "owner-limit-of-active-alone": Bug(_owner_limit_of_active_jobs_alone, (6,), kind=Kind.INTERACTIVE),
    "quota-below-running-jobs": Bug(_quota_below_running_jobs, (178,)),
    "lease-kept-after-error": Bug(_lease_kept_after_an_error, (4,)),
    "throttled-counts-as-written": Bug(_throttled_counts_as_written, (239,)),
    "lag-counts-as-failure": Bug(_lag_counts_as_failure, (31,)),
    "freed-name-is-the-attempt": Bug(_freed_name_is_the_attempt, (53,)),
    "copy-is-stopped": Bug(_copy_is_stopped, (354,)),
    "late-end-of-another-external": Bug(_late_end_of_another_external_job, (740,)),
    "deleted-counts-as-failed": Bug(_deleted_counts_as_failed, (79,)),
    "late-call-forgotten": Bug(_late_call_forgotten, scenarios=("deleted-and-late-call",)),
    "every-call-proves": Bug(_every_call_proves, (210,)),
    "missing-attempt-stopped": Bug(_missing_attempt_stopped, (152,)),
    "late-report-turns-back": Bug(_late_report_turns_back, (144,)),
    "stage-by-name": Bug(_stage_by_name, (90,)),
    "not-before-ignored": Bug(_not_before_ignored, (31,)),
    "runtime-not-summed": Bug(_runtime_not_summed, (364,)),
    "preemptions-not-counted": Bug(_preemptions_not_counted, (133,)),
    "preemption-limit-ignored": Bug(_preemption_limit_ignored, (20395,)),
    "free-retries-without-end": Bug(_free_retries_without_end, (1391,)),
    "retries-not-counted": Bug(_retries_not_counted, (71,)),
    "user-error-retried": Bug(_user_error_retried, (92,)),
    "breaker-ignored": Bug(_breaker_ignored, (41,)),
    "retried-goes-to-the-back": Bug(_retried_job_goes_to_the_back, (27,)),
    "failure-class-not-recorded": Bug(_failure_class_not_recorded, (27,)),
    "instances-not-checked": Bug(_instances_not_checked, (41,)),
    "failed-instances-kept": Bug(_failed_instances_kept, (1922,)),
    "log-read-in-a-cycle": Bug(_log_read_in_a_cycle, (169,), kind=Kind.SHARED),
    "site-ignored": Bug(_site_ignored, (6,), kind=Kind.REGIONS),
    "resumes-anywhere": Bug(_resumes_anywhere, (28,), kind=Kind.REGIONS),
    "external-in-the-wrong-region": Bug(_external_in_the_wrong_region, (3,), kind=Kind.REGIONS),
    "silence-not-noted": Bug(_silence_not_noted, (494,), kind=Kind.REGIONS),
    "folder-with-two-names": Bug(_folder_with_two_names, (12,), kind=Kind.REGIONS),
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Within it the product has this bug; None: it is as it is."""
    with ExitStack() as stack:
        for target, slip in BUGS[name].slips() if name else ():
            stack.enter_context(patch(target, slip))
        yield
