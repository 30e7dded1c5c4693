"""``smq sweep``: one job for each combination of values, listed and cancelled together."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sagemaker_queue.cli.commands.submit import (
    add_command,
    add_submission_options,
    announce,
    look_first,
    standing,
    words,
)
from sagemaker_queue.cli.job_options import add_job_options, checked, described_job, stem
from sagemaker_queue.cli.output import DONE, REFUSED, print_json, width
from sagemaker_queue.cli.parser import Commands
from sagemaker_queue.errors import InvalidOption, InvalidRequest, NameTaken, QueueError, TooLarge
from sagemaker_queue.packaging.sweep import Run, expand, fingerprint, parse_grid
from sagemaker_queue.text import amount, clean, table

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.models import Submission
    from sagemaker_queue.packaging.command import CommandJob

MOST = 50  # jobs that are submitted without being asked for twice
_OF_ONE_JOB = (InvalidRequest, NameTaken, TooLarge)  # the others may fare better


def add_sweep_command(commands: Commands) -> None:
    """Add sweep."""
    sweep = commands.add(
        "sweep",
        _sweep,
        help="run a command once for each combination of values",
        description="Run a command once for each combination of the grids' values, as independent jobs of one group: "
        "{lr} in the command or in --env stands for the value of --grid lr=... The options are those of smq submit. "
        "The same command again submits only what is missing.",
        examples=[
            "smq sweep --grid lr=0.1,0.01 --grid layers=2,4 -- python train.py --lr {lr} --layers {layers}",
            "smq sweep --name lr --grid lr=0.1,0.01 --dry-run -- python train.py --lr {lr}",
            "smq ls --group lr",
            "smq cancel --group lr",
        ],
    )
    sweep.add_argument(
        "--grid",
        metavar="NAME=V,V",
        type=checked(parse_grid),
        action="append",
        required=True,
        help="the values of a place; several grids make all combinations",
    )
    sweep.add_argument("--yes", action="store_true", help=f"submit even more than {MOST} jobs")
    add_job_options(sweep)
    add_submission_options(sweep, wait=False)
    sweep.add_argument("--dry-run", action="store_true", help="list the jobs, and neither upload nor submit anything")
    add_command(sweep, "the command with its places")


def _sweep(queue: QueueClient, arguments: argparse.Namespace) -> int:
    command = words(arguments)
    with described_job(queue, arguments, command) as (template, code, storage):
        # The same command with the same code is the same sweep, so that what is missing of it can be added.
        told = fingerprint(command, arguments.grid, replace(template, name=stem(command)).request())
        group = arguments.name or f"{stem(command)}-{told}"
        runs = expand(group, arguments.grid, command, template.env)
        if not arguments.json:
            print(_preview(group, runs, template), flush=True)
        if arguments.dry_run:
            if arguments.json:
                print_json([_job(template, group, run).request() for run in runs])
            return DONE
        if len(runs) > MOST and not arguments.yes:
            raise InvalidOption(f"These are {len(runs)} jobs; --yes submits more than {MOST}.")
        jobs = [_job(template, group, run) for run in runs]
        look_first(queue, jobs[0].request(), arguments, to_come=code.address)  # they all name the same data
        announce(code, storage, quiet=arguments.json)
    return _submit_all(queue, jobs, group, arguments)


def _job(template: CommandJob, group: str, run: Run) -> CommandJob:
    return replace(
        template,
        name=run.name,
        command=run.command,
        env=run.env,
        tags={**template.tags, "group": group},
        checkpoints=None,  # an address that was given is for all of them, each with a folder of its own there
        checkpoint_home=template.checkpoints or template.checkpoint_home,
    )


def _submit_all(queue: QueueClient, jobs: Sequence[CommandJob], group: str, arguments: argparse.Namespace) -> int:
    done: list[Submission] = []
    refused: dict[str, QueueError] = {}
    for job in jobs:
        try:
            done.append(queue.submit(job.request(), preflight=not arguments.no_preflight))
        except QueueError as error:
            refused[job.name] = error
            if not isinstance(error, _OF_ONE_JOB):
                break
    new = [one for one in done if not one.known]
    if arguments.json:
        print_json([one.to_json() for one in done])
    else:
        if done:
            print(table(["Job Name", "State"], [[one.job, _told(one)] for one in done], width=width()))
        print(f"\n{amount(len(new), 'job')} submitted, {len(done) - len(new)} there already; smq ls --group {group}")
    if len(done) == len(jobs):
        return DONE
    print(f"smq: {len(jobs) - len(done)} of {len(jobs)} jobs are not submitted:", file=sys.stderr)
    there = {one.job for one in done}
    for job in jobs:
        if job.name not in there:
            print(f"  {job.name}: {clean(str(refused.get(job.name, 'not tried')))}", file=sys.stderr)
    taken = sum(isinstance(error, NameTaken) for error in refused.values())
    if taken:
        print("smq: give a sweep with another command, code or options another --name.", file=sys.stderr)
    if len(done) + taken < len(jobs):
        print("smq: the same command again submits what is missing.", file=sys.stderr)
    return REFUSED


def _told(job: Submission) -> str:
    return f"{job.state} (submitted before)" if job.known else standing(job)


def _preview(group: str, runs: Sequence[Run], template: CommandJob) -> str:
    names = list(runs[0].values)
    rows = [[run.name, *run.values.values()] for run in runs]
    asked = f"{amount(template.instances, 'instance')} of {template.instance_type} each"
    return f"{table(['Job Name', *names], rows)}\n\nSweep {group}: {amount(len(runs), 'job')}, {asked}"
