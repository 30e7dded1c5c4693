"""The iterators and lists of jobs, attempts and log lines that ``QueueClient`` returns and notebooks show.

The jobs themselves are in ``api_contract.models``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from api_contract.history import PastAttempt
from api_contract.models import JobSummary, Submission
from api_contract.shape import Answer
from sagemaker_queue.errors import QueueError
from sagemaker_queue.jobs.formatting import state_sentence, visible
from sagemaker_queue.notebook import html
from sagemaker_queue.notebook.frames import to_frame
from sagemaker_queue.notebook.progress import Progress
from sagemaker_queue.presentation.text.accounting.history_text import history_table
from sagemaker_queue.presentation.text.job_text import jobs_table
from sagemaker_queue.workflows.job_logs.attempt_logs import LogLine
from sagemaker_queue.workflows.job_logs.follower import JobEvent, StateReport

if TYPE_CHECKING:
    import pandas as pd

_TEXT_COLUMNS = ("job", "user", "state", "priority", "turn", "when", "instances", "reason")

T = TypeVar("T", bound=Answer)
J = TypeVar("J", bound=JobSummary)


def jobs_text(jobs: Iterable[JobSummary]) -> str:
    """Return a table of jobs as text."""
    known = list(jobs)
    return visible(jobs_table(known, _TEXT_COLUMNS, compact=True)) if known else "No jobs."


def attempts_text(attempts: Iterable[PastAttempt]) -> str:
    """Return a table of finished attempts as text."""
    known = list(attempts)
    return visible(history_table(known)) if known else "No attempts."


class Listing(Iterator[T]):
    """An iterator over jobs or attempts, read page by page, which can be consumed once.

    ``all()``, ``to_frame()`` and the table in a notebook also include items that were already consumed. After an error,
    no further items can be read: every later read raises the same error. After an interrupt such as Ctrl-C, every later
    read raises QueueError.
    """

    def __init__(
        self, items: Iterator[T], as_html: Callable[[Iterable[T]], str], as_text: Callable[[Iterable[T]], str]
    ) -> None:
        self._items = items
        self._as_html = as_html
        self._as_text = as_text
        self._read: list[T] = []
        self._consumed = 0
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._consumed == len(self._read):
            self._read_next()
        self._consumed += 1
        return self._read[self._consumed - 1]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: read by print(), list(), .all() or .to_frame(); {len(self._read)} read so far>"

    def __str__(self) -> str:
        """Return all items as a table of text, from the first on."""
        return self._as_text(self._all_items())

    def _read_next(self) -> None:
        """Read the next item. Raises StopIteration after the last item, and errors of the queue."""
        if self._error:
            raise self._error
        try:
            self._read.append(next(self._items))
        except StopIteration:
            raise
        except Exception as error:
            self._error = error
            raise
        except BaseException:  # such as Ctrl-C
            self._error = QueueError("The reading of this list was interrupted. Ask for the list again.")
            raise

    def _all_items(self) -> Iterator[T]:
        """Yield all items from the first on; read a page only when the caller iterates that far."""
        place = 0
        while True:
            if place == len(self._read):
                try:
                    self._read_next()
                except StopIteration:
                    return
            yield self._read[place]
            place += 1

    def all(self) -> tuple[T, ...]:
        """Return all items, from the first on."""
        return tuple(self._all_items())

    def to_frame(self) -> pd.DataFrame:
        """Return all items as a pandas DataFrame, one row each. Raises ImportError if pandas is not installed."""
        return to_frame(self._all_items())

    def _repr_html_(self) -> str:
        return self._as_html(self._all_items())


class Jobs(tuple[J, ...]):
    """A tuple of jobs, which notebooks show as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        """Return the jobs as a table of text."""
        return jobs_text(self)

    def to_frame(self) -> pd.DataFrame:
        """Return the jobs as a pandas DataFrame, one row each. Raises ImportError if pandas is not installed."""
        return to_frame(self)

    def _repr_html_(self) -> str:
        return html.jobs(self)


class Sweep(Jobs[Submission]):
    """The submitted jobs of a sweep."""

    @property
    def group(self) -> str | None:
        """Name of the group, by which the jobs can be listed and cancelled together."""
        return self[0].group if self else None


class LogLines(Iterator[LogLine]):
    """An iterator over arriving log lines, which can be consumed once. Notebooks show the remaining lines."""

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
