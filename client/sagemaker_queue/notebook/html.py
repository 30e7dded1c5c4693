"""Answers of the queue as HTML for notebooks.

All text is escaped: names, reasons and lines of logs are others' words. Nothing has a colour of its own, so that it is
read on light and dark pages; states are told by a mark and a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, Callable

from sagemaker_queue.actions.usage.budgets import Left
from sagemaker_queue.formatting import amount, clean, log_line, moment, short_owner, visible
from sagemaker_queue.models import JobDetail, JobSummary, PastAttempt, PlanAnswer, QueueStatus, Submission
from sagemaker_queue.tables.explanations import Section, plan_sections, why_sections
from sagemaker_queue.tables.fleet import Part, status_parts
from sagemaker_queue.tables.jobs import (
    COLUMNS,
    HISTORY_HEADERS,
    attempt_headers,
    attempt_rows,
    history_rows,
    job_facts,
    request_facts,
)
from sagemaker_queue.tables.usage import Hours, usage_notes, usage_rows

MOST_ROWS = 100  # that are shown; a frame has them all
_SHORT = 20  # letters that take one line
LATEST = 10  # transitions on the page about a job
MARKS = {
    "pending": "○",
    "preempted": "◌",
    "starting": "◔",
    "running": "●",
    "stopping": "◕",
    "completed": "✓",
    "failed": "✗",
    "stopped": "■",
}
_JOB_COLUMNS = ("job", "user", "state", "priority", "turn", "when", "instances", "reason")
_ATTEMPT_COLUMNS: dict[str, Callable[[PastAttempt], object]] = {
    "Job": lambda past: past.job,
    "Attempt": lambda past: past.attempt,
    "Owner": lambda past: short_owner(past.owner),
    "Project": lambda past: past.project,
    "Pool": lambda past: "+".join(past.slots),
    "Instances": lambda past: past.instance_count,
    "Ended (UTC)": lambda past: moment(past.ended),
    "Hours": lambda past: round(past.ran_seconds / 3600, 2),
    "Outcome": lambda past: marked(past.outcome),
}


def marked(state: str) -> str:
    """Return a state with its mark."""
    return f"{MARKS[state]} {state}" if state in MARKS else state


def text(value: object) -> str:
    """Return a cell's content, escaped, and without what is not to be printed."""
    return "" if value is None else escape(str(clean(value) if isinstance(value, str) else value))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table, columns of numbers to the right."""
    known = list(rows)
    sides = ["right" if any(isinstance(row[at], _NUMBERS) for row in known) else "left" for at in range(len(headers))]
    head = "".join(_cell("th", header, side) for header, side in zip(headers, sides))
    body = "".join(f"<tr>{''.join(_cell('td', value, side) for value, side in zip(row, sides))}</tr>" for row in known)
    return _framed(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>")


def jobs(listed: Iterable[JobSummary]) -> str:
    """Return a line for each job."""
    headers = [COLUMNS[name][0] for name in _JOB_COLUMNS]
    return _rows(headers, listed, lambda job: [_job_cell(job, name) for name in _JOB_COLUMNS], "job")


def attempts(listed: Iterable[PastAttempt]) -> str:
    """Return a line for each attempt."""
    return _rows(
        list(_ATTEMPT_COLUMNS), listed, lambda past: [value(past) for value in _ATTEMPT_COLUMNS.values()], "attempt"
    )


def summary(job: JobSummary) -> str:
    """Return what a list says of a job, and the warnings about one that was submitted."""
    warnings = job.warnings if isinstance(job, Submission) else ()
    return _heading(job) + _facts(job_facts(job)) + _section(Section("Warnings", tuple(warnings), listed=True))


def detail(job: JobDetail) -> str:
    """Return all that is known of a job."""
    parts = [_heading(job), _facts(job_facts(job))]
    if job.waits:
        parts += [_section(section) for section in why_sections(job)[1:]]
    if job.attempts:
        parts.append(_titled("Attempts", table(attempt_headers(job), attempt_rows(job))))
    if job.history:
        title = f"History (the latest {LATEST})" if len(job.history) > LATEST else "History"
        parts.append(_titled(title, table(HISTORY_HEADERS, history_rows(job.history[-LATEST:]))))
    if job.request:
        parts.append(f"<details><summary>Request</summary>{_facts(request_facts(job))}</details>")
    return "".join(parts)


def status(queue: QueueStatus) -> str:
    """Return the pools and who shares them, and the jobs that hold instances or wait."""
    live = (*queue.active, *queue.waiting)
    return "".join(map(_part, status_parts(queue))) + (_titled("Jobs", jobs(live)) if live else "")


def plan(answer: PlanAnswer) -> str:
    """Return what would become of a job."""
    return "".join(map(_section, plan_sections("The job", answer)))


def usage(by: str, parts: Mapping[str, Hours], total: Hours, budgets: Iterable[Left], *, priced: bool) -> str:
    """Return who used how much, and what is left of budgets."""
    headers, rows = usage_rows(by, parts, total, priced=priced)
    shown = _numbers_right(headers, rows) + "".join(
        f"<p>{text(note)}</p>" for note in usage_notes(total, priced=priced)
    )
    left = [
        [it.budget.project, it.owner, f"{it.hours:,.2f}", f"{it.budget.hours:,.2f}", it.budget.period] for it in budgets
    ]
    titles = ["Project", "Owner", "Left-h", "Budget-h", "Period"]
    return shown + (_titled("What is left of budgets", table(titles, left)) if left else "")


def log(lines: Iterable[str]) -> str:
    """Return lines of a log, without what a terminal would obey."""
    shown = list(lines)
    return f"<pre>{escape(chr(10).join(visible(log_line(line)) for line in shown))}</pre>"


def progress(done: int, total: int, sentence: str, ended: Sequence[JobSummary] = ()) -> str:
    """Return a bar with a sentence, and the jobs that have ended."""
    bar = f'<progress value="{done}" max="{max(total, 1)}"></progress> {text(sentence)}'
    return f"<div>{bar}</div>{jobs(ended) if ended else ''}"


def show_in_notebooks() -> None:
    """Give the queue's answers what notebooks ask objects for: they are the API's, which knows no client."""
    for shape, page in _PAGES.items():
        shape._repr_html_ = page


_PAGES: dict[Any, Callable[[Any], str]] = {
    JobSummary: summary,
    JobDetail: detail,
    QueueStatus: status,
    PlanAnswer: plan,
}


def _rows(headers: Sequence[str], items: Iterable[Any], row: Callable[[Any], Sequence[object]], thing: str) -> str:
    """Return a table of the first items; no more of them is asked for than it takes to say that there are more."""
    known = list(islice(items, MOST_ROWS + 1))
    if not known:
        return f"<p>No {thing}s.</p>"
    more = f"<p>The first {amount(MOST_ROWS, thing)}; there are more.</p>" if len(known) > MOST_ROWS else ""
    return table(headers, [row(item) for item in known[:MOST_ROWS]]) + more


def _job_cell(job: JobSummary, name: str) -> object:
    if name == "state":
        return marked(job.state)
    if name == "reason":
        return job.reason and job.reason.message
    return COLUMNS[name][1](job)


def _heading(job: JobSummary) -> str:
    return f"<p><strong>{text(job.job)}</strong> {text(marked(job.state))}</p>"


def _facts(known: Mapping[str, object]) -> str:
    rows = "".join(
        f"<tr>{_cell('th', name, 'left')}{_cell('td', value, 'left')}</tr>"
        for name, value in known.items()
        if value not in (None, "")
    )
    return _framed(f"<tbody>{rows}</tbody>")


def _framed(inner: str) -> str:
    """Return a table that scrolls where it is too wide; some pages' tables would not take the text's colour."""
    style = "color: inherit; font-variant-numeric: tabular-nums"
    return f'<div style="overflow-x: auto; margin: 0.5em 0"><table style="{style}">{inner}</table></div>'


def _part(part: Part) -> str:
    rows = table(part.headers, part.rows) if part.headers else ""
    return _titled(part.title, rows) if part.title else rows


def _section(section: Section) -> str:
    if section.listed:
        points = "".join(f"<li>{text(line)}</li>" for line in section.lines)
        return _titled(section.title, f"<ul>{points}</ul>") if points else ""
    return _titled(section.title, "".join(f"<p>{text(line)}</p>" for line in section.lines))


def _titled(title: str, inner: str) -> str:
    return f"<p><strong>{text(title)}</strong></p>{inner}"


def _numbers_right(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table all of whose columns but the first are numbers, as texts."""
    return table(headers, [[row[0], *map(_Number, row[1:])] for row in rows])


class _Number(str):
    """A number as it is to be written."""

    __slots__ = ()


_NUMBERS = (int, float, _Number)


def _cell(tag: str, value: object, side: str) -> str:
    content = text(value)
    whole = "; white-space: nowrap" if len(content) <= _SHORT else ""  # a state and its mark are one word
    return f'<{tag} style="text-align: {side}{whole}">{content}</{tag}>'
