"""``smq sweep``: run a command with many values, as a grid of jobs or as a search for the best values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_queue.cli.commands.submit import preflight_option
from sagemaker_queue.cli.commands.sweep.grid import submit_grid
from sagemaker_queue.cli.commands.sweep.search import SearchOptions, run_search, search_options, show_study
from sagemaker_queue.cli.job_command import RunCommand, job_command, job_options
from sagemaker_queue.cli.parser import checked, command, flag, json_flag, option, with_queue
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.packaging.sweep import parse_grid
from sagemaker_queue.workflows.grid import MOST

if TYPE_CHECKING:
    from sagemaker_queue.jobs.packaging.job_options import JobKeywords
    from sagemaker_queue.queue.client import QueueClient


@command(
    "sweep",
    cls=RunCommand,
    help="run a command once for each combination of values, or search for the best",
    description="Run a command once for each combination of the grids' values, as independent jobs of one group: "
    "{lr} in the command or in --env stands for the value of --grid lr=... The options are those of smq "
    "submit. The same command again submits only the missing jobs. With --metric, the command is a "
    "search: Optuna chooses the values of --space from the results of earlier trials, each trial is a "
    "job, and the best trial is printed at the end. A search is stored: Ctrl-C does not affect its "
    "jobs, and the same command continues the search. Without any {placeholder}, trials find their "
    "values in variables such as SM_HP_LR.",
    examples=[
        "smq sweep --grid lr=0.1,0.01 --grid layers=2,4 -- python train.py --lr {lr} --layers {layers}",
        "smq sweep --name lr --grid lr=0.1,0.01 --dry-run -- python train.py --lr {lr}",
        "smq sweep --max-parallel 4 --grid seed=1,2,3,4,5,6,7,8 -- python train.py --seed {seed}",
        "smq ls --group lr",
        "smq cancel --group lr",
        "smq sweep --study lr --space lr=log:1e-5..1e-1 --metric 'loss=loss: ([0-9.]+)' --minimize --trials 40 "
        "-- python train.py --lr {lr}",
        "smq sweep --study lr --status",
    ],
)
@option(
    "--grid",
    "grids",
    metavar="NAME=V,V",
    type=checked(parse_grid),
    multiple=True,
    help="the values of a placeholder; several grids give all combinations",
)
@flag("--yes", help=f"submit more than {MOST} jobs")
@search_options
@job_options
@preflight_option
@json_flag("print the result as JSON; for a search, at its end")
@flag("--dry-run", help="list the jobs (for a search, the first ones); upload and submit nothing")
@job_command("the command with its placeholders")
@with_queue
def sweep(
    queue: QueueClient,
    grids: tuple[tuple[str, tuple[str, ...]], ...],
    yes: bool,
    search: SearchOptions,
    options: JobKeywords,
    preflight: bool,
    as_json: bool,
    dry_run: bool,
    command: tuple[str, ...],
) -> int:
    """Submit a job for each combination of a grid, run a search, or print the state of a study."""
    if search.status:
        return show_study(search, options, as_json=as_json)
    if search.metric:
        return run_search(queue, grids, search, options, command, preflight=preflight, as_json=as_json, dry_run=dry_run)
    if given := search.given():
        raise InvalidOption(
            f"{given[0]} is of a search, which needs --metric NAME=REGEX, and --minimize or --maximize."
        )
    if not grids:
        raise InvalidOption(
            "Nothing is varied: give --grid lr=0.1,0.01 for a job with each value, or --space lr=log:1e-5..1e-1 with "
            "--metric NAME=REGEX for a search."
        )
    return submit_grid(queue, grids, options, command, yes=yes, preflight=preflight, as_json=as_json, dry_run=dry_run)
