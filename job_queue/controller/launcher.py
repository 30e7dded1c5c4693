"""Launch attempts exactly once: call CreateTrainingJob for a recorded intent, and record SageMaker's answer.

The fencing token guards the tables, but not SageMaker, where a late call can still take effect. The attempt's name and
the order of these steps make such a call harmless; see "Launching exactly once" in docs/developers/protocol.md.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from job_queue.adapters.items import stored_request
from job_queue.adapters.metadata import Lease
from job_queue.adapters.sagemaker import LaunchResult, TrainingJob
from job_queue.adapters.telemetry import log
from job_queue.controller.part import Backend, ControllerPart
from job_queue.controller.reconciler import Reconciler
from job_queue.domain import state_machine
from job_queue.domain.capacity_backoff import CapacityBackoff, instances_by_capacity_key
from job_queue.domain.carriers.carrier_launch import AGENTS, OUTPUT
from job_queue.domain.cluster_state import ClusterState
from job_queue.domain.errors import Refused, Unavailable
from job_queue.domain.job import Job, JobRecord, LaunchCall
from job_queue.domain.launching.instance_check import CHECK_FIELD, has_added_check, with_instance_check
from job_queue.domain.launching.proof import attempt_tags, call_number
from job_queue.domain.launching.quota_lag import lag_of
from job_queue.domain.launching.refusals import QuotaExceeded, blames_pool_fields, quota_exceeded
from job_queue.domain.names import apply_qstamp
from job_queue.domain.policy import is_changed_by_pool, is_spot, request_for_slots
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState, Policy

SIGNATURE_SECONDS = 16 * 60  # a signed request is valid for 15 minutes; clocks may differ by one minute
RELAUNCH_SECONDS = 10  # pause before another call for an unanswered launch, because a call may take this long


def new_call(now: float, remaining: float) -> LaunchCall:
    """Return the call that an invocation is about to send.

    :param now: epoch seconds.
    :param remaining: seconds until the invocation is killed.
    """
    return LaunchCall(sent_at=int(now), expires_at=int(now + remaining) + SIGNATURE_SECONDS)


def is_call_due(job: Job, now: float) -> bool:
    """Return whether another call is due: the launch was unanswered for long enough, or its calls were throttled.

    After a refusal, a job is still starting if an older call may take effect. Such a job backs off first.
    """
    if job.state is not JobState.STARTING or (job.backoff_until is not None and job.backoff_until > now):
        return False
    return all(call.sent_at + RELAUNCH_SECONDS <= now for call in job.calls)


def is_unsent(job: Job) -> bool:
    """Return whether all calls of a launch were throttled, so that none has created or can create a training job."""
    return job.state is JobState.STARTING and not job.calls and not job.in_doubt


def attempt_request(job: Job, details: str, policy: Policy) -> dict[str, Any]:
    """Return the CreateTrainingJob request of a job's current attempt: the user's request with slots, name and tags."""
    submitted = stored_request(details)
    request = with_instance_check(submitted, request_for_slots(submitted, job, policy), job)
    request["TrainingJobName"] = job.launched
    tags = request.get("Tags", [])
    request["Tags"] = [*tags, *({"Key": key, "Value": it} for key, it in attempt_tags(job, len(tags)).items())]
    return request


class Launcher(ControllerPart):
    """The launches of attempts and the records of their results, for the holder of the lease."""

    def __init__(self, backend: Backend, reconciler: Reconciler) -> None:
        super().__init__(backend)
        self._reconciler = reconciler

    def create(self, job: Job, details: str, policy: Policy) -> tuple[LaunchResult, str]:
        """Call CreateTrainingJob once, unless an earlier attempt may be alive again. Return the result and a message.

        A member is assigned to its carrier instead.
        """
        if postponed := self._reason_to_postpone(job):
            return LaunchResult.NOT_NOW, postponed
        request = attempt_request(job, details, policy)
        if job.allocation is not None:
            return self._training.assign(job, request)
        result, message = self._training.at(job.site).create(request)
        if result is LaunchResult.REFUSED and has_added_check(stored_request(details), request):
            # SageMaker may have refused the health check, which the queue added, without naming the check. The next
            # launch goes without the check, and SageMaker's answer to that launch decides about the job.
            note = f"The next launch goes without {CHECK_FIELD}, which the queue has added."
            return LaunchResult.CHECK_AT_FAULT, f"{message} ({note})"
        has_pools = job.slots.keys() <= {pool.name for pool in policy.pools}
        changed = (
            job.site or not has_pools or is_changed_by_pool(stored_request(details), TrainingRequest.read(request))
        )
        if result is LaunchResult.REFUSED and changed:
            # The pool has changed the request, so SageMaker may object to fields that the user did not write. Such a
            # refusal never fails the job. At another site, the image, the data or the role may be missing. If the pool
            # was removed from the policy after an unanswered call, the refused request lacks the pool's fields.
            of_pool = has_pools and len(job.slots) == 1 and blames_pool_fields(message)
            return LaunchResult.POOL_AT_FAULT if of_pool else LaunchResult.NOT_NOW, message
        if result in (LaunchResult.NO_QUOTA, LaunchResult.NO_CAPACITY) and (quota := quota_exceeded(message)):
            log.info("quota exceeded", job=job.name, attempt=job.launched, why=message)
            return _result_of_quota_refusal(result, quota, job, policy), message
        return result, message

    def _reason_to_postpone(self, job: Job) -> str | None:
        """Return why the attempt must not be launched yet, or None if it may be launched.

        After an earlier attempt was deleted, a late call may have launched it again. All late calls have expired by
        now, so one check is enough.
        """
        if job.late is None:
            return None
        name = apply_qstamp(job.name, job.late.attempt)
        try:
            found = self._training.at(job.late.site).describe(name)
        except Unavailable as error:
            return error.message
        return f"{name} was deleted in SageMaker and is alive again." if found and not found.ended else None

    def settle(self, lease: Lease, job: Job, result: LaunchResult, message: str, cluster: ClusterState) -> bool:
        """Record the result of a launch. Return whether planning again may do more now.

        :param cluster: the state that the cycle has recorded, with all jobs that were launched together with this job.
        :raises LeaseLost: the launch stays unanswered, and a later cycle sends another call.
        """
        log.info("launch answered", job=job.name, attempt=job.launched, result=result.name, reason=message)
        match result:
            case LaunchResult.LAUNCHED:
                # The agent of a member may have obeyed an earlier call, so for a member no call is recorded.
                more = self._launched(lease, job, job.sent if job.carrier_attempt is None else None)
                drained = cluster.drain_of(job, self._clock()) is not None  # the attempt can be stopped only now
                return self._end_lag(job, cluster) or more or drained
            case LaunchResult.NAME_TAKEN:
                return self._name_taken(lease, job)
            case LaunchResult.THROTTLED:
                sent_at = job.calls[-1].sent_at
                self._record(lease, job, lambda latest: state_machine.throttled(latest, sent_at, self._clock()))
                return False
            case LaunchResult.UNKNOWN:
                return False
        return self._refused(lease, job, result, message, cluster)

    def _launched(self, lease: Lease, job: Job, call: int | None) -> bool:
        recorded = self._record(lease, job, lambda latest: state_machine.accepted(latest, self._clock(), call))
        if recorded is None:
            return False
        # Plan again. A job that was cancelled or requeued, or whose launch was in doubt, can be stopped only now. A new
        # carrier can now take members.
        to_be_stopped = recorded.cancelled or recorded.requeued_by is not None
        return to_be_stopped or job.in_doubt or job.carries is not None

    def _end_lag(self, job: Job, cluster: ClusterState) -> bool:
        """End quota lag after SageMaker has accepted a launch. Return whether other jobs may be launched at once."""
        now, ended = self._clock(), False
        wanted = instances_by_capacity_key(job, job.slots, cluster.applied.policy)
        for backoff in cluster.capacity_backoffs(now).values():
            if backoff.is_lag and backoff.applies_to(wanted):
                ended = self._repository.end_capacity_backoff(backoff, backoff.without_lag(now)) or ended
        return ended

    def _name_taken(self, lease: Lease, job: Job) -> bool:
        try:
            found = self._training.describe_attempt(job)
        except Unavailable:
            self._record(lease, job, lambda latest: state_machine.wait_for_description(latest, self._clock()))
            return False
        if found is None:
            return self._name_taken_but_missing(lease, job)
        return self._resolve_taken_name(lease, job, found)

    def _refused(self, lease: Lease, job: Job, result: LaunchResult, message: str, cluster: ClusterState) -> bool:
        """Record a refusal. A wrong request fails its job. After most other refusals the job waits again.

        While an older call may still take effect, the launch continues. A cancelled job is stopped. Return whether
        planning again may do more now.
        """
        sent_at = job.calls[-1].sent_at
        if job.in_doubt:
            # An earlier call may have taken effect unseen. SageMaker may refuse this call before it checks the name.
            try:
                found = self._training.describe_attempt(job)
            except Unavailable:
                return False
            if found is not None:
                return self._resolve_taken_name(lease, job, found)
        backoffs: tuple[CapacityBackoff, ...] = ()
        quota = quota_exceeded(message)
        lag = quota and lag_of(quota, job, cluster)
        if quota:
            message = lag or quota.sentence
        if quota and lag:
            backoffs = self._reconciler.backoffs_after_lag(job, sent_at, quota, lag)
        elif result in (LaunchResult.NO_CAPACITY, LaunchResult.POOL_AT_FAULT):
            at_fault = message if result is LaunchResult.POOL_AT_FAULT else None
            backoffs = self._reconciler.backoffs_after_refusal(job, sent_at, at_fault)
        elif result is LaunchResult.UNREACHABLE:
            backoffs = self._reconciler.backoffs_after_refusal(job, sent_at, unreachable=message)

        def refused(latest: Job, record: JobRecord) -> JobTransition:
            # If SageMaker accepted an earlier attempt, the request is not wrong: a role, data or a plan was removed.
            for_good = result is LaunchResult.REFUSED and not record.attempts
            return state_machine.record_refusal(
                latest,
                sent_at,
                message,
                for_good=for_good,
                now=self._clock(),
                backoffs=backoffs,
                lasting=result is LaunchResult.NO_QUOTA,
                without_check=result is LaunchResult.CHECK_AT_FAULT,
            )

        recorded = self._give_up(lease, job, refused)
        if recorded is not None and recorded.carries is not None and recorded.state is JobState.FAILED:
            self._refuse_leader(lease, recorded, sent_at, message)
        return recorded is not None and not recorded.state.holds_slots

    def _refuse_leader(self, lease: Lease, carrier: Job, sent_at: int, message: str) -> None:
        """Record a carrier's refusal for its first member, because the carrier was launched with the member's request.

        Otherwise the queue would launch a further carrier for this member, which SageMaker would refuse too. A refusal
        that names fields of the pool or of the queue never fails the member.
        """
        record = self._repository.record(carrier.first_members[0])
        if record is None or not record.job.state.waits:
            return
        of_queue = blames_pool_fields(message) or any(folder in message for folder in (AGENTS, OUTPUT))
        for_good, now = not (record.attempts or of_queue), self._clock()
        refused = state_machine.record_refusal(record.job, sent_at, message, for_good=for_good, now=now)
        self._commit(lease, [replace(refused, record=record)], "refusal of a carrier")

    def _resolve_taken_name(self, lease: Lease, job: Job, found: TrainingJob) -> bool:
        """Record the result of a launch whose name is taken by this training job. Return whether to plan again."""
        if not job.in_doubt:
            # Ignore the time of creation. Only one call was sent, just now. So an older training job can have a valid
            # proof only if the tables were restored to an earlier time. Then the training job is this attempt.
            found = replace(found, created=None)
        if found.is_current_attempt_of(job):
            if found.outcome_known:
                return self._reconciler.apply_end(found)
            return self._launched(lease, job, call_number(found.tags))
        # No proof shows that the training job is this job's attempt. So do not stop it, but count it while it is alive.
        if not found.ended:
            self._reconciler.count_external(found)
            if job.in_doubt and not found.is_older_than_launch_of(job):
                self._record(lease, job, lambda latest: state_machine.wait_for_unclear_name(latest, self._clock()))
                return False
        self._give_up(lease, job, lambda latest, _: state_machine.give_up_taken_name(latest, now=self._clock()))
        return True

    def _name_taken_but_missing(self, lease: Lease, job: Job) -> bool:
        """Record that SageMaker calls the name taken, but finds no such training job. Return whether to plan again.

        One such result proves nothing, so the launch is tried again once a minute. The name is given up after
        `MISSING_SECONDS`, and after all older calls have expired.
        """
        now, sent_at = self._clock(), job.calls[-1].sent_at
        overdue = job.missing_since is not None and job.missing_since + state_machine.MISSING_SECONDS <= now
        if not overdue or any(call.expires_at > sent_at for call in job.calls[:-1]):
            self._record(lease, job, lambda latest: state_machine.missing_at_launch(latest, sent_at, now))
            return False
        self._give_up(lease, job, lambda latest, _: state_machine.give_up_taken_name(latest, now=now))
        return True

    def _give_up(
        self, lease: Lease, job: Job, make_transition: Callable[[Job, JobRecord], JobTransition]
    ) -> Job | None:
        """Register the job's waiting queue, and record a transition that may return the job to this waiting queue.

        Return the changed job, or None if the launch is over.
        """
        self._repository.register_waiting_queue(job.waiting_queue, self._clock())
        record = self._repository.record(job.name)
        if record is None or not is_same_launch(record.job, job):
            return None
        # The transition has the whole record, so that the long history of an often refused job can be truncated.
        return self._record(lease, record.job, lambda latest: replace(make_transition(latest, record), record=record))

    def _record(self, lease: Lease, job: Job, make_transition: Callable[[Job], JobTransition]) -> Job | None:
        """Record a transition of this launch, even if a user changed the job. Return None if the launch is over."""
        latest = job
        while True:
            transition = make_transition(latest)
            try:
                self._repository.commit(lease, [transition], self._clock())
            except Refused as refused:
                if 0 in refused.items:
                    raise
                record = self._repository.record(job.name)
                if record is None or not is_same_launch(record.job, job):
                    return None
                latest = record.job  # a user has changed the job: the same launch in a later version
                continue
            return transition.new


def _result_of_quota_refusal(result: LaunchResult, quota: QuotaExceeded, job: Job, policy: Policy) -> LaunchResult:
    """Return the meaning of a refusal for a quota, taking the job's pool into account."""
    if result is LaunchResult.NO_CAPACITY and quota.is_for_spot and not is_spot(job, policy):
        return LaunchResult.NO_QUOTA  # the request, not the pool, asks for spot instances: the pool need not back off
    if result is LaunchResult.NO_QUOTA and job.keep_warm is not None and quota.is_for_warm_pools:
        return LaunchResult.NOT_NOW  # keep_warm is the pool's setting, not the request's: the next launch leaves it out
    return result


def is_same_launch(recorded: Job, launched: Job) -> bool:
    """Return whether the job's record still has this launch."""
    return (
        recorded.submission == launched.submission
        and recorded.attempt == launched.attempt
        and recorded.state is JobState.STARTING
    )
