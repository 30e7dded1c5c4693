"""Wait until jobs have finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from api_contract.models import JobDetail, JobSummary
from sagemaker_queue.jobs.formatting import amount, state_sentence
from sagemaker_queue.workflows.job_logs.follower import OUTAGES_ENDURED, Outage, polled

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient
    from sagemaker_queue.queue.config.pace import PollingPace

_FEW = 3  # up to this many jobs are read one by one; for more jobs, all live jobs are listed


@dataclass(frozen=True)
class UnfinishedJobs:
    """The jobs that have not finished, in their present states."""

    jobs: Sequence[JobSummary]

    def __str__(self) -> str:
        """Return a sentence for users."""
        if len(self.jobs) == 1:
            return state_sentence(self.jobs[0])
        states = Counter(job.state for job in self.jobs)
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        return f"{amount(len(self.jobs), 'job')} left: {counts}"


WaitEvent = Union[JobDetail, UnfinishedJobs, Outage]


def wait_until_finished(
    queue: QueueClient, names: Iterable[str], pace: PollingPace, pause: Callable[[], None] | None = None
) -> Iterator[WaitEvent]:
    """Yield each finished job, each outage, and after each poll the unfinished jobs, until all jobs have finished.

    ``pause`` replaces ``pace.pause``.
    Raises NotFound, and the last error after more than OUTAGES_ENDURED consecutive failures.
    """
    left = dict.fromkeys(names)

    def poll_jobs() -> Generator[JobDetail | UnfinishedJobs, None, bool]:
        live = _live(queue, left)
        for name in [name for name in left if name not in live]:
            job = queue.job(name)
            if job.finished:
                del left[name]
                yield job
            else:  # submitted after the list was read, or not listed because there are few jobs
                live[name] = job
        hints = [getattr(live[name], "ask_again_after", None) or 0 for name in left]
        pace.observe([(live[name].state, live[name].attempt) for name in left], min(hints, default=None))
        if left:
            yield UnfinishedJobs([live[name] for name in left])
        return not left

    return polled(poll_jobs, OUTAGES_ENDURED, pause or pace.pause, pace.failed)


def _live(queue: QueueClient, names: dict[str, None]) -> dict[str, JobSummary]:
    return {job.job: job for job in queue.jobs() if job.job in names} if len(names) > _FEW else {}
