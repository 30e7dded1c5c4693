"""The page Usage: sums of finished attempts by project, owner or another key, and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from nicegui import ui

from sagemaker_queue.presentation.tables.csv_text import usage_csv
from sagemaker_queue.ui.elements import figure_plot, grid, heading, number_column
from sagemaker_queue.ui.figures.usage_figures import usage_figure
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.ui.view import View
from sagemaker_queue.workflows.usage.sums import KEYS, PriceList, Usage, sum_usage

PERIODS: Mapping[str, str] = {"month": "this month", "1": "24 h", "7": "7 days", "30": "30 days", "90": "90 days"}
_FIGURES = {
    "jobs": "Jobs",
    "instance_hours": "Instance hours",
    "gpu_hours": "GPU hours",
    "in_quota_hours": "Within quota",
    "borrowed_hours": "Borrowed",
    "lost_hours": "Lost",
    "waited_hours": "Waited, hours",
    "cost": "Cost by the prices",
}


def usage_page(tab: Tab) -> None:
    """Add the elements of the page to a tab; usage is read at once, and after each change of key or period."""
    with ui.row().classes("items-center w-full justify-between"):
        heading("Usage")
        with ui.row().classes("items-center gap-3"):
            by = ui.select(list(KEYS), value="project", label="by").props("dense outlined").classes("w-32")
            period = ui.select(dict(PERIODS), value="month", label="of").props("dense outlined").classes("w-32")
            download = ui.button("CSV", icon="download").props("outline no-caps dense").classes("px-2")
    summary = ui.label().classes("smq-faint").props("role=status")
    plot = figure_plot("Hours of instances that each has used: within the quota, borrowed, and lost by preemptions")
    table = grid(
        [
            {"field": "key", "headerName": "Name"},
            *(number_column(name, title, 0 if name == "jobs" else 2) for name, title in _FIGURES.items()),
        ],
        "Nothing has ended in this time.",
        height="auto",
    )
    found: dict[str, Usage] = {}
    total = Usage()

    async def look() -> None:
        nonlocal total
        summary.set_text("Asking ...")
        since = begin_of(period.value, datetime.now(timezone.utc))
        answer = await tab.ask(_sums, tab, by.value, since)
        if answer is None:
            summary.set_text("The queue has not told.")
            return
        parts, total = answer
        found.clear()
        found.update(parts)
        hours = total.hours()
        cost = f", {hours['cost']:,.2f} by the policy's prices" if hours["cost"] else ""
        summary.set_text(
            f"What ended since {since:%Y-%m-%d %H:%M} UTC: {hours['jobs']} jobs, "
            f"{hours['instance_hours']:,.1f} instance hours, {hours['gpu_hours']:,.1f} GPU hours{cost}. "
            f"What runs now has used {running_hours(tab.view):,.1f} instance hours besides."
        )
        hours_of = {key: used.hours() for key, used in parts.items()}
        plot.update_figure(usage_figure(hours_of, tab.theme, by_day=by.value == "day"))
        table.rows([{"id": key, "key": key, **_rounded(used)} for key, used in parts.items()])

    def save() -> None:
        since = begin_of(period.value, datetime.now(timezone.utc))
        name = f"usage-by-{by.value}-since-{since:%Y-%m-%d}.csv"
        ui.download.content(usage_csv(by.value, found, total), name, "text/csv")

    by.on_value_change(look)
    period.on_value_change(look)
    download.on_click(save)
    ui.timer(0, look, once=True)


def begin_of(period: str, now: datetime) -> datetime:
    """Return the start of a period of ``PERIODS``."""
    if period == "month":
        return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return now - timedelta(days=int(period))


def running_hours(view: View) -> float:
    """Return the instance hours so far of running attempts, which the sums do not include yet."""
    lasted = [
        ((view.at - job.started).total_seconds(), sum(job.slots.values())) for job in view.status.active if job.started
    ]
    return sum(seconds * count for seconds, count in lasted) / 3600


def _sums(tab: Tab, by: str, since: datetime) -> tuple[dict[str, Usage], Usage]:
    prices = PriceList(tab.queue.policy().policy.get("prices") or {})
    return sum_usage(tab.queue.history(since), by, prices)


def _rounded(used: Usage) -> dict[str, Any]:
    hours = used.hours()
    return {name: hours[name] if name == "jobs" else round(hours[name], 2) for name in _FIGURES}
