"""The page Queue: all live jobs in order, with buttons to change them."""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import islice

from nicegui import ui

from api_contract.intervals import short_interval
from api_contract.models import Expectation, JobSummary
from sagemaker_queue.jobs.formatting import NOT_ESTIMATED, amount, is_not_estimated_yet
from sagemaker_queue.presentation.tables.jobs import job_size, reason_with_class
from sagemaker_queue.ui.elements import (
    getting_started,
    grid,
    heading,
    job_cells,
    job_column,
    number_column,
    seconds,
    time_column,
)
from sagemaker_queue.ui.parts.job_buttons import JobButtons
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.ui.view import View

_TWO_LINES = {"cellClass": "smq-why"}
_ENDED = 200  # maximum number of the latest finished jobs that are shown


def queue_page(tab: Tab) -> None:
    """Add the elements of the page to a tab. They are updated whenever the tab has new data of the queue (a View)."""
    ended = _FinishedJobs(tab)
    visible: list[str] = []
    with ui.row().classes("items-center w-full justify-between"):
        heading("Queue")
        count = ui.label().classes("smq-faint").props("role=status")
    empty = ui.column()
    with ui.row().classes("items-center w-full gap-2"):
        words = ui.input(placeholder="filter: a name, project, owner, state ...").props(
            'dense outlined clearable data-filter aria-label="filter"'
        )
        words.classes("grow")
        only_mine = ui.switch("only my jobs")
        with_ended = ui.switch("include finished jobs")
        actions = JobButtons(tab)
    table = grid(
        [
            job_column("Job"),
            {"field": "state", "headerName": "State", "width": 105},
            number_column("position", "Position", width=85),
            time_column("when", "Time", width=145, tooltipField="whenTold"),
            {"field": "why", "headerName": "Reason", "flex": 1, "minWidth": 225, "tooltipField": "why", **_TWO_LINES},
            number_column("priority", "Priority", width=85),
            {"field": "project", "headerName": "Project", "width": 105},
            {"field": "owner", "headerName": "Owner", "width": 105},
            number_column("instances", "Instances", width=95),
            time_column("submitted", "Submitted", "ago", width=115),
        ],
        "No job matches.",
        height="max(320px, calc(100vh - 250px))",
        rowHeight=42,
        rowSelection={"mode": "multiRow", "enableClickSelection": True},
        selectionColumnDef={"pinned": "left"},
        tooltipShowDelay=400,
    )

    def show(view: View) -> None:
        empty.clear()
        with empty:
            getting_started(view)
        jobs = {job.job: job for job in (*view.live, *ended.jobs)}
        waiting = sum(job.waits for job in view.live)
        count.set_text(f"{amount(len(view.live) - waiting, 'job')} active, {waiting} waiting")
        mine = view.identity.owner
        shown = [job for job in jobs.values() if not only_mine.value or job.owner == mine]
        table.rows([_row(job) for job in shown])
        visible[:] = [job.job for job in shown]
        actions.update(jobs)

    async def update(view: View) -> None:
        await ended.update(view)
        show(view)

    async def choose_ended() -> None:
        await ended.include(with_ended.value)
        show(tab.view)

    async def select() -> None:
        actions.select(await table.selected())

    async def open_match() -> None:
        """Open the job with the name in the filter, or else the only job that the filter shows."""
        name = (words.value or "").strip()
        if job := name if name in visible else await table.only_row():
            ui.navigate.to(f"/job/{job}")

    words.on("keydown.enter", open_match)
    only_mine.on_value_change(lambda: show(tab.view))
    words.on_value_change(lambda: table.filter(words.value or ""))
    with_ended.on_value_change(choose_ended)
    table.element.on("selectionChanged", select)
    tab.on_update(update)


class _FinishedJobs:
    """The latest finished jobs, if the table includes them. They are read again only after a job has finished."""

    def __init__(self, tab: Tab) -> None:
        self.jobs: list[JobSummary] = []
        self._tab = tab
        self._included = False
        self._live: set[str] = set()  # the live jobs of the latest view
        self._missing: set[str] = set()  # jobs that have left the live jobs, and that the list does not have yet

    async def include(self, included: bool) -> None:
        """Read the finished jobs, or forget them."""
        self._included = included
        await self._read()

    async def update(self, view: View) -> None:
        """Read the finished jobs if a job has left the live jobs, and once more if the list was out of date."""
        left, self._live = self._live, {job.job for job in view.live}
        left -= self._live
        if self._included and (left or self._missing):
            await self._read()
            self._missing = left - {job.job for job in self.jobs}

    async def _read(self) -> None:
        found = await self._tab.ask(_latest_ended, self._tab) if self._included else []
        if found is not None:
            self.jobs = found if self._included else []


def _latest_ended(tab: Tab) -> list[JobSummary]:
    return list(islice(tab.queue.jobs("finished"), _ENDED))


def _row(job: JobSummary) -> dict[str, object]:
    return {
        **job_cells(job),
        "position": job.position,
        "priority": job.priority,
        "instances": job_size(job),
        "submitted": seconds(job.entry_time),
        **_when(job),
        "whenTold": _when_told(job),
        "why": reason_with_class(job),
    }


def _when_told(job: JobSummary) -> str:
    """Return the tooltip of the expected start."""
    if job.expected_start is not None:
        return job.expected_start.message
    return NOT_ESTIMATED if job.waits and is_not_estimated_yet(job) else ""


def _when(job: JobSummary) -> dict[str, object]:
    """Return the time ``when`` and the words ``whenHow`` beside it.

    The time is the expected start of a waiting job, the start of a running job, or the end of a finished job.
    """
    if job.finished:
        return {"when": seconds(job.state_since), "whenHow": "at"}
    if not job.waits:
        return {"when": seconds(job.started or job.state_since), "whenHow": "for"}
    if job.held:
        return {"when": None, "whenHow": "after release"}
    if job.expected_start is None:
        return {"when": None, "whenHow": "within a minute" if is_not_estimated_yet(job) else ""}
    return _expected(job.expected_start)


def _expected(expected: Expectation) -> dict[str, object]:
    """Return the expected start as ``when`` and ``whenHow``.

    The table cannot format an interval, so ``whenHow`` then has the complete text.
    """
    start = expected.likely or expected.start
    if start is None:
        return {"when": None, "whenHow": "never" if expected.doubt == "NEVER" else "unknown"}
    if (interval := short_interval(expected, datetime.now(timezone.utc))) is not None:
        return {"when": seconds(start), "whenHow": f"in {interval}"}
    return {"when": seconds(start), "whenHow": "in about" if expected.doubt else "in"}
