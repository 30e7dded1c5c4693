"""Reads that requests share: later requests of the same process use the rows again for a few seconds.

Only rows are shared. The rights of a caller are checked for each request, after the rows are read.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from job_queue.adapters.dynamodb import Item, Key, Tables, Update, Write

SHARE_SECONDS = 5.0  # longest time for which rows are shared
RENEWALS = 5  # renewals allowed in quick succession; a renewal drops all rows, because a cycle has run
RENEWALS_A_SECOND = 1.0  # further renewals allowed a second; the limit keeps reads few when there are many changes
MOST_ROWS = 20_000  # limit on the kept rows


class SharedReads:
    """Reads that are shared within the process. Writes are passed on.

    A request starts with `begin`. If a cycle has run since the rows were read, the rows are read again, so that callers
    see their own changes. If cycles run more often than `RENEWALS` allow, rows are still shared for `SHARE_SECONDS`.

    :param tables: the tables to read from, eventually consistently.
    :param clock: returns seconds, from any origin.
    """

    def __init__(self, tables: Tables, clock: Callable[[], float]) -> None:
        self._tables = tables
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[tuple[Any, ...], tuple[float, int, Any]] = {}  # request -> time, number of rows, answer
        self._mark: object = None
        self._renewals = float(RENEWALS)
        self._counted_at = clock()

    def begin(self, mark: object) -> None:
        """Forget the rows if the mark has changed, unless the mark changes too often.

        :param mark: a value that changes with each cycle.
        """
        now = self._clock()
        with self._lock:
            self._renewals = min(RENEWALS, self._renewals + (now - self._counted_at) * RENEWALS_A_SECOND)
            self._counted_at = now
            if mark != self._mark and self._renewals >= 1:
                self._mark = mark
                self._renewals -= 1 if self._answers else 0
                self._answers.clear()

    def get(self, table: str, key: Key) -> Item | None:
        """Return one row (see `Tables`), shared."""
        found: Item | None = self._shared(("get", table, *sorted(key.items())), lambda: self._tables.get(table, key))
        return found

    def query(self, table: str, line: str, limit: int | None = None, after: str | None = None) -> list[Item]:
        """Return the rows of a partition (see `Tables`), shared."""
        request = ("query", table, line, limit, after)
        found: list[Item] = self._shared(request, lambda: self._tables.query(table, line, limit, after))
        return found

    def page(self, table: str, index: str, limit: int, after: Item | None) -> tuple[list[Item], Item | None]:
        """Return one page of an index (see `Tables`), shared."""
        request = ("page", table, index, limit, *sorted((after or {}).items()))
        found: tuple[list[Item], Item | None] = self._shared(
            request, lambda: self._tables.page(table, index, limit, after)
        )
        return found

    def update(self, update: Update) -> Item:
        """Make one update (see `Tables`)."""
        return self._tables.update(update)

    def transact(self, writes: Sequence[Write]) -> None:
        """Make all writes or none (see `Tables`)."""
        self._tables.transact(writes)

    def _shared(self, request: tuple[Any, ...], read: Callable[[], Any]) -> Any:
        """Return the kept answer of a read if it is recent enough; otherwise read, and keep the answer."""
        now = self._clock()
        with self._lock:
            at, _, answer = self._answers.get(request, (None, 0, None))
            mark = self._mark
        if at is not None and now < at + SHARE_SECONDS:
            return answer
        answer = read()  # without the lock, so that requests for other rows do not wait
        with self._lock:
            if mark == self._mark:
                self._answers.pop(request, None)
                self._answers[request] = (now, _rows(answer), answer)
                self._forget(now)
        return answer

    def _forget(self, now: float) -> None:
        """Drop the entries that are too old, then the oldest ones until at most `MOST_ROWS` rows are kept."""
        rows = sum(count for _, count, _ in self._answers.values())
        for request, (at, count, _) in list(self._answers.items()):
            if now < at + SHARE_SECONDS and rows <= MOST_ROWS:
                return
            del self._answers[request]
            rows -= count


def _rows(answer: Any) -> int:
    match answer:
        case (list() as items, _):
            return 1 + len(items)
        case list():
            return 1 + len(answer)
    return 1
