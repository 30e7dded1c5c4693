"""A SageMaker session whose training jobs go through the queue."""

import logging
import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError
from sagemaker.session import Session, _check_job_status

from sagemaker_queue.answers import JobDetail, JobSummary
from sagemaker_queue.api import QueueClient
from sagemaker_queue.errors import NotFound, Unavailable

logger = logging.getLogger("sagemaker")

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
OUTAGES_ENDURED = 10  # in a row, while waiting for a job that may take days
_ENDED = {"completed": "Completed", "failed": "Failed", "stopped": "Stopped"}
_NEVER_DESCRIBED = frozenset({"pending", "starting", "preempted"})


class QueueTrainingJobSession(Session):  # type: ignore[misc]  # the SDK is not typed
    """Give it to an estimator as ``sagemaker_session``: ``fit()`` then queues the job.

    Takes all that ``sagemaker.session.Session`` takes, and ``queue``: the client of the queue to use
    (default: the one that ``find_config`` finds, with this session's AWS credentials). Training jobs
    that the queue does not know are waited for, described and stopped as ever.
    """

    def __init__(self, *args: Any, queue: QueueClient | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue = queue or QueueClient(boto_session=self.boto_session)

    def _intercept_create_request(
        self, request: dict[str, Any], create: Callable[..., Any], func_name: str | None = None
    ) -> Any:
        """Queue a training job; let anything else be created. Raises QueueError if the queue refuses."""
        if func_name != "train":
            return super()._intercept_create_request(request, create, func_name)
        logger.info("Adding training job %s to the queue", request["TrainingJobName"])
        submission = self.queue.submit(request)
        logger.info(_line(submission))
        if submission.finished:
            logger.warning("%s was submitted before, so it is not run again; another name runs it", submission.job)
        for warning in submission.warnings:
            logger.warning("%s: %s", submission.job, warning)
        return None

    def wait_for_job(self, job: str, poll: float = 5) -> dict[str, Any]:
        """Wait, asking every ``poll`` seconds, until the job is finished; return its description.

        Logs each change of state, position or reason. Raises sagemaker.exceptions.UnexpectedStatusException
        if the job failed; a stopped one is a warning, as in the SDK.
        """
        detail = self._follow(job, poll)
        if detail is None:
            description: dict[str, Any] = super().wait_for_job(job, poll)
            return description
        return self._ended(detail)

    def logs_for_job(
        self, job_name: str, wait: bool = False, poll: float = 5, log_type: str = "All", timeout: float | None = None
    ) -> None:
        """Follow the job through the queue, for at most ``timeout`` seconds, if told to ``wait``; else log its state.

        Raises as ``wait_for_job`` does. What the training script itself writes is in CloudWatch, in the
        log streams of the job's attempts.
        """
        detail = self._follow(job_name, poll, timeout if wait else 0)
        if detail is None:
            super().logs_for_job(job_name, wait, poll, log_type, timeout)
        elif wait and detail.finished:
            self._ended(detail)

    def describe_training_job(self, job_name: str) -> dict[str, Any]:
        """Describe the job as SageMaker would, under the name and in the state that it has for its user.

        Until an attempt runs, the description is made from the request.
        """
        try:
            detail = self.queue.job(job_name)
        except NotFound:
            description: dict[str, Any] = super().describe_training_job(job_name)
            return description
        return self._describe(detail)

    def stop_training_job(self, job_name: str) -> None:
        """Cancel the job: at once if it waits, else its attempt is stopped."""
        try:
            self.queue.cancel(job_name)
        except NotFound:
            super().stop_training_job(job_name)

    def _follow(self, job: str, poll: float, timeout: float | None = None) -> JobDetail | None:
        """Log what happens to the job until it is finished or time is up; None if the queue does not know it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        outages = 0
        last_line = ""
        while True:
            try:
                detail = self.queue.job(job)
            except NotFound:
                return None
            except Unavailable as error:
                outages += 1
                if outages > OUTAGES_ENDURED:
                    raise
                logger.warning("%s The job is not affected; asking again.", error)
            else:
                outages = 0
                line = _line(detail)
                if line != last_line:
                    logger.info(line)
                    last_line = line
                if detail.finished or (deadline is not None and time.monotonic() >= deadline):
                    return detail
            try:
                time.sleep(poll)
            except KeyboardInterrupt:
                logger.warning("%s stays in the queue; to cancel it: smq cancel %s", job, job)
                raise

    def _ended(self, detail: JobDetail) -> dict[str, Any]:
        description = self._describe(detail)
        _check_job_status(detail.job, description, "TrainingJobStatus")
        return description

    def _describe(self, detail: JobDetail) -> dict[str, Any]:
        # An attempt that was preempted is Stopped for SageMaker, while its job still waits.
        status = _ENDED.get(detail.state, "InProgress")
        return {
            **(self._describe_attempt(detail) or _description_from_request(detail)),
            "TrainingJobName": detail.job,
            "TrainingJobStatus": status,
        }

    def _describe_attempt(self, detail: JobDetail) -> dict[str, Any] | None:
        if detail.training_job_name is None or detail.state in _NEVER_DESCRIBED:
            return None
        try:
            description: dict[str, Any] = super().describe_training_job(detail.training_job_name)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ValidationException":  # refused at its launch: it never existed
                return None
            raise
        return description


def _line(job: JobSummary) -> str:
    place = f", number {job.position} in the queue" if job.position else ""
    reason = f": {job.reason.message}" if job.reason and job.reason.message else ""
    running = job.state == "running" and job.training_job_name
    attempt = f" as {job.training_job_name} (log group {LOG_GROUP})" if running else ""
    return f"{job.job} is {job.state}{attempt}{place}{reason}"


def _description_from_request(detail: JobDetail) -> dict[str, Any]:
    secondary = _ENDED.get(detail.state, "Pending")
    message = detail.reason.message if detail.reason else ""
    description = {
        **{name: value for name, value in detail.request.items() if name != "Tags"},
        "SecondaryStatus": secondary,
        "CreationTime": detail.entry_time,
        "LastModifiedTime": detail.state_since,
        "SecondaryStatusTransitions": [
            {
                "Status": secondary,
                "StartTime": detail.state_since,
                "LastModifiedTime": detail.state_since,
                "StatusMessage": message,
            }
        ],
    }
    return {**description, "FailureReason": message} if detail.state == "failed" else description
