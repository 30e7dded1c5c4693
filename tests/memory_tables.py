"""Tables in memory. They keep the promises of adapters.dynamodb.Tables, and pass the same contract suite."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from boto3.dynamodb.conditions import AttributeBase, ConditionBase

from job_queue.adapters.dynamodb import Check, Delete, Item, Key, Put, Update, Write
from job_queue.domain.errors import Refused, Unavailable, Unwritable
from local_cloud.dynamodb.key_throttle import KeyAccess, PartitionKey
from local_cloud.dynamodb.units import Index, size_of

KEYS = {
    "sagemaker-queue": ("jobName",),
    "sagemaker-queue-lines": ("line", "position"),
    "sagemaker-queue-history": ("line", "position"),
}


# As AWS documents them; tests/contract asks a real DynamoDB about each.
MAX_ROW = 400 * 1024  # bytes
MAX_TRANSACTION = 4 * 1024 * 1024
MAX_WRITES = 100
MAX_KEYS = (2048, 1024)  # of a partition key, of a sort key
LARGE = frozenset({"jobDetails", "history", "attempts"})  # attributes that the template leaves out of indexes
FINISHED = Index("finished", ("finished", "stateSince"), lambda name: name not in LARGE)


class MemoryTables:
    """One lock around dictionaries."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.rows: dict[tuple[str, ...], Item] = {}

    def get(self, table: str, key: Key) -> Item | None:
        with self._lock:
            place = place_of(table, key)
            read = PartitionKey(table, place[1])
            self._admit(KeyAccess.READ, [read])
            row = self.rows.get(place)
            self._read(read, [row] if row else [])
            return None if row is None else self._given(row)

    def query(self, table: str, line: str, limit: int | None = None, after: str | None = None) -> list[Item]:
        with self._lock:
            read = PartitionKey(table, line)
            self._admit(KeyAccess.READ, [read])
            places = sorted(place for place in self.rows if place[1] == line and place[0] == table)
            rows = [self.rows[place] for place in places if after is None or place[2] > after][:limit]
            self._read(read, rows)
            return [self._given(row) for row in rows]

    def page(self, table: str, index: str, limit: int, after: Item | None) -> tuple[list[Item], Item | None]:
        with self._lock:
            read = PartitionKey(table, "yes", index)
            self._admit(KeyAccess.READ, [read])
            listed = [row for place, row in self.rows.items() if place[0] == table and index in row]
            listed.sort(key=lambda row: (row["stateSince"], row["jobName"]), reverse=True)
            if after:
                mark = (after["stateSince"], after["jobName"])
                listed = [row for row in listed if (row["stateSince"], row["jobName"]) < mark]
            self._read(read, [FINISHED.entry(row) or {} for row in listed[:limit]], consistent=False)
            page = _copied(listed[:limit])
            if len(page) < limit:
                return page, None
            # Nobody has looked whether there is more.
            return page, {name: page[-1][name] for name in ("stateSince", "jobName", index)}

    def update(self, update: Update) -> Item:
        with self._lock:
            self._apply([update], transactional=False)
            return self._given(self.rows[place_of(update.table, update.key)])

    def transact(self, writes: Sequence[Write]) -> None:
        with self._lock:
            self._apply(writes, transactional=True)

    def _apply(self, writes: Sequence[Write], *, transactional: bool) -> None:
        places = [place_of(write.table, write.item if isinstance(write, Put) else write.key) for write in writes]
        if len(set(places)) < len(places):
            raise ValueError(f"a transaction writes a row twice: {places}")
        if not 0 < len(writes) <= MAX_WRITES:
            raise ValueError(f"a transaction has 1 to {MAX_WRITES} writes, and not {len(writes)}")
        keys = [PartitionKey(*place[:2]) for place in places]
        self._admit(KeyAccess.WRITE, keys)
        refused = {
            number: _copied(self.rows.get(place, {}))
            for number, (place, write) in enumerate(zip(places, writes, strict=True))
            if write.when is not None and not holds(write.when, self.rows.get(place, {}))
        }
        if refused:
            self._write(writes, places, {}, transactional=transactional)
            raise Refused(refused)
        changes = [(place, write) for place, write in zip(places, writes, strict=True) if not isinstance(write, Check)]
        written = [(place, self._written(place, write)) for place, write in changes]
        self._measure([row for _, row in written if row], writes)
        self._write(writes, places, dict(written), transactional=transactional)
        for place, row in written:
            self._keep(place, row)

    def _written(self, place: tuple[str, ...], write: Put | Update | Delete) -> Item | None:
        """The row as the write makes it; None: it is deleted."""
        match write:
            case Put():
                row: Item = _copied(write.item)
                return row
            case Delete():
                return None
            case Update():
                if not (write.set or write.add or write.append or write.remove):
                    raise ValueError(f"an update changes nothing: {write}")
                row = {**self.rows.get(place, write.key), **_copied(dict(write.set))}
                for name, number in write.add.items():
                    row[name] = row.get(name, 0) + number
                for name, more in write.append.items():
                    row[name] = [*row[name], *_copied(list(more))]
                for name in write.remove:
                    row.pop(name, None)
                return row

    def _measure(self, rows: Sequence[Item], writes: Sequence[Write]) -> None:
        if (largest := max(map(size_of, rows), default=0)) > MAX_ROW:
            raise Unwritable(f"a row of {largest} bytes")
        if (sent := sum(map(size_of, map(_sent, writes)))) > MAX_TRANSACTION:
            raise Unavailable(f"a transaction of {sent} bytes")

    def _admit(self, access: KeyAccess, keys: Sequence[PartitionKey]) -> None:
        """Refuse a call of keys that have no units left: here none is."""

    def _read(self, key: PartitionKey, rows: Sequence[Item], *, consistent: bool = True) -> None:
        """Count the units of a read: here they are not counted."""

    def _write(
        self,
        writes: Sequence[Write],
        places: Sequence[tuple[str, ...]],
        written: Mapping[tuple[str, ...], Item | None],
        *,
        transactional: bool,
    ) -> None:
        """Count the units of writes before they are applied: here they are not counted.

        :param written: the rows as they will be; empty: a condition is not met.
        """

    def _given(self, row: Item) -> Item:
        """A row for a reader, who may change it."""
        copy: Item = _copied(row)
        return copy

    def _keep(self, place: tuple[str, ...], row: Item | None) -> None:
        if row is None:
            self.rows.pop(place, None)
        else:
            self.rows[place] = row


def _sent(write: Write) -> Item:
    """What counts in a transaction's size: DynamoDB Local counts what is sent, not the rows that are changed."""
    match write:
        case Put():
            return write.item
        case Update():
            return {**write.set, **write.append}
    return {}


def _copied(content: Any) -> Any:
    """A copy of what a row holds, which is JSON: much faster than copy.deepcopy."""
    if isinstance(content, dict):
        if "" in content:
            raise ValueError("an attribute, also one inside another, has a name")
        plain = _PLAIN
        return {name: part if type(part) in plain else _copied(part) for name, part in content.items()}
    if isinstance(content, float):
        raise TypeError("boto3 takes no floats")
    return [_copied(part) for part in content] if isinstance(content, list | tuple) else content


_PLAIN = frozenset({str, int, bool, type(None)})


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
            met = _value(first, row) is _MISSING
        case "attribute_exists":
            met = _value(first, row) is not _MISSING
        case "=":
            met = _comparable(_value(first, row), rest[0]) and _value(first, row) == rest[0]
        case "<>":  # true of what is not there, as in DynamoDB
            met = not _comparable(_value(first, row), rest[0]) or _value(first, row) != rest[0]
        case "<":
            met = _comparable(_value(first, row), rest[0]) and _value(first, row) < rest[0]
        case ">":
            met = _comparable(_value(first, row), rest[0]) and _value(first, row) > rest[0]
        case unknown:
            raise ValueError(f"these tables do not know the condition {unknown}")
    return bool(met)


def _value(attribute: AttributeBase, row: Item) -> Any:
    assert not set(attribute.name) & set(".[]"), f"DynamoDB reads {attribute.name} as a path"
    return row.get(attribute.name, _MISSING)


_MISSING = object()


def _comparable(value: object, other: object) -> bool:
    """What is of another type, or not there, is neither equal nor less."""
    return type(value) is type(other)


def place_of(table: str, key: Key | Item) -> tuple[str, ...]:
    place = (table, *(key[name] for name in KEYS[table]))
    for part, most in zip(place[1:], MAX_KEYS, strict=False):
        if not 0 < len(part) <= most // 4 and not 0 < len(part.encode()) <= most:
            raise Unavailable(f"DynamoDB takes no key of {len(part)} characters")
    return place
