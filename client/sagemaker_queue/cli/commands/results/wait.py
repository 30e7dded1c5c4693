"""``smq wait``: wait until jobs have finished, for scripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import JobSet, job_set_arguments
from sagemaker_queue.cli.output import DONE, ENDED_OTHERWISE, raw
from sagemaker_queue.cli.parser import command, with_queue
from sagemaker_queue.jobs.formatting import state_sentence
from sagemaker_queue.queue.config.pace import POLL_SECONDS, PollingPace, first_pause

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient


@command(
    "wait",
    help="wait until jobs have finished",
    description="Wait until all these jobs have finished, and print the final state of each job. The exit code is 0 "
    "if all jobs completed, and 4 if a job failed or was stopped. Patterns and groups include finished "
    "jobs. Ctrl-C ends the waiting and does not affect the jobs.",
    examples=["smq wait job1 && smq get job1", "smq wait 'lr-*'", "smq wait --group lr-sweep"],
)
@job_set_arguments
@with_queue
def wait(queue: QueueClient, jobs: JobSet) -> int:
    """Wait until jobs have finished."""
    return wait_for(queue, jobs.resolve(queue, "all"), POLL_SECONDS)


def wait_for(queue: QueueClient, names: list[str], poll: float) -> int:
    """Wait until jobs have finished, print their states, and return the exit code. Raises NotFound."""
    from sagemaker_queue.workflows.job_logs.follower import Outage  # noqa: PLC0415
    from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer  # noqa: PLC0415
    from sagemaker_queue.workflows.waiting import UnfinishedJobs, wait_until_finished  # noqa: PLC0415  # boto3

    code = DONE
    renderer = JobLogRenderer(raw(sys.stdout), raw(sys.stderr))
    try:
        for event in wait_until_finished(queue, names, PollingPace(poll, first=first_pause(poll))):
            if isinstance(event, Outage):
                renderer.show(event)
            elif isinstance(event, UnfinishedJobs):
                if sys.stderr.isatty():
                    renderer.status(str(event))
            else:
                renderer.line(state_sentence(event))
                code = code if event.state == "completed" else ENDED_OTHERWISE
    finally:
        renderer.close()
    return code
