"""Iteration over the lines of a job's log, which notebooks show."""

from __future__ import annotations

from collections.abc import Iterator

from botocore.exceptions import BotoCoreError, ClientError

from sagemaker_queue.errors import QueueError
from sagemaker_queue.formatting import state_sentence
from sagemaker_queue.job_logs.attempt_logs import LogLine
from sagemaker_queue.job_logs.follower import JobEvent, StateReport
from sagemaker_queue.notebook import html
from sagemaker_queue.notebook.progress import Progress


class LogLines(Iterator[LogLine]):
    """An iterator over log lines as they arrive, which can be consumed once. Notebooks show the remaining lines."""

    def __init__(self, events: Iterator[JobEvent], *, silent: bool) -> None:
        self._lines = _lines(events, silent=silent)

    def __iter__(self) -> Iterator[LogLine]:
        return self

    def __next__(self) -> LogLine:
        return next(self._lines)

    def _repr_html_(self) -> str:
        return html.log(line.message for line in self._lines)


def _lines(events: Iterator[JobEvent], *, silent: bool) -> Iterator[LogLine]:
    with Progress(silent=silent) as progress:
        try:
            for event in events:
                if isinstance(event, LogLine):
                    progress.hide()
                    yield event
                elif isinstance(event, StateReport):
                    progress.show(state_sentence(event.job))
        except (ClientError, BotoCoreError) as error:
            raise QueueError(f"The log cannot be read from CloudWatch: {error}") from error
