"""``smq get``: download the results or the checkpoints of a job to a folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sagemaker_queue.cli.arguments import job_argument
from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import DONE, REFUSED, print_left_out
from sagemaker_queue.cli.parser import argument, command, flag, option, with_queue
from sagemaker_queue.cli.progress_bars import TransferProgress
from sagemaker_queue.workflows.results import fetch_results

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient


@command(
    "get",
    help="download the results of a job",
    description="Download the results of a job from S3: the model and the other output of its last attempt, "
    "unpacked to the folders model and data of DIR. With --checkpoints, download the checkpoints so "
    "far, also of a live job. No file is overwritten: DIR must be empty or missing. Links and sparse "
    "files in an archive are not unpacked. An archive that is larger than expected, or would fill the "
    "disk, is refused.",
    examples=["smq get job1", "smq get job1 results/job1", "smq get job1 --checkpoints", "smq get job1 --max-size 200"],
)
@job_argument
@argument(
    "to",
    metavar="DIR",
    required=False,
    type=Path,
    shell_complete=files,
    help="the folder for the files (default: JOB, or JOB-checkpoints)",
)
@flag("--checkpoints", help="download the checkpoints instead")
@option(
    "--max-size",
    metavar="GB",
    type=click.FloatRange(min=0, min_open=True),
    help="largest unpacked size of all archives together (default: ten times their size, at least 10)",
)
@option(
    "--max-files",
    metavar="N",
    type=click.IntRange(min=1),
    help="largest number of files and folders of all archives together (default: 100000)",
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
    print_left_out(done.refused, "downloaded")
    print(done)
    return REFUSED if done.refused else DONE
