"""``smq sweep`` without ``--metric``: a grid, with one job for each combination of values."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sagemaker_queue.cli.commands.submit import upload
from sagemaker_queue.cli.job_command import job_from_options
from sagemaker_queue.cli.option_names import errors_with_options
from sagemaker_queue.cli.output import DONE, REFUSED, print_json
from sagemaker_queue.errors import InvalidOption, NameTaken
from sagemaker_queue.jobs.formatting import amount, clean
from sagemaker_queue.presentation.text.layout import table
from sagemaker_queue.presentation.text.submission_text import sweep_line
from sagemaker_queue.workflows.grid import MOST, job_for_run, submit_all, sweep_runs
from sagemaker_queue.workflows.submission import submit_request

if TYPE_CHECKING:
    from api_contract.models import Submission
    from sagemaker_queue.jobs.packaging.command import CommandJob
    from sagemaker_queue.jobs.packaging.job_options import JobKeywords
    from sagemaker_queue.jobs.packaging.sweep import Run
    from sagemaker_queue.queue.client import QueueClient


def submit_grid(
    queue: QueueClient,
    grids: Sequence[tuple[str, Sequence[str]]],
    options: JobKeywords,
    command: Sequence[str],
    *,
    yes: bool,
    preflight: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Submit a job for each combination, or only print the jobs if ``dry_run``; return the exit code."""
    with job_from_options(queue, options, command) as (template, code, storage):
        group, runs = sweep_runs(template, options.get("name"), grids)
        if dry_run:
            if as_json:
                print_json([job_for_run(template, group, run).request() for run in runs])
            else:
                print(preview(group, runs, template))
            return DONE
        if not as_json:
            print(_summary(group, runs, template), flush=True)
        if len(runs) > MOST and not yes:
            raise InvalidOption(f"These are {len(runs)} jobs; --yes submits more than {MOST}.")
        jobs = [job_for_run(template, group, run) for run in runs]
        first, *_ = [job.request() for job in jobs]  # an invalid request fails here, before the upload
        upload(queue, first, code, storage, preflight=preflight, quiet=as_json)
    return _submit_all(queue, jobs, group, preflight=preflight, as_json=as_json)


def _submit_all(queue: QueueClient, jobs: Sequence[CommandJob], group: str, *, preflight: bool, as_json: bool) -> int:
    def submit(job: CommandJob) -> Submission:
        request = job.request()
        with errors_with_options(request):
            return submit_request(queue, request, preflight=preflight, relative_times=job.relative_times)

    result = submit_all(jobs, submit)
    if as_json:
        print_json([submission.to_json() for submission in result.jobs])
    else:
        print(sweep_line(group, result.jobs))
    if not result.refused:
        return DONE
    print(f"smq: {len(result.refused)} of {len(jobs)} jobs are not submitted:", file=sys.stderr)
    for name, error in result.refused.items():
        print(f"  {name}: {clean(str(error or 'not tried'))}", file=sys.stderr)
    names_taken = sum(isinstance(error, NameTaken) for error in result.refused.values())
    if names_taken:
        print("smq: give a sweep with another command, code or options another --name.", file=sys.stderr)
    if names_taken < len(result.refused):
        print("smq: the same command submits the missing jobs.", file=sys.stderr)
    return REFUSED


def preview(group: str, runs: Sequence[Run], template: CommandJob) -> str:
    """Return a table of the jobs that a sweep would submit."""
    rows = [[run.name, *run.values.values()] for run in runs]
    return f"{table(['Job Name', *runs[0].values], rows)}\n\n{_summary(group, runs, template)}"


def _summary(group: str, runs: Sequence[Run], template: CommandJob) -> str:
    fewer = "".join(f", or {size}" for size in template.instances[1:])
    resources = f"{amount(template.instances[0], 'instance')}{fewer} of {template.instance_type} each"
    return f"Sweep {group}: {amount(len(runs), 'job')}, {resources}"
