"""How long answers may be. Lambda answers 6 MB at most, and what is longer is lost with an error that says nothing."""

import json
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from api_contract.shape import Shape

LARGEST_ANSWER = 6_000_000  # bytes as Lambda sends them; its limit is 6 MiB
MOST_BYTES = 5_000_000  # of an answer's lists together

Part = TypeVar("Part", bound=Shape)


def sent_bytes(body: str) -> int:
    """What a body takes in Lambda's answer, in which it is a text: quotes are escaped once more, and other scripts."""
    return len(json.dumps(body))


def bytes_of(part: object) -> int:
    """What a part of an answer takes."""
    return sent_bytes(msgspec.json.encode(part).decode())


def that_fit(parts: Iterable[Part], room: int) -> tuple[tuple[Part, ...], int]:
    """The first of them, as many as there is room for, in bytes; and the room that is left, none if not all fit."""
    fitting: list[Part] = []
    for part in parts:
        left = room - bytes_of(part)
        if left < 0:
            return tuple(fitting), 0
        fitting.append(part)
        room = left
    return tuple(fitting), room
