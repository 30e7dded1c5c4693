"""``smq logs``: print the log of a job or of a group's jobs; with ``-f``, follow a job until it has finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sagemaker_queue.cli.arguments import JobSet, optional_job_argument
from sagemaker_queue.cli.completion import groups
from sagemaker_queue.cli.output import for_each
from sagemaker_queue.cli.parser import checked, command, flag, json_flag, option, with_queue
from sagemaker_queue.queue.config.pace import POLL_SECONDS
from sagemaker_queue.workflows.job_logs.choice import LineChoice
from sagemaker_queue.workflows.usage.period import moment_of

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient


@command(
    "logs",
    help="print the log of a job",
    description="Print the log of a job, all attempts in order. With -f, continue until the job has finished, "
    "through every preemption. Log lines go to standard output, and notes about the job's state to "
    "standard error. With --group, print the log of each job of a group, with the job's name before "
    "each line. Ctrl-C ends the output and does not affect the job.",
    examples=[
        "smq logs job1",
        "smq logs -f --tail 20 job1",
        "smq logs --since 2h --timestamps job1",
        "smq logs --group lr-sweep --tail 3",
        "smq logs --attempt 2 --instance algo-1 job1",
        "smq logs --json job1 | jq -r .message",
    ],
)
@optional_job_argument
@flag("-f", "--follow", "to_its_end", help="continue until the job has finished")
@option(
    "--group",
    metavar="GROUP",
    shell_complete=groups,
    help="the jobs of this group, such as a sweep, including finished jobs",
)
@option("--tail", type=click.IntRange(min=0), metavar="N", help="only the last N present lines of each job")
@option(
    "--since",
    metavar="TIME",
    type=checked(moment_of),
    help="only lines from this time on: 2026-11-22, 2026-11-22T10:00 (UTC), or 30m, 12h, 7d ago",
)
@flag("--timestamps", help="print the time of each line, in UTC")
@option("--attempt", type=int, metavar="N", help="only this attempt; 1 is the first")
@option("--instance", metavar="I", help="only this instance, such as algo-1 or 1")
@json_flag("print an object as JSON for each line")
@with_queue
def logs(
    queue: QueueClient, /, name: str | None, to_its_end: bool, group: str | None, as_json: bool, **choice: Any
) -> int:
    """Print the log of a job, or of the jobs of a group."""
    if (name is None) == (group is None):
        raise click.UsageError("Name a job, or give --group; not both.")
    lines = LineChoice(as_json=as_json, **choice)
    if name is not None and to_its_end:
        return follow(queue, name, lines)
    if to_its_end:
        raise click.UsageError("-f follows one job: name a job instead of --group")
    from sagemaker_queue.cli.job_log import print_log  # noqa: PLC0415  # botocore is slow to import

    if name is not None:
        return print_log(queue, name, lines)
    names = JobSet((), (group or "",)).resolve(queue, "all")
    return for_each(names, lambda one: print_log(queue, one, lines, prefix=f"{one} | "))


def follow(client: QueueClient, job_name: str, lines: LineChoice | None = None, *, poll: float = POLL_SECONDS) -> int:
    """Print the job's log and state changes until the job has finished.

    Returns the exit code: 0 if the job completed, 4 if the job failed or was stopped. Raises QueueError. Ctrl-C raises
    KeyboardInterrupt, for which ``smq`` returns exit code 130. The job continues.
    """
    from sagemaker_queue.cli.job_log import follow_log  # noqa: PLC0415

    return follow_log(client, job_name, lines or LineChoice(), poll=poll)
