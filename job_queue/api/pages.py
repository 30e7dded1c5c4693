"""Read lists page by page: live jobs by priority and entry time, then finished jobs, latest first; attempt records."""

import base64
import binascii
import json
import re
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from typing import Any

from job_queue.adapters.cluster_reader import Parallel
from job_queue.adapters.job_repository import JobRepository
from job_queue.adapters.records.attempt_history import AttemptHistory
from job_queue.api.responses import in_order, order_of
from job_queue.domain import identity
from job_queue.domain.accounting.attempts import AttemptRecord
from job_queue.domain.cluster_state import latest_versions
from job_queue.domain.errors import InvalidRequest
from job_queue.domain.job import Job
from job_queue.scheduler import JobState
from job_queue.validation.issue import quoted

# Formats of the positions in tokens. Each position is checked before a query, because DynamoDB returns an error for an
# invalid key.
_NAME, _TIME = r"[A-Za-z0-9-]{1,63}", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
LIVE_KEY = re.compile(rf"\d{{10}}#{_TIME}#{_NAME}", re.ASCII)
INDEX_KEY = {
    "jobName": re.compile(_NAME),
    "finished": re.compile("yes"),
    "stateSince": re.compile(_TIME, re.ASCII),
}
HISTORY_KEY = re.compile(rf"\d{{4}}-\d\d-\d\d|{_TIME}#[A-Za-z0-9-]{{0,63}}", re.ASCII)  # a day, or an attempt
HISTORY_SECONDS = 7 * 24 * 3600  # length of the period if the request gives no start
_SETS = {
    "live": frozenset(state for state in JobState if not state.finished),
    "finished": frozenset(state for state in JobState if state.finished),
    "all": frozenset(JobState),
}
_STATES = frozenset(state.value for state in JobState)


def states_of(text: str) -> frozenset[JobState]:
    """Return the states that a filter names.

    :param text: live, finished, all or a state, or several of these, separated by commas.
    :raises InvalidRequest: the filter names something else.
    """
    found: set[JobState] = set()
    for word in text.split(","):
        if word in _SETS:
            found |= _SETS[word]
        elif word in _STATES:
            found.add(JobState(word))
        else:
            known = ", ".join([*_SETS, *JobState])
            raise InvalidRequest(f"There is no state {quoted(word)}; there are {known}.", field="state")
    return frozenset(found)


class JobPages:
    """A reader of pages of jobs."""

    def __init__(self, repository: JobRepository, parallel: Parallel) -> None:
        self._repository = repository
        self._parallel = parallel

    def page(self, states: frozenset[JobState], limit: int, token: str | None) -> tuple[list[Job], str | None]:
        """Return a page of jobs and the token of the next page; None after the last page.

        A page has at most `limit` jobs. Any page may have fewer, because jobs in other states are dropped.
        """
        cursor = _cursor_of(token) if token else {}
        if "finished" not in cursor and any(not state.finished for state in states):
            return self._live(states, limit, cursor.get("live"))
        if not any(state.finished for state in states):
            return [], None
        jobs, following = self._repository.finished(limit, cursor.get("finished"))
        return [job for job in jobs if job.state in states], _token_of({"finished": following}) if following else None

    @staticmethod
    def token_after(job: Job) -> str:
        """Return the token of the page that begins after this job, if an answer has room for only a part of a page."""
        if not job.state.finished:
            return _token_of({"live": order_of(job)})
        return _token_of({"finished": {"jobName": job.name, "finished": "yes", "stateSince": job.since}})

    def _live(self, states: frozenset[JobState], limit: int, after: str | None) -> tuple[list[Job], str | None]:
        # Active jobs are read before waiting jobs, so that a job that returns to its waiting queue is in one of the
        # two reads. A job that starts between the two reads would be missing. Only cycles start jobs, so active jobs
        # are read again if a cycle has written meanwhile.
        metadata = self._repository.metadata()
        reads = [self._repository.active()]
        waiting_queues = sorted(metadata.waiting_queues)
        reads += self._parallel(
            [partial(self._repository.waiting, queue, limit + 1, after) for queue in waiting_queues]
        )
        if self._repository.cycle_wrote_since(metadata):
            reads.append(self._repository.active())
        jobs = latest_versions(reads).values()
        remaining = [job for job in in_order(jobs) if after is None or order_of(job) > after]
        page = remaining[:limit]
        if len(remaining) > limit:
            following: dict[str, Any] | None = {"live": order_of(page[-1])}
        else:
            following = {"finished": None} if any(state.finished for state in states) else None
        return [job for job in page if job.state in states], _token_of(following) if following else None


class HistoryPages:
    """A reader of pages of attempt records.

    :param clock: returns seconds since the epoch.
    """

    def __init__(self, attempts: AttemptHistory, clock: Callable[[], float]) -> None:
        self._attempts = attempts
        self._clock = clock

    def page(
        self,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        token: str | None,
        *,
        owner: str | None = None,
        project: str | None = None,
    ) -> tuple[list[AttemptRecord], str | None]:
        """Return a page of attempts that ended in a period, and the token of the next page; None after the last page.

        A page has at most `limit` attempts. Any page may have fewer, because the filters drop some.

        :param since: None means HISTORY_SECONDS before `until`, or before now if `until` is later.
        :param until: None means now. The period does not include this time.
        :param owner: an ARN, or a pattern of ARNs; None means every owner.
        :raises InvalidRequest: the period ends before it begins, or the token is invalid.
        """
        now = self._clock()
        last = now if until is None else until.timestamp()
        first = min(last, now) - HISTORY_SECONDS if since is None else since.timestamp()
        if first > last:
            raise InvalidRequest("The period ends before it begins.", field="until", remedy="Give since before until.")
        page = self._attempts.page(
            first, last, limit, now, _cursor_of(token, _is_history_token)["history"] if token else None
        )
        found = [
            attempt
            for attempt in page.attempts
            if (owner is None or identity.matches(owner, attempt.owner))
            and (project is None or attempt.project == project)
        ]
        return found, _token_of({"history": page.following}) if page.following else None


def _is_history_token(cursor: object) -> bool:
    match cursor:
        case {"history": str(key), **rest}:
            return not rest and HISTORY_KEY.fullmatch(key) is not None and _is_day(key[:10])
    return False


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _token_of(cursor: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(cursor).encode()).decode()


def _is_token(cursor: object) -> bool:
    match cursor:
        case {"live": str(position), **rest}:
            return not rest and LIVE_KEY.fullmatch(position) is not None
        case {"finished": None, **rest}:
            return not rest
        case {"finished": dict(key), **rest}:
            return not rest and set(key) == set(INDEX_KEY) and all(_fits(name, part) for name, part in key.items())
    return False


def _fits(name: str, part: object) -> bool:
    return isinstance(part, str) and INDEX_KEY[name].fullmatch(part) is not None


def _cursor_of(token: str, is_token: Callable[[object], bool] = _is_token) -> dict[str, Any]:
    try:
        cursor = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error, RecursionError):
        cursor = None
    if not is_token(cursor):
        raise InvalidRequest("The token next is not valid.", field="next", remedy="Start again without next.")
    return dict(cursor)
