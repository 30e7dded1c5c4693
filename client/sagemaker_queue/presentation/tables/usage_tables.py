"""Usage as a table for the terminal and notebooks, with notes about usage that has no price or no GPU hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sagemaker_queue.workflows.usage.cause_sums import BY_CAUSE, ProjectCauses
from sagemaker_queue.workflows.usage.causes import TITLES, Cause

_COLUMNS = {
    "jobs": "Jobs",
    "attempts": "Attempts",
    "instance_hours": "Instance-h",
    "share_percent": "Share",
    "gpu_hours": "GPU-h",
    "gpu_use": "GPU %",
    "in_quota_hours": "In Quota",
    "borrowed_hours": "Borrowed",
    "lost_hours": "Lost",
    "waited_hours": "Waited",
    "cost": "Cost",
}
_COUNTS = ("jobs", "attempts")
TOTAL = "all"


class Hours(Protocol):
    """Sums of usage."""

    def hours(self) -> dict[str, float]:
        """Return the sums by name, times in hours."""


def usage_rows(
    by: str, parts: Mapping[str, Hours], total: Hours, *, priced: bool, narrow: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Return headers, a row for each part, and a row for the total. ``narrow`` omits the utilization of GPUs."""
    known = total.hours()
    has = {"cost": priced, "gpu_use": not narrow and gpu_use(known) is not None}
    columns = [name for name in _COLUMNS if has.get(name, True) and (name == "gpu_use" or name in known)]
    rows = [[_title(by, key), *_figures(used.hours(), columns)] for key, used in (*parts.items(), (TOTAL, total))]
    return [by.capitalize(), *(_COLUMNS[name] for name in columns)], rows


def usage_notes(total: Hours, *, priced: bool) -> list[str]:
    """Return notes about usage that the cost or the GPU hours do not include."""
    hours = total.hours()
    notes = []
    if priced and hours["unpriced_hours"]:
        notes.append(f"The policy has no price for {hours['unpriced_hours']:,.2f} of the instance-hours.")
    if hours.get("gpu_hours") and hours.get("unknown_gpu_hours"):
        left_out = f"{hours['unknown_gpu_hours']:,.2f} instance-hours"
        notes.append(f"GPU-h leaves out {left_out} of types without GPUs or of unknown types.")
    return notes


def budget_notes(*, complete: bool) -> list[str]:
    """Return a note if the sums of the budgets are not ``complete``; else an empty list."""
    return [] if complete else ["More attempts have ended than were read: less is left."]


def useful_rows(projects: Mapping[str, ProjectCauses]) -> tuple[list[str], list[list[str]]]:
    """Return headers, and a row for each project with the useful part of its time."""
    rows = [
        [
            name,
            f"{each.held_hours:,.2f}",
            f"{each.hours().get(Cause.USEFUL, 0):,.2f}",
            percent(each.useful_percent),
        ]
        for name, each in projects.items()
    ]
    return ["Project", "Instance-h", "Useful-h", "Useful"], rows


def percent(value: float | None) -> str:
    """Return a percentage without decimals; an empty text if it is unknown."""
    return "" if value is None else f"{value:.0f} %"


def _title(by: str, key: str) -> str:
    return TITLES[Cause(key)] if by == BY_CAUSE and key != TOTAL else key


def gpu_use(hours: Mapping[str, float]) -> float | None:
    """Return the mean utilization of GPUs in percent, weighted by GPU-hours; None if no attempt was measured."""
    measured = hours.get("measured_gpu_hours")
    return 100 * hours["used_gpu_hours"] / measured if measured else None


def _figures(hours: Mapping[str, float], columns: list[str]) -> list[str]:
    return [_figure(hours, name) for name in columns]


def _figure(hours: Mapping[str, float], name: str) -> str:
    if name == "gpu_use":
        used = gpu_use(hours)
        return "" if used is None else f"{used:.0f}"
    if name == "share_percent":
        return percent(hours[name])
    return f"{hours[name]:,.0f}" if name in _COUNTS else f"{hours[name]:,.2f}"
