"""How an object of the API's JSON becomes a frozen dataclass, and one becomes JSON again.

``from_json`` ignores members that it does not know and fills in those that may be missing, so that a
client works with a newer and with an older queue.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Self

from sagemaker_queue.errors import QueueError


@dataclass(frozen=True)
class Answer:
    """One JSON object; the fields of a subclass are its members, in snake case."""

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read one object of the API; raises QueueError if it is none, or a needed member is missing."""
        if not isinstance(data, Mapping):
            raise QueueError(
                f"The queue answered {type(data).__name__} where {cls.__name__} was due; is the address right?"
            )
        values: dict[str, Any] = {}
        for member in fields(cls):
            value = data.get(_camel(member.name))
            if value is not None:
                values[member.name] = _convert(member.metadata, value)
            elif member.default is MISSING and member.default_factory is MISSING:
                raise QueueError(f"The queue's answer lacks {_camel(member.name)!r}; does this client need an upgrade?")
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """Return the object with the API's member names."""
        return {_camel(member.name): _plain(getattr(self, member.name)) for member in fields(self)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _convert(metadata: Mapping[str, Any], value: object) -> object:
    if "each" in metadata:
        convert: Callable[[object], object] = metadata["each"]
        if not isinstance(value, list):
            raise QueueError(f"The queue answered {value!r} where a list was due; does this client need an upgrade?")
        return tuple(convert(one) for one in value)
    return metadata["read"](value) if "read" in metadata else value


def _plain(value: object) -> object:
    if isinstance(value, Answer):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value


def _read_time(value: object) -> datetime:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise QueueError(
            f"The queue answered {value!r} where a time was due; does this client need an upgrade?"
        ) from error
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _read_slots(value: object) -> Mapping[str, int]:
    if not isinstance(value, Mapping):
        raise QueueError(
            f"The queue answered {value!r} where instances by pool were due; does this client need an upgrade?"
        )
    return value


def a_time() -> Any:
    """A member that is a time, or missing."""
    return field(default=None, metadata={"read": _read_time})


def an(answer: type[Answer]) -> Any:
    """A member that is such an object, or missing."""
    return field(default=None, metadata={"read": answer.from_json})


def by_pool() -> Any:
    """A member that maps pools to numbers of instances; empty if it is missing."""
    return field(default_factory=dict, metadata={"read": _read_slots})


def listed(read: Callable[[object], object]) -> Any:
    """A member that is a list, each entry read by ``read``; empty if it is missing."""
    return field(default=(), metadata={"each": read})
