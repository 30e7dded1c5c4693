"""Sums of what was used: as a page for people, as a table and as JSON for programs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any, TextIO

from sagemaker_queue.cli.render.accounting.history import cell
from sagemaker_queue.cli.render.layout import table
from sagemaker_queue.tables.usage import Hours, usage_notes, usage_rows

_EXACT = 6  # decimals of an hour: four thousandths of a second


def usage_page(by: str, parts: Mapping[str, Hours], total: Hours, width: int | None, *, priced: bool) -> str:
    """Return a line for each, and one for all; and what is not in the sums."""
    headers, rows = usage_rows(by, parts, total, priced=priced)
    page = table(headers, rows, width=width, right=headers[1:])
    notes = usage_notes(total, priced=priced)
    return "\n".join([page, *(["", *notes] if notes else [])])


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
