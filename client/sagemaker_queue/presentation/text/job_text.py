"""Jobs as text: tables of jobs, and the page about one job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from api_contract.models import ACTIVE, FINISHED, JobDetail, JobSummary, Transition
from sagemaker_queue.jobs.formatting import (
    clean,
    visible,
)
from sagemaker_queue.presentation.tables.failure_tables import (
    failure_facts,
    failure_lines,
    failure_title,
    shown_failure,
)
from sagemaker_queue.presentation.tables.jobs import (
    COLUMNS,
    HISTORY_HEADERS,
    attempt_headers,
    attempt_rows,
    brief_reason,
    history_rows,
    job_facts,
    request_facts,
)
from sagemaker_queue.presentation.text.layout import columns_that_fit, facts, table

# Users copy these names. So names are cut only in compact tables, and only if the user has not named the columns.
_NAMES = ("Job Name", "Training Job")
SHOWN = 10  # maximum number of transitions on the page about a job
BASIC_COLUMNS = ("job", "state", "priority")
TERMINAL_COLUMNS = ("job", "user", "activity", "priority", "turn", "when", "instances", "reason")
WIDE_COLUMNS = (*BASIC_COLUMNS, "position", "when", "project", "owner", "instances", "attempt", "age", "reason")
_SHORT_HEADERS = {"Job Name": "Job", "Priority": "Prio", "Position": "Pos", "Instances": "Inst", "Attempt": "Try"}
# The columns that are omitted, in this order, until the table fits the terminal.
_OMITTED_FIRST = ("Try", "Age", "Project", "Inst", "Reason", "User", "Owner", "Pos")
# The minimum width in characters at which reasons are whole sentences. On narrower terminals, reasons are a few words,
# because sentences would be cut and then look alike.
_ROOM_FOR_SENTENCES = 100
_HEADING, _RUNS, _FAILED, _ENDED, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"


def on_a_terminal(jobs: Iterable[JobSummary]) -> tuple[str, ...]:
    """Return the default columns on a terminal, with the project if the jobs belong to several projects."""
    if len({job.project for job in jobs} - {None}) < 2:
        return TERMINAL_COLUMNS
    job, *others = TERMINAL_COLUMNS
    return (job, "project", *others)


def jobs_table(
    jobs: Iterable[JobSummary],
    columns: Sequence[str] = BASIC_COLUMNS,
    width: int | None = None,
    *,
    compact: bool = False,
) -> str:
    """Return the jobs as a table of ``columns``, in that order, cut to the width as far as possible.

    Names are cut only in a ``compact`` table, in the middle.
    """
    chosen = [COLUMNS[name] for name in columns]
    rows = [[value(job) for _, value in chosen] for job in jobs]
    headers = [header for header, _ in chosen]
    return table(headers, rows, width=width, whole=() if compact else _NAMES, compact=compact, middle=_NAMES)


def jobs_screen(
    jobs: Sequence[JobSummary], columns: Sequence[str], width: int, *, as_asked: bool, colours: bool
) -> str:
    """Return the jobs as a table for a terminal of that width, one line each, with control characters escaped.

    ``as_asked`` means that the user named the columns: all columns are shown, and names are not cut. Otherwise, columns
    are omitted until the table fits.
    """
    chosen = [COLUMNS[name] for name in columns]
    if width < _ROOM_FOR_SENTENCES and not as_asked:
        chosen = [(header, brief_reason if header == "Reason" else value) for header, value in chosen]
    rows = [[clean(value(job)) for _, value in chosen] for job in jobs]
    headers = [_SHORT_HEADERS.get(header, header) for header, _ in chosen]
    if not as_asked:
        fitting = columns_that_fit(headers, rows, width, _OMITTED_FIRST)
        headers, rows = [headers[index] for index in fitting], [[row[index] for index in fitting] for row in rows]
    names = tuple(_SHORT_HEADERS.get(name, name) for name in _NAMES)
    text = table(headers, rows, width=width, whole=names if as_asked else (), compact=True, middle=names)
    first, *lines = visible(text).splitlines()
    if not colours:
        return "\n".join([first, *lines])
    painted = [f"{_colour(job)}{line}{_PLAIN}" for job, line in zip(jobs, lines)]
    return "\n".join([f"{_HEADING}{first}{_PLAIN}", *painted])


def _colour(job: JobSummary) -> str:
    if job.state in ACTIVE:
        return _RUNS
    if job.state in FINISHED:
        return _FAILED if job.state == "failed" else _ENDED
    return ""


def job_page(job: JobDetail, width: int | None = None) -> str:
    """Return the page about one job: facts, last failure, attempts, recent history and request."""
    parts = [job.job, facts(job_facts(job), width)]
    if failure := shown_failure(job):
        parts += [f"\n{failure_title(job, failure)}", facts(failure_facts(failure), width)]
        if lines := failure_lines(failure):
            parts += [f"\nLast log lines{f' of {clean(failure.rank)}' if failure.rank else ''}"]
            parts += [f"  {line}" for line in lines]
    if job.attempts:
        parts += ["\nAttempts", _fitting(attempt_headers(job), attempt_rows(job), width)]
    if job.history:
        earlier = len(job.history) - SHOWN
        more = f" (the latest {SHOWN}; smq events {job.job} shows all)" if earlier > 0 else ""
        parts += [f"\nHistory{more}", _history(job.history[-SHOWN:], width)]
    if job.request:
        parts += ["\nRequest", facts(request_facts(job), width)]
    return "\n".join(parts)


def _fitting(headers: list[str], attempts: list[list[object]], width: int | None) -> str:
    """Return the attempts as a table; if too wide, omit the column Ended, which Started and Ran imply."""
    page = table(headers, attempts)
    if width is None or len(page.splitlines()[1]) <= width:
        return page
    end = headers.index("Ended")
    return table(headers[:end] + headers[end + 1 :], [row[:end] + row[end + 1 :] for row in attempts])


def events_page(job: JobDetail, width: int | None = None) -> str:
    """Return the job's transitions, with uncut causes."""
    return _history(job.history, width)


def _history(transitions: Iterable[Transition], width: int | None) -> str:
    return table(HISTORY_HEADERS, history_rows(transitions), wrapped="Cause", width=width)
