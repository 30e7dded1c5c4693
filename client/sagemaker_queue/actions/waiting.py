"""Waiting until jobs have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from sagemaker_queue.formatting import amount, state_sentence
from sagemaker_queue.job_logs.follower import OUTAGES_ENDURED, Outage, polled
from sagemaker_queue.models import JobDetail, JobSummary

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.config.pace import Pace

_FEW = 3  # jobs; of more the whole queue is read at once


@dataclass(frozen=True)
class Left:
    """Those that have not ended, as they are."""

    jobs: Sequence[JobSummary]

    def __str__(self) -> str:
        """Return a sentence for people."""
        if len(self.jobs) == 1:
            return state_sentence(self.jobs[0])
        states = Counter(job.state for job in self.jobs)
        each = ", ".join(f"{count} {state}" for state, count in states.items())
        return f"{amount(len(self.jobs), 'job')} left: {each}"


WaitEvent = Union[JobDetail, Left, Outage]


def until_ended(
    queue: QueueClient, names: Iterable[str], pace: Pace, pause: Callable[[], None] | None = None
) -> Iterator[WaitEvent]:
    """Yield each job once it has ended, and how the others are, until there are no others.

    ``pause`` sleeps in place of ``pace.pause``.
    Raises NotFound, and what keeps going wrong after many times in a row.
    """
    left = dict.fromkeys(names)

    def look() -> Generator[JobDetail | Left, None, bool]:
        live = _live(queue, left)
        for name in [name for name in left if name not in live]:
            job = queue.job(name)
            if job.finished:
                del left[name]
                yield job
            else:  # only just submitted, or there are few
                live[name] = job
        hints = [getattr(live[name], "ask_again_after", None) or 0 for name in left]
        pace.saw([(live[name].state, live[name].attempt) for name in left], min(hints, default=None))
        if left:
            yield Left([live[name] for name in left])
        return not left

    return polled(look, OUTAGES_ENDURED, pause or pace.pause, pace.failed)


def _live(queue: QueueClient, names: dict[str, None]) -> dict[str, JobSummary]:
    return {job.job: job for job in queue.jobs() if job.job in names} if len(names) > _FEW else {}
