"""``smq get``: download the results or the checkpoints of a job to a folder."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sagemaker_queue.cli.arguments import job_argument
from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import DONE, REFUSED
from sagemaker_queue.cli.parser import argument, command, flag, option, with_queue
from sagemaker_queue.cli.progress_bars import TransferProgress
from sagemaker_queue.jobs.formatting import one_line
from sagemaker_queue.workflows.results import fetch_results

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

_SHOWN = 20  # maximum number of refused names that are printed


@command(
    "get",
    help="fetch what a job leaves",
    description="Fetch what a job has left in S3: its model and its other output, of the attempt that ended it, "
    "unpacked to the folders model and data of DIR. With --checkpoints, what it has saved so far, also while it lives. "
    "Nothing is overwritten: DIR must be empty, or not be there. Links and sparse files in an archive "
    "are not unpacked. An archive that would become larger than expected, or fill the disk, is refused.",
    examples=["smq get job1", "smq get job1 results/job1", "smq get job1 --checkpoints", "smq get job1 --max-size 200"],
)
@job_argument
@argument(
    "to",
    metavar="DIR",
    required=False,
    type=Path,
    shell_complete=files,
    help="the folder for it (default: JOB, or JOB-checkpoints)",
)
@flag("--checkpoints", help="fetch its checkpoints instead")
@option(
    "--max-size",
    metavar="GB",
    type=click.FloatRange(min=0, min_open=True),
    help="how large the archives may become, all together (default: ten times their size, at least 10)",
)
@option(
    "--max-files",
    metavar="N",
    type=click.IntRange(min=1),
    help="how many files and folders the archives may have, all together (default: 100000)",
)
@with_queue
def get(
    queue: QueueClient, name: str, to: Path | None, checkpoints: bool, max_size: float | None, max_files: int | None
) -> int:
    """Download results or checkpoints, and print the files that were refused."""
    done = fetch_results(
        queue,
        name,
        to,
        checkpoints=checkpoints,
        shown=partial(TransferProgress, "Fetching"),
        max_size=max_size,
        max_files=max_files,
    )
    for thing, why in done.refused[:_SHOWN]:
        print(f"smq: not fetched: {one_line(f'{thing}: {why}')}", file=sys.stderr)
    if len(done.refused) > _SHOWN:
        print(f"smq: not fetched: {len(done.refused) - _SHOWN} more", file=sys.stderr)
    print(done)
    return REFUSED if done.refused else DONE
