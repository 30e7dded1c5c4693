"""Show the states and log lines of a followed job on a terminal or in a file."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from typing import TextIO

from api_contract.models import INTERRUPTED, JobDetail
from sagemaker_queue.jobs.formatting import clean, end_of_attempt, log_line, moment, state_sentence, visible
from sagemaker_queue.workflows.job_logs.attempt_logs import LogLine
from sagemaker_queue.workflows.job_logs.follower import JobEvent, Outage, StateReport

_TO_LINE_START = "\r\x1b[K"  # moves the cursor to the start of the line and clears the line


class JobLogRenderer:
    """A writer of the job's log lines to ``output``, and of its states and notes to ``notes``.

    On a terminal, the state of the job is one line that changes in place. Elsewhere each change is a new line.

    A log line begins with its time in UTC (with ``timestamps``) and ``prefix``. The name of the instance follows (with
    ``name_instances``, if the job has several instances).
    """

    def __init__(
        self,
        output: TextIO,
        notes: TextIO,
        *,
        name_instances: bool = False,
        timestamps: bool = False,
        prefix: str = "",
    ) -> None:
        self._output = output
        self._notes = notes
        self._terminal = notes.isatty()
        self._status = ""  # the state of the job that was shown last
        self._is_drawn = False  # True while the status is on the terminal's last line
        self._name_instances = name_instances
        self._timestamps = timestamps
        self._prefix = prefix

    def show(self, event: JobEvent) -> None:
        """Show an event, unless the event is a state that is already shown."""
        if isinstance(event, LogLine):
            instance = f"{event.instance} | " if self._name_instances and event.instances > 1 else ""
            time = f"{moment(event.time)} " if self._timestamps else ""
            self.line(f"{time}{self._prefix}{instance}{log_line(event.message)}")
        elif isinstance(event, StateReport):
            self.status(state_sentence(event.job))
        elif isinstance(event, Outage):
            self.note(f"{event.error} The job is not affected; trying again.")
        elif event.attempt.outcome in INTERRUPTED:
            self.note(f"{event.job.job} was {event.attempt.outcome} (attempt {event.attempt.attempt}): {event.cause}")
        elif not event.job.finished or event.attempt != event.job.attempts[-1]:
            end = end_of_attempt(event.attempt.outcome or "ended", event.cause)
            self.note(f"{event.job.job}: attempt {event.attempt.attempt} {end}")

    def line(self, text: str) -> None:
        """Write a line to ``output``."""
        self._clear()
        _put(self._output, f"{visible(text)}\n")

    def note(self, text: str) -> None:
        """Write a permanent line to ``notes``; the next state is shown even if the state is unchanged."""
        self._clear()
        _put(self._notes, f"{clean(text)}\n")
        self._status = ""  # show the state again below the note

    def status(self, text: str) -> None:
        """Show the state of the job, unless the same state is already shown."""
        text = str(clean(text))
        if text == self._status:
            return
        self._status = text
        if self._terminal:
            self._draw()
        else:
            _put(self._notes, f"{text}\n")

    def hide(self) -> None:
        """Remove the state from the terminal's last line, before other code writes there."""
        self._clear()

    def close(self) -> None:
        """Keep the last status on the terminal, and move the cursor to the next line."""
        if self._is_drawn:
            self._clear()
            _put(self._notes, f"{self._status}\n")
        self._status = ""

    def _draw(self) -> None:
        width = shutil.get_terminal_size().columns - 1  # a longer line would wrap, and could not be cleared
        text = self._status if len(self._status) <= width else f"{self._status[: width - 1]}…"
        _put(self._notes, f"{_TO_LINE_START}{text}")
        self._is_drawn = True

    def _clear(self) -> None:
        if self._is_drawn:
            _put(self._notes, _TO_LINE_START)
            self._is_drawn = False


def _goes_on(job: JobDetail) -> str:
    return "stays in the queue" if job.waits else "has finished" if job.finished else "continues to run"


def _put(stream: TextIO, text: str) -> None:
    stream.write(text)
    stream.flush()


def render_events(
    events: Iterable[JobEvent], renderer: JobLogRenderer, timeout: float | None = None
) -> JobDetail | None:
    """Show events, at most up to the first event after ``timeout`` seconds; return the job's latest description.

    Ctrl-C ends the display. The job continues, and a note says how to cancel it.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    job: JobDetail | None = None
    try:
        for event in events:
            renderer.show(event)
            job = event.job if isinstance(event, StateReport) else job
            if deadline is not None and time.monotonic() >= deadline and not (job and job.finished):
                renderer.note(f"Timeout exceeded: {timeout} seconds have elapsed.")
                break
    except KeyboardInterrupt:
        if job:
            renderer.note(f"{job.job} {_goes_on(job)}; to cancel it: smq cancel {job.job}")
        raise
    finally:
        renderer.close()
    return job
