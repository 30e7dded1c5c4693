"""``smq ls``: list jobs, filtered and sorted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from api_contract.models import ACTIVE, FINISHED, WAITING, JobSummary
from sagemaker_queue.cli.arguments import JobChoice, job_choice_arguments
from sagemaker_queue.cli.completion import one_of
from sagemaker_queue.cli.output import DONE, colours, print_json, raw, width
from sagemaker_queue.cli.parser import command, flag, json_flag, option, with_queue
from sagemaker_queue.errors import ConfigError, QueueError
from sagemaker_queue.jobs.formatting import did_you_mean
from sagemaker_queue.presentation.tables.jobs import COLUMNS
from sagemaker_queue.presentation.text.job_text import (
    BASIC_COLUMNS,
    TERMINAL_COLUMNS,
    WIDE_COLUMNS,
    jobs_screen,
    jobs_table,
    on_a_terminal,
)
from sagemaker_queue.workflows.selection import Selection

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

_LIVE = "live"
_COUNTED = 100  # finished jobs are counted up to this number


def _comma_separated(states: frozenset[str]) -> str:
    return ",".join(sorted(states))


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in COLUMNS:
            hint = did_you_mean(name, COLUMNS)
            raise click.BadParameter(f"There is no column {name!r}.{hint} Columns: {', '.join(COLUMNS)}.")
    return names


@command(
    "ls",
    help="list jobs",
    description="List the live jobs, or the jobs in other states. A job is listed if it meets all conditions. "
    "Options take several values, separated by commas; * stands for any characters, ? for one. On a terminal, the "
    "columns are those of the profile (smq config set columns job,state,reason), or as many of "
    f"{','.join(TERMINAL_COLUMNS)} as fit, with project if the jobs have several projects. Otherwise the columns are "
    f"{','.join(BASIC_COLUMNS)}.",
    examples=[
        "smq ls --wide",
        "smq ls --running --sort running --limit 10",
        "smq ls --waiting --mine -o position,job,age,reason",
        "smq ls 'resnet-*' --project vision --all",
        "smq ls --failed --json",
    ],
)
@job_choice_arguments
@option("--limit", metavar="N", type=click.IntRange(min=1), help="list only the first N jobs")
@flag("--running", exclusive_group="states", help="only jobs that hold instances: starting, running or stopping")
@flag("--waiting", exclusive_group="states", help="only waiting jobs: pending or preempted")
@flag("--failed", exclusive_group="states", help="only failed jobs")
@flag("--finished", exclusive_group="states", help="only finished jobs: " + ", ".join(sorted(FINISHED)))
@flag(
    "--all", "include_finished", exclusive_group="states", help="include finished jobs, as long as the queue keeps them"
)
@option(
    "--state",
    metavar="STATES",
    exclusive_group="states",
    help="only jobs in these states, such as running,pending; or live, finished, all",
)
@option(
    "-o",
    "--columns",
    type=_columns,
    metavar="COLUMNS",
    shell_complete=one_of(COLUMNS),
    exclusive_group="format",
    help=f"columns, separated by commas: {', '.join(COLUMNS)}",
)
@flag(
    "--wide", exclusive_group="format", help=f"{','.join(WIDE_COLUMNS)}; on a terminal, as many of these columns as fit"
)
@flag("--brief", exclusive_group="format", help=f"the same as -o {','.join(BASIC_COLUMNS)}, also on a terminal")
@json_flag("print all data as JSON", exclusive_group="format")
@with_queue
def ls(
    queue: QueueClient,
    choice: JobChoice,
    limit: int | None,
    running: bool,
    waiting: bool,
    failed: bool,
    finished: bool,
    include_finished: bool,
    state: str | None,
    columns: tuple[str, ...] | None,
    wide: bool,
    brief: bool,
    as_json: bool,
) -> int:
    """Print jobs as a table or JSON."""
    flags = {
        _comma_separated(ACTIVE): running,
        _comma_separated(WAITING): waiting,
        "failed": failed,
        "finished": finished,
        "all": include_finished,
    }
    states = next((states for states, given in flags.items() if given), state or _LIVE)
    selection = choice.selection(queue)
    jobs = list(selection.of(queue.jobs(states), choice.sort, reverse=choice.reverse, limit=limit))
    if as_json:
        print_json([job.to_json() for job in jobs])
    elif jobs:
        terminal = width()
        if terminal is None or brief:
            print(jobs_table(jobs, WIDE_COLUMNS if wide else columns or BASIC_COLUMNS, width=terminal))
        else:
            print(_screen(jobs, columns, queue.config.columns, terminal, wide=wide), file=raw(sys.stdout))
    else:
        is_unfiltered = states == _LIVE and selection == Selection()
        others = _finished_jobs_hint(queue, selection) if states == _LIVE else ""
        print(f"{'The queue is empty' if is_unfiltered else 'No jobs match'}{others}.", file=sys.stderr)
    return DONE


def _finished_jobs_hint(queue: QueueClient, selection: Selection) -> str:
    """Return a hint with the number of finished jobs in the selection; empty without any, or if the queue fails."""
    try:
        count = sum(1 for _ in selection.of(queue.jobs("finished"), limit=_COUNTED))
    except QueueError:
        return ""
    if count == 0:
        return ""
    if count == 1:
        return "; 1 job has finished: add --all to list it"
    return f"; {f'{count} or more' if count == _COUNTED else count} jobs have finished: add --all to list them"


def _screen(
    jobs: list[JobSummary], requested: tuple[str, ...] | None, profile_columns: str | None, terminal: int, *, wide: bool
) -> str:
    chosen = requested
    if profile_columns and not (requested or wide):
        try:
            chosen = _columns(profile_columns)
        except click.BadParameter as error:
            raise ConfigError(f"columns in the profile: {error.message}") from error
    columns = chosen or (WIDE_COLUMNS if wide else on_a_terminal(jobs))
    return jobs_screen(jobs, columns, terminal, as_asked=chosen is not None, colours=colours())
