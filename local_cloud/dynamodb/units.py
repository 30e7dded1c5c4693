"""Read and write units as DynamoDB counts them.

Sources: "DynamoDB read and write operations", "DynamoDB item sizes and formats" and "Provisioned throughput
considerations for global secondary indexes" in the developer guide. Items are plain Python values, as boto3's
TypeDeserializer makes them.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Item = Mapping[str, Any]

READ_UNIT = 4096  # bytes
WRITE_UNIT = 1024
LARGEST_PAGE = 1024 * 1024  # bytes that one Query reads at most
TRANSACTIONAL = 2  # factor for the units of a transaction


def size_of(item: Item) -> int:
    """Return the size of an item in bytes: its names and values."""
    return sum(_text(name) + _size(value) for name, value in item.items())


def read_units(size: int, *, consistent: bool = True) -> float:
    """Return the units of a GetItem, or of a page of a Query: the sizes of its items are added before rounding up."""
    units = max(1, math.ceil(size / READ_UNIT))
    return float(units) if consistent else units / 2


def query_units(sizes: Iterable[int], *, consistent: bool = True) -> float:
    """Return the units of all pages of a Query that reads items of these sizes."""
    units, page = 0.0, 0
    for size in sizes:
        if page and page + size > LARGEST_PAGE:
            units, page = units + read_units(page, consistent=consistent), 0
        page += size
    return units + read_units(page, consistent=consistent)


def write_units(*versions: Item | None, transactional: bool = False) -> int:
    """Return the units of a write, by the larger of the item's versions before and after the write.

    A ConditionCheck, or a write with an unmet condition, costs the units of the present item.
    """
    size = max((size_of(version) for version in versions if version), default=0)
    units = max(1, math.ceil(size / WRITE_UNIT))
    return TRANSACTIONAL * units if transactional else units


@dataclass(frozen=True, slots=True)
class Index:
    """A global secondary index.

    :param keys: names of its key attributes, the partition key first.
    :param holds: returns whether the index contains an attribute of the table, by its name.
    """

    name: str
    keys: tuple[str, ...]
    holds: Callable[[str], bool]

    def entry(self, item: Item | None) -> dict[str, Any] | None:
        """Return the part of an item that is in the index; None: the item is not in the index."""
        if not item or not all(key in item for key in self.keys):
            return None
        return {name: value for name, value in item.items() if self.holds(name)}

    def write_units(self, before: Item | None, after: Item | None) -> dict[str, int]:
        """Return the units that a write of the table costs in the index, by the value of the index's partition key.

        A change of a key of the index costs two writes: one removes the old entry, and one adds the new entry.
        """
        old, new = self.entry(before), self.entry(after)
        if old == new:
            return {}
        units: dict[str, int] = {}
        moved = old and new and any(old[key] != new[key] for key in self.keys)
        for entries in ((old,), (new,)) if moved else ((old, new),):
            if any(entries):
                key = str(next(entry for entry in entries if entry)[self.keys[0]])
                units[key] = units.get(key, 0) + write_units(*entries)
        return units


def _text(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _size(value: Any) -> int:
    match value:
        case str():
            return _text(value)
        case None | bool():
            return 1
        case int() | Decimal():
            return _number(value)
        case Mapping():
            return 3 + sum(1 + _text(name) + _size(part) for name, part in value.items())
        case bytes():
            return len(value)
        case _:  # lists have an overhead, sets have none
            return sum(map(_size, value)) + (3 + len(value) if isinstance(value, list | tuple) else 0)


def _number(value: int | Decimal) -> int:
    """Return one byte for each two significant digits, plus one byte, plus one byte for a negative number."""
    digits = str(abs(value)).replace(".", "").strip("0")
    return 1 + (len(digits) + 1) // 2 + (value < 0)
