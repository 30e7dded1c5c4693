"""The transitions of a job, each as a pure function from a job to its JobTransition.

    pending | preempted ──> starting ──> running ──> completed | failed | stopped
        ^                       │          │ │
        ├── refused ────────────┘          │ └──> stopping ──> preempted | completed | failed | stopped
        └── tried again, or cut off ───────┘

`carriers.transitions` has the transitions that only carriers and members have. docs/background/life-of-a-job.md and
docs/developers/protocol.md have the rules.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from job_queue.domain.accounting.attempts import AttemptRecord, EndReport, attempt_record, run_seconds
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.backoff import backoff_seconds
from job_queue.domain.capacity_backoff import CapacityBackoff
from job_queue.domain.failures import (
    FailureAction,
    FailureClass,
    LoggedLine,
    NamedRule,
    choose,
    classify,
    decided,
    exit_code_of,
    first_failed,
    gpus_in,
    is_built_in,
)
from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import (
    LAUNCHED,
    MANY_REFUSALS,
    STAGES,
    Dependency,
    EndedAttempt,
    FailedAttempt,
    Job,
    JobRecord,
    LateLaunch,
    LaunchCall,
    StartByAction,
    clipped,
    epoch,
    iso,
)
from job_queue.domain.launching.instance_check import is_check_due
from job_queue.domain.launching.numbers import with_number, without_number
from job_queue.domain.names import apply_qstamp
from job_queue.scheduler import NOTHING, Drain, JobState, duration, join, time_text

MISSING_SECONDS = 15 * 60  # time after which an attempt that SageMaker does not know counts as deleted
MOST_COMPARED = 200  # last log lines that rules are compared with
MOST_REASON_BYTES = 1500  # largest part of SageMaker's reason in a job's reason; the rest of the space is for the cause
RETRY_SECONDS = 60  # pause before another call for a launch that was refused and whose outcome is still open

_ROUND_BRACKETS = str.maketrans("[]", "()")
_CLASS_IN_REASON = re.compile(rf" \[({'|'.join(FailureClass)}): [^\[]*\]$")


@dataclass(frozen=True, slots=True)
class JobTransition:
    """A change of one job: the job as it was read, and the new job."""

    old: Job
    new: Job
    cause: str | None  # text in the history; None: the history gets no entry
    at: float  # epoch seconds; the time of the entry
    ended: EndedAttempt | None = None  # the attempt that ended with the transition
    account: AttemptRecord | None = None  # the attempt record of the ended attempt
    record: JobRecord | None = None  # the whole record, if it was read; needed to truncate a very long history
    covered_by: str | None = None  # the job whose notice also covers this failure; None: the failure has its own
    backoffs: tuple[CapacityBackoff, ...] = ()  # capacity backoffs that begin or change with the transition


# --- launching ---------------------------------------------------------------------------------------


def record_launch_intent(
    job: Job,
    slots: Mapping[str, int],
    call: LaunchCall,
    now: float,
    secret: str | None = None,
    borrowed: int = 0,
    site: Site | None = None,
) -> JobTransition:
    """Record the intent to launch: the job takes the slots, and one call will be sent.

    :param secret: a new secret, used if an earlier version of the queue stored the job without one.
    :param borrowed: slots beyond the project's quota.
    :param site: the site of the slots.
    """
    new = job.transition(
        now,
        JobState.STARTING,
        slots=dict(slots),
        site=site,
        borrowed=borrowed,
        launched=apply_qstamp(job.name, job.attempt),
        calls=(call,),
        in_doubt=False,
        started=None,
        backoff_until=None,
        evicted_for=None,
        missing_since=None,
        parked=None,
        reason=None,
        secret=job.secret or secret,
        sent=job.sent + 1,
        valid_proofs=with_number((), job.sent + 1),
    )
    return JobTransition(job, new, f"launching {new.launched}", now)


def launch_again(job: Job, call: LaunchCall, now: float) -> JobTransition:
    """Record the intent to send another call, under the same name, for a launch whose outcome is open."""
    unexpired_calls = tuple(older for older in job.calls if older.expires_at >= now)
    in_doubt = job.in_doubt or bool(job.calls)
    sent = job.sent + 1
    valid_proofs = with_number(job.valid_proofs, sent)
    new = job.with_changes(calls=(*unexpired_calls, call), in_doubt=in_doubt, sent=sent, valid_proofs=valid_proofs)
    return JobTransition(job, new, None, now)


def discard_proof_of_last_call(job: Job) -> Job:
    """Make the proof of the latest call, which was refused, invalid. Others can copy the proof from CloudTrail."""
    return replace(job, valid_proofs=without_number(job.valid_proofs, job.sent))


def throttled(job: Job, sent_at: int, now: float) -> JobTransition:
    """Record a throttled call. The intent stays, and another call is sent as soon as the rate allows."""
    calls = tuple(call for call in job.calls if call.sent_at != sent_at)
    return JobTransition(job, discard_proof_of_last_call(job).with_changes(calls=calls), None, now)


def cancel_unsent(job: Job, now: float) -> JobTransition:
    """End a cancelled job. All its calls were throttled, so SageMaker has no attempt to stop."""
    return JobTransition(job, _finished(job, now, JobState.STOPPED, "cancelled"), "cancelled before its launch", now)


def accepted(job: Job, now: float, call: int | None = None) -> JobTransition:
    """Record that SageMaker has accepted the attempt.

    While the attempt exists, SageMaker refuses all other unanswered calls, because they use the same name. If the
    attempt is deleted, one of these calls may still take effect. `late` records when the last of these calls expires.

    :param call: the number of the call that launched the attempt. Only this call's proof stays valid. None: the number
        is not known, and the proofs of all calls that may have taken effect stay valid.
    """
    new = job.transition(
        now,
        JobState.RUNNING,
        started=iso(now),
        stage=None if job.carrier_attempt else job.stage or LAUNCHED,
        calls=(),
        in_doubt=False,
        late=_late(job, job.calls[:-1]),
        valid_proofs=job.valid_proofs if call is None else with_number((), call),
        backoff_until=None,
        missing_since=None,
        refusals=0,
        refused=None,
        left_idle=False,
    )
    return JobTransition(
        job, new, f"{'its carrier' if job.carrier_attempt else 'SageMaker'} accepted {job.launched}", now
    )


def record_refusal(
    job: Job,
    sent_at: int,
    message: str,
    *,
    for_good: bool,
    now: float,
    backoffs: tuple[CapacityBackoff, ...] = (),
    lasting: bool = False,
    without_check: bool = False,
) -> JobTransition:
    """Record that SageMaker refused the call that was sent at `sent_at`.

    The launch is given up only if no other call may still take effect. An older call may still take effect if it had
    not expired when the refused call was sent. While such a call exists, the launch is retried once a minute. This
    pause leaves the launch rate to other jobs.

    :param for_good: whether SageMaker will never accept the request.
    :param backoffs: the backoff of the capacity key, if the refusal was for lack of instances or for the pool's fields.
    :param lasting: whether the call will be refused again unless the account or the job is changed.
    :param without_check: whether the next launch leaves out the health check of the instances, because SageMaker may
        have refused the check. All calls of one launch have the same request, so the present launch is not changed.
    """
    unexpired_calls = tuple(call for call in job.calls if call.sent_at != sent_at and call.expires_at > sent_at)
    if unexpired_calls:
        retry_at = int(now) + RETRY_SECONDS
        new = discard_proof_of_last_call(job).with_changes(
            calls=unexpired_calls, backoff_until=retry_at, reason=message
        )
        return JobTransition(job, new, None, now)
    if job.cancelled:
        return JobTransition(
            job, _finished(job, now, JobState.STOPPED, "cancelled"), "cancelled; its launch was refused", now
        )
    if for_good:
        return JobTransition(
            job, _finished(job, now, JobState.FAILED, message), f"refused by SageMaker: {message}", now
        )
    if backoffs and not _is_pool_at_fault(backoffs):
        return _back_off(job, now, message, job.attempt, backoffs)
    # All refusals for fields of the pool together count as one, because an admin can repair the pool at any time.
    refusals = max(1, job.refusals) if backoffs else max(job.refusals + 1, MANY_REFUSALS * lasting)
    changes: dict[str, Any] = {
        "refusals": refusals,
        "refused": job.refused_until(now),
        "infra_check": job.infra_check and not without_check,
    }
    return _back_off(job, now, message, job.attempt, backoffs, **changes)


def give_up_taken_name(job: Job, *, now: float) -> JobTransition:
    """Record that the attempt's name belongs to a training job that this submission did not launch.

    The launch is given up only if no older call may still take effect. An older call could launch the attempt if that
    training job is deleted. Until all older calls have expired, another call is sent once a minute.
    """
    sent_at = job.calls[-1].sent_at if job.calls else int(now)
    unexpired_calls = tuple(call for call in job.calls[:-1] if call.expires_at > sent_at)
    if unexpired_calls:
        retry_at = int(now) + RETRY_SECONDS
        return JobTransition(
            job, discard_proof_of_last_call(job).with_changes(calls=unexpired_calls, backoff_until=retry_at), None, now
        )
    if job.cancelled:
        return JobTransition(job, _finished(job, now, JobState.STOPPED, "cancelled"), "cancelled", now)
    new = _to_waiting(job, now, job.attempt + 1)
    return JobTransition(job, new, f"the name {job.launched} is taken by another training job", now)


# The next three transitions apply when SageMaker has refused a call because the attempt's name is taken, and it is not
# clear whether the training job with this name is the attempt. The refused call can no longer take effect, so it is
# removed from the calls. Another call is sent in a minute, and SageMaker's answer to that call decides.


def wait_for_unclear_name(job: Job, now: float) -> JobTransition:
    """Wait, because a training job without proof has the attempt's name, and an earlier call may have created it.

    The training job may be the attempt after its tags were removed. So no other attempt is launched while that training
    job is alive.
    """
    why = (
        f"{job.launched} is alive in SageMaker without this queue's proof in its tags. It may be this job's attempt, "
        "so the next one is launched when it has ended."
    )
    retry_at = int(now) + RETRY_SECONDS
    new = discard_proof_of_last_call(job).with_changes(
        calls=job.calls[:-1], in_doubt=True, backoff_until=retry_at, reason=why
    )
    return JobTransition(job, new, None if job.reason == why else why, now)


def wait_for_description(job: Job, now: float) -> JobTransition:
    """Wait, because the attempt's name is taken and DescribeTrainingJob is unavailable."""
    retry_at = int(now) + RETRY_SECONDS
    new = discard_proof_of_last_call(job).with_changes(calls=job.calls[:-1], in_doubt=True, backoff_until=retry_at)
    return JobTransition(job, new, None, now)


def missing_at_launch(job: Job, sent_at: int, now: float) -> JobTransition:
    """Wait, because SageMaker refuses the attempt's name as taken, but describes no training job with this name.

    :param sent_at: the time of the refused call, which has no effect.
    """
    calls = tuple(call for call in job.calls if call.sent_at != sent_at)
    missing_since = job.missing_since or int(now)
    retry_at = int(now) + RETRY_SECONDS
    new = discard_proof_of_last_call(job).with_changes(
        calls=calls, in_doubt=True, missing_since=missing_since, backoff_until=retry_at
    )
    return JobTransition(job, new, None, now)


def adopted(job: Job, slots: Mapping[str, int], now: float, site: Site | None = None) -> JobTransition:
    """Record that the next attempt of a waiting job already runs in SageMaker."""
    new = job.transition(
        now,
        JobState.RUNNING,
        slots=dict(slots),
        site=site,
        launched=apply_qstamp(job.name, job.attempt),
        started=iso(now),
        reason=None,
        backoff_until=None,
        refusals=0,
        refused=None,
        evicted_for=None,
        left_idle=False,
        parked=None,
    )
    return JobTransition(job, new, f"found {new.launched} running", now)


def progressed(job: Job, stage: str, at: int, now: float) -> JobTransition | None:
    """Record the stage of the current attempt, as SageMaker reports it. Return None if the report changes nothing.

    Reports may be late, repeated or out of order, so a report that is older than the recorded stage changes nothing.

    :param stage: the SecondaryStatus.
    :param at: epoch milliseconds of the last change of the training job.
    """
    if job.state not in (JobState.STARTING, JobState.RUNNING) or job.carrier_attempt is not None:
        return None
    known = job.stage or (LAUNCHED if job.state is JobState.STARTING else None)
    if stage not in STAGES or at <= job.stage_at or stage == known:
        return None
    return JobTransition(job, job.with_changes(stage=stage, stage_at=at), None, now)


# --- stopping, changing and ending -------------------------------------------------------------------


def evict(job: Job, claimant: str, rule: str, now: float, *, idle: bool = False) -> JobTransition:
    """Record the intent to stop a running attempt so that the claimant can start."""
    new = job.transition(now, JobState.STOPPING, evicted_for=claimant, evicted_by=rule, left_idle=idle)
    return JobTransition(job, new, f"making room for {claimant} ({rule})", now)


def stop_requeued(job: Job, now: float) -> JobTransition:
    """Record the intent to stop the running attempt of a requeued job."""
    return JobTransition(job, job.transition(now, JobState.STOPPING), f"stopping: requeued by {job.requeued_by}", now)


def stop_drained(job: Job, pool: str, drain: Drain, now: float) -> JobTransition:
    """Record the intent to stop the running attempt of a job in a drained pool."""
    why = f": {drain.reason}" if drain.reason else ""
    new = job.transition(now, JobState.STOPPING, drained_by=drain.by)
    return JobTransition(job, new, f"stopping: {pool} is drained by {drain.by}{why}", now)


def record_hang(job: Job, since: float, now: float, *, requeue: bool) -> JobTransition:
    """Record that a running attempt hangs, once for each attempt.

    :param since: epoch seconds since which the attempt is known to be silent; the silence may have begun earlier.
    :param requeue: whether the next cycle stops the attempt, so that the job waits again (`stop_hung`).
    """
    silent = f"hangs: no log line, no checkpoint and idle GPUs since {time_text(since)} at the latest"
    new = job.with_changes(hung=int(since), requeue_hung=requeue, hangs=job.hangs + requeue)
    return JobTransition(job, new, f"{silent}; it is going to be stopped" if requeue else silent, now)


def stop_hung(job: Job, now: float) -> JobTransition:
    """Record the intent to stop the running attempt of a job that hangs."""
    return JobTransition(job, job.transition(now, JobState.STOPPING), "stopping: it hangs", now)


def stop_cancelled(job: Job, now: float) -> JobTransition:
    """Record the intent to stop the running attempt of a cancelled job."""
    return JobTransition(job, job.transition(now, JobState.STOPPING), "stopping: cancelled", now)


def announce_cut_off(job: Job, at: int, plan: str, now: float) -> JobTransition:
    """Record the notice that SageMaker takes a running job's instances back at `at`, because its training plan ends.

    :param at: epoch seconds.
    :param plan: name of the training plan.
    """
    cause = f"notice: SageMaker takes its instances back at {time_text(at)}, before the training plan {plan} ends"
    return JobTransition(job, job.with_changes(cut_off=at), cause, now)


def announce_extension(job: Job, now: float) -> JobTransition:
    """Record the notice that a running job's training plan was extended, so that the job keeps its instances."""
    return JobTransition(job, job.with_changes(cut_off=None), "notice: its training plan was extended", now)


def stop_denied(job: Job, now: float) -> JobTransition:
    """Record that SageMaker denies a stop. The attempt continues, and its eviction is dropped.

    A stop for another cause (cancellation, requeue, drain, hang) is tried again after `STOP_DENIED_SECONDS`.
    """
    new = job.transition(
        now,
        JobState.RUNNING,
        evicted_for=None,
        evicted_by=None,
        drained_by=None,
        left_idle=False,
        stop_denied=int(now),
    )
    effect = f"; it makes no room for {job.evicted_for}" if job.evicted_for else ""
    cause = f"SageMaker denies the queue to stop {job.launched}{effect}. Were its queue- tags removed?"
    return JobTransition(job, new, cause, now)


def cancel(job: Job, by: str, now: float) -> JobTransition:
    """Cancel a job. A waiting job ends at once. An active job is flagged, and ends with its attempt."""
    if job.state.waits:
        return JobTransition(
            job, _finished(job, now, JobState.STOPPED, f"cancelled by {by}"), f"cancelled by {by}", now
        )
    return JobTransition(job, job.with_changes(cancelled=True), f"cancel requested by {by}", now)


def change(job: Job, by: str, now: float, *, priority: int, held: bool, requeue: bool = False) -> JobTransition:
    """Change a job's priority, hold or release the job, or request a requeue.

    A waiting job moves to its new position in its waiting queue at once. A requeue of an active job is only recorded.
    The next cycle then stops a running attempt (`stop_requeued`). A starting attempt is stopped after its launch.
    """
    changes = [f"priority {priority}"] if priority != job.priority else []
    if held != job.held:
        changes.append("held" if held else "released")
    if requeue:
        changes.append("requeue requested")
    new = job.with_changes(
        priority=priority,
        held=held,
        parked=job.parked if held else None,
        requeued_by=by if requeue else job.requeued_by,
    )
    return JobTransition(job, new, f"{' and '.join(changes)} by {by}", now)


def annotate(job: Job, cause: str, now: float) -> JobTransition:
    """Add an entry to a job's history. Nothing else changes."""
    return JobTransition(job, job.with_changes(), cause, now)


def park(job: Job, until: int | None, now: float, why: str | None = None) -> JobTransition:
    """Park a waiting job behind the rest of its waiting queue.

    :param until: epoch seconds at which the parking ends; None: end the parking now.
    :param why: the reason why the job waits.
    """
    return JobTransition(job, job.with_changes(parked=until, parked_for=str(why) if why else None), None, now)


def start_missed(job: Job, further: tuple[str, ...], now: float) -> JobTransition:
    """Carry out the action of a waiting job that has not started by its `start_by`.

    The job stays in the same waiting queue, even if it may now run in further pools.

    :param further: for `next_pool`: all pools in which the job may run from now on. Empty if its project has no
        further pools for the job; then the job keeps waiting, as with `notify`.
    """
    missed = f"it had not started by {time_text(job.start_by or 0)} (tag start_by)"
    if job.start_by_action is StartByAction.CANCEL:
        over = replace(_finished(job, now, JobState.STOPPED, missed), start_missed=True)
        return JobTransition(job, over, f"stopped: {missed}", now)
    if job.start_by_action is StartByAction.NEXT_POOL:
        if further:
            new = job.with_changes(start_missed=True, pools=further, parked=None)
            return JobTransition(job, new, f"{missed}; it may now run in {join(further)}", now)
        missed += "; its project has no further pools in which it could run"
    return JobTransition(job, job.with_changes(start_missed=True), missed, now)


def dependencies_ended(job: Job, ends: Mapping[Dependency, JobState | None], now: float) -> JobTransition:
    """Remove dependencies that have ended, or stop the job if one of them had to complete and did not.

    :param ends: each dependency that has ended, with its final state; None: its outcome is not known.
    """
    outcomes = {it: f"{it.job} has {state or 'ended and is not known any more'}" for it, state in ends.items()}
    broken = [it for it, state in ends.items() if not it.any_outcome and state is not JobState.COMPLETED]
    if broken:
        why = f"{outcomes[broken[0]]}, and this job was to start once that had completed"
        return JobTransition(job, _finished(job, now, JobState.STOPPED, why), f"stopped: {why}", now)
    left = tuple(it for it in job.after if it not in ends)
    new = job.with_changes(after=left, parked=job.parked if left or job.held else None)
    return JobTransition(job, new, ", ".join(outcomes.values()), now)


def end(record: JobRecord, ending: Ending, now: float, backoffs: tuple[CapacityBackoff, ...] = ()) -> JobTransition:
    """Record the end of the recorded attempt. An end is final.

    Apply the first rule that matches:

    - A carrier never waits again: it is failed or stopped.
    - If the attempt completed, the job is completed, even if the attempt was being stopped.
    - If the job was cancelled, the job is stopped.
    - If the training plan ended before the attempt's time limit, the job is preempted.
    - If the queue stopped the attempt to make room, for a requeue or a drain, or because it hung, the job is preempted.
      This also applies if SageMaker reports Failed, because a process may end with an error when it is stopped. The
      exceptions are an attempt that ran out of time and an attempt that failed for lack of capacity. The guaranteed
      runtime counts only stops to make room as preemptions.
    - If SageMaker lacked capacity, the job backs off and waits again, and no retry is used. The same applies to an
      internal error of SageMaker, unless a rule chooses another action.
    - After any other failure, the job waits again if the rules and the limits of retries say so (`failures.decided`).
      Otherwise the job is failed.
    - If the attempt was deleted before its end was known, the job is stopped. The job is not run again, because the
      attempt may have completed.
    - After any other stop, by hand or because the time is over, the job is stopped.

    A job that would wait again is stopped if its attempts have used up its `max_total_runtime`.

    :param backoffs: the backoff of the capacity key, if the attempt ended for lack of instances.
    """
    transition = _within_total_runtime(_end(record, ending, now, backoffs), ending, now)
    transition = _with_infra_check(transition, ending, now)
    return _with_attempt_record(_delayed_for_late_call(transition, now), ending.report)


def _within_total_runtime(transition: JobTransition, ending: Ending, now: float) -> JobTransition:
    """Add the ended attempt to the job's `run_seconds`, and stop the job if its `max_total_runtime` is used up."""
    job, ended = transition.old, transition.ended
    attempt_seconds = run_seconds(job, now, ending.report)
    total_seconds = job.run_seconds + attempt_seconds
    # An interrupted attempt without a known runtime is assumed to have run, if no earlier attempt is known to have run.
    has_run = attempt_seconds or (transition.new.was_interrupted and not job.was_interrupted and not job.run_seconds)
    new = replace(transition.new, run_seconds=total_seconds, resumes_at=job.site if has_run else job.resumes_at)
    if new.max_total_runtime is None or ended is None:
        return replace(transition, new=new)
    # The time limit of the attempt was the rest of `max_total_runtime`, unless the request has a shorter limit.
    reached_limit = ending.out_of_time and job.attempt_limit == job.remaining_runtime and new.state is JobState.STOPPED
    if not reached_limit and not (new.state.waits and new.is_runtime_used_up):
        return replace(transition, new=new)
    attempts = f"{job.attempt} attempt{'s' if job.attempt > 1 else ''}"
    limit = duration(new.max_total_runtime)
    why = f"its {attempts} ran for {duration(total_seconds)}, and its max_total_runtime is {limit}"
    finished = replace(_finished(job, now, JobState.STOPPED, why), run_seconds=total_seconds)
    cause = f"stopped: {why}" if reached_limit else f"{transition.cause}; stopped: {why}"
    return replace(transition, new=finished, cause=cause, ended=replace(ended, outcome=JobState.STOPPED.value))


def _with_infra_check(transition: JobTransition, ending: Ending, now: float) -> JobTransition:
    """Record whether the instances of the next attempt are to be checked, after a failure of the hardware.

    A due check stays due until an attempt gets instances, because only then SageMaker can check them. An internal error
    of SageMaker does not count as a failure here, because the error may be the result of the check.
    """
    job, failure = transition.old, new_failure(transition)
    if failure is not None and failure.failure_class != FailureClass.INTERNAL:
        due = is_check_due(failure)
    else:
        due = job.infra_check and run_seconds(job, now, ending.report) == 0
    return replace(transition, new=replace(transition.new, infra_check=due and transition.new.state.waits))


def _delayed_for_late_call(transition: JobTransition, now: float) -> JobTransition:
    """Delay the next attempt while a late call could launch the ended attempt again after its deletion in SageMaker."""
    job, new = transition.old, transition.new
    # If the launch is in doubt, any of its calls may have created the attempt. The other calls may create the attempt
    # again after a deletion.
    possible_launch = _late(job, job.calls) if job.state is JobState.STARTING and job.in_doubt else None
    late = possible_launch or job.late
    if late is None or late.until <= now:
        return transition
    new = replace(new, late=late)
    if new.state.waits:
        new = replace(new, backoff_until=max(late.until, new.backoff_until or 0))
    return replace(transition, new=new)


def _late(job: Job, calls: Sequence[LaunchCall]) -> LateLaunch | None:
    """Return the attempt with the time until which these calls could launch it again; None if the calls cannot.

    A member's attempt cannot be launched again, because an agent accepts an assignment only once.
    """
    if not calls or job.carrier_attempt is not None:
        return None
    return LateLaunch(job.attempt, max(call.expires_at for call in calls), job.site)


def _end(record: JobRecord, ending: Ending, now: float, backoffs: tuple[CapacityBackoff, ...]) -> JobTransition:
    job = record.job
    if job.carries is not None:  # a carrier never waits again; its members get a new carrier if they need one
        why = job.reason or ending.failure or ending.out_of_time
        finished = _finished(job, now, JobState.FAILED if ending.status == "Failed" else JobState.STOPPED, why)
        return replace(_ended(record, now, finished, f"ended: {why}" if why else "ended"), backoffs=backoffs)
    if ending.status == "Completed":
        return _ended(record, now, _finished(job, now, JobState.COMPLETED, None), "completed")
    if job.cancelled:
        return _ended(record, now, _finished(job, now, JobState.STOPPED, "cancelled"), "stopped: cancelled")
    if ending.cut_off_by and not ending.out_of_time:
        new = replace(_to_waiting(job, now, job.attempt + 1, tries=0), state=JobState.PREEMPTED, was_interrupted=True)
        cause = f"cut off: SageMaker has taken the instances of the training plan {ending.cut_off_by} back"
        return _ended(record, now, new, cause, outcome="preempted")
    if ending.status == "Failed" and (ending.lacks_capacity or not job.is_interrupted):
        return _after_failure(record, ending, now, backoffs)
    return _after_stop(record, ending, now, backoffs)


def _interruption(job: Job) -> str:
    if job.evicted_for is not None:
        return f"made room for {job.evicted_for}"
    if job.requeued_by is not None:
        return f"requeued by {job.requeued_by}"
    return f"drained by {job.drained_by}" if job.drained_by is not None else "stopped because it hung"


def _outcome_of_interruption(job: Job) -> str:
    if job.evicted_for is not None:
        return "preempted"
    if job.requeued_by is not None:
        return "requeued"
    return "drained" if job.drained_by is not None else "hung"


def _after_failure(
    record: JobRecord, ending: Ending, now: float, backoffs: tuple[CapacityBackoff, ...]
) -> JobTransition:
    job, why = record.job, ending.failure or "SageMaker gave no reason"
    if ending.lacks_capacity:
        ended = _with_ended_attempt(_back_off(job, now, why, job.attempt + 1, backoffs), record, now, "failed")
        return _with_failure_class(ended, FailureClass.CAPACITY.value)
    failed = ending.failed or failed_attempt(job, ending, ())
    if ending.is_error_of_sagemaker and job.carrier_attempt is not None:
        # The job is a member whose carrier or agent failed. Rules apply only to failures of the job itself.
        failed = failed_attempt(job, ending, ())
    if ending.is_error_of_sagemaker and is_built_in(failed):
        back_off = _back_off(job, now, why, job.attempt + 1, backoffs, failure=failed)
        return _with_failure_class(_with_ended_attempt(back_off, record, now, "failed"), failed.failure_class)
    failed, free = decided(job, failed, _seconds_run(job, ending, now))
    why = _with_cause(why, failed)
    if failed.action == FailureAction.FAIL:
        finished = replace(_finished(job, now, JobState.FAILED, why), failure=failed, free_retried=free)
        return _with_failure_class(_ended(record, now, finished, _cause_of_end(job, failed, why)), failed.failure_class)
    retried = job.retried + (failed.action == FailureAction.RETRY)
    changes = {"retried": retried, "free_retried": free, "failure": failed}
    new = _to_waiting(job, now, job.attempt + 1, tries=0, reason=why, **changes)
    how = f"retry {retried} of {job.retries}" if retried > job.retried else "retried free"
    ended = _ended(record, now, new, f"failed, {how}: {why}", outcome="failed")
    return _with_failure_class(ended, failed.failure_class)


def failed_attempt(
    job: Job, ending: Ending, lines: Sequence[LoggedLine], rules: Iterable[NamedRule] = ()
) -> FailedAttempt:
    """Return the classified failure of a job's attempt, with the action that the rules choose.

    :param lines: the last log lines of the attempt, of all ranks; empty if they are not known.
    """
    exit_code = exit_code_of(ending.failure)
    texts = [line.text for line in lines]
    failure = classify(ending.failure, exit_code, texts)
    rank, last = first_failed(lines)
    compared = [ending.failure or "", *texts[-MOST_COMPARED:]]
    failed = choose(job.attempt, failure, exit_code, compared, rules, rank=rank, lines=last)
    if failure.failure_class is FailureClass.HARDWARE:
        failed = replace(failed, gpu_uuids=gpus_in(ending.failure, texts))
    return failed


def _seconds_run(job: Job, ending: Ending, now: float) -> float:
    """Return the seconds from the start of an attempt to its end. Without SageMaker's times, use the queue's own."""
    began = ending.report.began
    if began is None:
        began = epoch(job.started) if job.started else now
    ended = now if ending.report.ended is None else ending.report.ended
    return max(0.0, ended - began)


def _with_cause(why: str, failed: FailedAttempt) -> str:
    """Return SageMaker's reason followed by the class and the cause, in the form that `failure_class_in` reads.

    The cause may quote the program's output. `access.program_output` redacts the end of a text, so the cause must be
    behind SageMaker's reason.
    """
    if failed.failure_class == FailureClass.UNKNOWN:
        return why
    sentence = failed.sentence.translate(_ROUND_BRACKETS)
    return f"{clipped(why, MOST_REASON_BYTES)} [{failed.failure_class}: {sentence}]"


def new_failure(transition: JobTransition) -> FailedAttempt | None:
    """Return the failure that a transition has recorded; None if it has recorded none."""
    failure = transition.new.failure
    return failure if failure is not transition.old.failure else None


def failure_class_in(reason: str | None) -> str | None:
    """Return the failure class in the reason of a failed job; None if there is none.

    Lists of finished jobs need this, because the index of finished jobs has no other attribute with the class.
    """
    found = _CLASS_IN_REASON.search(reason or "")
    return found[1] if found else None


def _cause_of_end(job: Job, failed: FailedAttempt, why: str) -> str:
    if job.retried >= job.retries:
        spent = f" after {job.retried} of {job.retries} retries" if job.retries else ""
        return f"failed{spent}: {why}"
    return f"failed, not tried again ({failed.rule}): {why}"


def _after_stop(record: JobRecord, ending: Ending, now: float, backoffs: tuple[CapacityBackoff, ...]) -> JobTransition:
    job = record.job
    if job.is_interrupted and not ending.out_of_time:
        evicted = job.evicted_for is not None
        preempted = job.with_preemption(now) if evicted else job.preempted
        in_all = job.preemptions_in_all + evicted
        waits = _to_waiting(job, now, job.attempt + 1, tries=0, preempted=preempted, preempted_in_all=in_all)
        new = replace(waits, state=JobState.PREEMPTED, was_interrupted=True)
        also = f"; it failed while it was being stopped: {ending.failure}" if ending.status == "Failed" else ""
        if not ending.is_known:
            also = f"; {job.launched} was deleted in SageMaker"
        return _ended(record, now, new, f"{_interruption(job)}{also}", outcome=_outcome_of_interruption(job))
    if ending.lacks_capacity:
        why = ending.failure or "CapacityError: its instances were not available within MaxPendingTimeInSeconds"
        return _with_ended_attempt(_back_off(job, now, why, job.attempt + 1, backoffs), record, now, "stopped")
    why = ending.out_of_time or "its training job was stopped outside the queue"
    if not ending.is_known:
        why = f"{job.launched} was deleted in SageMaker before the queue knew its outcome"
    return _ended(record, now, _finished(job, now, JobState.STOPPED, why), f"stopped: {why}")


def missing(job: Job, now: float) -> JobTransition:
    """Record that SageMaker does not know the attempt. After `MISSING_SECONDS` the attempt counts as deleted."""
    return JobTransition(job, job.with_changes(missing_since=int(now)), None, now)


def found_again(job: Job, now: float) -> JobTransition:
    """Record that SageMaker knows the attempt again."""
    return JobTransition(job, job.with_changes(missing_since=None), None, now)


# --- pieces ------------------------------------------------------------------------------------------


_WITHOUT_ATTEMPT: Mapping[str, Any] = {
    "slots": NOTHING,
    "borrowed": 0,
    "calls": (),
    "in_doubt": False,
    "evicted_for": None,
    "evicted_by": None,
    "requeued_by": None,
    "drained_by": None,
    "hung": None,
    "requeue_hung": False,
    "backoff_until": None,
    "missing_since": None,
    "parked": None,
    "stop_denied": None,
    "cut_off": None,
    "stage": None,
    "stage_at": 0,
    "valid_proofs": (),  # each call of the attempt was refused, or the attempt has ended
    "allocation": None,
    "carrier_attempt": None,
}
"""Fields of an attempt and of decisions about it, with their values for a job that waits again or is finished."""


def _finished(job: Job, now: float, state: JobState, reason: str | None) -> Job:
    return job.transition(now, state, reason=reason, last_slots=job.slots, **_WITHOUT_ATTEMPT)


def _to_waiting(job: Job, now: float, attempt: int, **changes: Any) -> Job:
    return job.transition(
        now,
        job.waiting_state,
        attempt=attempt,
        launched=None,
        started=None,
        site=None,
        **_WITHOUT_ATTEMPT,
        **changes,
    )


def _back_off(
    job: Job,
    now: float,
    message: str,
    attempt: int,
    backoffs: tuple[CapacityBackoff, ...] = (),
    **changes: Any,
) -> JobTransition:
    """Make the job wait until a backoff ends. Use the given capacity backoffs, or else a backoff of the job itself.

    If a pool is at fault, use both: the job waits longer than the pool, so that another job gets the pool's next try.
    That try shows whether the pool or this job's own request is the cause.
    """
    waiting = _to_waiting(job, now, attempt, reason=message, **changes)
    until = max((backoff.until for backoff in backoffs), default=int(now))
    if not backoffs or _is_pool_at_fault(backoffs):
        tries = job.tries + 1
        until += backoff_seconds(job.name, tries)
        waiting = replace(waiting, tries=tries, backoff_until=until)
    return JobTransition(job, waiting, f"next try at {time_text(until)}: {message}", now, backoffs=backoffs)


def _is_pool_at_fault(backoffs: tuple[CapacityBackoff, ...]) -> bool:
    """Return whether SageMaker refused fields that the pool adds to requests."""
    return any(backoff.at_fault is not None for backoff in backoffs)


def _with_ended_attempt(transition: JobTransition, record: JobRecord, now: float, outcome: str) -> JobTransition:
    """Return the same transition with the end of the recorded attempt added."""
    job = record.job
    instances = sum(job.slots.values()) or None
    ended = EndedAttempt(
        job.attempt, job.launched, job.started, iso(now), outcome, instances, job.carrier_attempt, site=job.site
    )
    return replace(transition, ended=ended, record=record)


def _with_failure_class(transition: JobTransition, failure_class: str) -> JobTransition:
    """Return the same transition with the class of the failure in the ended attempt."""
    assert transition.ended is not None
    return replace(transition, ended=replace(transition.ended, failure_class=failure_class))


def _with_attempt_record(transition: JobTransition, report: EndReport) -> JobTransition:
    """Return the same transition with the attempt record of the ended attempt added."""
    if transition.record is None or transition.ended is None:
        return transition
    account = attempt_record(transition.record, transition.ended, report)
    failure = new_failure(transition)
    if failure is not None and failure.gpu_uuids:
        account = replace(account, gpu_uuids=failure.gpu_uuids)
    return replace(transition, account=account)


def _ended(record: JobRecord, now: float, new: Job, cause: str, outcome: str | None = None) -> JobTransition:
    return _with_ended_attempt(JobTransition(record.job, new, cause, now), record, now, outcome or new.state.value)
