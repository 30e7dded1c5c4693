"""``smq failures``: sum up failed attempts, or show the rule that chooses the action after a job's failure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sagemaker_queue.cli.arguments import job_argument
from sagemaker_queue.cli.commands.accounting.period import Period, period_arguments
from sagemaker_queue.cli.output import DONE, print_json, width
from sagemaker_queue.cli.parser import command_with_subcommands, flag, json_flag, option, with_queue
from sagemaker_queue.errors import NotFound
from sagemaker_queue.presentation.tables.csv_text import csv_text
from sagemaker_queue.presentation.tables.failure_tables import check_sections, failure_rows
from sagemaker_queue.presentation.text.explanations import sections_page
from sagemaker_queue.presentation.text.layout import table
from sagemaker_queue.workflows.usage.failure_sums import FAILURE_KEYS, GPU, FailureSum, sum_failures

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient


@command_with_subcommands(
    "failures",
    help="sum up failed attempts by class",
    description="Sum up the attempts that failed in a period, also attempts that were tried again: by class of the "
    "failure, project, owner, instance type or GPU, with the number of jobs and the instance-hours that were lost. "
    "--by gpu counts hardware failures whose logs name GPUs, and lists the training jobs for a case with AWS Support. "
    "docs/reference/failures.md lists the classes. smq failures check shows which rule chooses the action for one job.",
    examples=[
        "smq failures",
        "smq failures --by owner --project vision --since 7d",
        "smq failures --by instance-type --since 2026-11-01 --json",
        "smq failures --by gpu --since 7d",
        "smq failures check job1",
    ],
)
@option("--by", type=click.Choice(tuple(FAILURE_KEYS)), default="class", help="the key of the sums (class)")
@period_arguments("30d", by_name=False)
@flag("--csv", "as_csv", exclusive_group="format", help="print CSV")
@json_flag("print JSON, with the classes of each line", exclusive_group="format")
@with_queue
def failures(queue: QueueClient, by: str, period: Period, as_csv: bool, as_json: bool) -> int:
    """Print sums of failed attempts as a table, CSV or JSON."""
    parts, total = sum_failures(period.attempts(queue), by)
    if as_csv:
        print(_csv(by, parts), end="")
    elif as_json:
        found = [{by: key, **part.to_json(), **_names(by, part)} for key, part in parts.items()]
        print_json({"by": by, "failures": found, "total": total.to_json()})
    elif parts:
        headers, rows = failure_rows(by, parts, total)
        print(table(headers, rows, width=width(), right=("Failures", "Jobs", "Owners", "Lost-h")))
    else:
        named = "No hardware failure in that time has named a GPU in its log."
        print(named if by == GPU else "No attempt has failed in that time.", file=sys.stderr)
    return DONE


def _csv(by: str, parts: dict[str, FailureSum]) -> str:
    columns = [name for name in FailureSum().to_json() if name != "classes"]
    columns += _names(by, FailureSum())
    rows = ((key, {**part.to_json(), **_names(by, part)}) for key, part in parts.items())
    return csv_text([by, *columns], ([key, *(figures[name] for name in columns)] for key, figures in rows))


def _names(by: str, part: FailureSum) -> dict[str, object]:
    """Return the training jobs in which a GPU failed, for a case with AWS Support; empty unless ``by`` is ``gpu``."""
    return {"training_jobs": " ".join(part.names)} if by == GPU else {}


@failures.subcommand(
    "check",
    help="show which rule chooses the action after a failure",
    description="Show the class of a job's last failure, the action that the queue took, and the rule that chose it; "
    "then the action and the rule that would apply now. The rules of the job (its tag retry_on) come first, then those "
    "of its project and of the policy (failure_rules), then the built-in action of the class.",
    examples=["smq failures check job1", "smq failures check job1 --json"],
)
@job_argument
@json_flag("print JSON")
@with_queue
def failures_check(queue: QueueClient, name: str, as_json: bool) -> int:
    """Print the rule that chose the action after a job's failure, and the rule that would choose the action now."""
    job = queue.job(name)
    if job.failure is None:
        raise NotFound(f"No attempt of {job.job} has failed, or an earlier version of the queue recorded the failure.")
    if as_json:
        print_json({"job": job.job, **job.failure.to_json()})
    else:
        print(sections_page(check_sections(job, job.failure), width()))
    return DONE
