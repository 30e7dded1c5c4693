"""Run a shell, a command or a forwarded port in the container of an attempt, by AWS's Session Manager."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from botocore.exceptions import BotoCoreError, ClientError

from api_contract.models import Attempt
from sagemaker_queue.errors import Forbidden, QueueError
from sagemaker_queue.queue.attempt_clients import AttemptClients
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.workflows.remote_shell.command_lines import MarkedCommand, MarkedOutput, shell
from sagemaker_queue.workflows.remote_shell.plugin import Plugin
from sagemaker_queue.workflows.signal_handlers import signal_handlers

LOOK_SECONDS = 5.0  # seconds between two checks whether the attempt still runs
_TO_END_SECONDS = 3.0  # seconds for the plugin, and then its output, to end after the session was terminated
_BLOCK = 65536
_DENIED = ("AccessDenied", "AccessDeniedException")


class NotConnected(Exception):
    """The container is not, or not yet, connected to Session Manager."""


@dataclass(frozen=True)
class SessionTarget:
    """An instance of an attempt."""

    job: str
    attempt: Attempt
    instance: int  # from 1

    @property
    def training_job(self) -> str:
        """Name of the attempt's training job in SageMaker."""
        return str(self.attempt.training_job_name)

    @property
    def id(self) -> str:
        """Identifier of the container in Session Manager."""
        return f"sagemaker-training-job:{self.training_job}_algo-{self.instance}"


@dataclass(frozen=True)
class Port:
    """A port of the container, and the port of this machine that is forwarded to it."""

    remote: int
    local: int


def request_of(target: SessionTarget, purpose: MarkedCommand | Port | None) -> dict[str, Any]:
    """Return the StartSession request for a command, a forwarded port, or (None) a shell."""
    if isinstance(purpose, Port):
        document = "AWS-StartPortForwardingSession"
        parameters = {"portNumber": [str(purpose.remote)], "localPortNumber": [str(purpose.local)]}
    elif isinstance(purpose, MarkedCommand):
        document, parameters = "AWS-StartNonInteractiveCommand", {"command": [purpose.line]}
    else:
        document, parameters = "AWS-StartInteractiveCommand", {"command": [shell()]}
    return {"Target": target.id, "DocumentName": document, "Parameters": parameters}


class SessionOpener:
    """An opener of sessions, with the credentials of a queue's client."""

    def __init__(self, queue: QueueClient, plugin: Plugin) -> None:
        self._queue = queue
        self._plugin = plugin
        self._clients = AttemptClients(queue, "ssm")

    def open(self, target: SessionTarget, purpose: MarkedCommand | Port | None) -> Session:
        """Open a session. Raises NotConnected, Forbidden or QueueError."""
        request = request_of(target, purpose)
        ssm = self._clients.of(target.attempt, target.job)
        try:
            response = ssm.start_session(**request)
        except ClientError as error:
            code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
            if code == "TargetNotConnected":
                raise NotConnected(message) from error
            if code in _DENIED:
                raise Forbidden(
                    f"You may not open a session in {target.job}: {message} Your role needs ssm:StartSession on it, and"
                    f" on the document {request['DocumentName']}: docs/operate/access.md has the policy."
                ) from error
            raise QueueError(f"Session Manager refuses a session in {target.job} ({code}): {message}") from error
        except BotoCoreError as error:
            raise QueueError(f"Session Manager cannot be asked for a session: {error}") from error
        arguments, environment = self._plugin.command(
            response,
            request,
            region=target.attempt.region or self._queue.region,
            profile=self._profile(target),
            endpoint=ssm.meta.endpoint_url,
        )
        return Session(arguments, environment, purpose, lambda: _terminate(ssm, response["SessionId"]))

    def _profile(self, target: SessionTarget) -> str | None:
        """Return the AWS profile with which the plugin resumes a session."""
        config, account = self._queue.config, target.attempt.account
        return config.aws_profile if account is None else config.profile_by_account.get(account)


def _terminate(ssm: Any, session_id: str) -> None:
    with suppress(ClientError, BotoCoreError):  # if the call fails, the session ends after a timeout
        ssm.terminate_session(SessionId=session_id)


class Session:
    """An open session, which the plugin connects to this process's terminal."""

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str],
        purpose: MarkedCommand | Port | None,
        terminate: Callable[[], None],
    ) -> None:
        self._arguments = arguments
        self._environment = environment
        self._output = MarkedOutput(purpose) if isinstance(purpose, MarkedCommand) else None
        self._terminate = terminate

    def run(self, is_attempt_running: Callable[[], bool], stdout: BinaryIO | None = None) -> int | None:
        """Run the plugin until the session ends.

        For a command, return its exit status, or None if the session ended first. For a shell or port, return the
        plugin's exit status.

        ``is_attempt_running`` is called every LOOK_SECONDS. If the result is False, the session is terminated. A
        command's output is written to ``stdout``.
        """
        with _terminal_restored(), _signals_left_to_plugin():
            try:
                process = subprocess.Popen(
                    self._arguments, env=self._environment, stdout=subprocess.PIPE if self._output else None
                )
            except OSError as error:
                self._terminate()
                raise QueueError(f"{self._arguments[0]} cannot be run: {error.strerror}") from error
            copying = threading.Thread(target=self._copy, args=(process.stdout, stdout), daemon=True)
            if self._output:
                copying.start()
            ended_by_itself = self._wait(process, is_attempt_running)
        if self._output:  # a slow reader of the output, such as a pager, can hold up the copying until Ctrl-C
            copying.join(None if ended_by_itself else _TO_END_SECONDS)
        return self._output.status if self._output else process.returncode

    def _wait(self, process: subprocess.Popen[bytes], is_attempt_running: Callable[[], bool]) -> bool:
        """Wait for the plugin's end. Return False if the session was terminated, because the attempt has ended."""
        while True:
            try:
                process.wait(LOOK_SECONDS)
                return True
            except subprocess.TimeoutExpired:
                if is_attempt_running():
                    continue
            # The plugin would notice the end of the container only when its connection breaks.
            self._terminate()
            for end in (process.terminate, process.kill):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_TO_END_SECONDS)
                    return False
                end()
            process.wait()
            return False

    def _copy(self, source: BinaryIO, target: BinaryIO | None) -> None:
        assert self._output is not None
        out = target or sys.stdout.buffer
        with source:
            while block := source.read1(_BLOCK):  # type: ignore[attr-defined]
                written = self._output.feed(block)
                with suppress(BrokenPipeError):
                    out.write(written)
                    out.flush()


@contextmanager
def _terminal_restored() -> Iterator[None]:
    """Restore the terminal's settings at the end, because a killed plugin leaves the terminal in raw mode."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        yield
        return
    import termios  # noqa: PLC0415  # not on Windows

    settings = termios.tcgetattr(sys.stdin.fileno())
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, settings)


@contextmanager
def _signals_left_to_plugin() -> Iterator[None]:
    """Install empty handlers for the terminal's signals, because the plugin also gets the signals and acts on them.

    The signals are not ignored (SIG_IGN), because the plugin would inherit this setting.
    """
    names = ("SIGINT", "SIGQUIT", "SIGTSTP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    with signal_handlers(dict.fromkeys(numbers, lambda *_: None)):
        yield
