"""``smq history``: list finished attempts, also of jobs that the queue has forgotten."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sagemaker_queue.cli.commands.accounting.period import Period, period_arguments
from sagemaker_queue.cli.output import DONE, print_json, width
from sagemaker_queue.cli.parser import command, flag, json_flag, with_queue
from sagemaker_queue.presentation.text.accounting.history_text import history_table
from sagemaker_queue.workflows.history_csv import write_history_csv

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient


@command(
    "history",
    help="list finished attempts",
    description="List finished attempts of jobs, the earliest end first: owner, pool, instances, waiting time, "
    "provisioning, runtime and outcome. Attempts are kept longer than jobs (AttemptHistoryDays of the "
    "stack). Separate several values with commas; * stands for any characters, ? for one.",
    examples=[
        "smq history",
        "smq history --since 2026-11-01 --until 2026-12-01 --project vision",
        "smq history --mine --since 12h",
        "smq history --since 90d --csv > history.csv",
        "smq simulate history.csv --policy policy.yaml",
    ],
)
@period_arguments("7d")
@flag("--csv", "as_csv", exclusive_group="format", help="print all data as CSV, which smq simulate can read")
@json_flag("print all data as JSON", exclusive_group="format")
@with_queue
def history(queue: QueueClient, period: Period, as_csv: bool, as_json: bool) -> int:
    """Print finished attempts as a table, CSV or JSON."""
    attempts = period.attempts(queue)
    if as_csv:
        write_history_csv(attempts, sys.stdout)
        return DONE
    found = list(attempts)
    if as_json:
        print_json([attempt.to_json() for attempt in found])
    elif found:
        print(history_table(found, width()))
    else:
        print("No attempt ended in that time.", file=sys.stderr)
    return DONE
