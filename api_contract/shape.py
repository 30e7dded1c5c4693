"""What requests and answers have in common: how they are written as JSON, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

_DOCUMENTS = frozenset({"request", "policy"})
"""Fields whose content is somebody else's, and is kept as it is."""


class UnreadableError(ValueError):
    """What was read does not have the shape that is due; the text says where."""


ShapeType = TypeVar("ShapeType", bound="Shape")


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """One JSON object. Its fields are the object's members: in snake case here, in camel case there.

    Times are aware, and in UTC.
    """

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, datetime) and value.tzinfo is not timezone.utc:
                moment = value.astimezone(timezone.utc) if value.tzinfo else value.replace(tzinfo=timezone.utc)
                msgspec.structs.force_setattr(self, name, moment)

    @classmethod
    def from_json(cls: type[ShapeType], data: object) -> ShapeType:
        """Read one object of the API, of a newer or an older queue.

        Members that are not known are ignored; those that are missing or null get their default.
        Raises UnreadableError if it is no such object, or a needed member is missing.
        """
        try:
            return msgspec.convert(_without_nulls(data), cls)
        except msgspec.ValidationError as error:
            raise UnreadableError(f"{cls.__name__}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Return the object with the API's member names."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))  # so that lists are lists
        return plain


class Answer(Shape, frozen=True):
    """What the queue answers. It sends every member; the defaults are for what an older queue does not send."""


class Body(Shape, frozen=True, forbid_unknown_fields=True):
    """What a caller sends. What the queue does not know is refused: it could be a misspelt wish."""


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: member if name in _DOCUMENTS else _without_nulls(member)
            for name, member in value.items()
            if member is not None
        }
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def schema(**facts: Any) -> Meta:
    """What the documentation says of a value, and readers do not check: a newer queue may answer otherwise."""
    return Meta(extra_json_schema=facts)


JobName = Annotated[str, schema(maxLength=63, pattern="^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$")]
Time = Annotated[datetime, schema(format="date-time")]
Count = Annotated[int, schema(minimum=0)]
Ordinal = Annotated[int, schema(minimum=1)]
Slots = Annotated[Mapping[str, Count], schema(examples=[{"p5": 2}])]
"""Numbers of instances by pool."""
