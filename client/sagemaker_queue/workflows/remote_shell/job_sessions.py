"""Open a shell or another session in a job: wait until the container of its present attempt can be entered."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Union

from botocore.exceptions import BotoCoreError, ClientError

from api_contract.models import FINISHED, Attempt, JobDetail
from sagemaker_queue.errors import Conflict, InvalidOption, NotFound, QueueError
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.queue.config.pace import PollingPace
from sagemaker_queue.workflows.remote_shell.command_lines import MarkedCommand
from sagemaker_queue.workflows.remote_shell.plugin import Plugin
from sagemaker_queue.workflows.remote_shell.session import NotConnected, Port, Session, SessionOpener, SessionTarget

POLL_SECONDS = 3.0  # the shortest pause between two requests
CONNECT_SECONDS = 120.0  # time for the SSM agent of a training container to connect
HOW_TO_SUBMIT = "smq submit --interactive -- COMMAND"
_INSTEAD = "A job with a whole instance can be entered: smq submit --interactive, without --gpus."
_WHY_NOT_CONNECTED = (
    "Usually its role lacks ssmmessages:CreateControlChannel, CreateDataChannel, OpenControlChannel and"
    " OpenDataChannel (docs/deploy.md has the policy), or its VPC has no way to Session Manager; an algorithm of"
    " SageMaker's own or of the Marketplace takes no sessions at all. The agent writes why: log stream"
)

Step = Union[JobDetail, str, Session]
"""A step of entering a job: the job's state, a sentence about the cause of the wait, and finally the session."""


class JobSessions:
    """A factory of sessions in one job, one after the other, which also finds out how the latest session ended."""

    def __init__(self, queue: QueueClient, plugin: Plugin, name: str, instance: int = 1) -> None:
        self._queue = queue
        self._opener = SessionOpener(queue, plugin)
        self.name = name
        # Why the latest session's attempt is being stopped; None: the attempt is not being stopped.
        self.stop_cause: str | None = None
        self._instance = instance
        self._pace = PollingPace(POLL_SECONDS)
        self._target: SessionTarget | None = None
        self._trains_since: float | None = None

    def enter(self, what: MarkedCommand | Port | None, *, wait: bool) -> Iterator[Step]:
        """Yield steps, and finally a session. Without ``wait`` the job must already run.

        Raises NotFound and Forbidden; Conflict if the job has finished, or waits without ``wait``; InvalidOption if no
        session can ever be opened in the job.
        """
        while True:
            found = yield from self._look(what, wait)
            if found:
                return
            self._pace.pause()

    def _look(self, what: MarkedCommand | Port | None, wait: bool) -> Generator[Step, None, bool]:
        job = self._queue.job(self.name)
        check(job, self._instance)
        attempt = present(job)
        if attempt is None:
            self._pace.observe((job.state, job.attempt, None), job.ask_again_after)
            if not wait:
                raise Conflict(f"{job.job} does not run: it is {job.state}. To wait for it: --follow")
            yield job
            return False
        target = SessionTarget(job.job, attempt, self._instance)
        if self._target is None or target.training_job != self._target.training_job:
            self._trains_since = self.stop_cause = None
        self._target = target
        stage = self._stage(target)
        self._pace.observe((job.state, job.attempt, stage))
        if stage in (None, "Training"):
            try:
                yield self._opener.open(target, what)
                return True
            except NotConnected:
                self._check_patience(target)
        yield f"{job.job} runs, and its container cannot be entered yet" + (f" ({stage})" if stage else "")
        return False

    def _check_patience(self, target: SessionTarget) -> None:
        now = time.monotonic()
        self._trains_since = now if self._trains_since is None else self._trains_since
        if now - self._trains_since > CONNECT_SECONDS:
            raise QueueError(
                f"The container of {target.job} has not connected itself to Session Manager. {_WHY_NOT_CONNECTED}"
                f" {target.training_job}/algo-{target.instance}-.../ssm in /aws/sagemaker/TrainingJobs."
            )

    def _stage(self, target: SessionTarget) -> str | None:
        """Return SageMaker's secondary status of the attempt; None if Describe is denied or fails."""
        try:
            described = self._queue.aws_client("sagemaker").describe_training_job(TrainingJobName=target.training_job)
        except (ClientError, BotoCoreError):
            return None
        return str(described["SecondaryStatus"])

    def is_attempt_running(self) -> bool:
        """Return whether the attempt of the latest session runs or is being stopped; True if the state is unknown."""
        try:
            job = self._queue.job(self.name)
        except (QueueError, ClientError, BotoCoreError):
            return True
        self.stop_cause = job.history[-1].cause if job.state == "stopping" and job.history else None
        return _same(present(job), self._target)

    def state_after_session(self) -> tuple[JobDetail, Attempt]:
        """Return the job and the latest session's attempt, once it is known whether the attempt has ended.

        A session ends together with its container; the queue gets the end of the attempt a little later.
        """
        assert self._target is not None
        while True:
            job = self._queue.job(self.name)
            number = self._target.attempt.attempt
            attempt = next((run for run in job.attempts if run.attempt == number), self._target.attempt)
            if attempt.outcome is not None or job.state not in ("running", "stopping"):
                return job, attempt
            if job.state == "running" and self._stage(self._target) in (None, "Training"):
                return job, attempt
            time.sleep(POLL_SECONDS)


def present(job: JobDetail) -> Attempt | None:
    """Return the attempt that runs or is being stopped; None if there is no such attempt."""
    live = [run for run in job.attempts if run.outcome is None and run.training_job_name]
    return live[-1] if live and job.state in ("running", "stopping") else None


def check(job: JobDetail, instance: int = 1) -> None:
    """Raise an error if no session can ever be opened in this instance of the job.

    Raises Conflict if the job has finished, InvalidOption for a job without remote debug and the like, and NotFound
    for a missing instance.
    """
    if job.state in FINISHED:
        raise Conflict(f"{job.job} has ended ({job.state}): there is nothing left to enter.")
    if job.is_carrier:
        raise InvalidOption(
            f"{job.job} is an instance that jobs share, and a shell would open all of them: nobody can enter it."
            f" {_INSTEAD}"
        )
    if job.gpus is not None:
        raise InvalidOption(
            f"{job.job} shares an instance, and a shell in it would also open the jobs beside it: nobody can enter it."
            f" smq logs {job.job} shows what it writes. {_INSTEAD}"
        )
    if not job.request.get("RemoteDebugConfig", {}).get("EnableRemoteDebug"):
        raise InvalidOption(
            f"{job.job} was submitted without remote debug, so SageMaker lets nobody in. A job that can be entered:"
            f" {HOW_TO_SUBMIT}; of an estimator, enable_remote_debug=True."
        )
    if job.request.get("EnableNetworkIsolation"):
        raise InvalidOption(f"{job.job} has EnableNetworkIsolation, which cuts its container off: nobody can enter it.")
    attempt = present(job)
    most = (attempt and attempt.instances) or job.instances
    if not 1 <= instance <= most:
        last = f" to algo-{most}" if most > 1 else ""
        raise NotFound(f"{job.job} has no instance algo-{instance}; it has: algo-1{last}.")


def _same(attempt: Attempt | None, target: SessionTarget | None) -> bool:
    return bool(attempt and target and attempt.training_job_name == target.training_job)
