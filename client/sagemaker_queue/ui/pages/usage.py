"""The page Usage: sums of finished attempts by project, owner or another key, and their cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from nicegui import ui

from sagemaker_queue.presentation.tables.csv_text import usage_csv
from sagemaker_queue.presentation.tables.usage_tables import Hours, gpu_use
from sagemaker_queue.ui.elements import figure_plot, grid, heading, number_column
from sagemaker_queue.ui.figures.usage_figures import causes_figure, usage_figure
from sagemaker_queue.ui.parts.low_use_card import low_use_card
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.ui.view import View
from sagemaker_queue.workflows.usage.cause_sums import GROUPINGS, UsageSums, usage_sums
from sagemaker_queue.workflows.usage.causes import TITLES, Cause
from sagemaker_queue.workflows.usage.low_use import LowUseAttempts
from sagemaker_queue.workflows.usage.sums import PriceList

PERIODS: Mapping[str, str] = {"month": "this month", "1": "24 h", "7": "7 days", "30": "30 days", "90": "90 days"}
_COLUMNS = {
    "jobs": "Jobs",
    "instance_hours": "Instance hours",
    "gpu_hours": "GPU hours",
    "gpu_use": "GPU use, %",
    "in_quota_hours": "Within quota",
    "borrowed_hours": "Borrowed",
    "lost_hours": "Lost",
    "waited_hours": "Waited, hours",
    "cost": "Cost (policy prices)",
}
_CAUSE_COLUMNS = {"instance_hours": "Instance hours", "share_percent": "Share, %", "cost": "Cost (policy prices)"}
EMPTY = "No attempt has ended in this period."
_WHOLE = ("jobs", "gpu_use")  # shown without decimals


def usage_page(tab: Tab) -> None:
    """Add the elements of the page to a tab; usage is read at once, and after each change of key or period."""
    with ui.row().classes("items-center w-full justify-between"):
        heading("Usage")
        with ui.row().classes("items-center gap-3"):
            by = ui.select(list(GROUPINGS), value="project", label="by").props("dense outlined").classes("w-32")
            period = ui.select(dict(PERIODS), value="month", label="of").props("dense outlined").classes("w-32")
            download = ui.button("CSV", icon="download").props("outline no-caps dense").classes("px-2")
    summary = ui.label().classes("smq-faint").props("role=status")
    area = ui.column().classes("w-full")
    show_low_use = low_use_card()
    shown: UsageSums | None = None
    shown_since = datetime.now(timezone.utc)
    update: Callable[[UsageSums], None] | None = None
    requests = 0

    async def read_usage() -> None:
        nonlocal shown, shown_since, update, requests
        requests += 1
        request_number = requests
        summary.set_text("Asking ...")
        since = begin_of(period.value, datetime.now(timezone.utc))
        low_use = LowUseAttempts()
        sums = await tab.ask(_sums, tab, by.value, since, low_use)
        if request_number != requests:
            return  # the answer to a later request is already shown, or will come
        if sums is None:
            summary.set_text("The queue did not answer.")
            return
        if update is None or shown is None or shown.is_by_cause != sums.is_by_cause:
            area.clear()
            with area:
                update = _cause_elements(tab) if sums.is_by_cause else _elements(tab)
        shown, shown_since = sums, since
        summary.set_text(_summary(sums, since, running_hours(tab.view)))
        update(sums)
        show_low_use(tab.view, low_use.worst())

    def save() -> None:
        if shown is not None:
            name = f"usage-by-{shown.by}-since-{shown_since:%Y-%m-%d}.csv"
            ui.download.content(usage_csv(shown.by, shown.parts, shown.total), name, "text/csv")

    by.on_value_change(read_usage)
    period.on_value_change(read_usage)
    download.on_click(save)
    ui.timer(0, read_usage, once=True)


def _elements(tab: Tab) -> Callable[[UsageSums], None]:
    """Add the figure and the table of usage by project or another key, and return the function that updates them."""
    plot = figure_plot("Instance hours used by each: within the quota, borrowed, and lost by preemptions")
    table = grid(
        [
            {"field": "key", "headerName": "Name"},
            *(number_column(name, title, 0 if name in _WHOLE else 2) for name, title in _COLUMNS.items()),
        ],
        EMPTY,
        height="auto",
    )

    def update(sums: UsageSums) -> None:
        hours_of = {key: used.hours() for key, used in sums.parts.items()}
        plot.update_figure(usage_figure(hours_of, tab.theme, by_day=sums.by == "day"))
        table.rows([{"id": key, "key": key, **_rounded(used)} for key, used in sums.parts.items()])

    return update


def _cause_elements(tab: Tab) -> Callable[[UsageSums], None]:
    """Add the figure and the tables of usage by cause, and return the function that updates them."""
    plot = figure_plot("Instance hours of each project: useful, waiting for instances, lost, hung and idle")
    causes = grid(
        [
            {"field": "cause", "headerName": "Cause"},
            *(number_column(name, title, 2) for name, title in _CAUSE_COLUMNS.items()),
        ],
        EMPTY,
        height="auto",
    )
    heading("Useful hours of each project", 2)
    useful = grid(
        [
            {"field": "project", "headerName": "Project"},
            number_column("held", "Instance hours", 2),
            number_column("useful", "Useful hours", 2),
            number_column("percent", "Useful, %"),
        ],
        EMPTY,
        height="auto",
    )

    def update(sums: UsageSums) -> None:
        plot.update_figure(causes_figure({name: each.hours() for name, each in sums.projects.items()}, tab.theme))
        causes.rows(
            [
                {"id": key, "cause": TITLES[Cause(key)], **{name: used.hours()[name] for name in _CAUSE_COLUMNS}}
                for key, used in sums.parts.items()
            ]
        )
        useful.rows(
            [
                {
                    "id": name,
                    "project": name,
                    "held": each.held_hours,
                    "useful": each.hours().get(Cause.USEFUL, 0.0),
                    "percent": each.useful_percent,
                }
                for name, each in sums.projects.items()
            ]
        )

    return update


def _summary(sums: UsageSums, since: datetime, running: float) -> str:
    hours = sums.total.hours()
    cost = f", cost {hours['cost']:,.2f} (policy prices)" if hours["cost"] else ""
    if sums.is_by_cause:
        used = f"{hours['instance_hours']:,.1f} instance hours, with provisioning{cost}"
    else:
        used = (
            f"{hours['jobs']} jobs, {hours['instance_hours']:,.1f} instance hours, "
            f"{hours['gpu_hours']:,.1f} GPU hours{cost}"
        )
    return (
        f"Attempts that have ended since {since:%Y-%m-%d %H:%M} UTC: {used}. "
        f"Running attempts have used another {running:,.1f} instance hours."
    )


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


def _sums(tab: Tab, by: str, since: datetime, low_use: LowUseAttempts) -> UsageSums:
    prices = PriceList(tab.queue.policy().policy.get("prices") or {})
    return usage_sums(low_use.watching(tab.queue.history(since)), by, prices)


def _rounded(used: Hours) -> dict[str, Any]:
    hours = {**used.hours(), "gpu_use": gpu_use(used.hours())}
    return {name: None if (value := hours[name]) is None else round(value, 2) for name in _COLUMNS}
