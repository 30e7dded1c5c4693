"""Answers of the queue as HTML for notebooks.

All text is escaped, because names, reasons and log lines may be user input. No element sets a colour, so that pages
are readable on light and dark backgrounds; states have a mark and a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, Callable

from api_contract.history import PastAttempt
from api_contract.models import JobDetail, JobSummary, PlanAnswer, QueueStatus, Submission
from sagemaker_queue.jobs.formatting import amount, clean, log_line, moment, outcome, short_owner, visible
from sagemaker_queue.presentation.tables.explanations import Section, plan_sections, why_sections
from sagemaker_queue.presentation.tables.failure_tables import (
    failure_facts,
    failure_lines,
    failure_title,
    shown_failure,
)
from sagemaker_queue.presentation.tables.fleet_tables import Part, status_parts
from sagemaker_queue.presentation.tables.jobs import (
    COLUMNS,
    HISTORY_HEADERS,
    attempt_headers,
    attempt_rows,
    history_rows,
    job_facts,
    request_facts,
)
from sagemaker_queue.presentation.tables.usage_tables import Hours, budget_notes, usage_notes, usage_rows, useful_rows
from sagemaker_queue.presentation.text.checkpoint_text import HEADERS, checkpoint_rows
from sagemaker_queue.workflows.saved_checkpoints import JobCheckpoints
from sagemaker_queue.workflows.usage.budgets import RemainingBudget
from sagemaker_queue.workflows.usage.cause_sums import ProjectCauses

MOST_ROWS = 100  # maximum number of rows that are shown; a DataFrame has all rows
_SHORT = 20  # cells with at most this many characters are not wrapped
LATEST = 10  # maximum number of transitions on the page about a job
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
    "Outcome": lambda past: outcome(marked(past.outcome), past.failure_class),
}


def marked(state: str) -> str:
    """Return a state with its mark."""
    return f"{MARKS[state]} {state}" if state in MARKS else state


def text(value: object) -> str:
    """Return a cell's content, escaped, without unprintable characters."""
    return "" if value is None else escape(str(clean(value) if isinstance(value, str) else value))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with columns of numbers aligned right."""
    known = list(rows)
    sides = ["right" if any(isinstance(row[at], _NUMBERS) for row in known) else "left" for at in range(len(headers))]
    head = "".join(_cell("th", header, side) for header, side in zip(headers, sides))
    body = "".join(f"<tr>{''.join(_cell('td', value, side) for value, side in zip(row, sides))}</tr>" for row in known)
    return _framed(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>")


def jobs(listed: Iterable[JobSummary]) -> str:
    """Return a table with a row for each job."""
    headers = [COLUMNS[name][0] for name in _JOB_COLUMNS]
    return _rows(headers, listed, lambda job: [_job_cell(job, name) for name in _JOB_COLUMNS], "job")


def attempts(listed: Iterable[PastAttempt]) -> str:
    """Return a table with a row for each attempt."""
    return _rows(
        list(_ATTEMPT_COLUMNS), listed, lambda past: [value(past) for value in _ATTEMPT_COLUMNS.values()], "attempt"
    )


def summary(job: JobSummary) -> str:
    """Return the facts about a job, and the warnings of a submission."""
    warnings = job.warnings if isinstance(job, Submission) else ()
    return _heading(job) + _facts(job_facts(job)) + _section(Section("Warnings", tuple(warnings), listed=True))


def detail(job: JobDetail) -> str:
    """Return the page about a job: facts, last failure, reasons to wait, attempts, recent history and request."""
    parts = [_heading(job), _facts(job_facts(job))]
    if failure := shown_failure(job):
        parts.append(_titled(failure_title(job, failure), _facts(failure_facts(failure)) + log(failure_lines(failure))))
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
    """Return the page of the fleet: pools, departments, projects and live jobs."""
    live = (*queue.active, *queue.waiting)
    return "".join(map(_part, status_parts(queue))) + (_titled("Jobs", jobs(live)) if live else "")


def plan(answer: PlanAnswer) -> str:
    """Return the result of a dry run."""
    return "".join(map(_section, plan_sections("The job", answer)))


def usage(
    by: str,
    parts: Mapping[str, Hours],
    total: Hours,
    budgets: Iterable[RemainingBudget],
    projects: Mapping[str, ProjectCauses],
    *,
    priced: bool,
    complete: bool,
) -> str:
    """Return tables of usage, of the useful part for each project if there are ``projects``, and of budgets."""
    headers, rows = usage_rows(by, parts, total, priced=priced)
    shown = _numbers_right(headers, rows) + _notes(usage_notes(total, priced=priced))
    if projects:
        shown += _titled("Useful part for each project", _numbers_right(*useful_rows(projects)))
    left = [
        [it.budget.project, it.owner, f"{it.hours:,.2f}", f"{it.budget.hours:,.2f}", it.budget.period] for it in budgets
    ]
    titles = ["Project", "Owner", "Left-h", "Budget-h", "Period"]
    if left:
        shown += _titled("Remaining budgets", table(titles, left)) + _notes(budget_notes(complete=complete))
    return shown


def _notes(notes: Iterable[str]) -> str:
    return "".join(f"<p>{text(note)}</p>" for note in notes)


def log(lines: Iterable[str]) -> str:
    """Return lines of a log, without terminal control sequences."""
    shown = list(lines)
    return f"<pre>{escape(chr(10).join(visible(log_line(line)) for line in shown))}</pre>"


def progress(done: int, total: int, sentence: str, ended: Sequence[JobSummary] = ()) -> str:
    """Return a progress bar with a sentence, and a table of the finished jobs."""
    bar = f'<progress value="{done}" max="{max(total, 1)}"></progress> {text(sentence)}'
    return f"<div>{bar}</div>{jobs(ended) if ended else ''}"


def checkpoints(listed: JobCheckpoints) -> str:
    """Return a table of a job's checkpoints."""
    return _rows(list(HEADERS), listed, lambda one: checkpoint_rows([one])[0], "checkpoint")


def show_in_notebooks() -> None:
    """Add ``_repr_html_`` to the classes of the queue's answers, which ``api_contract`` defines without HTML."""
    for shape, page in _PAGES.items():
        shape._repr_html_ = page


_PAGES: dict[Any, Callable[[Any], str]] = {
    JobSummary: summary,
    JobDetail: detail,
    QueueStatus: status,
    PlanAnswer: plan,
    JobCheckpoints: checkpoints,
}


def _rows(headers: Sequence[str], items: Iterable[Any], row: Callable[[Any], Sequence[object]], thing: str) -> str:
    """Return a table of the first MOST_ROWS items; read one further item to find out whether more items exist."""
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
    """Return a table that scrolls if it is too wide. The colour is inherited, because some pages colour tables."""
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
    """Return a table with formatted numbers, aligned right, in all columns except the first."""
    return table(headers, [[row[0], *map(_Number, row[1:])] for row in rows])


class _Number(str):
    """A formatted number, which ``table`` aligns right."""

    __slots__ = ()


_NUMBERS = (int, float, _Number)


def _cell(tag: str, value: object, side: str) -> str:
    content = text(value)
    no_wrap = "; white-space: nowrap" if len(content) <= _SHORT else ""  # keeps a state and its mark on one line
    return f'<{tag} style="text-align: {side}{no_wrap}">{content}</{tag}>'
