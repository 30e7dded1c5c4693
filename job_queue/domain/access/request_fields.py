"""What a request says under members of a name, wherever they are."""

from collections.abc import Iterator, Mapping
from typing import Any

_FREE = frozenset({"Environment", "HyperParameters", "Tags"})  # their members are named by users


def texts_under(names: frozenset[str], value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """Each text under a member of such a name, behind the field in which it stands: `DebugHookConfig.S3OutputPath`."""
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
