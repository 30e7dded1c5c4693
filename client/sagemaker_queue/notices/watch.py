"""What is new about jobs since one last looked, as a person wants to hear it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sagemaker_queue.config.notice_settings import Wanted
from sagemaker_queue.errors import NotFound
from sagemaker_queue.formatting import clean, duration
from sagemaker_queue.models import FINISHED, WAITING

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.models import JobDetail, JobSummary, Transition

_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)
_LATER = "goes on from its checkpoint when it is its turn again"


@dataclass(frozen=True)
class Notice:
    """One thing that a person is told; ``text`` is a sentence or two on one line."""

    kind: str  # of NOTICE_KINDS
    job: str
    text: str


class Watch:
    """Looks at the jobs of a queue that are meant.

    What has happened before the first look is no news, and nothing is told twice. A transition between two looks is
    not missed: the queue keeps a history of each job.
    """

    def __init__(self, queue: QueueClient, meant: Callable[[JobSummary], bool], wanted: Wanted) -> None:
        self._queue = queue
        self._meant = meant
        self._wanted = wanted
        self._live: dict[str, datetime] | None = None  # job -> its latest transition that is known
        self._ended = _LONG_AGO  # the latest end that is known

    @property
    def live(self) -> frozenset[str]:
        """The jobs that had not ended at the latest look."""
        return frozenset(self._live or ())

    def look(self) -> list[Notice]:
        """Ask the queue, and return what is new, job by job. Raises QueueError; nothing is missed by that."""
        live = {job.job: _since(job) for job in self._queue.jobs() if self._meant(job)}
        ended = self._ended_lately()
        notices: list[Notice] = []
        if self._live is not None:
            known = self._live
            changed = [name for name in {**known, **live} if live.get(name) != known.get(name)]
            quick = [job.job for job in ended if job.job not in known and self._meant(job)]  # over before it was seen
            for name in dict.fromkeys([*changed, *quick]):
                told, until = self._news(name, known.get(name, _LONG_AGO))
                notices += told
                if name in live:  # it may have gone on since it was listed
                    live[name] = until
        self._live = live
        self._ended = max([self._ended, *map(_since, ended)])
        return notices

    def _ended_lately(self) -> list[JobSummary]:
        ended = []
        for job in self._queue.jobs("finished"):  # the latest end first, page by page
            if _since(job) <= self._ended:
                break
            ended.append(job)
            if self._live is None:
                break
        return ended

    def _news(self, name: str, known: datetime) -> tuple[list[Notice], datetime]:
        """What is new of a job, and up to when it is told."""
        try:
            job = self._queue.job(name)
        except NotFound:  # it has ended long ago, and is forgotten
            return [], known
        news = notices_since(job, known, self._wanted.waited)
        return [notice for notice in news if notice.kind in self._wanted.kinds], _since(job)


def notices_since(job: JobDetail, known: datetime, waited: float) -> Iterable[Notice]:
    """Yield what a job's transitions after ``known`` mean to a person; starts only after ``waited`` seconds."""
    began: datetime | None = None  # its latest wait
    ran = False
    for one in job.history:
        at = one.at or _LONG_AGO
        if one.state in WAITING:
            began = began or at
        elif one.state == "running":
            seconds = (at - began).total_seconds() if began else 0.0
            if began and at > known and seconds >= waited:
                does = "goes on" if ran else "has started"
                yield Notice("started", job.job, f"{job.job} {does}, after {duration(seconds)} in the queue.")
            ran, began = True, None
        if at > known:
            yield from _told(job, one)


def _told(job: JobDetail, one: Transition) -> Iterable[Notice]:
    cause = f": {clean(one.cause)}" if one.cause else ""
    if one.state == "preempted":
        yield Notice("preempted", job.job, f"{job.job} was preempted, and {_LATER}{_ended(cause)}")
    elif one.state == "failed":
        why = f": {clean(job.reason.message)}" if job.reason and job.reason.message else cause
        yield Notice("failed", job.job, f"{job.job} failed{_ended(why)}")
    elif one.state == "stopped":
        yield Notice("finished", job.job, f"{job.job} was stopped{_ended(cause.replace(': stopped:', ':', 1))}")
    elif one.state in FINISHED:
        yield Notice("finished", job.job, f"{job.job} completed{_took(job)}.")


def _took(job: JobDetail) -> str:
    first, last = job.entry_time, job.state_since
    return f", {duration((last - first).total_seconds())} after it was submitted" if first and last else ""


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _since(job: JobSummary) -> datetime:
    return job.state_since or _LONG_AGO
