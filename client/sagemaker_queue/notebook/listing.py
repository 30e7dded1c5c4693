"""What the queue lists, as notebooks show it: a table, a frame, and still an iterator that reads page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from api_contract.shape import Answer
from sagemaker_queue.models import JobSummary, Submission
from sagemaker_queue.notebook import html
from sagemaker_queue.notebook.frames import to_frame

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", bound=Answer)
J = TypeVar("J", bound=JobSummary)


class Listing(Iterator[T]):
    """Jobs or attempts as they come, page by page, once, as of any iterator.

    ``all()``, ``to_frame()`` and the table that a notebook shows have those that were taken from it as well.
    """

    def __init__(self, items: Iterator[T], shown: Callable[[Iterable[T]], str]) -> None:
        self._items = items
        self._shown = shown
        self._read: list[T] = []
        self._given = 0

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._given == len(self._read):
            self._read.append(next(self._items))
        self._given += 1
        return self._read[self._given - 1]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: list(...), .all() and .to_frame() read it; {len(self._read)} read so far>"

    def _every(self) -> Iterator[T]:
        """Yield all from the first one on, and read no further than somebody asks."""
        place = 0
        while True:
            if place == len(self._read):
                try:
                    self._read.append(next(self._items))
                except StopIteration:
                    return
            yield self._read[place]
            place += 1

    def all(self) -> tuple[T, ...]:
        """Return all of them, from the first one on."""
        return tuple(self._every())

    def to_frame(self) -> pd.DataFrame:
        """Return all of them as a frame of pandas, a row for each. Raises ImportError without pandas."""
        return to_frame(self._every())

    def _repr_html_(self) -> str:
        return self._shown(self._every())


class Jobs(tuple[J, ...]):
    """Some jobs: a tuple that a notebook shows as a table."""

    __slots__ = ()

    def to_frame(self) -> pd.DataFrame:
        """Return them as a frame of pandas, a row for each. Raises ImportError without pandas."""
        return to_frame(self)

    def _repr_html_(self) -> str:
        return html.jobs(self)


class Sweep(Jobs[Submission]):
    """The jobs of a sweep, as they were submitted."""

    @property
    def group(self) -> str | None:
        """Under which they are listed and cancelled together."""
        return self[0].group if self else None
