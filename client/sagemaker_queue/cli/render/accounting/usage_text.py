"""Usage as a page and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_queue.cli.render.layout import table
from sagemaker_queue.tables.csv_text import exact
from sagemaker_queue.tables.usage_tables import Hours, usage_notes, usage_rows

_SHORT_HEADERS = {"Instance-h": "Inst-h"}  # if the table is too wide


def usage_page(by: str, parts: Mapping[str, Hours], total: Hours, width: int | None, *, priced: bool) -> str:
    """Return a table with a line for each part and the total, and notes about usage that the sums omit."""
    headers, rows = usage_rows(by, parts, total, priced=priced)
    page = table(headers, rows, width=width, right=headers[1:])
    if width is not None and len(page.partition("\n")[0]) > width:
        headers = [_SHORT_HEADERS.get(header, header) for header in headers]
        page = table(headers, rows, width=width, right=headers[1:], compact=True)
    notes = usage_notes(total, priced=priced)
    return "\n".join([page, *(["", *notes] if notes else [])])


def usage_json(by: str, parts: Mapping[str, Hours], total: Hours) -> dict[str, Any]:
    """Return the figures of each part and the total as JSON values."""
    each = [{by: key, **exact(used.hours())} for key, used in parts.items()]
    return {"by": by, "usage": each, "total": exact(total.hours())}
