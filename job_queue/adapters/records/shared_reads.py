"""Tables for readers: what one request has read answers the next ones of the same process for a few seconds.

What is shared are rows. What a caller may see of them is decided for each request, after they are read.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from job_queue.adapters.dynamodb import Item, Key, Tables, Update, Write

SHARE_SECONDS = 5.0  # for which rows are shared at most
RENEWALS = 5  # at once, for changes within that time ...
RENEWALS_A_SECOND = 1.0  # ... and from then on: so a flood of requests and changes is no flood of reads
MOST_ROWS = 20_000  # that are kept


class SharedReads:
    """Reads that are shared within the process. It writes nothing but what it is told to.

    A request begins with `begin`. If a cycle has run since the rows were read, they are read again, so that callers see
    what they have just changed. If that happens too often, rows are shared for `SHARE_SECONDS` all the same.

    :param tables: to read from, eventually consistently.
    :param clock: seconds, of any origin.
    """

    def __init__(self, tables: Tables, clock: Callable[[], float]) -> None:
        self._tables = tables
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[Any, ...], tuple[float, int, Any]] = {}  # what was asked -> when, rows, answer
        self._mark: object = None
        self._renewals = float(RENEWALS)
        self._counted_at = clock()

    def begin(self, mark: object) -> None:
        """Forget what was read if the mark is another one, as far as that may be.

        :param mark: changes with each cycle.
        """
        now = self._clock()
        with self._lock:
            self._renewals = min(RENEWALS, self._renewals + (now - self._counted_at) * RENEWALS_A_SECOND)
            self._counted_at = now
            if mark != self._mark and self._renewals >= 1:
                self._mark = mark
                self._renewals -= 1 if self._kept else 0
                self._kept.clear()

    def get(self, table: str, key: Key) -> Item | None:
        """As `Tables` says, but shared."""
        found: Item | None = self._shared(("get", table, *sorted(key.items())), lambda: self._tables.get(table, key))
        return found

    def query(self, table: str, line: str, limit: int | None = None, after: str | None = None) -> list[Item]:
        """As `Tables` says, but shared."""
        asked = ("query", table, line, limit, after)
        found: list[Item] = self._shared(asked, lambda: self._tables.query(table, line, limit, after))
        return found

    def page(self, table: str, index: str, limit: int, after: Item | None) -> tuple[list[Item], Item | None]:
        """As `Tables` says, but shared."""
        asked = ("page", table, index, limit, *sorted((after or {}).items()))
        found: tuple[list[Item], Item | None] = self._shared(
            asked, lambda: self._tables.page(table, index, limit, after)
        )
        return found

    def update(self, update: Update) -> Item:
        """As `Tables` says."""
        return self._tables.update(update)

    def transact(self, writes: Sequence[Write]) -> None:
        """As `Tables` says."""
        self._tables.transact(writes)

    def _shared(self, asked: tuple[Any, ...], read: Callable[[], Any]) -> Any:
        now = self._clock()
        with self._lock:
            at, _, answer = self._kept.get(asked, (None, 0, None))
            mark = self._mark
        if at is not None and now < at + SHARE_SECONDS:
            return answer
        answer = read()  # without the lock: requests that ask for other rows do not wait
        with self._lock:
            if mark == self._mark:
                self._kept.pop(asked, None)
                self._kept[asked] = (now, _rows(answer), answer)
                self._forget(now)
        return answer

    def _forget(self, now: float) -> None:
        """Drop what is too old, and the oldest ones beyond the bound."""
        rows = sum(count for _, count, _ in self._kept.values())
        for asked, (at, count, _) in list(self._kept.items()):
            if now < at + SHARE_SECONDS and rows <= MOST_ROWS:
                return
            del self._kept[asked]
            rows -= count


def _rows(answer: Any) -> int:
    match answer:
        case (list() as items, _):
            return 1 + len(items)
        case list():
            return 1 + len(answer)
    return 1
