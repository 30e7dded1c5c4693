"""The page Fleet: past, running and expected jobs on the instances."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from nicegui import ui

from api_contract.models import JobSummary, Pause, PoolStatus
from sagemaker_queue.jobs.formatting import age, amount, gpus, is_not_estimated_yet, moment, visible
from sagemaker_queue.presentation.tables.fleet_tables import site_text
from sagemaker_queue.ui.elements import (
    getting_started,
    grid,
    heading,
    job_cells,
    job_column,
    job_plot,
    seconds,
    time_column,
)
from sagemaker_queue.ui.figures.fleet_figures import fleet_figure
from sagemaker_queue.ui.parts.drain_buttons import DrainButtons, drain_remarks, jobs_in
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.ui.view import View

_HOURS = {2: "2 h", 6: "6 h", 12: "12 h", 24: "24 h"}


def fleet_page(tab: Tab) -> None:
    """Add the elements of the page to a tab; every new view of the tab updates them."""
    shown = {"hours": 6}
    shown_cards: list[tuple[PoolStatus, tuple[str, ...]]] = []
    with ui.row().classes("items-center w-full justify-between"):
        heading("Fleet")
        range_chosen = ui.toggle(_HOURS, value=6).props('aria-label="hours before and after now"')
    empty = ui.column()
    pools = ui.row().classes("gap-3")
    drains = DrainButtons(tab)
    plot = job_plot("Instances of all pools over time: past, running and expected attempts")
    ui.label(
        "Each row is one instance of a pool. Filled: past or running. Outlined: expected, from the runtimes of similar "
        "jobs. Hatched: reserved by a training plan."
    ).classes("text-sm smq-faint")
    heading("Running now", 2)
    running = grid(
        [
            job_column("Job"),
            {"field": "state", "headerName": "State"},
            {"field": "project", "headerName": "Project"},
            {"field": "owner", "headerName": "Owner"},
            {"field": "instances", "headerName": "Instances"},
            time_column("since", "For", "for"),
            time_column("ends", "Expected end"),
        ],
        "No job runs.",
        height="auto",
    )

    def show(view: View) -> None:
        empty.clear()
        with empty:
            getting_started(view)
        cards = [(pool, tuple(_remarks(pool, view, view.at))) for pool in view.status.pools]
        if cards != shown_cards:  # otherwise every refresh would take the keyboard focus from the buttons
            shown_cards[:] = cards
            pools.clear()
            with pools:
                for pool, remarks in cards:
                    _pool_card(pool, remarks, drains)
        plot.update_figure(fleet_figure(view.status, view.past, view.at, tab.theme, hours=shown["hours"]))
        running.rows([_row(job) for job in view.status.active])

    def choose() -> None:
        shown["hours"] = range_chosen.value
        show(tab.view)

    range_chosen.on_value_change(choose)
    tab.on_update(show)


def _pool_card(pool: PoolStatus, remarks: Sequence[str], drains: DrainButtons) -> None:
    busy = pool.used + pool.external
    with ui.column().classes("smq-card gap-0"):
        ui.label(pool.name).classes("font-medium")
        ui.label(pool.instance_type or "any type").classes("text-sm smq-faint")
        if site := site_text(pool.region, pool.account):
            ui.label(site).classes("text-sm smq-faint")
        ui.linear_progress(busy / pool.capacity if pool.capacity else 0, show_value=False, size="10px").classes("my-2")
        of_capacity = f" of {amount(pool.capacity, 'instance')} in use, {pool.free} free"
        ui.label(f"{busy}{of_capacity}" if pool.capacity else f"{amount(busy, 'instance')} in use, no job starts here")
        for remark in remarks:
            ui.label(visible(remark)).classes("text-sm").style("max-width: 420px; overflow-wrap: anywhere")
        drains.add(pool)


def _remarks(pool: PoolStatus, view: View, now: datetime) -> list[str]:
    remarks = []
    if pool.gpus is not None:
        remarks.append(f"{pool.gpus_used:g} of {gpus(pool.gpus)} in use")
    if pool.external:
        remarks.append(f"{amount(pool.external, 'instance')} used by jobs outside the queue")
    if pool.stopping:
        remarks.append(f"{amount(pool.stopping, 'instance')} being freed")
    if pool.warm:
        remarks.append(f"{amount(pool.warm, 'instance')} kept warm")
    if pool.drain is not None:
        remarks += drain_remarks(pool.drain, jobs_in(pool, view.live))
    if pool.training_plan:
        remarks.append(f"training plan, {moment(pool.opens)} to {moment(pool.closes)}")
    for pause in view.status.pauses:
        if pause.pool == pool.name:
            again = f"; next try in {age(now, pause.until)}" if pause.until and pause.until > now else ""
            remarks.append(f"{_backoff_reason(pause)}{again}")
    return remarks


def _backoff_reason(pause: Pause) -> str:
    if pause.at_fault:
        return f"SageMaker refuses: {pause.at_fault.rstrip('.')}"
    if pause.unreachable:
        return "its region or account does not respond"
    return (pause.quota_lag or "SageMaker had no instances").rstrip(".")


def _instances_text(job: JobSummary) -> str:
    if job.gpus is not None:
        return f"{gpus(job.gpus)} of a shared instance"
    slots = ", ".join(f"{count} {pool}" for pool, count in job.slots.items())
    return slots if job.carries is None else f"{slots}, shared by other jobs"


def _row(job: JobSummary) -> dict[str, object]:
    return {
        **job_cells(job),
        "instances": _instances_text(job),
        "since": seconds(job.started or job.state_since),
        "ends": seconds(job.expected_end),
        "endsHow": "in" if job.expected_end else "within a minute" if is_not_estimated_yet(job) else "unknown",
    }
