"""The search space: for each hyperparameter an interval of numbers or a choice of values, parsed from text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Union

from sagemaker_queue.errors import InvalidOption

Value = Union[str, int, float, bool]
"""A value of a hyperparameter."""

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_KINDS = re.compile(r"(?:(?:int|log):)*")
_EXAMPLES = "it must look like lr=log:1e-5..1e-1, layers=int:1..8, dropout=0..0.5/0.1 or opt=adam,sgd"


@dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` to ``high``, both included; with ``log``, sampled on a logarithmic scale.

    ``step`` allows only ``low``, ``low + step`` and so on; ``integer`` allows only whole numbers. Raises InvalidOption.
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False
    step: float | None = None

    def __post_init__(self) -> None:
        """Raise InvalidOption if the interval is empty or inconsistent."""
        if not (math.isfinite(self.low) and math.isfinite(self.high)) or self.low > self.high:
            raise InvalidOption(f"{self.low}..{self.high} is empty: write the lower number first.")
        if self.log and (self.low <= 0 or self.step):
            what = "has no step" if self.step else "begins above 0"
            raise InvalidOption(f"A logarithmic interval {what}: not {self.low}..{self.high}.")
        if self.step is not None and not 0 < self.step <= max(self.high - self.low, 0):
            raise InvalidOption(f"The step {self.step} does not fit between {self.low} and {self.high}.")
        numbers = (self.low, self.high, self.step or 1)
        if self.integer and any(number != int(number) for number in numbers):
            raise InvalidOption(f"{self.low}..{self.high} must have whole numbers at both ends.")

    def values(self) -> Sequence[Value]:
        """Return all numbers of the interval. Raises InvalidOption if the interval is logarithmic or continuous."""
        step = self.step or (1 if self.integer else None)
        if step is None or self.log:
            raise InvalidOption(
                "A grid needs values, and not all numbers between two: write them as a,b,c, or say a step: 0..1/0.1."
            )
        low, step_, high = (Decimal(str(number)) for number in (self.low, step, self.high))
        numbers = [low + place * step_ for place in range(int((high - low) / step_) + 1)]
        return [int(number) if self.integer else float(number) for number in numbers]


@dataclass(frozen=True)
class Choice:
    """A choice of one of several values."""

    options: tuple[Value, ...]

    def __post_init__(self) -> None:
        """Raise InvalidOption if there are no values, or if a value occurs twice."""
        if not self.options:
            raise InvalidOption("There are no values.")
        if twice := [value for value, count in Counter(self.options).items() if count > 1]:
            raise InvalidOption(f"{twice[0]} is given twice.")

    def values(self) -> Sequence[Value]:
        """Return all values."""
        return self.options


Range = Union[Interval, Choice]
Space = Mapping[str, Range]


def parse_range(text: str) -> tuple[str, Range]:
    """Parse a hyperparameter such as ``lr=log:1e-5..1e-1``. Raises InvalidOption for any other text."""
    name, equals, rest = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or not rest.strip():
        raise InvalidOption(f"{text!r} is not a range: {_EXAMPLES}.")
    found = _KINDS.match(rest)
    kinds = found[0] if found else ""
    if ".." not in rest and not kinds:
        values = tuple(value.strip() for value in rest.split(","))
        if not all(values):
            raise InvalidOption(f"{text!r} has an empty value: {_EXAMPLES}.")
        return name, Choice(values)
    low, _, others = rest[len(kinds) :].partition("..")
    high, slash, step = others.partition("/")
    numbers = [_number(low), _number(high), _number(step) if slash else 1.0]
    if None in numbers:
        raise InvalidOption(f"{text!r} is not a range: {_EXAMPLES}.")
    integer = "int:" in kinds
    first, last, width = (int(n) if integer and n == int(n) else n for n in numbers if n is not None)
    return name, Interval(first, last, log="log:" in kinds, integer=integer, step=width if slash else None)


def grid_size(space: Space) -> int:
    """Return the number of combinations. Raises InvalidOption for a logarithmic or continuous interval."""
    return math.prod(len(one.values()) for one in space.values())


def grid_point(space: Space, number: int) -> dict[str, Value]:
    """Return the combination with this number, from 0; numbers beyond the last wrap around."""
    point: dict[str, Value] = {}
    for name, one in reversed(list(space.items())):
        values = one.values()
        number, place = divmod(number, len(values))
        point[name] = values[place]
    return {name: point[name] for name in space}


def text_of(value: Value) -> str:
    """Return a value as text for a command, with all digits."""
    return repr(value) if isinstance(value, float) else str(value)


def space_json(space: Space) -> dict[str, list[object]]:
    """Return the space as JSON values that identify the space."""
    return {
        name: ["choice", *one.options]
        if isinstance(one, Choice)
        else ["interval", one.low, one.high, one.log, one.integer, one.step]
        for name, one in space.items()
    }


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
