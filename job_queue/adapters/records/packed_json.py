"""Compressed JSON in one attribute, for rows whose content would be too large in separate attributes."""

import json
import zlib
from base64 import b85decode, b85encode
from typing import Any

LARGEST = 390_000  # bytes of the attribute; DynamoDB takes rows of 400 KB
NOT_READABLE = (ArithmeticError, LookupError, TypeError, ValueError, zlib.error)
"""The errors of `from_compressed`, and of readers of its result, for a row that was not written by `compress`."""


def to_text(content: object) -> str:
    """Return the JSON of a value, without white space."""
    return json.dumps(content, separators=(",", ":"))


def compress(text: str) -> str:
    """Return a text in compressed form, as printable characters."""
    return b85encode(zlib.compress(text.encode())).decode()


def from_compressed(compressed: str) -> Any:
    """Return the value whose JSON was compressed."""
    return json.loads(zlib.decompress(b85decode(compressed)))
