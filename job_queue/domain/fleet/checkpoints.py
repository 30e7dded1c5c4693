"""Times of running jobs' latest checkpoints, and the jobs to look up. A stop loses the work since the checkpoint."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from job_queue.domain.job import Job, epoch
from job_queue.scheduler import JobState

LOOKUP_SECONDS = 60  # seconds between two look-ups of the checkpoints of one attempt
MOST_LOOKUPS = 10  # largest number of jobs that one cycle looks up


@dataclass(frozen=True, slots=True)
class KnownCheckpoint:
    """The result of a look-up of an attempt's checkpoints."""

    attempt: int
    looked_up_at: int  # epoch seconds
    at: int | None = None  # epoch seconds of the newest checkpoint; None: there is none, or access is denied


KnownCheckpoints = Mapping[str, KnownCheckpoint]
"""Job -> the result for its current attempt."""


def checkpoint_of(job: Job, known: KnownCheckpoints) -> float | None:
    """Return the epoch seconds of a job's latest checkpoint, or None if it is not known."""
    found = known.get(job.name)
    return found.at if found is not None and found.attempt == job.attempt else None


def checkpoints_to_look_up(
    active: Collection[Job], evicted: Iterable[str], known: KnownCheckpoints, now: float
) -> list[Job]:
    """Return the jobs whose checkpoints decide which job is evicted: first the planned victims, then equal jobs.

    Equal jobs are running, preemptible jobs with the project and the priority of a victim, in one of its pools. A
    victim without equal jobs is left out, because it must be evicted in any case.
    """
    evicted_names = set(evicted)
    victims = [job for job in active if job.name in evicted_names]
    equal_jobs = [
        job for job in active if job.name not in evicted_names and any(_are_equal(job, victim) for victim in victims)
    ]
    compared = [victim for victim in victims if any(_are_equal(job, victim) for job in equal_jobs)]
    unseen = [job for job in (*compared, *sorted(equal_jobs, key=_latest_first)) if _is_unseen(job, known, now)]
    return unseen[:MOST_LOOKUPS]


def _are_equal(job: Job, victim: Job) -> bool:
    if job.state is not JobState.RUNNING or not job.preemptible:
        return False
    same = (job.project, job.priority) == (victim.project, victim.priority)
    return same and bool(job.slots.keys() & victim.slots.keys())


def _latest_first(job: Job) -> tuple[float, str]:
    return (-epoch(job.started or job.since), job.name)


def _is_unseen(job: Job, known: KnownCheckpoints, now: float) -> bool:
    found = known.get(job.name)
    return found is None or found.attempt != job.attempt or found.looked_up_at + LOOKUP_SECONDS <= now
