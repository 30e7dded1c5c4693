"""The log of a job in a tab, which follows it to its end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Thread

from botocore.exceptions import BotoCoreError, ClientError
from nicegui import ui

from sagemaker_queue.errors import QueueError
from sagemaker_queue.formatting import clean, log_line, state_sentence
from sagemaker_queue.job_logs.attempt_logs import LogLine
from sagemaker_queue.job_logs.choice import LineChoice
from sagemaker_queue.job_logs.follower import Follower, JobEvent, Outage, StateReport
from sagemaker_queue.ui.tab import Tab

_LINES = 1000  # that are shown, the latest
_AT_ONCE = 200  # that are sent to the browser in one go
_SECONDS = 0.5


class _LeftError(Exception):
    """Nobody looks any more."""


class _Reader:
    """Follows a job in a thread, until it has ended or nobody looks any more."""

    def __init__(self, tab: Tab, name: str, looked_at: Callable[[], bool]) -> None:
        self._tab = tab
        self._name = name
        self._looked_at = looked_at
        self.lines: deque[str] = deque(maxlen=_LINES)
        Thread(target=self._read, daemon=True).start()

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)
        if not self._looked_at():
            raise _LeftError

    def _read(self) -> None:
        queue = self._tab.queue
        try:
            follower = Follower(queue, queue.aws_client("logs"), lines=LineChoice(tail=_LINES), pause=self._pause)
            told = ""
            for event in follower.follow(self._name):
                text = _text(event)
                if not isinstance(event, StateReport) or text != told:
                    self.lines.append(text)
                told = text if isinstance(event, StateReport) else told
        except _LeftError:
            pass
        except (QueueError, BotoCoreError, ClientError) as error:
            self.lines.append(f"-- The log cannot be read: {clean(str(error))}")


def show_log(tab: Tab, name: str) -> None:
    """Show what a job writes, as it writes it."""
    log = ui.log(max_lines=_LINES).classes("w-full smq-log").style("height: 45vh").props('aria-label="log"')
    reader = _Reader(tab, name, lambda: not log.is_deleted)

    def move() -> None:
        for _ in range(min(_AT_ONCE, len(reader.lines))):
            log.push(reader.lines.popleft())

    ui.timer(_SECONDS, move)


def _text(event: JobEvent) -> str:
    if isinstance(event, LogLine):
        instance = f"{event.instance} | " if event.instances > 1 else ""
        return f"{instance}{log_line(event.message)}"
    if isinstance(event, StateReport):
        return f"-- {state_sentence(event.job)}"
    if isinstance(event, Outage):
        return f"-- {clean(str(event.error))} It is asked again."
    return f"-- attempt {event.attempt.attempt} {event.attempt.outcome}: {clean(event.cause)}"
