"""Limits on the size of answers. Lambda replaces an answer above 6 MB by an error without a cause."""

import json
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from api_contract.shape import Shape

LARGEST_ANSWER = 6_000_000  # bytes as sent by Lambda; the limit of Lambda is 6 MiB
MOST_BYTES = 5_000_000  # bytes of all lists of an answer together, at most

Part = TypeVar("Part", bound=Shape)


def sent_bytes(body: str) -> int:
    """Return the bytes of a body in Lambda's answer.

    Lambda's answer contains the body as a JSON string. So quotes, backslashes and non-ASCII characters are escaped once
    more.
    """
    return len(json.dumps(body))


def bytes_of(part: object) -> int:
    """Return the bytes of a part of an answer, as Lambda sends them."""
    return sent_bytes(msgspec.json.encode(part).decode())


def take_fitting(parts: Iterable[Part], room: int) -> tuple[tuple[Part, ...], int]:
    """Return the first parts that fit, and the bytes that are left. If a part does not fit, 0 bytes are left.

    :param room: bytes for all parts together.
    """
    fitting: list[Part] = []
    for part in parts:
        left = room - bytes_of(part)
        if left < 0:
            return tuple(fitting), 0
        fitting.append(part)
        room = left
    return tuple(fitting), room
