"""A grid: one job for each combination of values, listed and cancelled together."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sagemaker_queue.cli.commands.submit import bring_code
from sagemaker_queue.cli.job_options import JobOptions, described_job, stem
from sagemaker_queue.cli.output import DONE, REFUSED, print_json
from sagemaker_queue.cli.own_words import in_own_words
from sagemaker_queue.cli.render.layout import table
from sagemaker_queue.cli.render.submission import sweep_line
from sagemaker_queue.errors import InvalidOption, InvalidRequest, NameTaken, QueueError, TooLarge
from sagemaker_queue.formatting import amount, clean
from sagemaker_queue.packaging.sweep import Run, expand, fingerprint

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.models import Submission
    from sagemaker_queue.packaging.command import CommandJob

MOST = 50  # jobs that are submitted without being asked for twice
_OF_ONE_JOB = (InvalidRequest, NameTaken, TooLarge)  # the others may fare better


def submit_grid(
    queue: QueueClient,
    grids: Sequence[tuple[str, Sequence[str]]],
    options: JobOptions,
    command: Sequence[str],
    *,
    yes: bool,
    preflight: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Queue a job for each combination."""
    with described_job(queue, options, command) as (template, code, storage):
        # The same command with the same code is the same sweep, so that what is missing of it can be added.
        identity = fingerprint(command, grids, replace(template, name=stem(command)).request())
        group = options.name or f"{stem(command)}-{identity}"
        runs = expand(group, grids, command, template.env)
        if dry_run:
            if as_json:
                print_json([job_of(template, group, run).request() for run in runs])
            else:
                print(preview(group, runs, template))
            return DONE
        if not as_json:
            print(_summary(group, runs, template), flush=True)
        if len(runs) > MOST and not yes:
            raise InvalidOption(f"These are {len(runs)} jobs; --yes submits more than {MOST}.")
        jobs = [job_of(template, group, run) for run in runs]
        first = jobs[0].request()  # they all name the same data
        bring_code(queue, first, code, storage, preflight=preflight, quiet=as_json)
    return _submit_all(queue, jobs, group, preflight=preflight, as_json=as_json)


def job_of(template: CommandJob, group: str, run: Run) -> CommandJob:
    """Return the job of a run."""
    return replace(
        template,
        name=run.name,
        command=run.command,
        env=run.env,
        tags={**template.tags, "group": group},
        checkpoints=None,  # an address that was given is for all of them, each with a folder of its own there
        checkpoint_home=template.checkpoints or template.checkpoint_home,
    )


def _submit_all(queue: QueueClient, jobs: Sequence[CommandJob], group: str, *, preflight: bool, as_json: bool) -> int:
    submitted: dict[str, Submission] = {}
    refused: dict[str, QueueError] = {}
    for job in jobs:
        request = job.request()
        try:
            with in_own_words(request):
                submitted[job.name] = queue.submit(request, preflight=preflight)
        except QueueError as error:
            refused[job.name] = error
            if not isinstance(error, _OF_ONE_JOB):
                break
    if as_json:
        print_json([submission.to_json() for submission in submitted.values()])
    else:
        print(sweep_line(group, submitted.values()))
    if len(submitted) == len(jobs):
        return DONE
    missing = [job.name for job in jobs if job.name not in submitted]
    print(f"smq: {len(missing)} of {len(jobs)} jobs are not submitted:", file=sys.stderr)
    for name in missing:
        print(f"  {name}: {clean(str(refused.get(name, 'not tried')))}", file=sys.stderr)
    taken = sum(isinstance(error, NameTaken) for error in refused.values())
    if taken:
        print("smq: give a sweep with another command, code or options another --name.", file=sys.stderr)
    if taken < len(missing):
        print("smq: the same command again submits what is missing.", file=sys.stderr)
    return REFUSED


def preview(group: str, runs: Sequence[Run], template: CommandJob) -> str:
    """Return a table of the jobs to come."""
    rows = [[run.name, *run.values.values()] for run in runs]
    return f"{table(['Job Name', *runs[0].values], rows)}\n\n{_summary(group, runs, template)}"


def _summary(group: str, runs: Sequence[Run], template: CommandJob) -> str:
    fewer = "".join(f", or {size}" for size in template.sizes[1:])
    asked = f"{amount(template.instances, 'instance')}{fewer} of {template.instance_type} each"
    return f"Sweep {group}: {amount(len(runs), 'job')}, {asked}"
