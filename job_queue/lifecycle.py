"""A job's life: every transition there is, each a pure function from a job to its Move.

    pending ──> starting ──> running ──> completed | failed | stopped
                 │    ^        │
    refused: back│    │        └─> stopping ──> preempted ──> starting
    to waiting <─┘    └── preempted

The rules are those of the design's "A job's life" and "Launching exactly once".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from job_queue.backoff import backoff_seconds
from job_queue.names import apply_qstamp
from job_queue.pauses import Pause
from job_queue.records import Call, Item, Job, JobRecord, iso
from job_queue.scheduler import JobState, clock

MISSING_SECONDS = 15 * 60  # an attempt that SageMaker has not known for so long was deleted

# How SageMaker's FailureReason begins when it is not the job's fault.
_LACK_OF_CAPACITY = "CapacityError"
_FAULT_OF_SAGEMAKER = "InternalServerError"
_OUT_OF_TIME = {
    "MaxRuntimeExceeded": "it reached its MaxRuntimeInSeconds",
    "MaxWaitTimeExceeded": "it reached its MaxWaitTimeInSeconds",
}


@dataclass(frozen=True, slots=True)
class Move:
    """A transition of one job, from what was read to what it becomes."""

    old: Job
    new: Job
    cause: str | None  # goes into the history; None: a note that is no transition
    ended: Item | None = None  # the attempt that ended with it
    record: JobRecord | None = None  # the whole row, where it was read: a very long history is cut then
    pauses: tuple[Pause, ...] = ()  # of pools, that begin or go on with it


@dataclass(frozen=True, slots=True)
class Ending:
    """How SageMaker says that an attempt ended."""

    status: str  # Completed, Failed or Stopped
    secondary: str = ""
    failure: str | None = None
    starved: bool = False  # it was stopped because its instances did not come in time

    @property
    def lacks_capacity(self) -> bool:
        """Whether SageMaker had no instances for it."""
        return self.starved or (self.failure or "").startswith(_LACK_OF_CAPACITY)


# --- launching ---------------------------------------------------------------------------------------


def begin(job: Job, slots: Mapping[str, int], call: Call, now: float) -> Move:
    """Intend a launch: the slots are taken, and one call is on its way."""
    new = job.then(
        now,
        JobState.STARTING,
        slots=dict(slots),
        launched=apply_qstamp(job.name, job.attempt),
        calls=(call,),
        started=None,
        backoff_until=None,
        evicted_for=None,
        missing_since=None,
        reason=None,
    )
    return Move(job, new, f"launching {new.launched}")


def launch_again(job: Job, call: Call, now: float) -> Move:
    """Ask again for an attempt whose launch was never answered, under the same name."""
    may_land = tuple(older for older in job.calls if older.dead >= now)
    return Move(job, job.touched(calls=(*may_land, call)), None)


def accepted(job: Job, now: float) -> Move:
    """SageMaker has the attempt. Calls still under way can only be refused: the name is taken."""
    new = job.then(now, JobState.RUNNING, started=iso(now), calls=(), missing_since=None)
    return Move(job, new, f"SageMaker accepted {job.launched}")


def refused(job: Job, asked: int, words: str, *, for_good: bool, now: float, pauses: tuple[Pause, ...] = ()) -> Move:
    """SageMaker refused the call that was asked at that time.

    The launch is given up only if no other call may still land: one that was not dead when this one was asked.

    :param pauses: where it was refused for lack of instances, what that means for the pool.
    """
    may_land = tuple(call for call in job.calls if call.asked != asked and call.dead > asked)
    if may_land:
        return Move(job, job.touched(calls=may_land, reason=words), None)
    if job.cancelled:
        return Move(job, _finished(job, now, JobState.STOPPED, "cancelled"), "cancelled; its launch was refused")
    if for_good:
        return Move(job, _finished(job, now, JobState.FAILED, words), f"refused by SageMaker: {words}")
    return _back_off(job, now, words, job.attempt, pauses)


def name_is_anothers(job: Job, *, alive: bool, now: float) -> Move:
    """The attempt's name belongs to a training job that is not this submission's.

    Our own calls can only be refused, so giving up is safe. While the other one is alive and of this
    queue, it is waited for: two attempts under one job name must not run at once.
    """
    if job.cancelled:
        return Move(job, _finished(job, now, JobState.STOPPED, "cancelled"), "cancelled")
    if alive:
        return _back_off(job, now, f"an earlier {job.launched} is still being stopped", job.attempt)
    new = _to_waiting(job, now, job.attempt + 1)
    return Move(job, new, f"the name {job.launched} is taken by an older training job")


def adopted(job: Job, slots: Mapping[str, int], now: float) -> Move:
    """The attempt that the waiting job would launch next is alive in SageMaker after all."""
    new = job.then(
        now,
        JobState.RUNNING,
        slots=dict(slots),
        launched=apply_qstamp(job.name, job.attempt),
        started=iso(now),
        backoff_until=None,
        evicted_for=None,
    )
    return Move(job, new, f"found {new.launched} running")


# --- leaving -----------------------------------------------------------------------------------------


def evict(job: Job, claimant: str, rule: str, now: float) -> Move:
    """Intend to stop a running attempt so that another job can start."""
    new = job.then(now, JobState.STOPPING, evicted_for=claimant, evicted_by=rule)
    return Move(job, new, f"making room for {claimant} ({rule})")


def stop_cancelled(job: Job, now: float) -> Move:
    """Intend to stop the running attempt of a job that was cancelled."""
    return Move(job, job.then(now, JobState.STOPPING), "stopping: cancelled")


def cancel(job: Job, by: str, now: float) -> Move:
    """The user does not want it: a waiting job ends at once, a live one is flagged and ends with its attempt."""
    if job.state.waits:
        return Move(job, _finished(job, now, JobState.STOPPED, f"cancelled by {by}"), f"cancelled by {by}")
    return Move(job, job.touched(cancelled=True), f"cancel requested by {by}")


def change(job: Job, by: str, *, priority: int, held: bool) -> Move:
    """Another priority, or held or released. A waiting job takes its new place in its line at once."""
    told = [f"priority {priority}"] if priority != job.priority else []
    if held != job.held:
        told.append("held" if held else "released")
    return Move(job, job.touched(priority=priority, held=held), f"{' and '.join(told)} by {by}")


def end(record: JobRecord, ending: Ending, now: float, pauses: tuple[Pause, ...] = ()) -> Move:
    """The recorded attempt has ended; ends are final.

    Completed is completed, also while stopping. Stopped is preempted only if we asked for it to make room,
    the user did not cancel, and it was not out of its time. Lack of capacity is nobody's failure.

    :param pauses: where it ended for lack of instances, what that means for the pool.
    """
    job = record.job
    if ending.status == "Completed":
        return _ended(record, now, _finished(job, now, JobState.COMPLETED, None), "completed")
    if job.cancelled:
        return _ended(record, now, _finished(job, now, JobState.STOPPED, "cancelled"), "stopped: cancelled")
    if ending.status == "Failed":
        return _failed(record, ending, now, pauses)
    return _stopped(record, ending, now, pauses)


def _failed(record: JobRecord, ending: Ending, now: float, pauses: tuple[Pause, ...]) -> Move:
    job, why = record.job, ending.failure or "SageMaker gave no reason"
    if ending.lacks_capacity or why.startswith(_FAULT_OF_SAGEMAKER):
        return _ended_by(_back_off(job, now, why, job.attempt + 1, pauses), record, now, "failed")
    if job.retried < job.retries:
        new = _to_waiting(job, now, job.attempt + 1, retried=job.retried + 1, tries=0, reason=why)
        return _ended(record, now, new, f"failed, retry {new.retried} of {new.retries}: {why}", outcome="failed")
    spent = f" after {job.retried} of {job.retries} retries" if job.retries else ""
    return _ended(record, now, _finished(job, now, JobState.FAILED, why), f"failed{spent}: {why}")


def _stopped(record: JobRecord, ending: Ending, now: float, pauses: tuple[Pause, ...]) -> Move:
    job = record.job
    out_of_time = _OUT_OF_TIME.get(ending.secondary)
    if job.state is JobState.STOPPING and job.evicted_for and not out_of_time:
        new = replace(_to_waiting(job, now, job.attempt + 1, tries=0), state=JobState.PREEMPTED, ran=True)
        return _ended(record, now, new, f"made room for {job.evicted_for}", outcome="preempted")
    if ending.lacks_capacity:
        why = ending.failure or "CapacityError: its instances did not come in the time that it may be pending"
        return _ended_by(_back_off(job, now, why, job.attempt + 1, pauses), record, now, "stopped")
    why = out_of_time or "its training job was stopped outside the queue"
    return _ended(record, now, _finished(job, now, JobState.STOPPED, why), f"stopped: {why}")


def missing(record: JobRecord, now: float) -> Move:
    """SageMaker does not know the recorded attempt. Not known for long enough, it was deleted."""
    job = record.job
    if job.missing_since is None:
        return Move(job, job.touched(missing_since=int(now)), None)
    why = f"SageMaker does not know {job.launched} any more: it was deleted"
    state = JobState.STOPPED if job.cancelled else JobState.FAILED
    return _ended(record, now, _finished(job, now, state, why), f"{state}: {why}")


def missing_at_launch(job: Job, asked: int, now: float) -> Move:
    """The name of the attempt is neither free nor known to SageMaker. The call that was asked then cannot land."""
    calls = tuple(call for call in job.calls if call.asked != asked)
    return Move(job, job.touched(calls=calls, missing_since=job.missing_since or int(now)), None)


def found_again(job: Job) -> Move:
    """SageMaker knows the attempt after all."""
    return Move(job, job.touched(missing_since=None), None)


# --- pieces ------------------------------------------------------------------------------------------


def _finished(job: Job, now: float, state: JobState, reason: str | None) -> Job:
    return job.then(
        now,
        state,
        reason=reason,
        slots={},
        calls=(),
        evicted_for=None,
        evicted_by=None,
        backoff_until=None,
        missing_since=None,
    )


def _to_waiting(job: Job, now: float, attempt: int, **changes: Any) -> Job:
    return job.then(
        now,
        job.waiting_state,
        attempt=attempt,
        launched=None,
        started=None,
        slots={},
        calls=(),
        evicted_for=None,
        evicted_by=None,
        missing_since=None,
        **changes,
    )


def _back_off(job: Job, now: float, words: str, attempt: int, pauses: tuple[Pause, ...] = ()) -> Move:
    """Not now. Where the pool is paused, that says when it goes on; else the job waits by itself."""
    waiting = _to_waiting(job, now, attempt, reason=words)
    if pauses:
        until = max(pause.until for pause in pauses)
    else:
        tries = job.tries + 1
        until = int(now) + backoff_seconds(job.name, tries)
        waiting = replace(waiting, tries=tries, backoff_until=until)
    return Move(job, waiting, f"next try at {clock(until)}: {words}", pauses=pauses)


def _ended_by(move: Move, record: JobRecord, now: float, outcome: str) -> Move:
    """The transition, made by the end of the recorded attempt."""
    return replace(move, ended=_attempt(record.job, now, outcome), record=record)


def _ended(record: JobRecord, now: float, new: Job, cause: str, outcome: str | None = None) -> Move:
    return _ended_by(Move(record.job, new, cause), record, now, outcome or new.state.value)


def _attempt(job: Job, now: float, outcome: str) -> Item:
    return {
        "attempt": job.attempt,
        "trainingJobName": job.launched,
        "started": job.started,
        "ended": iso(now),
        "outcome": outcome,
    }
