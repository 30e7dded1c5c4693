"""``smq usage``: sum finished attempts and their cost by project, owner or another key; print remaining budgets."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from sagemaker_queue.cli.commands.accounting.period import Period, period_arguments
from sagemaker_queue.cli.output import DONE, print_json, width
from sagemaker_queue.cli.parser import command, flag, json_flag, option, with_queue
from sagemaker_queue.presentation.tables.csv_text import exact, usage_csv
from sagemaker_queue.presentation.tables.usage_tables import Hours, usage_notes, usage_rows, useful_rows
from sagemaker_queue.presentation.text.accounting.budgets import budgets_json, budgets_page
from sagemaker_queue.presentation.text.layout import table
from sagemaker_queue.workflows.usage.budgets import budgets_of, remaining_budgets
from sagemaker_queue.workflows.usage.cause_sums import GROUPINGS, ProjectCauses, usage_sums
from sagemaker_queue.workflows.usage.causes import Cause
from sagemaker_queue.workflows.usage.sums import PriceList

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

_SHORT_HEADERS = {"Instance-h": "Inst-h"}  # used if the table is too wide


@command(
    "usage",
    help="sum up usage and cost",
    description="Sum up the usage of attempts that ended in a period: hours of instances and of GPUs, within the "
    "quota and borrowed, lost to preemptions, waiting time, cost by the prices in the policy, and the "
    "rest of the budgets. --by cause groups the hours (useful, waiting for instances, lost to "
    "preemptions, lost to failures, hung, idle), and prints the useful part for each project. "
    "docs/reference/history.md defines each figure. Separate several values with commas; * stands for "
    "any characters, ? for one.",
    examples=[
        "smq usage",
        "smq usage --by owner --project vision --since 2026-11-01 --until 2026-12-01",
        "smq usage --by day --since 14d",
        "smq usage --by cause --since 7d",
        "smq usage --by department --since 2026-10-01 --csv > usage.csv",
    ],
)
@option(
    "--by",
    type=click.Choice(GROUPINGS),
    default="project",
    help="the key of the sums (project); (none) stands for jobs without this key; cause: useful, lost and idle hours",
)
@period_arguments("30d")
@flag("--csv", "as_csv", exclusive_group="format", help="print CSV")
@json_flag("print JSON, with the sums of the whole period", exclusive_group="format")
@with_queue
def usage(queue: QueueClient, by: str, period: Period, as_csv: bool, as_json: bool) -> int:
    """Print usage as text, CSV or JSON; text and JSON also contain the remaining budgets."""
    attempts = period.attempts(queue)
    policy = queue.policy().policy
    prices = PriceList(policy.get("prices") or {})
    sums = usage_sums(attempts, by, prices)
    parts, total = sums.parts, sums.total
    if as_csv:
        print(usage_csv(by, parts, total), end="")
        return DONE
    now = datetime.now(timezone.utc)
    budgets = remaining_budgets(queue, budgets_of(policy, period.projects, now), now)
    if as_json:
        found = usage_json(by, parts, total)
        if sums.is_by_cause:
            found["projects"] = projects_json(sums.projects)
        print_json(found | ({"budgets": budgets_json(budgets.remaining)} if budgets.remaining else {}))
        return DONE
    if parts:
        print(usage_page(by, parts, total, width(), priced=bool(prices)))
        if sums.is_by_cause:
            headers, rows = useful_rows(sums.projects)
            print(f"\nUseful part for each project:\n\n{table(headers, rows, width=width(), right=headers[1:])}")
    else:
        print("No attempt ended in that time.", file=sys.stderr)
    if budgets.remaining:
        print(f"\nRemaining budgets:\n\n{budgets_page(budgets.remaining, width(), complete=budgets.complete)}")
    return DONE


def usage_page(by: str, parts: Mapping[str, Hours], total: Hours, width: int | None, *, priced: bool) -> str:
    """Return a table with a line for each part and the total, and notes about usage that the sums omit."""
    headers, rows = usage_rows(by, parts, total, priced=priced)
    page = table(headers, rows, width=width, right=headers[1:])
    if width is not None and len(page.partition("\n")[0]) > width:
        headers, rows = usage_rows(by, parts, total, priced=priced, narrow=True)
        headers = [_SHORT_HEADERS.get(header, header) for header in headers]
        page = table(headers, rows, width=width, right=headers[1:], compact=True)
    notes = usage_notes(total, priced=priced)
    return "\n".join([page, *(["", *notes] if notes else [])])


def usage_json(by: str, parts: Mapping[str, Hours], total: Hours) -> dict[str, Any]:
    """Return the figures of each part and the total as JSON values."""
    each = [{by: key, **exact(used.hours())} for key, used in parts.items()]
    return {"by": by, "usage": each, "total": exact(total.hours())}


def projects_json(projects: Mapping[str, ProjectCauses]) -> list[dict[str, Any]]:
    """Return the instance-hours of each project by cause, and the useful part, as JSON values."""
    return [
        {
            "project": name,
            **exact(
                {
                    "instance_hours": each.held_hours,
                    **{f"{cause.value}_hours": each.hours()[cause] for cause in Cause if cause in each.causes},
                }
            ),
            "useful_percent": None if each.useful_percent is None else round(each.useful_percent, 2),
        }
        for name, each in projects.items()
    ]
