"""Attempt records: a row for each ended attempt in a table of its own, written in the transaction that records the end.

The rows of a day are a partition, ordered by their ends, so that a range of time takes a few queries. Each attempt has
one row, because only one transaction can record its end: the transaction requires the job's version.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date, timedelta

import msgspec

from job_queue.adapters.condition_expressions import EXISTS
from job_queue.adapters.dynamodb import Item, Put, Tables, Update
from job_queue.adapters.items import prepare_conversion
from job_queue.domain.accounting.attempts import CLOCK_SECONDS, AttemptRecord, MeasuredUtilization
from job_queue.domain.errors import Refused
from job_queue.domain.job import epoch, iso

MOST_DAYS = 50  # largest number of partitions that one page reads
PAGE = 1000  # attempts that a feed reads at a time
LATE_SECONDS = 2 * 3600  # an end is recorded at most this long after later ends; larger than the skew of clocks

prepare_conversion(AttemptRecord)


class AttemptHistory:
    """The attempt records: reads, and the write that adds one.

    :param kept_seconds: retention of an attempt's row after its end.
    """

    def __init__(self, tables: Tables, table: str, kept_seconds: int) -> None:
        self._tables = tables
        self._table = table
        self._kept_seconds = kept_seconds

    def write(self, record: AttemptRecord) -> Put:
        """Return the write that adds an attempt."""
        content = {name: value for name, value in msgspec.to_builtins(record).items() if value is not None}
        key = {"line": _day(record.ended), "position": position_of(record)}
        return Put(self._table, {**key, **content, "expires": int(epoch(record.ended)) + self._kept_seconds})

    def note_utilization(self, record: AttemptRecord, measured: MeasuredUtilization) -> None:
        """Add the utilization to an attempt's row. A row that has expired meanwhile stays deleted.

        Either of two concurrent writes may remain, because both are correct.
        """
        content = {name: value for name, value in msgspec.to_builtins(measured).items() if value is not None}
        key = {"line": _day(record.ended), "position": position_of(record)}
        with suppress(Refused):
            self._tables.update(Update(self._table, key, set={"utilization": content}, when=EXISTS))

    def page(self, since: float, until: float, limit: int, now: float, after: str | None = None) -> "AttemptPage":
        """Return a page of the attempts that ended in a period, in the order of their ends.

        A page has at most `limit` attempts. A page may have fewer even if more attempts follow.

        :param since: epoch seconds; `until` is exclusive.
        :param after: the position at which the previous page has stopped.
        """
        first, last = iso(max(since, now - self._kept_seconds)), iso(min(until, now + CLOCK_SECONDS))
        begin = max(first, after) if after else first
        found: list[Item] = []
        day = _day(begin)
        for _ in range(MOST_DAYS):
            if day > _day(last):
                return AttemptPage(found, None)
            rows = self._tables.query(self._table, day, limit - len(found), begin)
            found += [row for row in rows if row["position"] < last]
            if rows and rows[-1]["position"] >= last:
                return AttemptPage(found, None)
            if len(found) >= limit:
                return AttemptPage(found, found[-1]["position"])
            begin = day = _next(day)
        return AttemptPage(found, begin)

    def ended_since(self, since: float, now: float) -> list[AttemptRecord]:
        """Return the first `PAGE` attempts that have ended since a time.

        :param now: epoch seconds; `since` is less than a day earlier.
        """
        return self.page(since, now + CLOCK_SECONDS, PAGE, now).attempts


class AttemptFeed:
    """A feed of ended attempts: the first call yields all attempts that ended since a time, later calls only new ones.

    :param clock: returns seconds since the epoch.
    """

    def __init__(self, attempts: AttemptHistory, clock: Callable[[], float]) -> None:
        self._attempts = attempts
        self._clock = clock
        self._known: set[str] = set()  # positions of yielded attempts that may be read again
        self._read_until = 0.0  # epoch seconds; all earlier ends have been read

    def new(self, since: float, may_go_on: Callable[[], bool]) -> Iterator[AttemptRecord]:
        """Yield the attempts that were not yielded before, in the order of their ends.

        :param since: epoch seconds; earlier ends are left out.
        :param may_go_on: called after each page. A result of False stops this call; the next call continues after the
            last page.
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
        """Return the names of yielded training jobs that have ended since a time, at most `LATE_SECONDS` ago."""
        return frozenset(position.partition("#")[2] for position in self._known if position >= iso(time))


class AttemptPage:
    """A page of attempts, and the position at which the next page begins (None: this is the last page)."""

    def __init__(self, rows: list[Item], following: str | None) -> None:
        self.attempts = msgspec.convert(rows, list[AttemptRecord])
        self.following = following


def position_of(record: AttemptRecord) -> str:
    """Return the position (sort key) of an attempt: its end, then its name."""
    return f"{record.ended}#{record.training_job_name}"


def _day(time: str) -> str:
    return time[:10]


def _next(day: str) -> str:
    return (date.fromisoformat(day) + timedelta(days=1)).isoformat()
