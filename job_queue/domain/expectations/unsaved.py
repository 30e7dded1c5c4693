"""Unsaved jobs: preemptible jobs that have run for an hour without a checkpoint. A preemption would lose this work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from job_queue.domain.job import FOR_EVER, Job, epoch
from job_queue.scheduler import JobState

UNSAVED_SECONDS = 3600.0  # seconds from the launch of an attempt until it counts as unsaved
LOOKUP_SECONDS = 900  # seconds between two look-ups of an unsaved attempt
MOST_LOOKUPS = 10  # largest number of look-ups in one tick


@dataclass(frozen=True, slots=True)
class SavedWork:
    """The results of look-ups, by training job. No training job is both unsaved and settled."""

    unsaved: Mapping[str, int] = field(default_factory=dict)  # training job -> epoch seconds of the next look-up
    settled: frozenset[str] = frozenset()  # training jobs with a checkpoint, or for which this cannot be known

    def of(self, jobs: list[Job]) -> "SavedWork":
        """Return the results for the current attempts of these jobs."""
        names = {job.launched for job in jobs if job.launched}
        unsaved = {name: at for name, at in self.unsaved.items() if name in names}
        return SavedWork(unsaved, self.settled & names)

    def due(self, jobs: list[Job], now: float) -> list[Job]:
        """Return the jobs to look up now: first jobs without a result, then unsaved jobs whose next look-up is due."""
        known = self.unsaved.keys() | self.settled
        new = [job for job in jobs if job.launched not in known]
        again = [job for job in jobs if now >= self.unsaved.get(job.launched or "", FOR_EVER)]
        return [*new, *again][:MOST_LOOKUPS]


def unsaved_candidates(active: Iterable[Job], now: float) -> list[Job]:
    """Return the running jobs that can be preempted and have run for UNSAVED_SECONDS, sorted by name."""
    jobs = [
        job
        for job in active
        if job.state is JobState.RUNNING
        and job.may_be_preempted
        and job.carries is None
        and job.launched
        and job.started
        and epoch(job.started) <= now - UNSAVED_SECONDS
    ]
    return sorted(jobs, key=lambda job: job.name)
