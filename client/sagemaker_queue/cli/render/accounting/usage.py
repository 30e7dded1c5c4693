"""Sums of what was used: as a page for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sagemaker_queue.cli.render.layout import table
from sagemaker_queue.tables.csv_text import exact
from sagemaker_queue.tables.usage import Hours, usage_notes, usage_rows

_BRIEFLY = {"Instance-h": "Inst-h"}  # where there is no room


def usage_page(by: str, parts: Mapping[str, Hours], total: Hours, width: int | None, *, priced: bool) -> str:
    """Return a line for each, and one for all; and what is not in the sums."""
    headers, rows = usage_rows(by, parts, total, priced=priced)
    page = table(headers, rows, width=width, right=headers[1:])
    if width is not None and len(page.partition("\n")[0]) > width:
        headers = [_BRIEFLY.get(header, header) for header in headers]
        page = table(headers, rows, width=width, right=headers[1:], compact=True)
    notes = usage_notes(total, priced=priced)
    return "\n".join([page, *(["", *notes] if notes else [])])


def usage_json(by: str, parts: Mapping[str, Hours], total: Hours) -> dict[str, Any]:
    """Return the figures of each, and those of all."""
    each = [{by: key, **exact(used.hours())} for key, used in parts.items()]
    return {"by": by, "usage": each, "total": exact(total.hours())}
