"""The log of a job in a tab, followed until the job has finished."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Thread

from botocore.exceptions import BotoCoreError, ClientError
from nicegui import ui

from api_contract.models import JobDetail
from sagemaker_queue.errors import QueueError
from sagemaker_queue.jobs.formatting import clean, log_line, state_sentence
from sagemaker_queue.ui.tab import Tab
from sagemaker_queue.workflows.job_logs.attempt_logs import LogLine
from sagemaker_queue.workflows.job_logs.choice import LineChoice
from sagemaker_queue.workflows.job_logs.follower import Follower, JobEvent, Outage, StateReport

_LINES = 1000  # maximum number of the latest lines that are shown
_AT_ONCE = 200  # lines that are sent to the browser at once
_UPDATE_SECONDS = 0.5  # seconds between two updates of the browser


class _LogClosed(Exception):
    """The log is no longer displayed."""


class _Reader:
    """A thread that follows a job until it has finished or the log is closed."""

    def __init__(self, tab: Tab, name: str, is_open: Callable[[], bool]) -> None:
        self._tab = tab
        self._name = name
        self._is_open = is_open
        self.lines: deque[str] = deque(maxlen=_LINES)
        Thread(target=self._read, daemon=True).start()

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)
        if not self._is_open():
            raise _LogClosed

    def _read(self) -> None:
        queue = self._tab.queue
        try:
            follower = Follower(queue, queue.aws_client("logs"), lines=LineChoice(tail=_LINES), pause=self._pause)
            last_state = ""
            for event in follower.follow(self._name):
                text = _text(event)
                if not isinstance(event, StateReport) or text != last_state:
                    self.lines.append(text)
                last_state = text if isinstance(event, StateReport) else last_state
        except _LogClosed:
            pass
        except (QueueError, BotoCoreError, ClientError) as error:
            self.lines.append(f"-- The log cannot be read: {clean(str(error))}")


def show_log(tab: Tab, name: str) -> ui.log:
    """Show the log of a job, and update it while the job runs. Return the element, whose height is set by ``fit``."""
    log = ui.log(max_lines=_LINES).classes("w-full smq-log").props('aria-label="log"')
    reader = _Reader(tab, name, lambda: not log.is_deleted)

    def push_new_lines() -> None:
        for _ in range(min(_AT_ONCE, len(reader.lines))):
            log.push(reader.lines.popleft())

    ui.timer(_UPDATE_SECONDS, push_new_lines)
    return log


def fit(log: ui.log, job: JobDetail) -> None:
    """Set the height of the log: low until the job has an attempt, since only its state is shown until then."""
    log.style("height: 8em" if job.waits and not job.attempts else "height: 45vh")


def _text(event: JobEvent) -> str:
    if isinstance(event, LogLine):
        instance = f"{event.instance} | " if event.instances > 1 else ""
        return f"{instance}{log_line(event.message)}"
    if isinstance(event, StateReport):
        return f"-- {state_sentence(event.job, with_start=False)}"  # the page shows the expected start
    if isinstance(event, Outage):
        return f"-- {clean(str(event.error))} Trying again."
    return f"-- attempt {event.attempt.attempt} {event.attempt.outcome}: {clean(event.cause)}"
