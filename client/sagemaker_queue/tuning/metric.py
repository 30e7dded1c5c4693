"""Find the values of a search's metric in log lines, by a pattern as in SageMaker's metric definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sagemaker_queue.errors import InvalidOption

_EXAMPLES = "such as loss=loss: ([0-9.]+), or with steps: 'loss=step (?P<step>[0-9]+): loss (?P<value>[0-9.]+)'"


@dataclass(frozen=True)
class SearchMetric:
    """A metric's name, and the pattern (regular expression) that finds its values in log lines.

    The value is the group ``value``, or else the first group that is not ``step``. The optional group ``step`` is the
    training step. Raises InvalidOption for an empty name or an invalid pattern.
    """

    name: str
    regex: str

    def __post_init__(self) -> None:
        """Raise InvalidOption if the name is empty, or if the pattern is invalid or has no group for the value."""
        try:
            groups = dict(re.compile(self.regex).groupindex)
        except re.error as error:
            raise InvalidOption(f"The pattern of the metric {self.name} cannot be read: {error}.") from error
        others = re.compile(self.regex).groups - ("step" in groups)
        if not self.name or not others:
            raise InvalidOption(
                f"The pattern of the metric {self.name!r} needs a group around the number, {_EXAMPLES}."
            )

    def find(self, line: str) -> Iterator[tuple[int | None, float]]:
        """Yield the step and the value of each match in the line. The step is None if the match has no valid step."""
        for found in re.finditer(self.regex, line):
            value = _number(_value_of(found))
            if value is not None:
                step = _number(found["step"]) if "step" in found.re.groupindex else None
                yield (int(step) if step is not None and abs(step) < float("inf") else None), value


def parse_metric(text: str) -> SearchMetric:
    """Parse ``NAME=REGEX``. Raises InvalidOption for any other text."""
    name, equals, regex = text.partition("=")
    if not equals:
        raise InvalidOption(f"{text!r} is not a metric: it must be NAME=REGEX, {_EXAMPLES}.")
    return SearchMetric(name.strip(), regex)


def _value_of(found: re.Match[str]) -> str | None:
    groups = found.re.groupindex
    if "value" in groups:
        return found["value"]
    return next(found[number] for number in range(1, found.re.groups + 1) if number != groups.get("step"))


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
