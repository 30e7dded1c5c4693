"""Search for the values of fields with given names, at any depth of a request."""

from collections.abc import Iterator, Mapping
from typing import Any

_FREE = frozenset({"Environment", "HyperParameters", "Tags"})  # their fields are named by users


def texts_under(names: frozenset[str], value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text under a field with one of these names, as (path, text): `DebugHookConfig.S3OutputPath`."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            field = f"{where}.{name}" if where else str(name)
            if name in names:
                yield from _texts(below, field)
            elif name not in _FREE:
                yield from texts_under(names, below, field)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from texts_under(names, below, f"{where}[{index}]")


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _texts(below, f"{field}[{index}]")
