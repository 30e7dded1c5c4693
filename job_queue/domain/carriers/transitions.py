"""Transitions of carriers and members only: assign, empty, close, give up, stop. `state_machine` has all others."""

from collections.abc import Mapping
from dataclasses import replace

from job_queue.domain.accounting.ending import Ending
from job_queue.domain.backoff import backoff_seconds
from job_queue.domain.job import Job, LaunchCall, epoch
from job_queue.domain.state_machine import JobTransition, record_launch_intent
from job_queue.scheduler import GpuAllocation, JobState, time_text


def assign(member: Job, allocation: GpuAllocation, carrier: Job, call: LaunchCall, now: float) -> JobTransition:
    """Record the intent to assign a member to a carrier. The member takes GPUs, and no slots."""
    begun = record_launch_intent(member, {}, call, now)
    gpus = ", ".join(map(str, allocation.gpus))
    new = replace(begun.new, allocation=allocation, carrier_attempt=carrier.launched)
    return replace(begun, new=new, cause=f"assigned to GPU {gpus} of {carrier.launched}")


def emptied(carrier: Job, now: float) -> JobTransition:
    """Record that a carrier has no members."""
    return JobTransition(carrier, carrier.with_changes(empty_since=int(now)), None, now)


def occupied(carrier: Job, now: float) -> JobTransition:
    """Record that a carrier has members again."""
    return JobTransition(carrier, carrier.with_changes(empty_since=None), None, now)


def close(carrier: Job, now: float) -> JobTransition:
    """Record the intent to stop an empty carrier."""
    return JobTransition(carrier, carrier.transition(now, JobState.STOPPING), "stopping: it has no members", now)


def give_up(carrier: Job, now: float) -> JobTransition:
    """Give up a waiting carrier, which was never launched or was refused. A new carrier is launched if needed."""
    why = carrier.reason or "it was never launched"
    new = carrier.transition(now, JobState.STOPPED, reason=why, backoff_until=None, parked=None, valid_proofs=())
    return JobTransition(carrier, new, f"given up: {why}", now)


def back_off_with(member: Job, carrier: Job, now: float) -> JobTransition:
    """Record a backoff of a member whose carrier's launch was refused, as if the member itself had been refused."""
    return _back_off(member, carrier.reason, now, refused=member.refused_until(now))


def back_off_after_failure(member: Job, carrier: Job, now: float) -> JobTransition:
    """Record a backoff of a member whose carrier has failed before its agent had started.

    The failure counts in `refusals`, so that no job is stopped again and again for such a member.
    """
    why = carrier.reason or "SageMaker gave no reason"
    message = f"Its carrier {carrier.name} failed before its agent had started: {why}"
    return _back_off(member, message, now, refused=None)


def _back_off(member: Job, why: str | None, now: float, *, refused: tuple[int, int] | None) -> JobTransition:
    tries = member.tries + 1
    until = int(now) + backoff_seconds(member.name, tries)
    new = member.with_changes(
        tries=tries,
        refusals=member.refusals + 1,
        refused=refused,
        backoff_until=until,
        reason=why,
        parked=None,
    )
    return JobTransition(member, new, f"next try at {time_text(until)}: {why}", now)


def failed_without_agent(carrier: Job, ending: Ending) -> bool:
    """Return whether a carrier has failed before its agent had started. Lack of instances is no such failure.

    A carrier that the queue has cancelled counts as failed. In contrast to a user, the queue records a reason.

    :param carrier: the carrier before its end.
    """
    if carrier.agent_key is not None or ending.lacks_capacity:
        return False
    by_itself = ending.status in ("Completed", "Failed") and carrier.state is not JobState.STOPPING
    return by_itself or (carrier.cancelled and carrier.reason is not None)


def agent_started(carrier: Job, number: str, now: float) -> JobTransition:
    """Record the public number of a carrier's agent. Members can be assigned from now on; the number never changes."""
    return JobTransition(carrier, carrier.with_changes(agent_key=number), "its agent has started", now)


def _to_be_stopped(carrier: Job, why: str, now: float) -> JobTransition:
    return JobTransition(carrier, carrier.with_changes(cancelled=True, reason=why), f"to be stopped: {why}", now)


def stop_as_stuck(carrier: Job, member: Job, now: float) -> JobTransition:
    """Record that a carrier is to be stopped, because one of its members does not stop."""
    why = f"{member.name} has not stopped since {time_text(epoch(member.since))}"
    return _to_be_stopped(carrier, why, now)


def stop_as_overdue(carrier: Job, member: Job, now: float) -> JobTransition:
    """Record that a carrier is to be stopped, because a member runs long after the member's `MaxRuntimeInSeconds`."""
    why = f"{member.name} has not ended after its MaxRuntimeInSeconds"
    return _to_be_stopped(carrier, why, now)


def stop_as_silent(carrier: Job, since: float, now: float) -> JobTransition:
    """Record that a carrier is to be stopped, because its agent has sent no report for too long."""
    why = f"nothing was heard of its agent since {time_text(since)}"
    return _to_be_stopped(carrier, why, now)


def evict_all(members: Mapping[str, Job], carrier: Job, claimant: str, rule: str, now: float) -> list[JobTransition]:
    """Evict all running members of a carrier, so that the carrier becomes empty and can be stopped."""
    cause = f"making room for {claimant} ({rule}), with {carrier.launched}"
    return [
        JobTransition(job, job.transition(now, JobState.STOPPING, evicted_for=claimant, evicted_by=rule), cause, now)
        for job in members.values()
        if job.carrier_attempt == carrier.launched and job.state is JobState.RUNNING and not job.cancelled
    ]
