"""Usage as a table for the terminal and notebooks, with notes about usage that has no price or no GPU hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

_COLUMNS = {
    "jobs": "Jobs",
    "attempts": "Attempts",
    "instance_hours": "Instance-h",
    "gpu_hours": "GPU-h",
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


def usage_rows(by: str, parts: Mapping[str, Hours], total: Hours, *, priced: bool) -> tuple[list[str], list[list[str]]]:
    """Return headers, and a row for each part and one for the total."""
    columns = [name for name in _COLUMNS if priced or name != "cost"]
    rows = [[key, *_figures(used.hours(), columns)] for key, used in (*parts.items(), (TOTAL, total))]
    return [by.capitalize(), *(_COLUMNS[name] for name in columns)], rows


def usage_notes(total: Hours, *, priced: bool) -> list[str]:
    """Return notes about usage that the cost or the GPU hours do not include."""
    hours = total.hours()
    notes = []
    if priced and hours["unpriced_hours"]:
        notes.append(f"The policy has no price for {hours['unpriced_hours']:,.2f} of the instance-hours.")
    if hours["unknown_gpu_hours"]:
        notes.append(f"{hours['unknown_gpu_hours']:,.2f} instance-hours are of types that have no GPUs, or new ones.")
    return notes


def _figures(hours: Mapping[str, float], columns: list[str]) -> list[str]:
    return [f"{hours[name]:,.0f}" if name in _COUNTS else f"{hours[name]:,.2f}" for name in columns]
