"""``smq logs``, and following a job to its end."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import add_job, add_json
from sagemaker_queue.cli.parser import Commands

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

POLL_SECONDS = 3.0


def add_log_commands(commands: Commands) -> None:
    """Add ``logs``."""
    logs = commands.add(
        "logs",
        _logs,
        help="show what a job writes",
        description="Show what a job has written, all its attempts in order. With -f, go on until it has ended, "
        "through every preemption. The job's own lines go to standard output, what the queue says of it to standard "
        "error. Ctrl-C stops showing, and nothing else.",
        examples=[
            "smq logs job1",
            "smq logs -f job1",
            "smq logs --attempt 2 --instance algo-1 job1",
            "smq logs --json job1 | jq -r .message",
        ],
    )
    add_job(logs)
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended")
    logs.add_argument("--attempt", type=int, metavar="N", help="only this attempt; 1 is the first")
    logs.add_argument("--instance", metavar="I", help="only this instance, such as algo-1 or 1")
    add_json(logs, help="an object for each line, for programs")


def follow(
    client: QueueClient,
    job_name: str,
    *,
    attempt: int | None = None,
    instance: str | None = None,
    as_json: bool = False,
    poll: float = POLL_SECONDS,
) -> int:
    """Show what the job writes and where it stands, until it has ended.

    Returns the exit code: 0 if it has completed, 4 if it has failed or was stopped, 130 after Ctrl-C, which leaves
    the job alone. Raises QueueError.
    """
    from sagemaker_queue.cli.render.job_log import show_until_its_end  # noqa: PLC0415  # botocore takes its time

    return show_until_its_end(client, job_name, attempt=attempt, instance=instance, as_json=as_json, poll=poll)


def _logs(queue: QueueClient, arguments: argparse.Namespace) -> int:
    chosen = {"attempt": arguments.attempt, "instance": arguments.instance, "as_json": arguments.json}
    if arguments.follow:
        return follow(queue, arguments.job, **chosen)
    from sagemaker_queue.cli.render.job_log import show_so_far  # noqa: PLC0415

    return show_so_far(queue, arguments.job, **chosen)
