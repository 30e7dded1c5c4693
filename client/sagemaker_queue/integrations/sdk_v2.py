"""A session of the SageMaker Python SDK v2 that sends its training jobs to the queue."""

from __future__ import annotations

import sys
from typing import Any

import boto3
from sagemaker.session import Session

from sagemaker_queue.integrations.boto import outputs, sessions
from sagemaker_queue.integrations.boto.hooks import Hooks
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.workflows.job_logs.follower import Follower
from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer, render_events


class QueueTrainingJobSession(Session):  # type: ignore[misc]  # the SDK is not typed
    """A session for an estimator's ``sagemaker_session``: ``fit()`` then submits the job to the queue.

    The arguments are as for ``sagemaker.session.Session``, with two further arguments. ``queue`` is the client of the
    queue (default: the queue that ``find_config`` finds, with this session's AWS credentials). Without ``preflight``, a
    job that is certain to fail is submitted too. After the session is created, new clients of ``boto_session`` also
    send training jobs to the queue. For jobs that the queue does not know, all methods do the same as without the
    queue.
    """

    def __init__(
        self,
        boto_session: boto3.Session | None = None,
        sagemaker_client: Any = None,
        *args: Any,
        queue: QueueClient | None = None,
        preflight: bool = True,
        **kwargs: Any,
    ) -> None:
        boto_session = sessions.boto_session(boto_session, queue=queue, preflight=preflight)
        self._hooks: Hooks = sessions.hooks_of(boto_session)
        if sagemaker_client is not None:
            sessions.register(self._hooks, sagemaker_client.meta.events)
        super().__init__(boto_session, sagemaker_client, *args, **kwargs)

    def download_data(self, path: str, bucket: str, key_prefix: str = "", extra_args: Any = None) -> list[str]:
        """Download a file or folder of S3. A job's name in ``key_prefix`` is resolved to the job's last attempt."""
        found: list[str] = super().download_data(path, *self._true_place(bucket, key_prefix), extra_args)
        return found

    def list_s3_files(self, bucket: str, key_prefix: str) -> list[str]:
        """List the files below a prefix of S3, which is resolved as for ``download_data``."""
        found: list[str] = super().list_s3_files(*self._true_place(bucket, key_prefix))
        return found

    def read_s3_file(self, bucket: str, key_prefix: str) -> str:
        """Read a file of S3, whose key is resolved as for ``download_data``."""
        text: str = super().read_s3_file(*self._true_place(bucket, key_prefix))
        return text

    def _true_place(self, bucket: str, key: str) -> tuple[str, str]:
        """Return bucket and key, with a job's name resolved to the job's last attempt."""
        jobs = self._hooks.jobs
        address = outputs.true_address(jobs.find_recent, f"s3://{bucket}/{key}", jobs.buckets_of)
        true_bucket, _, true_key = address.removeprefix("s3://").partition("/")
        return true_bucket, true_key

    @property
    def queue(self) -> QueueClient:
        """The client of the queue."""
        return self._hooks.jobs.queue

    def wait_for_job(self, job: str, poll: float = 5) -> dict[str, Any]:
        """Wait until the job has finished, with requests at least ``poll`` seconds apart, and return its description.

        Each change of state, position or reason is shown. As in the SDK, a failed job raises an error, and for a
        stopped job a warning is logged.
        """
        if self._hooks.jobs.may_have(job):
            render_events(Follower(self.queue, None, poll=poll).follow(job), _renderer())
            poll = 0  # the job has finished
        description: dict[str, Any] = super().wait_for_job(job, poll)
        return description

    def logs_for_job(
        self, job_name: str, wait: bool = False, poll: float = 5, log_type: str = "All", timeout: float | None = None
    ) -> None:
        """Show the log lines of all attempts of the job. With ``wait``, continue until the job ends or ``timeout``.

        ``timeout`` is in seconds. The errors are the same as for ``wait_for_job``.
        """
        if not self._hooks.jobs.may_have(job_name):
            super().logs_for_job(job_name, wait, poll, log_type, timeout)
            return
        follower = Follower(self.queue, self.boto_session.client("logs"), poll=poll)
        if not wait:
            render_events(follower.so_far(job_name), _renderer())
            return
        last = render_events(follower.follow(job_name), _renderer(), timeout)
        if last and last.finished:
            _sum_up(super().wait_for_job(job_name, 0), rules=log_type in ("All", "Rules"))


def _renderer() -> JobLogRenderer:
    return JobLogRenderer(sys.stdout, sys.stderr)


def _sum_up(description: dict[str, Any], *, rules: bool) -> None:
    """Print the SDK's summary of a job: the states of rules, and the seconds multiplied by the number of instances."""
    renderer = _renderer()
    for tool in ("Debug", "Profiler") if rules else ():
        for rule in description.get(f"{tool}RuleEvaluationStatuses", []):
            renderer.line(f"{rule['RuleConfigurationName']}: {rule['RuleEvaluationStatus']}")
    resources = description["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [resources]
    instances = sum(group.get("InstanceCount", 1) for group in groups)
    for measure in ("Training", "Billable"):
        seconds = description.get(f"{measure}TimeInSeconds")
        if seconds is not None:
            renderer.line(f"{measure} seconds: {seconds * instances}")
