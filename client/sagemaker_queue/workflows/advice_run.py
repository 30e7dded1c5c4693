"""Advice on settings in the background: a thread reads the history, and a separate process simulates it."""

from __future__ import annotations

import math
import multiprocessing
import signal
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from api_contract.models import PolicyAnswer
from sagemaker_queue.errors import QueueError, TooMany
from sagemaker_queue.workflows.settings_advice import advise, read_history, require_python

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from job_queue.simulation.experiments.advice_report import AdviceReport
    from job_queue.simulation.trace import TraceJob
    from sagemaker_queue.queue.client import QueueClient

_INTERVAL_SECONDS = 0.25  # between two messages about the progress
_ONE_RUN = Lock()  # held during a run, since simulations take a whole processor


@dataclass(frozen=True)
class AdviceProgress:
    """The progress of the simulations."""

    title: str  # the settings that are simulated
    done: int
    expected: int
    elapsed: float  # seconds


class _Cancelled(Exception):
    """The run was cancelled."""


class AdviceRun:
    """A run that simulates the queue's history, and begins at once. A process has one run at a time.

    ``progress`` is the number of attempts that have been read, then the progress of the simulations. ``outcome`` is set
    before the run ends: the advice, or a message if there is no advice.

    The process of the simulations ends with the run, with this process, or by a call of ``cancel``.

    Raises InvalidOption if this Python is too old, and TooMany during another run.
    """

    def __init__(self, queue: QueueClient, weeks: int, minutes: float) -> None:
        require_python("Advice on settings")
        if not _ONE_RUN.acquire(blocking=False):
            raise TooMany(
                "Another tab of smq ui simulates the history, and one simulation runs at a time. A tab that was closed "
                "or reloaded ends its simulation within a minute."
            )
        self.minutes = minutes
        self.progress: int | AdviceProgress = 0
        self.outcome: AdviceReport | str = "The simulation ended without a result."
        self.policy: PolicyAnswer | None = None  # the policy in force, to which the advice applies
        self._cancelled = Event()
        self._process: multiprocessing.process.BaseProcess | None = None
        self._thread = Thread(target=self._run, args=(queue, weeks), daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the outcome is not known yet."""
        return self._thread.is_alive()

    def cancel(self) -> None:
        """End the run. No effect on a run that has ended."""
        self._cancelled.set()
        if self._process is not None:
            self._process.kill()

    def _run(self, queue: QueueClient, weeks: int) -> None:
        try:
            self.policy = queue.policy()
            self._simulate(self.policy, read_history(queue, weeks, self._count))
        except QueueError as error:
            self.outcome = str(error)
        except _Cancelled:
            pass
        finally:
            if self._cancelled.is_set():
                self.outcome = "Cancelled."
            _ONE_RUN.release()

    def _count(self, attempts: int) -> None:
        self.progress = attempts
        if self._cancelled.is_set():
            raise _Cancelled

    def _simulate(self, policy: PolicyAnswer, trace: list[TraceJob]) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process with threads can hang
        receiver, sender = context.Pipe(duplex=False)
        arguments = (sender, policy.policy, trace, self.minutes)
        process = context.Process(target=_simulate_and_send, args=arguments, daemon=True)
        process.start()
        self._process = process
        sender.close()  # otherwise `recv` would not notice the end of the process
        try:
            if self._cancelled.is_set():  # `cancel` was called before `_process` was set
                raise _Cancelled
            with receiver, suppress(EOFError, OSError):  # the process has ended
                while True:
                    message = receiver.recv()
                    if isinstance(message, AdviceProgress):
                        self.progress = message
                    else:
                        self.outcome = message
        finally:
            process.kill()
            process.join()


def _simulate_and_send(sender: Connection, policy: dict[str, Any], trace: list[TraceJob], minutes: float) -> None:
    """Simulate, and send the progress and then the result. End as soon as the parent process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent process
    from job_queue.simulation.experiments.advice_report import report_of  # noqa: PLC0415

    last = -math.inf

    def show(title: str, done: int, expected: int, elapsed: float) -> None:
        nonlocal last
        if elapsed - last >= _INTERVAL_SECONDS:
            last = elapsed
            sender.send(AdviceProgress(title, done, expected, elapsed))

    with suppress(BrokenPipeError):  # the parent process has ended
        try:
            sender.send(report_of(advise(policy, trace, minutes, show)))
        except QueueError as error:
            sender.send(str(error))
