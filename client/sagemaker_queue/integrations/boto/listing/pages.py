"""Merge jobs of the queue and other training jobs into the pages of one sorted list.

The queue's jobs are in memory and are sorted here. SageMaker returns its training jobs sorted, page by page. Each step
compares the next entries of both sources, and takes the entry that is first in the order. The page's token contains the
positions in both sources, so that no page depends on the memory of this process.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Optional

from sagemaker_queue.errors import InvalidRequest
from sagemaker_queue.integrations.boto.call import Answer

LARGEST_PAGE = 100
"""SageMaker's maximum page size."""
MOST_CALLS = 4
"""Maximum number of SageMaker calls for one page, each for up to 100 training jobs. AWS allows two calls a second. A
page may have fewer entries than requested."""

Show = Callable[[], Optional[Answer]]


class LookupLimitError(Exception):
    """Raised by ``ListEntry.show`` if no more lookups are allowed for a page. The next page begins with the entry."""


@dataclass(frozen=True)
class ListEntry:
    """An entry of a list. ``key`` is the text by which the list is sorted."""

    key: str
    name: str
    show: Show
    """Returns the entry in the form of the list; None if the entry is hidden or does not match."""


@dataclass(frozen=True)
class _Position:
    """The position up to which a list was read."""

    order: str
    own: tuple[str, str] | None = None
    """Key and name of the queue's job that was read last; None before the first."""
    token: str | None = None
    """SageMaker's token of the page that is being read; None for the first page."""
    read: str | None = None
    """Name of the last training job that was read from that page."""
    ended: bool = False
    """True if SageMaker has no further training jobs."""


Fetch = Callable[[Optional[str]], "tuple[list[ListEntry], str | None]"]
"""Takes SageMaker's token of a page (None: the first page); returns the page's training jobs and the next token."""


def merge(
    queue_entries: Sequence[ListEntry], fetch: Fetch, *, order: str, descending: bool, size: int, token: str | None
) -> tuple[list[Answer], str | None]:
    """Return a page of at most ``size`` entries, and the token of the next page. The token is None on the last page.

    ``order`` names the requested order. Raises InvalidRequest if the token is invalid or belongs to another order.
    """
    position = _position_of(token, order)
    remaining = [
        entry for entry in queue_entries if position.own is None or _before(position.own, _sort_key(entry), descending)
    ]
    remaining.sort(key=_sort_key, reverse=descending)
    reader = _Reader(fetch, position)
    shown: list[Answer] = []
    last = position.own
    while len(shown) < size:
        sagemaker_entry = reader.head()
        if sagemaker_entry is None and not reader.ended:
            break  # the allowed calls for one page are used up
        queue_entry = remaining[0] if remaining else None
        if queue_entry is None and sagemaker_entry is None:
            return shown, None
        takes_queue_entry = sagemaker_entry is None or (
            queue_entry is not None and not _before(sagemaker_entry.key, queue_entry.key, descending)
        )
        entry = queue_entry if takes_queue_entry else sagemaker_entry
        assert entry is not None
        try:
            answer = entry.show()
        except LookupLimitError:
            break
        if takes_queue_entry:
            last = _sort_key(remaining.pop(0))
        else:
            reader.advance()
        if answer is not None:
            shown.append(answer)
    if reader.ended and not remaining:
        return shown, None
    return shown, _token_of(replace(reader.position, own=last))


class _Reader:
    """A reader of SageMaker's pages, with at most MOST_CALLS calls."""

    def __init__(self, fetch: Fetch, position: _Position) -> None:
        self._fetch = fetch
        self._calls = 0
        self._entries: list[ListEntry] | None = None
        self._next: str | None = None
        self.position = position

    @property
    def ended(self) -> bool:
        """True if SageMaker has no further training jobs."""
        return self.position.ended

    def head(self) -> ListEntry | None:
        """Return the next training job; None after the last one, or if the allowed calls are used up."""
        while not self.ended:
            if self._entries is None:
                if self._calls == MOST_CALLS:
                    return None
                self._calls += 1
                entries, self._next = self._fetch(self.position.token)
                self._entries = _after(entries, self.position.read)
            if self._entries:
                return self._entries[0]
            self._go_to_next_page()
        return None

    def advance(self) -> None:
        """Move past the training job that ``head`` returned."""
        assert self._entries
        self.position = replace(self.position, read=self._entries.pop(0).name)
        if not self._entries:
            self._go_to_next_page()

    def _go_to_next_page(self) -> None:
        self._entries = None
        self.position = replace(self.position, token=self._next, read=None, ended=self._next is None)


def _after(entries: list[ListEntry], name: str | None) -> list[ListEntry]:
    names = [entry.name for entry in entries]
    return entries[names.index(name) + 1 :] if name in names else list(entries)


def _sort_key(entry: ListEntry) -> tuple[str, str]:
    return entry.key, entry.name


def _before(one: Any, other: Any, descending: bool) -> bool:
    return bool(one > other if descending else one < other)


def _token_of(position: _Position) -> str:
    return base64.urlsafe_b64encode(json.dumps(asdict(position)).encode()).decode()


def _position_of(token: str | None, order: str) -> _Position:
    if not token:
        return _Position(order)
    try:
        content = json.loads(base64.urlsafe_b64decode(token))
        own = content["own"]
        position = _Position(**{**content, "own": own and (str(own[0]), str(own[1]))})
    except (ValueError, TypeError, LookupError):
        position = _Position("")
    if position.order != order:
        raise InvalidRequest(
            "NextToken is not valid. Pass the NextToken of the previous page, with the same order, or omit it.",
            "NextToken",
        )
    return position
