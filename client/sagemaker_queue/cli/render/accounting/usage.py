"""Sums of what was used: as a page for people, as a table and as JSON for programs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from sagemaker_queue.cli.render.accounting.history import cell
from sagemaker_queue.cli.render.layout import table

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
_BRIEFLY = {"Instance-h": "Inst-h"}  # where there is no room
_COUNTS = ("jobs", "attempts")
TOTAL = "all"
_EXACT = 6  # decimals of an hour: four thousandths of a second


class Hours(Protocol):
    """Sums."""

    def hours(self) -> dict[str, float]:
        """Return them."""


def usage_page(by: str, parts: Mapping[str, Hours], total: Hours, width: int | None, *, priced: bool) -> str:
    """Return a line for each, and one for all; and what is not in the sums."""
    columns = [name for name in _COLUMNS if priced or name != "cost"]
    rows = [[key, *_figures(used.hours(), columns)] for key, used in (*parts.items(), (TOTAL, total))]
    shown = [_COLUMNS[name] for name in columns]
    page = table([by.capitalize(), *shown], rows, width=width, right=shown)
    if width is not None and len(page.partition("\n")[0]) > width:
        shown = [_BRIEFLY.get(header, header) for header in shown]
        page = table([by.capitalize(), *shown], rows, width=width, right=shown, compact=True)
    notes = list(_notes(total.hours(), priced=priced))
    return "\n".join([page, *(["", *notes] if notes else [])])


def _figures(hours: Mapping[str, float], columns: list[str]) -> list[str]:
    return [f"{hours[name]:,.0f}" if name in _COUNTS else f"{hours[name]:,.2f}" for name in columns]


def _notes(hours: Mapping[str, float], *, priced: bool) -> list[str]:
    notes = []
    if priced and hours["unpriced_hours"]:
        notes.append(f"The policy has no price for {hours['unpriced_hours']:,.2f} of the instance-hours.")
    if hours["unknown_gpu_hours"]:
        notes.append(f"{hours['unknown_gpu_hours']:,.2f} instance-hours are of types that have no GPUs, or new ones.")
    return notes


def print_usage_csv(by: str, parts: Mapping[str, Hours], total: Hours, stream: TextIO) -> None:
    """Write a line for each."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([by, *total.hours()])
    for key, used in parts.items():
        writer.writerow([cell(key), *_exact(used.hours()).values()])


def usage_json(by: str, parts: Mapping[str, Hours], total: Hours) -> dict[str, Any]:
    """Return the figures of each, and those of all."""
    each = [{by: key, **_exact(used.hours())} for key, used in parts.items()]
    return {"by": by, "usage": each, "total": _exact(total.hours())}


def _exact(hours: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, _EXACT) for name, value in hours.items()}
