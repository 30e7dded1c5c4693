"""``smq logs``, and following a job to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import job_argument
from sagemaker_queue.cli.parser import command, flag, json_flag, option, with_queue

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

POLL_SECONDS = 3.0


@command(
    "logs",
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
@job_argument
@flag("-f", "--follow", "to_its_end", help="go on until the job has ended")
@option("--attempt", type=int, metavar="N", help="only this attempt; 1 is the first")
@option("--instance", metavar="I", help="only this instance, such as algo-1 or 1")
@json_flag("an object for each line, for programs")
@with_queue
def logs(
    queue: QueueClient, name: str, to_its_end: bool, attempt: int | None, instance: str | None, as_json: bool
) -> int:
    """Print the lines of a job."""
    if to_its_end:
        return follow(queue, name, attempt=attempt, instance=instance, as_json=as_json)
    from sagemaker_queue.cli.render.job_log import show_so_far  # noqa: PLC0415  # botocore takes its time

    return show_so_far(queue, name, attempt=attempt, instance=instance, as_json=as_json)


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
    from sagemaker_queue.cli.render.job_log import show_until_its_end  # noqa: PLC0415

    return show_until_its_end(client, job_name, attempt=attempt, instance=instance, as_json=as_json, poll=poll)
