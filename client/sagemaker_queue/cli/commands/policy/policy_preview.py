"""``smq policy preview``: print the changes that a policy would make; functions for other commands with previews."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from api_contract.preview import LONGEST_HOURS, MOST_INSTANCES, PreviewAnswer
from sagemaker_queue.cli.commands.policy.arguments import policy_file
from sagemaker_queue.cli.output import DONE, print_json, width
from sagemaker_queue.cli.parser import checked, command, connection, json_flag, option, with_queue
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.presentation.documents import read_document
from sagemaker_queue.presentation.text.preview_text import preview_page

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

HOURS = 8.0  # the default length of a preview
PREVIEW_TIMEOUTS = (5.0, 29.0)  # timeouts in seconds for the connection and the answer; API Gateway's limit is 29


def hours_from(text: str) -> float:
    """Parse a number of hours from 0 to LONGEST_HOURS. Raises InvalidOption."""
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 <= hours <= LONGEST_HOURS:
        raise InvalidOption(f"must be a number from 0 to {LONGEST_HOURS}, not {text!r}")
    return hours


hours_option = option(
    "--hours",
    metavar="N",
    type=checked(hours_from),
    default=HOURS,
    help=f"the hours to look ahead (default {HOURS:g}); 0: only the next cycle",
)


@command(
    "preview",
    help="print what a policy would change",
    description="Print the effects of a policy if it were applied now: jobs that would start, jobs that would be "
    "stopped (and for which job), jobs that could never start, and jobs that would wait longer or shorter over the "
    "next hours. The queue plans with its live jobs and their expected runtimes. Nothing is changed, "
    "and no job is stopped.",
    examples=["smq policy preview policy.yaml", "smq policy preview --hours 24 policy.yaml"],
)
@policy_file
@hours_option
@json_flag()
@with_queue
def policy_preview(queue: QueueClient, file: str, hours: float, as_json: bool) -> int:
    """Print the preview of a policy."""
    return show_preview(queue.preview(read_document(file, sys.stdin), hours=hours), as_json=as_json)


def show_preview(preview: PreviewAnswer, *, as_json: bool) -> int:
    """Print a preview as text or JSON, and return the exit code."""
    if as_json:
        print_json(preview.to_json())
    else:
        print(preview_page(preview, width()))
    return DONE


def preview_without_retries(**wanted: Any) -> PreviewAnswer:
    """Request a preview once, without retries.

    Raises QueueError if the queue does not answer within PREVIEW_TIMEOUTS.
    """
    return connection().queue(tries=1, timeout_seconds=PREVIEW_TIMEOUTS).preview(**wanted)


def capacities(text: str) -> dict[str, int]:
    """Parse capacities such as ``p5=10,p4=4``. Raises InvalidOption."""
    found: dict[str, int] = {}
    for part in text.split(","):
        pool, equals, count = part.rpartition("=")
        if not (pool and equals and count.isascii() and count.isdecimal() and len(count) <= len(str(MOST_INSTANCES))):
            raise InvalidOption(f"{part!r} is not the capacity of a pool, such as p5=10 or p5=10,p4=4.")
        if pool in found:
            raise InvalidOption(f"{pool} is given twice.")
        found[pool] = int(count)
    return found
