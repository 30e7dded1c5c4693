"""The fleet as text: the pools, and the departments and projects that share them."""

from __future__ import annotations

from sagemaker_queue.cli.render.layout import table
from sagemaker_queue.models import QueueStatus
from sagemaker_queue.tables.fleet_tables import Part, status_parts


def status_page(status: QueueStatus, width: int | None = None) -> str:
    """Return the page of ``smq status``: pools, then departments and projects with their slots in each pool."""
    return "\n\n".join(_text(part, width) for part in status_parts(status))


def _text(part: Part, width: int | None) -> str:
    rows = [table(part.headers, part.rows, width=width)] if part.headers else []
    return "\n\n".join([*([part.title] if part.title else []), *rows])
