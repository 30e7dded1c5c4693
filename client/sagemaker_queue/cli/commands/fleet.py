"""``smq status``: show pools, departments and projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_queue.cli.output import DONE, print_json, width
from sagemaker_queue.cli.parser import command, json_flag, with_queue
from sagemaker_queue.presentation.tables.fleet_tables import Part, status_parts
from sagemaker_queue.presentation.text.layout import table

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient


@command(
    "status",
    help="print pools and projects",
    description="Print the pools, and for each department and project its quota, its used instances and its waiting "
    "jobs.",
    examples=["smq status"],
)
@json_flag("print all data and all live jobs as JSON")
@with_queue
def status(queue: QueueClient, as_json: bool) -> int:
    """Print pools, departments and projects, or the whole status as JSON."""
    state = queue.queue()
    if as_json:
        print_json(state.to_json())
    else:
        print("\n\n".join(_text(part, width()) for part in status_parts(state)))
    return DONE


def _text(part: Part, width: int | None) -> str:
    rows = [table(part.headers, part.rows, width=width)] if part.headers else []
    return "\n\n".join([*([part.title] if part.title else []), *rows])
