"""The interval in which a job is expected to start, as text: in a sentence, and short for a table."""

from __future__ import annotations

from datetime import datetime
from math import ceil, floor, inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from api_contract.models import Expectation

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS = ((10 * _MINUTE, _MINUTE), (_HOUR, 5 * _MINUTE), (10 * _HOUR, _HOUR // 2), (2 * _DAY, _HOUR), (inf, _DAY // 2))
_WORDS, _LETTERS = (" min", " h", " days"), ("m", "h", "d")


def interval_in_words(expected: Expectation, now: datetime) -> str | None:
    """Return ``between 20 min and 3 h (8 of 10)``, the wait from now; None if the interval is unknown.

    The level (8 of 10) is the share of such intervals that contain the actual start. An interval without a level is
    marked as a guess.
    """
    ends = _ends(expected, now)
    if ends is None:
        return None
    low, high = (_text(end, _WORDS) for end in ends)
    span = f"within {high}" if ends[0] <= 0 else f"in about {high}" if low == high else f"between {low} and {high}"
    return f"{span} ({f'{round(10 * expected.level)} of 10' if expected.level else 'a guess'})"


def short_interval(expected: Expectation, now: datetime) -> str | None:
    """Return ``20m-3h``, the wait from now, or ``~20m-3h`` for a guess; None if the interval is unknown."""
    ends = _ends(expected, now)
    if ends is None:
        return None
    low, high = (_text(end, _LETTERS) for end in ends)
    span = f"<{high}" if ends[0] <= 0 else high if low == high else f"{low}-{high}"
    return span if expected.level else f"~{span}"


def _ends(expected: Expectation, now: datetime) -> tuple[int, int] | None:
    """Return both ends in seconds from now, rounded outwards. Longer waits are rounded more coarsely (`_STEPS`)."""
    if expected.earliest is None or expected.latest is None:
        return None
    earliest, latest = ((time - now).total_seconds() for time in (expected.earliest, expected.latest))
    return max(0, floor(earliest / _step(earliest)) * _step(earliest)), max(
        _MINUTE, ceil(latest / _step(latest)) * _step(latest)
    )


def _step(seconds: float) -> int:
    return next(step for limit, step in _STEPS if seconds < limit)


def _text(seconds: int, units: tuple[str, str, str]) -> str:
    minutes, hours, days = units
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}{minutes}"
    return f"{seconds / _HOUR:g}{hours}" if seconds < 2 * _DAY else f"{seconds / _DAY:g}{days}"
