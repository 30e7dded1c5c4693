"""The record of an ended attempt (its owner, instances, times and outcome), and past use as a sum of records.

The time of an attempt has three parts without gaps: the job waits, SageMaker provisions instances, the instances run.
The times are SageMaker's own if SageMaker has reported them, so that sums agree with SageMaker's records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil

from job_queue.domain.fleet.sites import Site
from job_queue.domain.job import INTERRUPTED, EndedAttempt, Job, JobRecord, epoch, iso
from job_queue.domain.policy import project_of
from job_queue.scheduler import PastUse, Policy, UseLedger

_LOSING = INTERRUPTED | {"failed"}  # outcomes after which work since the last checkpoint is lost
CLOCK_SECONDS = 3600  # tolerance for a reported time after the recorded end, or before the job's submission


@dataclass(frozen=True, slots=True)
class EndReport:
    """The facts about an ended attempt that its `Job` does not contain. Times are epoch seconds."""

    created: float | None = None  # time at which SageMaker accepted the attempt
    began: float | None = None  # time at which the attempt got its instances and billing begins; None: it got none
    ended: float | None = None  # time at which the instances stopped working for the attempt
    instances: Mapping[str, int] = field(default_factory=dict)  # instance type -> instances
    market: str | None = None  # purchase option of the attempt's pool
    department: str | None = None  # department of the job's project
    checkpoint: float | None = None  # time of the newest checkpoint that the queue has seen
    keeps_checkpoints: bool = True  # False only if the attempt cannot have written checkpoints
    image: str | None = None  # image, or name of the algorithm
    shared_pool: str | None = None  # for a member: pool of its carrier; None: not known


@dataclass(frozen=True, slots=True)
class MeasuredUtilization:
    """The utilization of an attempt's GPUs and memory, in whole percent of all its GPUs or of all its memory.

    None means that the figure is not known, which is not the same as 0.
    """

    gpu_mean: int | None = None
    gpu_p95: int | None = None  # 95th percentile over time
    gpu_memory_mean: int | None = None
    gpu_memory_p95: int | None = None
    memory_mean: int | None = None
    memory_p95: int | None = None
    idle: int | None = None  # seconds in which the GPUs of all instances were idle


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt that has ended. Times are ISO texts."""

    job: str
    submission: str
    attempt: int
    training_job_name: str
    project: str
    owner: str  # ARN
    outcome: str  # outcome, as in `EndedAttempt`
    priority: int
    slots: Mapping[str, int]  # pool -> instances; for a member: its carrier's pool -> 0, or empty if unknown
    instances: Mapping[str, int]  # instance type -> instances; empty: not known
    submitted: str  # time of the job's submission
    waiting_since: str  # time of the job's submission, or end of the previous attempt
    launched: str  # time at which SageMaker accepted the attempt
    ended: str
    began: str | None = None  # time at which the attempt got its instances; None: it never had any
    department: str | None = None
    group: str | None = None
    market: str | None = None
    made_room_for: str | None = None  # claimant for which the attempt was stopped
    borrowed: int = 0  # instances beyond the project's quota at the start
    lost: int | None = None  # lost seconds of work on each instance; None: not known, or an outcome that loses nothing
    max_runtime: int | None = None  # seconds that the request allows
    image: str | None = None
    gpus: int | None = None  # for a member: tenths of GPUs of one instance
    carrier: str | None = None  # for a member: its carrier, to which the instance is charged
    carries: int | None = None  # for a carrier: its GPUs
    hung: int | None = None  # seconds for which the attempt hung before its end; None: no hang was noticed
    utilization: MeasuredUtilization | None = None  # added some minutes after the end; None: not measured
    failure_class: str | None = None  # None: the attempt did not fail, or an earlier version recorded it
    gpu_uuids: tuple[str, ...] | None = None  # the GPUs that the log of a hardware failure names
    site: Site | None = None  # the account and region; None: the home site


def attempt_record(record: JobRecord, ended: EndedAttempt, report: EndReport) -> AttemptRecord:
    """Return the record of a job's current attempt, which has ended.

    :param record: the job as it was before the end.
    """
    job = record.job
    launched, began, end = _times(job, epoch(ended.ended), report)
    before = record.attempts[-1].ended if record.attempts else job.entered
    slots = dict(job.slots) if job.gpus is None else {report.shared_pool: 0} if report.shared_pool else {}
    return AttemptRecord(
        job=job.name,
        submission=job.submission,
        attempt=ended.attempt,
        training_job_name=ended.training_job_name or "",
        project=job.project,
        owner=job.owner,
        outcome=ended.outcome,
        priority=job.priority,
        slots=slots,
        instances=dict(report.instances),
        submitted=job.entered,
        waiting_since=iso(min(epoch(before), launched)),
        launched=iso(launched),
        ended=iso(end),
        began=None if began is None else iso(began),
        department=report.department,
        group=job.group,
        market=report.market,
        made_room_for=job.evicted_for if ended.outcome == "preempted" else None,
        borrowed=job.borrowed,
        lost=_lost_seconds(began, end, report) if ended.outcome in _LOSING else None,
        max_runtime=job.max_runtime,
        image=report.image,
        gpus=job.gpus,
        carrier=job.allocation.carrier if job.allocation else None,
        carries=job.carries,
        failure_class=ended.failure_class,
        site=ended.site,
        hung=None if job.hung is None else round(max(0.0, end - max(job.hung, _default(began, launched)))),
    )


def run_seconds(job: Job, at: float, report: EndReport) -> int:
    """Return the seconds from the arrival of an attempt's instances until its end, at least 1; 0 if no instances came.

    :param at: the time at which the end is recorded, in epoch seconds.
    """
    _, began, end = _times(job, at, report)
    return 0 if began is None else max(1, ceil(end - began))


def _times(job: Job, at: float, report: EndReport) -> tuple[float, float | None, float]:
    """Return when an attempt was launched, got its instances (None: never) and ended, in epoch seconds.

    Ignore reported times outside the job's life (tolerance: `CLOCK_SECONDS`).
    """
    earliest, latest = epoch(job.entered) - CLOCK_SECONDS, at + CLOCK_SECONDS

    def plausible(time: float | None) -> float | None:
        return time if time is not None and earliest <= time <= latest else None

    end = _default(plausible(report.ended), at)
    launched = min(_default(plausible(report.created), epoch(job.started or job.since)), end)
    began = plausible(report.began)
    return launched, None if began is None else min(max(began, launched), end), end


def _default(time: float | None, otherwise: float) -> float:
    return otherwise if time is None else time


def _lost_seconds(began: float | None, ended: float, report: EndReport) -> int | None:
    """Return the seconds of work that a preemption, a requeue or a failure has lost; None: not known.

    The work since the newest known checkpoint is lost, or all work if there can be no checkpoint. The number is an
    upper bound, because there may be a later checkpoint.
    """
    if began is None:
        return 0
    if report.checkpoint is not None:
        return round(max(0.0, ended - max(began, report.checkpoint)))
    return None if report.keeps_checkpoints else round(ended - began)


def borrowed_by(job: Job, slots: Mapping[str, int], used: Mapping[str, int], policy: Policy) -> int:
    """Return the number of instances beyond the project's quota that a starting job gets.

    :param used: pool -> instances that the project already has.
    """
    project = project_of(policy, job.project)
    quota = project.quota if project else {}
    return sum(min(count, max(0, used.get(pool, 0) + count - quota.get(pool, 0))) for pool, count in slots.items())


class PastUseOfAttempts:
    """The sum of attempt records under one policy. Another policy needs a new sum over all records.

    The use of an attempt is its instances times the seconds from their arrival until its end, as in `smq usage`. An
    attempt that never had instances does not count. Memory is bounded for any number of records (`UseLedger`). A
    record that is added twice counts twice.

    :param past: earlier use, as of `at` (epoch seconds).
    """

    def __init__(self, policy: Policy, past: Mapping[str, PastUse] | None = None, at: float = 0.0) -> None:
        self._ledger = UseLedger(policy, past, at)

    def add(self, records: Iterable[AttemptRecord]) -> None:
        """Add attempts that have ended. The order matters only for attempts in past periods of a budget."""
        for record in records:
            if record.began is not None:
                self._ledger.enter(record.project, record.owner, record.slots, epoch(record.began), epoch(record.ended))

    def at(self, now: float) -> Mapping[str, PastUse]:
        """Return the `past_use` of a snapshot, by project. `now` must not be before the latest added end."""
        return self._ledger.past_use(now)
