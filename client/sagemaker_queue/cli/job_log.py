"""Print a job's log: the lines so far, or all lines and state changes until the job has finished."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from botocore.exceptions import BotoCoreError, ClientError

from api_contract.models import JobDetail
from sagemaker_queue.cli.output import DONE, ENDED_OTHERWISE, raw
from sagemaker_queue.errors import NotFound, QueueError
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.workflows.job_logs.attempt_logs import LogLine
from sagemaker_queue.workflows.job_logs.choice import LineChoice
from sagemaker_queue.workflows.job_logs.follower import Follower, JobEvent
from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer, render_events


class _JsonLogRenderer(JobLogRenderer):
    """A renderer that prints each line of the job as a JSON object."""

    def show(self, event: JobEvent) -> None:
        """Print a log line as JSON; show other events as usual."""
        if not isinstance(event, LogLine):
            super().show(event)
            return
        time = event.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        origin = {"attempt": event.attempt, "instance": event.instance, "time": time}
        self.line(json.dumps({**origin, "message": event.message}))


def print_log(queue: QueueClient, name: str, lines: LineChoice, *, prefix: str = "") -> int:
    """Print the job's log so far, with ``prefix`` before each line.

    Raises NotFound for a missing attempt or instance.
    """
    job = queue.job(name)
    _check_instance(job, lines.instance)
    numbers = [run.attempt for run in job.attempts]
    if lines.attempt is not None and lines.attempt not in numbers:
        raise NotFound(
            f"{name} has no attempt {lines.attempt}; its attempts: {', '.join(map(str, numbers)) or 'none yet'}."
        )
    _show(Follower(queue, queue.aws_client("logs"), lines=lines).so_far(name), lines, prefix)
    return DONE


def follow_log(queue: QueueClient, name: str, lines: LineChoice, *, poll: float) -> int:
    """Print the job's log and state changes until the job has finished; return the exit code for the final state."""
    if lines.instance is not None:
        _check_instance(queue.job(name), lines.instance)
    follower = Follower(queue, queue.aws_client("logs"), poll=poll, lines=lines)
    last = _show(follower.follow(name), lines)
    return ENDED_OTHERWISE if last and last.finished and last.state != "completed" else DONE


def _show(events: Iterator[JobEvent], lines: LineChoice, prefix: str = "") -> JobDetail | None:
    kind = _JsonLogRenderer if lines.as_json else JobLogRenderer
    streams = raw(sys.stdout), raw(sys.stderr)
    try:
        return render_events(events, kind(*streams, name_instances=True, timestamps=lines.timestamps, prefix=prefix))
    except (ClientError, BotoCoreError) as error:
        raise QueueError(f"The logs cannot be read from CloudWatch: {error}") from error


def _check_instance(job: JobDetail, instance: str | None) -> None:
    number = (instance or "1").removeprefix("algo-")
    most = max(job.instances, *(attempt.instances or 1 for attempt in job.attempts), 1)
    if not (number.isdecimal() and 1 <= int(number) <= most):
        last = f" to algo-{most}" if most > 1 else ""
        raise NotFound(f"{job.job} has no instance {instance}; its instances: algo-1{last}.")
