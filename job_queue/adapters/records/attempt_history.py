"""Attempts that have ended: a row for each, written in the transaction that ends it, in a table of its own.

A day's rows are a partition, in the order of their ends, so that a range of time is a few queries. An attempt ends
once, as its job's row has a version; so it has one row.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import date, timedelta
from typing import Any

from job_queue.adapters.dynamodb import Item, Put, Tables
from job_queue.domain.accounting.attempts import CLOCK_SECONDS, AttemptRecord
from job_queue.domain.job import epoch, iso

MOST_DAYS = 50  # that one page looks at
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
