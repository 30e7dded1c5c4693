"""Queue: every job that lives, in its order, and what may be done about it."""

from __future__ import annotations

from nicegui import ui

from sagemaker_queue.formatting import age, amount, moment, short_owner, starts_in
from sagemaker_queue.models import JobSummary
from sagemaker_queue.ui.actions import Actions
from sagemaker_queue.ui.elements import grid, heading, job_column, nothing_yet
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.ui.view import View

_ENDED = 200  # ended jobs that are shown, the latest


def queue_page(tab: Tab) -> None:
    """Build the page."""
    ended: list[JobSummary] = []
    with ui.row().classes("items-center w-full justify-between"):
        heading("Queue")
        count = ui.label().classes("smq-faint").props("role=status")
    empty = ui.column()
    with ui.row().classes("items-center w-full gap-2"):
        words = ui.input(placeholder="filter: a name, project, owner, state ...").props(
            'dense outlined clearable data-filter aria-label="filter"'
        )
        words.classes("grow")
        with_ended = ui.switch("ended jobs, too")
        actions = Actions(tab)
    table = grid(
        [
            job_column("Job"),
            {"field": "state", "headerName": "State", "width": 110},
            {"field": "position", "headerName": "Position", "width": 105},
            {"field": "priority", "headerName": "Priority", "width": 100},
            {"field": "project", "headerName": "Project", "width": 120},
            {"field": "owner", "headerName": "Owner", "width": 130},
            {"field": "instances", "headerName": "Instances", "width": 110},
            {"field": "age", "headerName": "Submitted", "width": 115},
            {"field": "when", "headerName": "When", "width": 130, "tooltipField": "whenTold"},
            {"field": "why", "headerName": "Why", "flex": 1, "minWidth": 260, "tooltipField": "why"},
        ],
        "No job matches.",
        height="max(320px, calc(100vh - 250px))",
        rowSelection={"mode": "multiRow", "enableClickSelection": True},
        tooltipShowDelay=400,
    )

    def show(view: View) -> None:
        empty.clear()
        with empty:
            nothing_yet(view)
        jobs = {job.job: job for job in (*view.live, *ended)}
        waiting = sum(job.waits for job in view.live)
        count.set_text(f"{amount(len(view.live) - waiting, 'job')} active, {waiting} waiting")
        table.rows([_row(job) for job in jobs.values()])
        actions.know(jobs)

    async def choose_ended() -> None:
        ended[:] = (await tab.ask(_latest_ended, tab)) or [] if with_ended.value else []
        show(tab.view)

    async def select() -> None:
        actions.choose(await table.selected())

    words.on_value_change(lambda: table.filter(words.value or ""))
    with_ended.on_value_change(choose_ended)
    table.element.on("selectionChanged", select)
    tab.kept_fresh(show)


def _latest_ended(tab: Tab) -> list[JobSummary]:
    ended = tab.queue.jobs("finished")
    return [job for _, job in zip(range(_ENDED), ended)]


def _row(job: JobSummary) -> dict[str, object]:
    return {
        "id": job.job,
        "job": job.job,
        "state": f"{job.state}, held" if job.held else job.state,
        "position": job.position,
        "priority": job.priority,
        "project": job.project,
        "owner": short_owner(job.owner),
        "instances": job.instances,
        "age": f"{age(job.entry_time)} ago" if job.entry_time else "",
        "when": _when(job),
        "whenTold": job.expected_start.message if job.expected_start else "",
        "why": job.reason.message if job.reason else "",
    }


def _when(job: JobSummary) -> str:
    if job.waits:
        told = starts_in(job.expected_start)
        return f"in {told}" if told not in ("", "?", "soon") else {"?": "nobody knows"}.get(told, told)
    if job.finished:
        return moment(job.state_since)[:16]
    return f"for {age(job.started or job.state_since)}"
