"""Attempts that have ended: a row for each, written in the transaction that ends it, in a table of its own.

A day's rows are a partition, in the order of their ends, so that a range of time is a few queries. An attempt ends
once, as its job's row has a version; so it has one row.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from datetime import date, timedelta
from typing import Any

from job_queue.adapters.dynamodb import Item, Put, Tables
from job_queue.domain.accounting.attempts import CLOCK_SECONDS, AttemptRecord
from job_queue.domain.job import epoch, iso

MOST_DAYS = 50  # that one page looks at
PAGE = 1000  # attempts that a feed reads at a time
LATE_SECONDS = 2 * 3600  # by which an end may be recorded after others that were later; longer than clocks differ
_FIELDS = frozenset(field.name for field in fields(AttemptRecord))


class AttemptHistory:
    """Reads the rows, and makes the write that adds one.

    :param kept_seconds: how long after its end an attempt's row is kept.
    """

    def __init__(self, tables: Tables, table: str, kept_seconds: int) -> None:
        self._tables = tables
        self._table = table
        self._kept_seconds = kept_seconds

    def write(self, account: AttemptRecord) -> Put:
        """What adds an attempt."""
        content = {name: value for name, value in asdict(account).items() if value is not None}
        key = {"line": _day(account.ended), "position": position_of(account)}
        return Put(self._table, {**key, **content, "expires": int(epoch(account.ended)) + self._kept_seconds})

    def page(self, since: float, until: float, limit: int, now: float, after: str | None = None) -> "HistoryPage":
        """The attempts that have ended in a time, in the order of their ends; `limit` at most, and perhaps fewer.

        :param since: epoch seconds; `until` is not part of the time.
        :param after: the position where the page before has stopped.
        """
        first, last = iso(max(since, now - self._kept_seconds)), iso(min(until, now + CLOCK_SECONDS))
        begin = max(first, after) if after else first
        found: list[Item] = []
        day = _day(begin)
        for _ in range(MOST_DAYS):
            if day > _day(last):
                return HistoryPage(found, None)
            rows = self._tables.query(self._table, day, limit - len(found), begin)
            found += [row for row in rows if row["position"] < last]
            if rows and rows[-1]["position"] >= last:
                return HistoryPage(found, None)
            if len(found) >= limit:
                return HistoryPage(found, found[-1]["position"])
            begin = day = _next(day)
        return HistoryPage(found, begin)

    def ended_since(self, since: float, now: float) -> list[AttemptRecord]:
        """Those that have ended since then, the first `PAGE` of them.

        :param now: epoch seconds; `since` is less than a day before.
        """
        return self.page(since, now + CLOCK_SECONDS, PAGE, now).attempts


class AttemptFeed:
    """The attempts that have ended, each once, as they become known: all of a time at first, then what is new.

    :param clock: seconds since the epoch.
    """

    def __init__(self, attempts: AttemptHistory, clock: Callable[[], float]) -> None:
        self._attempts = attempts
        self._clock = clock
        self._known: set[str] = set()  # positions that were given, as far as they may be read again
        self._read_until = 0.0  # epoch seconds of the latest end that may be known

    def new(self, since: float, may_go_on: Callable[[], bool]) -> Iterator[AttemptRecord]:
        """Those that were not given yet, in the order of their ends.

        :param since: epoch seconds; what ended before is not asked for.
        :param may_go_on: asked after each page. The next time goes on where this one has stopped.
        """
        now, token = self._clock(), None
        since = max(since, self._read_until - LATE_SECONDS)
        self._known = {position for position in self._known if position >= iso(since)}
        while True:
            page = self._attempts.page(since, now + CLOCK_SECONDS, PAGE, now, token)
            for attempt in page.attempts:
                if (position := position_of(attempt)) not in self._known:
                    self._known.add(position)
                    yield attempt
            token = page.following
            if token is None:
                self._read_until = now
                return
            if page.attempts:
                self._read_until = epoch(page.attempts[-1].ended)
            if not may_go_on():
                return

    def given_since(self, time: float) -> frozenset[str]:
        """Names of the training jobs that were given and have ended since then; not long ago."""
        return frozenset(position.partition("#")[2] for position in self._known if position >= iso(time))


class HistoryPage:
    """Attempts, and where the next page goes on (None: there is none)."""

    def __init__(self, rows: list[Item], following: str | None) -> None:
        self.attempts = [_from(row) for row in rows]
        self.following = following


def position_of(account: AttemptRecord) -> str:
    """Where an attempt stands in the order of ends."""
    return f"{account.ended}#{account.training_job_name}"


def _from(row: Mapping[str, Any]) -> AttemptRecord:
    return AttemptRecord(**{name: value for name, value in row.items() if name in _FIELDS})


def _day(time: str) -> str:
    return time[:10]


def _next(day: str) -> str:
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()
