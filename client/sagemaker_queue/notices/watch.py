"""Notices about changes of jobs since the last look at the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sagemaker_queue.config.notice_settings import NoticeFilter
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
    """A notice to a user; ``text`` is one or two sentences on one line."""

    kind: str  # of NOTICE_KINDS
    job: str
    text: str


class JobWatch:
    """A watch over the selected jobs of a queue.

    There is no notice about changes before the first look, and one notice about each later change. A transition
    between two looks is not missed, because the queue keeps a history of each job.
    """

    def __init__(self, queue: QueueClient, meant: Callable[[JobSummary], bool], wanted: NoticeFilter) -> None:
        self._queue = queue
        self._meant = meant
        self._wanted = wanted
        self._live: dict[str, datetime] | None = None  # job -> time of its latest known transition
        self._ended = _LONG_AGO  # time of the latest known end

    @property
    def live(self) -> frozenset[str]:
        """Names of the jobs that were live at the latest look."""
        return frozenset(self._live or ())

    def look(self) -> list[Notice]:
        """Read the queue, and return the new notices, job by job.

        Raises QueueError; the next look then returns the missed notices.
        """
        live = {job.job: _since(job) for job in self._queue.jobs() if self._meant(job)}
        ended = self._ended_lately()
        notices: list[Notice] = []
        if self._live is not None:
            known = self._live
            changed = [name for name in {**known, **live} if live.get(name) != known.get(name)]
            # Jobs that were submitted and finished between two looks.
            quick = [job.job for job in ended if job.job not in known and self._meant(job)]
            for name in dict.fromkeys([*changed, *quick]):
                news, until = self._news(name, known.get(name, _LONG_AGO))
                notices += news
                if name in live:  # the job may have changed since it was listed
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
        """Return the notices about a job after ``known``, and the time up to which they reach."""
        try:
            job = self._queue.job(name)
        except NotFound:  # the job finished long ago, and the queue has forgotten it
            return [], known
        news = notices_since(job, known, self._wanted.waited)
        return [notice for notice in news if notice.kind in self._wanted.kinds], _since(job)


def notices_since(job: JobDetail, known: datetime, waited: float) -> Iterable[Notice]:
    """Yield the notices for a job's transitions after ``known``; for starts only after a wait of ``waited`` seconds."""
    began: datetime | None = None  # begin of the latest wait
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
            yield from _notices_of(job, one)


def _notices_of(job: JobDetail, one: Transition) -> Iterable[Notice]:
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
