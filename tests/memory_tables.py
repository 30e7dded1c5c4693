"""Tables in memory. They keep the promises of adapters.dynamodb.Tables, and pass the same contract suite."""

import json
import threading
from collections.abc import Sequence
from typing import Any

from boto3.dynamodb.conditions import AttributeBase, ConditionBase

from job_queue.adapters.dynamodb import Check, Delete, Item, Key, Put, Update, Write
from job_queue.domain.errors import Refused, Unavailable

KEYS = {"sagemaker-queue": ("jobName",), "sagemaker-queue-lines": ("line", "position")}


MAX_ROW = 400_000  # bytes
MAX_KEY = 1024


class MemoryTables:
    """One lock around dictionaries."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows: dict[tuple[str, ...], Item] = {}

    def get(self, table: str, key: Key) -> Item | None:
        with self._lock:
            row: Item | None = _copied(self.rows.get(_place(table, key)))
            return row

    def query(self, table: str, line: str, limit: int | None = None, after: str | None = None) -> list[Item]:
        with self._lock:
            places = sorted(place for place in self.rows if place[:2] == (table, line))
            rows = [self.rows[place] for place in places if after is None or place[2] > after]
            return [_copied(row) for row in rows[:limit]]

    def page(self, table: str, index: str, limit: int, after: Item | None) -> tuple[list[Item], Item | None]:
        with self._lock:
            listed = [row for place, row in self.rows.items() if place[0] == table and index in row]
            listed.sort(key=lambda row: (row["stateSince"], row["jobName"]), reverse=True)
            if after:
                mark = (after["stateSince"], after["jobName"])
                listed = [row for row in listed if (row["stateSince"], row["jobName"]) < mark]
            page = _copied(listed[:limit])
            last = {name: page[-1][name] for name in ("stateSince", "jobName", index)} if page else None
            return page, last if len(listed) > limit else None

    def update(self, update: Update) -> Item:
        self.transact([update])
        row = self.get(update.table, update.key)
        assert row is not None
        return row

    def transact(self, writes: Sequence[Write]) -> None:
        with self._lock:
            places = [_place(write.table, write.item if isinstance(write, Put) else write.key) for write in writes]
            if len(set(places)) < len(places):
                raise ValueError(f"a transaction writes a row twice: {places}")
            if len(writes) > 100:
                raise ValueError("a transaction has at most 100 writes")
            refused = {
                number: _copied(self.rows.get(place, {}))
                for number, (place, write) in enumerate(zip(places, writes, strict=True))
                if write.when is not None and not holds(write.when, self.rows.get(place, {}))
            }
            if refused:
                raise Refused(refused)
            for place, write in zip(places, writes, strict=True):
                self._write(place, write)
                self._measure(self.rows.get(place, {}))

    def _measure(self, row: Item) -> None:
        size = len(json.dumps(row))
        if size > MAX_ROW:
            raise Unavailable(f"a row of {size} bytes")

    def _write(self, place: tuple[str, ...], write: Write) -> None:
        match write:
            case Put():
                self.rows[place] = _copied(write.item)
            case Delete():
                self.rows.pop(place, None)
            case Update():
                row = self.rows.setdefault(place, dict(write.key))
                row |= _copied(dict(write.set))
                for name, number in write.add.items():
                    row[name] = row.get(name, 0) + number
                for name, more in write.append.items():
                    row[name] = [*row[name], *_copied(list(more))]
                for name in write.remove:
                    row.pop(name, None)
            case Check():
                pass


def _copied(content: Any) -> Any:
    """A copy of what a row holds, which is JSON: much faster than copy.deepcopy."""
    if isinstance(content, dict):
        return {name: part if type(part) in _PLAIN else _copied(part) for name, part in content.items()}
    return [_copied(part) for part in content] if isinstance(content, list | tuple) else content


_PLAIN = frozenset({str, int, bool, float, type(None)})


def holds(condition: ConditionBase, row: Item) -> bool:
    """Evaluate a boto3 condition on a row."""
    expression = condition.get_expression()
    first, *rest = expression["values"]
    match expression["operator"]:
        case "AND":
            met = holds(first, row) and holds(rest[0], row)
        case "OR":
            met = holds(first, row) or holds(rest[0], row)
        case "attribute_not_exists":
            met = _value(first, row) is None
        case "attribute_exists":
            met = _value(first, row) is not None
        case "=":
            met = _value(first, row) == rest[0]
        case "<":
            met = first.name in row and _value(first, row) < rest[0]
        case unknown:
            raise ValueError(f"these tables do not know the condition {unknown}")
    return bool(met)


def _value(attribute: AttributeBase, row: Item) -> Any:
    assert not set(attribute.name) & set(".[]"), f"DynamoDB reads {attribute.name} as a path"
    return row.get(attribute.name)


def _place(table: str, key: Key | Item) -> tuple[str, ...]:
    place = (table, *(key[name] for name in KEYS[table]))
    for part in place:
        if not 0 < len(part.encode()) <= MAX_KEY:
            raise Unavailable(f"DynamoDB takes no key of {len(part)} characters")
    return place
