"""What is to be expected of live jobs, as it was worked out last: how long they run, and when they start."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from job_queue.domain.job import Job, epoch
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
from job_queue.simulation.basis import UNKNOWN, Basis, basis_of
from job_queue.simulation.forecast import Estimate
from job_queue.simulation.workload import Overheads, SimulatedJob

LATELY = 24 * 3600.0  # seconds: who came within them may come again
RECENT = 15 * 60.0  # seconds: attempts that have ended in them and are not counted yet count by their own records
STALE_SECONDS = 5 * 60  # after which nobody is told when a job starts or ends


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that came lately."""

    name: str
    project: str
    owner: str
    priority: int
    demand: tuple[Slots, ...]  # alternatives, best first
    submitted: float  # epoch seconds
    runtime: float | None = None  # seconds that it ran; None: it lives
    gpus: int | None = None  # of a member: tenths of GPUs of one instance


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is to be expected, and all that it takes to look ahead anew."""

    at: float = 0.0  # epoch seconds of the look
    expected: Mapping[str, float] = field(default_factory=dict)  # live job -> seconds from its start until its end
    likely: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # ... equally likely ones, the shortest first
    arrivals: tuple[Arrival, ...] = ()
    provisioning: float = Overheads().provisioning  # seconds until instances are there
    past_use: Mapping[str, PastUse] = field(default_factory=dict)  # by project, where plans look at it
    counted: frozenset[str] = frozenset()  # training jobs that ended in the last `RECENT` seconds and are part of that
    estimates: Mapping[str, Estimate] = field(default_factory=dict)  # waiting job -> when it starts
    idle: Mapping[str, float] = field(default_factory=dict)  # training job -> epoch s since which its GPUs do nothing
    idle_at: float = 0.0  # epoch seconds when somebody looked for that last
    asked: float | None = None  # epoch seconds when somebody asks; None: nobody does, or it is too old to be told

    def fresh(self, now: float) -> "Outlook":
        """The same for somebody who asks now: where it is old, without starts and ends."""
        old = now > self.at + STALE_SECONDS
        return replace(self, estimates={}, asked=None) if old else replace(self, asked=now)

    def end(self, job: Job) -> float | None:
        """When a live job is expected to end (epoch seconds); None if that is not known, or not to be told."""
        expected = self.expected.get(job.name)
        if self.asked is None or expected is None or job.state is JobState.STOPPING:
            return None
        if job.state.waits:
            estimate = self.estimates.get(job.name)
            start = estimate.start if estimate else None
        else:
            start = epoch(job.started) if job.state.holds_slots and job.started else None
        return None if start is None else max(self.asked, start + expected)

    def idle_since(self, job: Job, now: float | None) -> float | None:
        """Since when a job's GPUs do nothing (epoch seconds); None if they work, nobody knows, or that is old."""
        told = now is not None and now <= self.at + STALE_SECONDS and job.state is JobState.RUNNING
        return self.idle.get(job.launched or "") if told else None

    def basis(self, snapshot: Snapshot) -> Basis:
        """What a look ahead from there begins with."""
        live: list[ActiveJob | WaitingJob] = [*snapshot.active, *snapshot.waiting]
        kinds = {(job.project, job.owner): job.kind for job in live if job.kind}
        lately = [
            SimulatedJob(
                it.name,
                it.project,
                it.priority,
                it.demand,
                it.submitted,
                UNKNOWN if it.runtime is None else it.runtime,
                it.owner,
                gpus=it.gpus,
                kind=kinds.get((it.project, it.owner), it.owner) if it.gpus is not None else "",
            )
            for it in self.arrivals
        ]
        return basis_of(snapshot, self.likely, lately, LATELY, Overheads(provisioning=self.provisioning))


def plans_with_outlook(policy: Policy) -> bool:
    """Whether a plan depends on what is expected of jobs, or on what they do."""
    settings = policy.settings
    expects = settings.order is Order.SHORTEST or settings.backfill is Backfill.PREDICTED
    return expects or settings.idle_after is not None
