"""``smq status``: show pools, departments and projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_queue.cli.output import DONE, print_json, width
from sagemaker_queue.cli.parser import command, json_flag, with_queue
from sagemaker_queue.cli.render.fleet_text import status_page

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient


@command(
    "status",
    help="show pools and projects",
    description="Show the pools, and what departments and projects are given, have and wait for in each.",
    examples=["smq status"],
)
@json_flag("everything, and all live jobs, for programs")
@with_queue
def status(queue: QueueClient, as_json: bool) -> int:
    """Print pools, departments and projects, or the whole status as JSON."""
    state = queue.queue()
    if as_json:
        print_json(state.to_json())
    else:
        print(status_page(state, width()))
    return DONE
