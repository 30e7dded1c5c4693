"""Evaluate the SearchExpression of a Search call for jobs of the queue.

A verdict is True, False, or None if the known members of the description are not enough for a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, Optional

from botocore.utils import parse_timestamp

Expression = Mapping[str, Any]
Verdict = Optional[bool]
_NAME = "TrainingJobName"
_NUMBERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": lambda one, other: one > other,
    "GreaterThanOrEqualTo": lambda one, other: one >= other,
    "LessThan": lambda one, other: one < other,
    "LessThanOrEqualTo": lambda one, other: one <= other,
}


def matches(expression: Expression, described: Mapping[str, Any], known: frozenset[str] | None = None) -> Verdict:
    """Return whether a description matches the expression.

    ``known`` names the complete members of the description; filters of other members give None. Default: all members
    are complete.
    """

    def verdict(filter_: Mapping[str, Any]) -> Verdict:
        path = str(filter_["Name"])
        if known is not None and path.partition(".")[0] not in known:
            return None
        return _filter_matches(filter_, list(_values(described, path.split("."))))

    def nested(filters: Mapping[str, Any]) -> Verdict:
        name = str(filters["NestedPropertyName"])
        if known is not None and name.partition(".")[0] not in known:
            return None
        # The names of nested filters are whole paths, or paths below the list.
        inner = [{**filter_, "Name": _below(str(filter_["Name"]), name)} for filter_ in filters["Filters"]]
        return any(
            all(_filter_matches(filter_, list(_values(member, str(filter_["Name"]).split(".")))) for filter_ in inner)
            for member in _members(described, name.split("."))
        )

    parts: list[Verdict] = [verdict(filter_) for filter_ in expression.get("Filters", [])]
    parts += [nested(filters) for filters in expression.get("NestedFilters", [])]
    parts += [matches(inner, described, known) for inner in expression.get("SubExpressions", [])]
    return _combine_verdicts(parts, any_of=expression.get("Operator", "And") == "Or")


def names_in(expression: Expression) -> frozenset[str] | None:
    """Return the job names that can match, if the expression restricts names to a list; else return None."""
    found: list[frozenset[str] | None] = [_names_in_filter(filter_) for filter_ in expression.get("Filters", [])]
    found += [None for _ in expression.get("NestedFilters", [])]
    found += [names_in(inner) for inner in expression.get("SubExpressions", [])]
    if expression.get("Operator", "And") == "Or":
        if not found or any(names is None for names in found):
            return None
        return frozenset(name for names in found if names is not None for name in names)
    lists = [names for names in found if names is not None]
    return frozenset.intersection(*lists) if lists else None


def _names_in_filter(filter_: Mapping[str, Any]) -> frozenset[str] | None:
    operator = filter_.get("Operator", "Equals")
    if filter_["Name"] != _NAME or "Value" not in filter_ or operator not in ("Equals", "In"):
        return None
    return frozenset(_listed(filter_["Value"]) if operator == "In" else [str(filter_["Value"])])


def _combine_verdicts(parts: Iterable[Verdict], *, any_of: bool) -> Verdict:
    parts = list(parts)
    if any_of:
        return True if True in parts else None if None in parts else not parts
    return False if False in parts else None if None in parts else True


def _below(path: str, parent: str) -> str:
    return path[len(parent) + 1 :] if path.startswith(f"{parent}.") else path


def _members(described: Any, path: list[str]) -> Iterator[Any]:
    for value in _values(described, path):
        yield from value if isinstance(value, list) else [value]


def _values(described: Any, path: list[str]) -> Iterator[Any]:
    """Yield the values at a path. A list on the path is replaced by each of its members.

    As in Search, ``Tags.<key>`` is a tag's value, and ``Metrics.<name>`` is the value of a final metric.
    """
    if not path:
        yield described
    elif isinstance(described, list):
        for member in described:
            yield from _values(member, path)
    elif isinstance(described, Mapping):
        if path[0] == "Tags" and len(path) > 1:
            key = ".".join(path[1:])
            yield from (tag["Value"] for tag in described.get("Tags", []) if tag["Key"] == key)
        elif path[0] == "Metrics" and len(path) > 1:
            name = ".".join(path[1:])
            yield from (
                metric["Value"]
                for metric in described.get("FinalMetricDataList", [])
                if f"{metric['MetricName']}" in (name, name.rpartition(".")[0])
            )
        elif path[0] in described:
            yield from _values(described[path[0]], path[1:])
        else:  # a key may contain dots
            whole = ".".join(path)
            if whole in described:
                yield described[whole]


def _filter_matches(filter_: Mapping[str, Any], values: list[Any]) -> bool:
    wanted = str(filter_.get("Value", ""))
    operator = filter_.get("Operator", "Equals" if "Value" in filter_ else "Exists")
    if operator == "Exists":
        return bool(values)
    if operator == "NotExists":
        return not values
    if operator == "NotEquals":
        return not any(_equals(value, wanted) for value in values)
    return any(_compares(operator, value, wanted) for value in values)


def _compares(operator: str, value: Any, wanted: str) -> bool:
    if operator == "Equals":
        return _equals(value, wanted)
    if operator == "Contains":
        return wanted in str(value)
    if operator == "In":
        return any(_equals(value, one) for one in _listed(wanted))
    try:
        return _NUMBERS[operator](*_converted_pair(value, wanted))
    except (KeyError, TypeError, ValueError):
        return False


def _equals(value: Any, wanted: str) -> bool:
    try:
        one, other = _converted_pair(value, wanted)
    except ValueError:
        return False
    return bool(one == other)


def _converted_pair(value: Any, wanted: str) -> tuple[Any, Any]:
    """Return both values, with the second converted to the first one's type: a time, a number or a text."""
    if isinstance(value, datetime):
        return value, _time(wanted)
    if isinstance(value, bool):
        return str(value).lower(), wanted.lower()
    if isinstance(value, (int, float)):
        return float(value), float(wanted)
    return str(value), wanted


def _time(text: str) -> datetime:
    """Parse a time, which is in UTC unless the text has a zone. Raises ValueError."""
    try:
        time: datetime = parse_timestamp(text)
    except (OverflowError, RuntimeError) as error:  # a number of seconds outside the range of datetime
        raise ValueError(text) from error
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


def _listed(value: object) -> list[str]:
    return [one.strip() for one in str(value).split(",") if one.strip()]
