"""Pages of a list that has jobs of the queue, and training jobs that are not the queue's, in one order.

Both come in that order: the jobs are at hand, the training jobs come from SageMaker page by page. A page takes from
whichever is next. Its token says how far each has come, so that no page depends on what this process remembers.
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
"""That SageMaker gives."""
MOST_CALLS = 4
"""Of SageMaker for one page, each for up to 100 training jobs. Two in a second are allowed; a page may be short."""

Show = Callable[[], Optional[Answer]]


class PageIsFullError(Exception):
    """Raised by an entry that would cost too much on this page; it comes first on the next."""


@dataclass(frozen=True)
class Entry:
    """Something in a list. Keys of one list compare as texts, as the order wants them."""

    key: str
    name: str
    show: Show
    """Gives what the list shows of it; None if that is nothing, after all."""


@dataclass(frozen=True)
class _Position:
    """How far a list was read."""

    order: str
    own: tuple[str, str] | None = None
    """Key and name of the last job of the queue."""
    token: str | None = None
    """SageMaker's own, of the page that is being read."""
    read: str | None = None
    """Name of the last training job that was read of that page."""
    ended: bool = False
    """SageMaker has no more."""


Fetch = Callable[[Optional[str]], "tuple[list[Entry], str | None]"]
"""Takes a token of SageMaker's; gives the training jobs of that page, and the next token."""


def merge(
    own: Sequence[Entry], fetch: Fetch, *, order: str, descending: bool, size: int, token: str | None
) -> tuple[list[Answer], str | None]:
    """Return a page of at most ``size``, and the token of the next one.

    ``order`` names the order that is asked for: a token is of use in the same one only. Raises InvalidRequest.
    """
    position = _read(token, order)
    left = [entry for entry in own if position.own is None or _before(position.own, _place(entry), descending)]
    left.sort(key=_place, reverse=descending)
    reader = _Reader(fetch, position)
    shown: list[Answer] = []
    last = position.own
    while len(shown) < size:
        theirs = reader.head()
        if theirs is None and not reader.ended:
            break  # enough was asked for one page
        ours = left[0] if left else None
        if ours is None and theirs is None:
            return shown, None
        take_ours = theirs is None or (ours is not None and not _before(theirs.key, ours.key, descending))
        entry = ours if take_ours else theirs
        assert entry is not None
        try:
            answer = entry.show()
        except PageIsFullError:
            break
        if take_ours:
            last = _place(left.pop(0))
        else:
            reader.advance()
        if answer is not None:
            shown.append(answer)
    if reader.ended and not left:
        return shown, None
    return shown, _written(replace(reader.position, own=last))


class _Reader:
    """Reads SageMaker's pages, as many as one page of ours may cost."""

    def __init__(self, fetch: Fetch, position: _Position) -> None:
        self._fetch = fetch
        self._calls = 0
        self._entries: list[Entry] | None = None
        self._next: str | None = None
        self.position = position

    @property
    def ended(self) -> bool:
        """Whether there are no more."""
        return self.position.ended

    def head(self) -> Entry | None:
        """Return the next training job; None if there is none, or none may be asked for on this page."""
        while not self.ended:
            if self._entries is None:
                if self._calls == MOST_CALLS:
                    return None
                self._calls += 1
                entries, self._next = self._fetch(self.position.token)
                self._entries = _after(entries, self.position.read)
            if self._entries:
                return self._entries[0]
            self._turn()
        return None

    def advance(self) -> None:
        """Go past it."""
        assert self._entries
        self.position = replace(self.position, read=self._entries.pop(0).name)
        if not self._entries:
            self._turn()

    def _turn(self) -> None:
        self._entries = None
        self.position = replace(self.position, token=self._next, read=None, ended=self._next is None)


def _after(entries: list[Entry], name: str | None) -> list[Entry]:
    names = [entry.name for entry in entries]
    return entries[names.index(name) + 1 :] if name in names else list(entries)


def _place(entry: Entry) -> tuple[str, str]:
    return entry.key, entry.name


def _before(one: Any, other: Any, descending: bool) -> bool:
    return bool(one > other if descending else one < other)


def _written(position: _Position) -> str:
    return base64.urlsafe_b64encode(json.dumps(asdict(position)).encode()).decode()


def _read(token: str | None, order: str) -> _Position:
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
            "NextToken is not valid: pass on the one of the page before, in the same order, or none.", "NextToken"
        )
    return position
