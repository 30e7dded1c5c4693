"""The screen of ``smq top``: pools, projects and jobs as lines of text that fit a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from api_contract.models import ACTIVE, WAITING, JobSummary, Pause, PoolStatus, QueueStatus
from sagemaker_queue.jobs.formatting import amount, cut
from sagemaker_queue.presentation.tables.fleet_tables import (
    SHARE_HEADERS,
    at_least,
    departments_and_projects,
    headline,
    pool_headers,
    pool_row,
    share_rows,
    shared_gpus,
)
from sagemaker_queue.presentation.text.job_text import jobs_table
from sagemaker_queue.presentation.text.layout import table
from sagemaker_queue.workflows.selection import ORDERS, QUEUE_ORDER, Selection

ORDER_KEYS = {"o": "queue", "p": "priority", "r": "running", "w": "waiting", "a": "age", "n": "name"}
NARROW = 100  # characters; on narrower terminals, the table of jobs has fewer columns, and pools have no bars
BAR = 20  # maximum length of a bar in characters
LEAST_LINES = 4  # minimum number of lines of a table: a blank line, headers, a row, and the number of further rows
_NARROW_COLUMNS = ("job", "activity", "priority", "position", "when", "user", "instances", "since")
_WIDE_COLUMNS = (
    "job",
    "activity",
    "priority",
    "position",
    "when",
    "project",
    "user",
    "instances",
    "attempt",
    "since",
    "reason",
)


class Style(Enum):
    """The role of a line, which decides its colours."""

    PLAIN = auto()
    TITLE = auto()
    HEADERS = auto()
    ACTIVE = auto()
    WAITING = auto()
    WARNING = auto()


@dataclass(frozen=True)
class Line:
    """One line of the screen."""

    text: str
    style: Style = Style.PLAIN


@dataclass(frozen=True)
class TopView:
    """The jobs that the user wants to see: selection, order and first line."""

    selection: Selection = Selection()
    order: str = QUEUE_ORDER
    reverse: bool = False
    first: int = 0  # index of the first job to show


@dataclass(frozen=True)
class TopPage:
    """The lines of the screen, and the range of shown jobs."""

    lines: tuple[Line, ...]
    first: int  # index of the first job on the screen
    shown: int  # number of jobs on the screen
    jobs: int  # number of all selected jobs


def top_page(
    status: QueueStatus,
    view: TopView,
    at: datetime,
    *,
    width: int | None = None,
    height: int | None = None,
    outage: str | None = None,
) -> TopPage:
    """Return the page for a status read at ``at``.

    Without a ``height`` the page has all lines. Otherwise pools and projects get the upper half of the lines, and jobs
    get the remaining lines.
    """
    top = [Line(f"{headline(status)}{at:  %H:%M:%S} UTC", Style.TITLE)]
    top += [Line(outage, Style.WARNING)] if outage else []
    top += [Line(text, Style.WARNING) for text in _pauses(status)]
    shared = shared_gpus(status)
    top += [Line(shared)] if shared else []
    half = None if height is None else height // 2
    top += _pools(status, width, None if half is None else (half - len(top)) * 2 // 3)
    top += _projects(status, width, None if half is None else half - len(top))

    jobs = list(view.selection.of([*status.active, *status.waiting], view.order, reverse=view.reverse))
    rows = len(jobs) if height is None else max(1, height - len(top) - 3)
    first = max(0, min(view.first, len(jobs) - rows))
    shown = jobs[first : first + rows]
    lines = [*top, *_jobs(shown, first, at_least(len(jobs), more=status.more_waiting), view, width)]
    if width is not None:
        lines = [Line(str(cut(line.text, width)), line.style) for line in lines]
    return TopPage(tuple(lines), first, len(shown), len(jobs))


def _pools(status: QueueStatus, width: int | None, room: int | None) -> list[Line]:
    bars = width is None or width >= NARROW
    rows = [[*pool_row(pool, status), *([_bar(pool)] if bars else [])] for pool in status.pools]
    return _table([*pool_headers(status), *(["In Use"] if bars else [])], rows, width, room)


def _bar(pool: PoolStatus) -> str:
    """Return a bar of the pool's instances: # used, ! being freed, o external, . free."""
    most = min(pool.capacity, BAR)
    if most <= 0:
        return ""
    steady = pool.used - pool.stopping
    ends = [round(count * most / pool.capacity) for count in (steady, pool.used, pool.used + pool.external)]
    return (("#" * ends[0]).ljust(ends[1], "!").ljust(ends[2], "o").ljust(most, "."))[:most]


def _projects(status: QueueStatus, width: int | None, room: int | None) -> list[Line]:
    """Return the table of projects. If not all rows fit, projects with used slots or waiting jobs come first."""
    rows = [
        (sharer, row) for path, sharer in departments_and_projects(status) for row in share_rows(path, sharer, status)
    ]
    if room is not None and len(rows) + 2 > room:
        rows.sort(key=lambda pair: not (pair[0].waiting or any(pair[0].used.values())))
    return _table(SHARE_HEADERS, [row for _, row in rows], width, room)


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None, room: int | None) -> list[Line]:
    """Return a blank line and a table, in at most ``room`` lines; nothing if ``room`` is less than LEAST_LINES."""
    if not rows or (room is not None and room < LEAST_LINES):
        return []
    fitting = len(rows) if room is None or len(rows) + 2 <= room else room - 3
    more = len(rows) - fitting
    lines = [Line(""), *_lines(table(headers, rows[:fitting], width=width, compact=True))]
    return [*lines, *([Line(f"and {amount(more, 'line')} more: smq status has them all")] if more else [])]


def _jobs(shown: list[JobSummary], first: int, count: int | str, view: TopView, width: int | None) -> list[Line]:
    if not shown:
        return [Line(""), Line("No jobs match." if view.selection != Selection() else "The queue is empty.")]
    columns = _NARROW_COLUMNS if width is not None and width < NARROW else _WIDE_COLUMNS
    which = amount(len(shown), "job") if count == len(shown) else f"Jobs {first + 1} to {first + len(shown)} of {count}"
    sorting = "" if view.order == QUEUE_ORDER else f", by {view.order}: {ORDERS[view.order].meaning}"
    sorting += ", reversed" if view.reverse else ""
    headers, *rows = _lines(jobs_table(shown, columns, width, compact=True))
    styled = [Line(row.text, _style(job)) for row, job in zip(rows, shown)]
    return [Line(""), Line(which + sorting, Style.TITLE), headers, *styled]


def _style(job: JobSummary) -> Style:
    if job.state in ACTIVE:
        return Style.ACTIVE
    return Style.WAITING if job.state in WAITING else Style.PLAIN


def _lines(text: str) -> Iterator[Line]:
    headers, *rows = text.splitlines()
    yield Line(headers, Style.HEADERS)
    yield from map(Line, rows)


def _pauses(status: QueueStatus) -> list[str]:
    if len(status.pauses) <= 2:
        return [_pause(pause) for pause in status.pauses]
    return [f"{len(status.pauses)} pools back off (smq status says why, and when they are tried)."]


def _pause(pause: Pause) -> str:
    until = f" until {pause.until:%H:%M:%S} UTC" if pause.until else ""
    if pause.at_fault:
        return f"{pause.pool} backs off{until}: SageMaker refuses what its policy puts into requests (smq status)."
    if pause.unreachable:
        return f"{pause.pool} backs off{until}: its region or account does not respond."
    if pause.quota_lag:
        return f"{pause.pool} waits{until}: {pause.quota_lag}"
    return f"{pause.pool} backs off{until}: SageMaker had no instances (jobs of {pause.instances} or more wait)."
