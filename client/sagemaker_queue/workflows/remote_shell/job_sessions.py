"""Open a shell or another session in a job: wait until the container of its present attempt can be entered.

If the request does not enable remote debugging, the queue enables remote debugging in the running attempt. The SSM
agent in the container then connects to Session Manager.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any, Union

from botocore.exceptions import BotoCoreError, ClientError

from api_contract.models import FINISHED, Attempt, JobDetail
from sagemaker_queue.errors import Conflict, InvalidOption, NotFound, QueueError
from sagemaker_queue.queue.attempt_clients import AttemptClients
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.queue.config.pace import PollingPace
from sagemaker_queue.workflows.remote_shell.command_lines import MarkedCommand
from sagemaker_queue.workflows.remote_shell.plugin import Plugin
from sagemaker_queue.workflows.remote_shell.session import NotConnected, Port, Session, SessionOpener, SessionTarget

POLL_SECONDS = 3.0  # the shortest pause between two requests
CONNECT_SECONDS = 120.0  # time for the SSM agent of a training container to connect
# Secondary statuses in which SageMaker permits a caller to enable remote debugging. Source: API_UpdateTrainingJob.
CAN_ENABLE = ("Downloading", "Training")
_INSTEAD = "A job with a whole instance can be entered: smq submit --interactive, without --gpus."
_WHY_NOT_CONNECTED = (
    "Usually its execution role lacks ssmmessages:CreateControlChannel, CreateDataChannel, OpenControlChannel and"
    " OpenDataChannel (docs/operate/access.md), or its VPC has no way to Session Manager; an algorithm of"
    " SageMaker's own or of the Marketplace takes no sessions at all. The agent writes why: log stream"
)


class LastingNote(str):
    """A sentence about a change that was made. It stays on the terminal."""

    __slots__ = ()


Step = Union[JobDetail, str, Session]
"""A step of entering a job: the job's state, a sentence about the cause of the wait, and finally the session."""


class JobSessions:
    """The sessions in one job, opened one after the other, and the job's state after the latest session."""

    def __init__(self, queue: QueueClient, plugin: Plugin, name: str, instance: int = 1) -> None:
        self._queue = queue
        self._opener = SessionOpener(queue, plugin)
        self._sagemaker = AttemptClients(queue, "sagemaker")
        self.name = name
        # Why the latest session's attempt is being stopped; None: the attempt is not being stopped.
        self.stop_cause: str | None = None
        self._instance = instance
        self._pace = PollingPace(POLL_SECONDS)
        self._target: SessionTarget | None = None
        self._waits_since: float | None = None
        self._enabled: str | None = None  # the training job in which the queue has enabled remote debugging

    def enter(self, purpose: MarkedCommand | Port | None, *, wait: bool) -> Iterator[Step]:
        """Yield steps, and finally a session. Without ``wait`` the job must already run.

        Enables remote debugging in the attempt if the request did not. Raises NotFound and Forbidden. Raises Conflict
        if the job has finished, or does not run and ``wait`` is False. Raises InvalidOption if no session can ever be
        opened in the job, and QueueError if a training attempt cannot be entered within CONNECT_SECONDS.
        """
        while True:
            is_open = yield from self._poll(purpose, wait)
            if is_open:
                return
            self._pace.pause()

    def _poll(self, purpose: MarkedCommand | Port | None, wait: bool) -> Generator[Step, None, bool]:
        job = self._queue.job(self.name)
        check_enterable(job, self._instance)
        attempt = live_attempt(job)
        if attempt is None:
            self._pace.observe((job.state, job.attempt, None), job.ask_again_after)
            if not wait:
                raise Conflict(f"{job.job} does not run: it is {job.state}. To wait for it: --follow")
            yield job
            return False
        target = SessionTarget(job.job, attempt, self._instance)
        if self._target is None or target.training_job != self._target.training_job:
            self._waits_since = self.stop_cause = None
        self._target = target
        described = self._described(target)
        stage = described.get("SecondaryStatus")
        self._pace.observe((job.state, job.attempt, stage))
        if not self._is_enabled(job, target, described):
            yield from self._enable(target, stage)
            return False
        if stage in (None, "Training"):
            try:
                yield self._opener.open(target, purpose)
                return True
            except NotConnected:
                self._check_patience(target, "The container has not connected to Session Manager.")
        yield f"{job.job} runs, and its container cannot be entered yet" + (f" ({stage})" if stage else "")
        return False

    def _is_enabled(self, job: JobDetail, target: SessionTarget, described: dict[str, Any]) -> bool:
        """Return whether remote debugging is enabled in the attempt, by the request or later during the attempt."""
        configurations = (job.request.get("RemoteDebugConfig") or {}, described.get("RemoteDebugConfig") or {})
        return self._enabled == target.training_job or any(it.get("EnableRemoteDebug") for it in configurations)

    def _enable(self, target: SessionTarget, stage: str | None) -> Iterator[Step]:
        """Have the queue enable remote debugging, once SageMaker permits it. Yield sentences that say what was done."""
        if stage is not None and stage not in CAN_ENABLE:
            yield f"{target.job} runs, and a shell cannot be enabled yet ({stage})"
            return
        try:
            self._queue.enable_remote_debug(target.job)
        except Conflict:
            # The attempt may have ended, or may not train yet: the next poll shows the state. Without the right to
            # describe training jobs, the state is unknown, so the wait has a limit.
            self._check_patience(target, "SageMaker has not permitted to enable remote debugging in it.")
            yield f"{target.job} runs, and a shell cannot be enabled yet"
            return
        self._enabled, self._waits_since = target.training_job, None
        yield LastingNote(
            f"{target.job} was submitted without remote debugging, which is now enabled for its running attempt"
            f" {target.training_job}, until the attempt ends. Waiting for the SSM agent in the container to connect."
        )

    def _check_patience(self, target: SessionTarget, problem: str) -> None:
        """Raise QueueError, with the usual causes, if the caller has waited over CONNECT_SECONDS for the attempt."""
        now = time.monotonic()
        self._waits_since = now if self._waits_since is None else self._waits_since
        if now - self._waits_since > CONNECT_SECONDS:
            raise QueueError(
                f"The container of {target.job} cannot be entered. {problem} {_WHY_NOT_CONNECTED}"
                f" {target.training_job}/algo-{target.instance}-.../ssm in /aws/sagemaker/TrainingJobs."
            )

    def _described(self, target: SessionTarget) -> dict[str, Any]:
        """Return SageMaker's description of the attempt; empty if Describe is denied or fails."""
        client = self._sagemaker.of(target.attempt, target.job)
        try:
            return dict(client.describe_training_job(TrainingJobName=target.training_job))
        except (ClientError, BotoCoreError):
            return {}

    def is_attempt_running(self) -> bool:
        """Return whether the attempt of the latest session runs or is being stopped; True if the state is unknown.

        Also update ``stop_cause``.
        """
        try:
            job = self._queue.job(self.name)
        except (QueueError, ClientError, BotoCoreError):
            return True
        self.stop_cause = job.history[-1].cause if job.state == "stopping" and job.history else None
        return _is_attempt_of(live_attempt(job), self._target)

    def state_after_session(self) -> tuple[JobDetail, Attempt]:
        """Wait until the queue knows whether the latest session's attempt has ended; return the job and the attempt.

        A session ends together with its container; the queue records the end of the attempt a little later.
        """
        assert self._target is not None
        while True:
            job = self._queue.job(self.name)
            number = self._target.attempt.attempt
            attempt = next((run for run in job.attempts if run.attempt == number), self._target.attempt)
            if attempt.outcome is not None or job.state not in ("running", "stopping"):
                return job, attempt
            if job.state == "running" and self._described(self._target).get("SecondaryStatus") in (None, "Training"):
                return job, attempt
            time.sleep(POLL_SECONDS)


def live_attempt(job: JobDetail) -> Attempt | None:
    """Return the attempt that runs or is being stopped; None if there is no such attempt."""
    live = [run for run in job.attempts if run.outcome is None and run.training_job_name]
    return live[-1] if live and job.state in ("running", "stopping") else None


def check_enterable(job: JobDetail, instance: int = 1) -> None:
    """Raise an error if no session can ever be opened in this instance of the job.

    Raises Conflict if the job has finished, InvalidOption for a job that shares an instance or is isolated, and
    NotFound for a missing instance.
    """
    if job.state in FINISHED:
        raise Conflict(f"{job.job} has finished ({job.state}), so no shell can be opened in it.")
    if job.is_carrier:
        raise InvalidOption(
            f"{job.job} is an instance that jobs share, and a shell would give access to all of them, so no shell can"
            f" be opened. {_INSTEAD}"
        )
    if job.gpus is not None:
        raise InvalidOption(
            f"{job.job} shares an instance, and a shell in it would also give access to other jobs, so no shell can"
            f" be opened. Its log: smq logs {job.job}. {_INSTEAD}"
        )
    if job.request.get("EnableNetworkIsolation"):
        raise InvalidOption(
            f"{job.job} has EnableNetworkIsolation, which isolates its container, so no shell can be opened."
        )
    attempt = live_attempt(job)
    most = (attempt and attempt.instances) or job.instances
    if not 1 <= instance <= most:
        last = f" to algo-{most}" if most > 1 else ""
        raise NotFound(f"{job.job} has no instance algo-{instance}; its instances: algo-1{last}.")


def _is_attempt_of(attempt: Attempt | None, target: SessionTarget | None) -> bool:
    return bool(attempt and target and attempt.training_job_name == target.training_job)
