"""Convert carriers to jobs of one instance for `plan_instances`, with priority, runtime, and the cost of a stop."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from job_queue.scheduler.carriers.packing import Bin, Packing
from job_queue.scheduler.model import ActiveJob, Carrier, JobState, WaitingJob
from job_queue.scheduler.ordering import EMPTY_CARRIER_PRIORITY


def carriers_as_jobs(packing: Packing, now: float) -> Iterable[ActiveJob]:
    """Yield each carrier as a job of one instance.

    The job's priority and number of preemptions are the highest of the carrier's members. The cost of stopping the job
    is the members' lost GPU-seconds per GPU of the carrier. A running carrier on which no member stays or joins counts
    as stopping, so its instance counts as being freed. A carrier whose stop was just denied counts as running.
    """
    return (carrier_as_job(packing, carrier, now) for carrier in packing.carriers.values())


def carrier_as_job(packing: Packing, carrier: Carrier, now: float) -> ActiveJob:
    """Return a carrier as a job of one instance. The job is cached until the carrier's members change."""
    if carrier.name not in packing.as_jobs:
        packing.as_jobs[carrier.name] = _as_job(packing, carrier, now)
    return packing.as_jobs[carrier.name]


def _as_job(packing: Packing, carrier: Carrier, now: float) -> ActiveJob:
    staying, joining = packing.staying(carrier.name), packing.joining[carrier.name]
    there: Sequence[ActiveJob | WaitingJob] = (*staying, *joining)
    left = carrier.state is JobState.RUNNING and packing.is_emptied(carrier.name) and not carrier.stop_denied
    leaving = [job for job in packing.members[carrier.name] if job.state is JobState.STOPPING]
    state = JobState.STOPPING if left else carrier.state
    return ActiveJob(
        name=carrier.name,
        project=carrier.project,
        priority=max((job.priority for job in there), default=EMPTY_CARRIER_PRIORITY),
        slots={carrier.pool: 1},
        state=state,
        entered=min((job.entered for job in there), default=carrier.started),
        started=max((job.started for job in staying if job.started is not None), default=carrier.started),
        preemptible=carrier.preemptible,
        max_runtime=_longest_remaining([(_start(job, now), job.max_runtime) for job in there], staying, carrier),
        expected=_longest_remaining([(_start(job, now), job.expected) for job in there], staying, carrier),
        idle_since=_idle_since(staying) if not joining else None,
        stop_denied=carrier.stop_denied or any(job.stop_denied for job in staying),
        comes_back=state is JobState.STOPPING and bool(leaving),
        owner=carrier.owner or min((job.owner for job in there), default=""),
        held_since=carrier.started,
        lost=sum(packing.work_lost(job) for job in staying) / carrier.gpus,
        preemptions=max((job.preemptions for job in staying), default=0),
        is_kept=any(job.is_kept for job in staying),
    )


def _start(job: ActiveJob | WaitingJob, now: float) -> float:
    return now if isinstance(job, WaitingJob) or job.started is None else job.started


def _longest_remaining(
    times: Sequence[tuple[float, float | None]], staying: Sequence[ActiveJob], carrier: Carrier
) -> float | None:
    """Return the seconds from the latest start of a member until all members have ended, or None if not known.

    :param times: start and runtime of each member.
    """
    ends = [start + runs for start, runs in times if runs is not None]
    if not ends or len(ends) < len(times):
        return None
    begun = max((job.started for job in staying if job.started is not None), default=carrier.started)
    return max(0.0, max(ends) - begun)


def _idle_since(staying: Sequence[ActiveJob]) -> float | None:
    """Return the time since which all members have been idle, or None if a member is not known to be idle."""
    times = [job.idle_since for job in staying if job.idle_since is not None]
    return max(times) if times and len(times) == len(staying) else None


def bin_as_waiting_job(it: Bin) -> WaitingJob:
    """Return a waiting job that stands for a new carrier: the leader, with the longest runtime of all members."""
    return replace(
        it.leader,
        max_runtime=_largest_if_known([job.max_runtime for job in it.members]),
        expected=_largest_if_known([job.expected for job in it.members]),
        group=None,  # the places in groups were counted when the members were packed
        max_parallel=None,
    )


def _largest_if_known(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None
