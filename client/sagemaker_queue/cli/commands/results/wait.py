"""``smq wait``: until jobs have ended, for scripts."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING

from sagemaker_queue.cli.arguments import JobSet, job_set_arguments
from sagemaker_queue.cli.output import DONE, ENDED_OTHERWISE, raw
from sagemaker_queue.cli.parser import command, with_queue
from sagemaker_queue.formatting import amount, state_sentence

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.models import JobDetail, JobSummary

POLL_SECONDS = 5.0
_FEW = 3  # jobs; of more the whole queue is read at once


@command(
    "wait",
    help="wait until jobs have ended",
    description="Wait until all these jobs have ended, and print how each did. The exit code is 0 if all have "
    "completed, 4 if one has failed or was stopped. Patterns and groups mean those that have ended already, too. "
    "Ctrl-C stops waiting, and nothing else.",
    examples=["smq wait job1 && smq get job1", "smq wait 'lr-*'", "smq wait --group lr-sweep"],
)
@job_set_arguments
@with_queue
def wait(queue: QueueClient, jobs: JobSet) -> int:
    """Wait for jobs."""
    return wait_for(queue, jobs.resolve(queue, "all"), POLL_SECONDS)


def wait_for(queue: QueueClient, names: list[str], poll: float) -> int:
    """Wait for jobs, and return the exit code for their ends. Raises NotFound."""
    from sagemaker_queue.job_logs.follower import OUTAGES_ENDURED, Outage, polled  # noqa: PLC0415  # boto3
    from sagemaker_queue.job_logs.renderer import JobLogRenderer  # noqa: PLC0415

    left, code = dict.fromkeys(names), DONE
    renderer = JobLogRenderer(raw(sys.stdout), raw(sys.stderr))

    def look() -> Generator[JobDetail, None, bool]:
        live = _live(queue, left)
        for name in [name for name in left if name not in live]:
            job = queue.job(name)
            if job.finished:
                del left[name]
                yield job
            else:  # only just submitted, or there are few
                live[name] = job
        if left and sys.stderr.isatty():
            renderer.status(_status([live[name] for name in left]))
        return not left

    try:
        for event in polled(look, OUTAGES_ENDURED, lambda: time.sleep(poll)):
            if isinstance(event, Outage):
                renderer.show(event)
                continue
            renderer.line(state_sentence(event))
            code = code if event.state == "completed" else ENDED_OTHERWISE
    finally:
        renderer.close()
    return code


def _live(queue: QueueClient, names: dict[str, None]) -> dict[str, JobSummary]:
    return {job.job: job for job in queue.jobs() if job.job in names} if len(names) > _FEW else {}


def _status(jobs: list[JobSummary]) -> str:
    if len(jobs) == 1:
        return state_sentence(jobs[0])
    states = Counter(job.state for job in jobs)
    return f"{amount(len(jobs), 'job')} left: {', '.join(f'{count} {state}' for state, count in states.items())}"
