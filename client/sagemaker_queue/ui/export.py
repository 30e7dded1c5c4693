"""``smq ui --export``: write the pages to static files, which need no server and send no requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from api_contract.models import JobSummary
from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.formatting import amount, moment, short_owner, visible
from sagemaker_queue.presentation.tables.csv_text import csv_text, usage_csv
from sagemaker_queue.presentation.tables.jobs import job_size
from sagemaker_queue.ui.figures.fleet_figures import fleet_figure
from sagemaker_queue.ui.figures.sharing import shares_figure, use_figure
from sagemaker_queue.ui.figures.style import Theme
from sagemaker_queue.ui.figures.usage_figures import usage_figure
from sagemaker_queue.ui.loans import loans
from sagemaker_queue.ui.view import HOURS, Viewer
from sagemaker_queue.workflows.usage.sums import PriceList, sum_usage

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

INDEX = "index.html"
_PLOTLY = "plotly.min.js"
FILES = (INDEX, _PLOTLY, "queue.csv", "usage.csv")
_FLEET_HOURS = 12
_QUEUE = ("Job", "State", "Position", "Priority", "Project", "Owner", "Instances", "Submitted (UTC)", "Why")
_USAGE = ("instance_hours", "gpu_hours", "in_quota_hours", "borrowed_hours", "lost_hours", "cost")
_STYLE = """
:root { color-scheme: light } body { font: 14px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2em auto }
table { border-collapse: collapse } td, th { padding: 3px 12px 3px 0; text-align: left; border-bottom: 1px solid #ddd;
vertical-align: top; overflow-wrap: anywhere } h2 { margin-top: 2em }
"""


def write_pages(queue: QueueClient, folder: Path) -> None:
    """Write the present state of the queue to a folder; create a missing folder.

    Raises QueueError, for instance if the folder contains other files.
    """
    check_folder(folder)
    view = Viewer(queue)()
    month = view.at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    parts, total = sum_usage(queue.history(month), "project", PriceList(queue.policy().policy.get("prices") or {}))
    theme = Theme()
    rows = [_queue_row(job) for job in view.live]
    hours = {key: used.hours() for key, used in parts.items()}
    day = timedelta(hours=HOURS)
    fleet = fleet_figure(view.status, view.past, view.at, theme, hours=_FLEET_HOURS)
    use = use_figure(view.status, view.past, view.at - day, view.at, theme)
    borrowed = _borrowed(loan.sentence for loan in loans(view.status))
    sections = [
        _section("Fleet", _drawn(fleet)),
        _section("Queue", _table(_QUEUE, rows) if rows else "<p>No job runs or waits.</p>"),
        _section("Projects", _drawn(shares_figure(view.status, theme)), *borrowed),
        _section("Use over the last 24 hours", _drawn(use)),
        _section(f"Usage since {month:%Y-%m-%d}", _drawn(usage_figure(hours, theme)), _usage_table(hours)),
    ]
    is_empty = not (view.live or view.past or hours)
    if is_empty:
        sections = [_section("Queue", "<p>No job runs or waits, and no attempt has ended recently.</p>")]
    files = {
        INDEX: _page(view.at, len(view.live), sections, has_figures=not is_empty),
        "queue.csv": csv_text(_QUEUE, rows),
        "usage.csv": usage_csv("project", parts, total),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_empty:  # without figures, the library of 5 MB is not needed
            (folder / _PLOTLY).unlink(missing_ok=True)
        else:
            (folder / _PLOTLY).write_text(get_plotlyjs(), encoding="utf-8")
        for name, text in files.items():
            (folder / name).write_text(visible(text), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error}") from error


def check_folder(folder: Path) -> None:
    """Raise StorageError if the path is a file, or a folder with files that are not from an earlier export."""
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is a file: name a folder.")
    others = sorted(path.name for path in folder.iterdir() if path.name not in FILES) if folder.is_dir() else []
    if others:
        raise StorageError(f"{folder} contains other files, such as {others[0]}: name another folder.")


def _page(at: datetime, count: int, sections: Iterable[str], *, has_figures: bool) -> str:
    script = f'<script src="{_PLOTLY}"></script>' if has_figures else ""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>SageMaker queue</title>"
        f"<style>{_STYLE}</style>{script}"
        f"<h1>SageMaker queue</h1><p>{moment(at)} UTC, {amount(count, 'live job')}. As tables: "
        '<a href="queue.csv">queue.csv</a>, <a href="usage.csv">usage.csv</a>.</p>' + "".join(sections)
    )


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def _drawn(figure: go.Figure) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False}))


def _borrowed(sentences: Iterable[str]) -> list[str]:
    return [f"<p>{escape(sentence)}</p>" for sentence in sentences] or ["<p>No project uses more than its quota.</p>"]


def _table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(f"<th>{escape(header)}" for header in headers)
    body = "".join("<tr>" + "".join(f"<td>{escape('' if it is None else str(it))}" for it in row) for row in rows)
    return f"<table><tr>{head}{body}</table>"


def _usage_table(hours: Mapping[str, Mapping[str, float]]) -> str:
    headers = ["Project", *(name.replace("_", " ").capitalize() for name in _USAGE)]
    return _table(headers, [[key, *(f"{each[name]:,.2f}" for name in _USAGE)] for key, each in hours.items()])


def _queue_row(job: JobSummary) -> list[object]:
    why = job.reason.message if job.reason else ""
    place = [job.job, job.state, job.position, job.priority, job.project, short_owner(job.owner), job_size(job)]
    return [*place, moment(job.entry_time), why]
