"""Find the changes of jobs since the last poll of the queue, and make notices of the changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from api_contract import notices
from api_contract.models import FINISHED, WAITING
from sagemaker_queue.errors import NotFound
from sagemaker_queue.jobs.formatting import duration, has_further_pools, is_stopped_for_hang, moment, since
from sagemaker_queue.queue.config.notice_settings import NoticeFilter

if TYPE_CHECKING:
    from api_contract.models import JobDetail, JobSummary, Transition
    from sagemaker_queue.queue.client import QueueClient

TOGETHER = 3  # from this number on, failures of one owner and class between two polls give one notice
_NAMED = 5  # maximum number of names in such a notice
_LONG_AGO = datetime.min.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class Notice:
    """A notice to a user; ``text`` is a sentence on one line."""

    kind: str  # one of NOTICE_KINDS
    job: str
    text: str
    owner: str | None = None  # ARN
    failure_class: str | None = None  # class of the failure of a failed job
    remedy: str = ""


@dataclass(frozen=True)
class _Known:
    """The state of a live job at the latest poll; a change of this state gives notices."""

    since: datetime  # time of the latest known transition
    conditions: frozenset[tuple[str, datetime]] = frozenset()  # results of _conditions_of, including ended conditions


class JobWatch:
    """A watch over the selected jobs of a queue.

    Changes before the first call of ``poll`` give no notice. Each later change that the filter accepts gives one
    notice. Transitions between two calls count too, because the queue keeps a history of each job. A lasting condition,
    such as a missed start, gives one notice, even if it disappears and returns with the same time.
    """

    def __init__(
        self, queue: QueueClient, is_watched: Callable[[JobSummary], bool], notice_filter: NoticeFilter
    ) -> None:
        self._queue = queue
        self._is_watched = is_watched
        self._filter = notice_filter
        self._live: dict[str, _Known] | None = None
        self._ended = _LONG_AGO  # time of the latest known end

    @property
    def live(self) -> frozenset[str]:
        """Names of the jobs that were live at the latest call of ``poll``."""
        return frozenset(self._live or ())

    def poll(self) -> list[Notice]:
        """Read the queue, and return the new notices, job by job; see ``combine_failures`` for jobs that fail together.

        Raises QueueError; the next call then returns the missed notices.
        """
        before = self._live or {}
        live = {job.job: _known(job, before.get(job.job)) for job in self._queue.jobs() if self._is_watched(job)}
        ended = self._ended_lately()
        found: list[Notice] = []
        if self._live is not None:
            known = self._live
            changed = [name for name in {**known, **live} if live.get(name) != known.get(name)]
            # Jobs that were submitted and finished between two calls.
            quick = [job.job for job in ended if job.job not in known and self._is_watched(job)]
            for name in dict.fromkeys([*changed, *quick]):
                new_notices, latest = self._notices_of_job(name, known.get(name, _Known(_LONG_AGO)))
                found += new_notices
                if name in live:  # the job may have changed after the list was read
                    live[name] = latest
        self._live = live
        self._ended = max([self._ended, *map(_since, ended)])
        return combine_failures(found)

    def _ended_lately(self) -> list[JobSummary]:
        ended = []
        for job in self._queue.jobs("finished"):  # the latest end first, page by page
            if _since(job) <= self._ended:
                break
            ended.append(job)
            if self._live is None:
                break
        return ended

    def _notices_of_job(self, name: str, known: _Known) -> tuple[list[Notice], _Known]:
        """Return the notices about a job's changes since ``known``, and the job's state now."""
        try:
            job = self._queue.job(name)
        except NotFound:  # the job finished long ago, and the queue has forgotten it
            return [], known
        news = [*_lasting_notices(job, known.conditions), *notices_since(job, known.since, self._filter.waited)]
        return [notice for notice in news if notice.kind in self._filter.kinds], _known(job, known)


def _lasting_notices(job: JobDetail, known: frozenset[tuple[str, datetime]]) -> Iterable[Notice]:
    """Yield a notice for each lasting condition of a live job that is not in ``known``."""
    for kind, begin in sorted(_conditions_of(job) - known):
        if not job.finished:
            text = notices.notice(job.job, job.owner, job.project, _LASTING_NEWS[kind](job, begin))
            yield Notice(kind, job.job, text, job.owner)


def _conditions_of(job: JobSummary) -> frozenset[tuple[str, datetime]]:
    """Return a job's lasting conditions as (kind, time); the time distinguishes repeated conditions of one kind."""
    begins = {
        "late": job.start_by if job.start_missed else None,
        "unsaved": job.unsaved_since,
        "hangs": job.hung_since,
    }
    return frozenset((kind, begin) for kind, begin in begins.items() if begin is not None)


def _late_news(job: JobDetail, start_by: datetime) -> str:
    widens = job.start_by_action == "next_pool"
    moved = widens and has_further_pools(job)
    return notices.late(f"{moment(start_by)} UTC", job.pools if moved else (), no_further=widens and not moved)


def _unsaved_news(job: JobDetail, began: datetime) -> str:
    return notices.unsaved(duration(since(began)), has_folder=bool(job.request.get("CheckpointConfig")))


def _hang_news(job: JobDetail, silent_since: datetime) -> str:
    return notices.hangs(duration(since(silent_since)), requeued=is_stopped_for_hang(job))


_LASTING_NEWS: Mapping[str, Callable[[JobDetail, datetime], str]] = {
    "late": _late_news,
    "unsaved": _unsaved_news,
    "hangs": _hang_news,
}


def notices_since(job: JobDetail, known: datetime, waited: float) -> Iterable[Notice]:
    """Yield notices of a job's transitions after ``known``; a start counts only after a wait of ``waited`` seconds."""
    began: datetime | None = None  # start of the latest wait
    ran = False
    before = ""  # the state before a transition
    retries = [one for one in job.history if _is_retry(one)]
    for one in job.history:
        at = one.at or _LONG_AGO
        kind, news = one.state, ""
        if one.state in WAITING:
            began = began or at
        elif one.state == "running":
            seconds = (at - began).total_seconds() if began else 0.0
            if began and seconds >= waited:
                kind, news = "started", notices.started(duration(seconds), again=ran)
            ran, began = True, None
        if _is_retry(one):
            kind, news = "hardware", _returned_gpu(job) if one is retries[-1] else ""
        elif one.state == "preempted" and before not in WAITING:  # otherwise the job only changed while it waited
            news = _interruption(one.cause)
        elif one.state in FINISHED:
            kind = "failed" if one.state == "failed" else "finished"
            reason = job.reason.message if job.reason else ""
            took = duration(since(job.entry_time or at, at))
            reason = (job.failure.sentence if job.failure and kind == "failed" else "") or reason
            reason = reason or one.cause.removeprefix("stopped: ")
            news = notices.finished(one.state, took, job.job, reason, job.failure_class, _remedy(job))
        before = one.state
        if news and at > known:
            text = notices.notice(job.job, job.owner, job.project, news)
            failure_class = job.failure_class if kind == "failed" else None
            yield Notice(kind, job.job, text, job.owner, failure_class, _remedy(job))


def _is_retry(one: Transition) -> bool:
    return one.state in WAITING and one.cause.startswith("failed, ")


def _returned_gpu(job: JobDetail) -> str:
    """Return the news that a job is retried after a repeated failure of a GPU; empty for other retries."""
    returned = not job.finished and job.failure is not None and job.failure.returned_gpus
    return notices.gpu_returned(_remedy(job)) if returned else ""


def combine_failures(found: Sequence[Notice]) -> list[Notice]:
    """Combine the notices of at least TOGETHER jobs of one owner that failed with one class; keep other notices."""
    sets: dict[tuple[str | None, str], list[Notice]] = {}
    for notice in found:
        if notice.failure_class:
            sets.setdefault((notice.owner, notice.failure_class), []).append(notice)
    combined: list[Notice] = []
    for notice in found:
        same_failure = sets.get((notice.owner, notice.failure_class or ""), [])
        if notice not in same_failure or len(same_failure) < TOGETHER:
            combined.append(notice)
        elif notice is same_failure[0]:
            combined.append(_combined(same_failure))
    return combined


def _combined(same_failure: Sequence[Notice]) -> Notice:
    first = same_failure[0]
    names = ", ".join(notice.job for notice in same_failure[:_NAMED]) + (
        f" and {len(same_failure) - _NAMED} more" if len(same_failure) > _NAMED else ""
    )
    text = notices.failed_together(len(same_failure), first.owner, names, first.failure_class or "", first.remedy)
    return Notice(first.kind, first.job, text, first.owner, first.failure_class, first.remedy)


def _remedy(job: JobDetail) -> str:
    return job.failure.remedy if job.failure else ""


def _interruption(cause: str) -> str:
    """Return the news that a job was preempted, requeued or drained, or that it hung, from the cause in its history."""
    if cause.startswith("stopped because it hung"):
        return notices.hung()
    how, _, by = cause.partition(";")[0].partition(" by ")
    if by and how == "requeued":
        return notices.requeued(by)
    return notices.drained(by) if by and how == "drained" else notices.preempted(cause=cause)


def _known(job: JobSummary, before: _Known | None) -> _Known:
    return _Known(_since(job), _conditions_of(job) | (before.conditions if before else frozenset()))


def _since(job: JobSummary) -> datetime:
    return job.state_since or _LONG_AGO
