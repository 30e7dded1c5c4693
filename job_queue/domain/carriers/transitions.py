"""What happens to carriers and members beside what happens to every job (`state_machine`)."""

from collections.abc import Mapping
from dataclasses import replace

from job_queue.domain.backoff import backoff_seconds
from job_queue.domain.job import Job, LaunchCall, epoch
from job_queue.domain.state_machine import Transition, begin
from job_queue.scheduler import JobState, Seat, clock


def assign(member: Job, seat: Seat, carrier: Job, call: LaunchCall, now: float) -> Transition:
    """Intend to assign a member to a carrier: it takes GPUs, and no slots."""
    begun = begin(member, {}, call, now)
    gpus = ", ".join(map(str, seat.gpus))
    new = replace(begun.new, seat=seat, on_board=carrier.launched)
    return replace(begun, new=new, cause=f"assigned to GPU {gpus} of {carrier.launched}")


def emptied(carrier: Job, now: float) -> Transition:
    """Nobody is on a carrier any more."""
    return Transition(carrier, carrier.with_changes(empty_since=int(now)), None, now)


def occupied(carrier: Job, now: float) -> Transition:
    """Somebody is on a carrier that was empty."""
    return Transition(carrier, carrier.with_changes(empty_since=None), None, now)


def close(carrier: Job, now: float) -> Transition:
    """Intend to stop a carrier that nobody is on."""
    return Transition(carrier, carrier.transition(now, JobState.STOPPING), "stopping: nobody is on it", now)


def give_up(carrier: Job, now: float) -> Transition:
    """A carrier that waits was never launched, or its launch was refused: another one is launched, if at all."""
    why = carrier.reason or "it was never launched"
    new = carrier.transition(now, JobState.STOPPED, reason=why, backoff_until=None, parked=None, unheard=())
    return Transition(carrier, new, f"given up: {why}", now)


def back_off_with(member: Job, carrier: Job, now: float) -> Transition:
    """Who a carrier was to be launched for waits as long as a job of its own whose launch was refused would."""
    tries = member.tries + 1
    until = int(now) + backoff_seconds(member.name, tries)
    new = member.with_changes(
        tries=tries,
        refusals=member.refusals + 1,
        refused=member.refused_until(now),
        backoff_until=until,
        reason=carrier.reason,
        parked=None,
    )
    return Transition(member, new, f"next try at {clock(until)}: {carrier.reason}", now)


def introduced(carrier: Job, number: str, now: float) -> Transition:
    """Record the public number of a carrier's agent, once and for all: members can be assigned from now on."""
    return Transition(carrier, carrier.with_changes(agent_key=number), "its agent has started", now)


def _to_be_stopped(carrier: Job, why: str, now: float) -> Transition:
    return Transition(carrier, carrier.with_changes(cancelled=True, reason=why), f"to be stopped: {why}", now)


def stop_as_stuck(carrier: Job, member: Job, now: float) -> Transition:
    """Stop a carrier one of whose members does not end."""
    why = f"{member.name} has not stopped since {clock(epoch(member.since))}"
    return _to_be_stopped(carrier, why, now)


def stop_as_overdue(carrier: Job, member: Job, now: float) -> Transition:
    """Stop a carrier one of whose members goes on long after its `MaxRuntimeInSeconds`."""
    why = f"{member.name} has not ended after its MaxRuntimeInSeconds"
    return _to_be_stopped(carrier, why, now)


def stop_as_silent(carrier: Job, since: float, now: float) -> Transition:
    """Nothing was heard of a carrier's agent for too long: the carrier is stopped."""
    why = f"nothing was heard of its agent since {clock(since)}"
    return _to_be_stopped(carrier, why, now)


def evict_all(members: Mapping[str, Job], carrier: Job, claimant: str, rule: str, now: float) -> list[Transition]:
    """All on board leave with their carrier."""
    cause = f"making room for {claimant} ({rule}), with {carrier.launched}"
    return [
        Transition(job, job.transition(now, JobState.STOPPING, evicted_for=claimant, evicted_by=rule), cause, now)
        for job in members.values()
        if job.on_board == carrier.launched and job.state is JobState.RUNNING and not job.cancelled
    ]
