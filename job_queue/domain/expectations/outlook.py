"""The outlook: the latest computed expectations about live jobs, such as runtimes and starts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from job_queue.domain.expectations.past_estimates import StartInterval, interval
from job_queue.domain.expectations.unsaved import SavedWork
from job_queue.domain.job import Job, epoch, iso
from job_queue.prediction.conformal import UsualErrors
from job_queue.scheduler import (
    ActiveJob,
    Backfill,
    JobState,
    Order,
    PastUse,
    Policy,
    Slots,
    Snapshot,
    WaitingJob,
)
from job_queue.simulation.forecast import Estimate
from job_queue.simulation.forecast_input import UNKNOWN_WORK, ForecastInput, with_repeated_arrivals
from job_queue.simulation.workload import Overheads, SimulatedJob

ARRIVAL_SECONDS = 24 * 3600.0  # a forecast repeats the submissions of this period
# A plan adds the attempts that ended in this period to the past use, unless the outlook already includes them.
RECENT_SECONDS = 15 * 60.0
STALE_SECONDS = 5 * 60  # age after which expected starts and ends are not shown
DEFAULT_LIMIT_SECONDS = 24 * 3600  # SageMaker's MaxRuntimeInSeconds; limits of this length predict no runtime


@dataclass(frozen=True, slots=True)
class Arrival:
    """A recent submission, which forecasts repeat."""

    name: str
    project: str
    owner: str
    priority: int
    demand: tuple[Slots, ...]  # alternatives, best first
    submitted: float  # epoch seconds
    runtime: float | None = None  # seconds that the job ran; None: the job is live
    gpus: int | None = None  # for a member: tenths of GPUs of one instance


@dataclass(frozen=True, slots=True)
class Outlook:
    """The expectations about live jobs, and all data that a new forecast needs."""

    at: float = 0.0  # epoch seconds of the computation
    expected: Mapping[str, float] = field(default_factory=dict)  # live job -> seconds from its launch until its end
    # live job -> equally likely values of the seconds from its launch until its end, rising
    likely: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    arrivals: tuple[Arrival, ...] = ()
    provisioning: float = Overheads().provisioning  # seconds until the instances of a launch are ready
    past_use: Mapping[str, PastUse] = field(default_factory=dict)  # by project, if plans depend on past use
    counted: frozenset[str] = frozenset()  # training jobs of the last `RECENT_SECONDS` that `past_use` includes
    estimates: Mapping[str, Estimate] = field(default_factory=dict)  # waiting job -> its expected start
    errors: UsualErrors = UsualErrors()  # the usual errors of estimated starts
    idle: Mapping[str, float] = field(default_factory=dict)  # training job -> epoch s since which its GPUs are idle
    idle_at: float = 0.0  # epoch seconds of the last look-up of idle jobs
    saved_work: SavedWork = SavedWork()  # long-running preemptible jobs with and without checkpoints
    read_at: float | None = None  # epoch seconds of a reader's request; None: no reader, or the outlook is too old

    def for_reader(self, now: float) -> "Outlook":
        """Return the outlook for a reader at `now`, without starts and ends if it is older than `STALE_SECONDS`."""
        old = now > self.at + STALE_SECONDS
        return replace(self, estimates={}, read_at=None) if old else replace(self, read_at=now)

    def interval(self, job: Job) -> StartInterval | None:
        """Return the interval in which a waiting job may start; None if there is no estimate."""
        estimate = self.estimates.get(job.name)
        return interval(estimate, self.at, epoch(job.entered), self.errors) if estimate else None

    def end(self, job: Job) -> float | None:
        """Return the expected end of a live job in epoch seconds.

        Without an expected runtime, use the job's time limit if it is below `DEFAULT_LIMIT_SECONDS`. None: the end is
        unknown, the outlook is too old, or the job is stopping or on hold.
        """
        expected = self.expected.get(job.name, self._longest(job))
        if self.read_at is None or expected is None or job.state is JobState.STOPPING:
            return None
        if job.state.waits and job.held:
            return None
        if job.state.waits:
            estimate = self.estimates.get(job.name)
            start = estimate.start if estimate else None
        else:
            start = epoch(job.started) if job.state.holds_slots and job.started else None
        return None if start is None else max(self.read_at, start + expected)

    def _longest(self, job: Job) -> float | None:
        """Return the longest time from a job's launch to its end.

        None without a time limit below `DEFAULT_LIMIT_SECONDS`.
        """
        if job.attempt_limit is None or job.attempt_limit >= DEFAULT_LIMIT_SECONDS:
            return None
        return job.attempt_limit + (self.provisioning if job.gpus is None else Overheads().member_overhead)

    def idle_since(self, job: Job, now: float | None) -> float | None:
        """Return the epoch seconds since which a job's GPUs are idle; None if they are busy or nothing is known."""
        is_fresh = now is not None and now <= self.at + STALE_SECONDS and job.state is JobState.RUNNING
        return self.idle.get(job.launched or "") if is_fresh else None

    def unsaved_since(self, job: Job, now: float | None) -> float | None:
        """Return the epoch seconds of the launch if no checkpoint was saved since then; None if one was, or unknown."""
        is_fresh = now is not None and now <= self.at + STALE_SECONDS and job.state is JobState.RUNNING
        is_unsaved = is_fresh and job.started is not None and (job.launched or "") in self.saved_work.unsaved
        return epoch(job.started) if is_unsaved and job.started else None

    def forecast_input(self, snapshot: Snapshot) -> ForecastInput:
        """Return the inputs of a forecast that begins with this snapshot."""
        live: list[ActiveJob | WaitingJob] = [*snapshot.active, *snapshot.waiting]
        kinds = {(job.project, job.owner): job.kind for job in live if job.kind}
        lately = [
            SimulatedJob(
                it.name,
                it.project,
                it.priority,
                it.demand,
                it.submitted,
                UNKNOWN_WORK if it.runtime is None else it.runtime,
                it.owner,
                gpus=it.gpus,
                kind=kinds.get((it.project, it.owner), it.owner) if it.gpus is not None else "",
            )
            for it in self.arrivals
        ]
        return with_repeated_arrivals(
            snapshot, self.likely, lately, ARRIVAL_SECONDS, Overheads(provisioning=self.provisioning)
        )


def plans_with_outlook(policy: Policy) -> bool:
    """Return whether every plan depends on expected runtimes or on idle jobs."""
    return policy.settings.order is Order.SHORTEST or policy.settings.idle_after is not None


def backfills_by_outlook(policy: Policy, waiting: Iterable[Job], now: float) -> bool:
    """Return whether expected runtimes decide about slots that are kept for one of these waiting jobs.

    Slots are kept only for a job that has waited longer than `patience`.
    """
    settings = policy.settings
    if settings.backfill is not Backfill.PREDICTED or settings.patience is None:
        return False
    patient_before = iso(now - settings.patience)
    return any(job.entered < patient_before and not job.held for job in waiting)
