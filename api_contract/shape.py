"""The common base of requests and answers: conversion from and to JSON."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

_DOCUMENTS = frozenset({"request", "policy"})
"""Members with content that is defined outside this folder. The content is passed on unchanged."""


class UnreadableError(ValueError):
    """JSON that does not have the expected shape; the message names the place."""


def in_utc(time: datetime) -> datetime:
    """Return a time as an aware time in UTC. A time without a time zone is taken as UTC.

    Raises OverflowError if the time in UTC is outside the range of datetime.
    """
    return time.astimezone(timezone.utc) if time.tzinfo else time.replace(tzinfo=timezone.utc)


_preparing = threading.RLock()
if hasattr(os, "register_at_fork"):  # a fork waits for the lock, because the new process has no other threads
    os.register_at_fork(
        before=_preparing.acquire, after_in_parent=_preparing.release, after_in_child=_preparing.release
    )
ConvertedType = TypeVar("ConvertedType")


def convert(data: object, kind: type[ConvertedType], *, strict: bool = True) -> ConvertedType:
    """Convert decoded JSON to a type, from several threads if necessary. See msgspec.convert.

    msgspec reads the fields of a type at the first conversion to it. If two threads do so at the same time, the process
    may crash (msgspec 0.22).
    """
    with _preparing:
        msgspec.json.Decoder(kind)  # reads the fields of the type if they have not been read
    return msgspec.convert(data, kind, strict=strict)


ShapeType = TypeVar("ShapeType", bound="Shape")


class Shape(msgspec.Struct, frozen=True, rename="camel", repr_omit_defaults=True):
    """One JSON object. Members are in camel case in JSON, and in snake case as fields.

    Times are aware and in UTC.
    """

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, datetime) and value.tzinfo is not timezone.utc:
                msgspec.structs.force_setattr(self, name, in_utc(value))

    @classmethod
    def from_json(cls: type[ShapeType], data: object) -> ShapeType:
        """Read one object of the API, from a newer or an older queue.

        Unknown members are ignored; missing members and nulls get their defaults. Raise UnreadableError if the data is
        not an object of this class, or a required member is missing.
        """
        try:
            return convert(_without_nulls(data), cls)
        except msgspec.ValidationError as error:
            raise UnreadableError(f"{cls.__name__}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the object with the API's member names."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))  # so that tuples become lists
        return plain


class Answer(Shape, frozen=True):
    """An answer of the queue, with every member that the queue knows. An older queue may leave out optional members."""


class Body(Shape, frozen=True, forbid_unknown_fields=True):
    """The body or the query of a request. Unknown members are refused: they could be misspelt."""


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: member if name in _DOCUMENTS else _without_nulls(member)
            for name, member in value.items()
            if member is not None
        }
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def schema(**facts: Any) -> Meta:
    """Return facts about a value, such as bounds, for the generated documentation.

    Clients do not check the facts, because the answers of a newer queue may differ.
    """
    return Meta(extra_json_schema=facts)


JobName = Annotated[str, schema(maxLength=63, pattern="^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$")]
"""The name of a job: up to 63 letters, digits and hyphens."""
Time = Annotated[datetime, schema(format="date-time")]
"""A time with a time zone, in UTC."""
Count = Annotated[int, schema(minimum=0)]
"""A whole number that is 0 or more."""
Ordinal = Annotated[int, schema(minimum=1)]
"""A whole number that is 1 or more."""
Slots = Annotated[Mapping[str, Count], schema(examples=[{"p5": 2}])]
"""Numbers of instances by pool."""
