"""The check of a request against SageMaker's service model: names, types, sizes, ranges, patterns, allowed values.

botocore itself checks only names, types and minima before it sends a request. SageMaker checks maxima, patterns and
values, but only at the launch. The model's shape is an argument, so this module does not import botocore.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Protocol, cast

import regex

from job_queue.domain.errors import ValidationIssue
from job_queue.validation.issue import LONGEST_GUESS, MOST_ISSUES, field_issue, member, near, quoted
from job_queue.validation.values import is_unicode

_DEEPEST = 50  # levels; CreateTrainingJob has seven
_INSTANCE_TYPE = re.compile(r"(?:ml\.)?([a-z][a-z0-9-]*[0-9][a-z0-9-]*)(?:\..*)?")
_FEW = 8  # names listed in full
_PATIENCE = 1.0  # seconds for one pattern on one text
_INTEGER_BITS = {"integer": 32, "long": 64}

_PATTERNS_IN_WORDS = {
    "TrainingJobName": "may hold only letters, digits and hyphens, and starts and ends with a letter or digit",
    "RoleArn": "must be the ARN of an IAM role, like arn:aws:iam::123456789012:role/training",
    "S3Uri": "must be an S3 address, like s3://bucket/prefix",
    "TagKey": "may hold only letters, digits, spaces and _ . : / = + - @",
    "TagValue": "may hold only letters, digits, spaces and _ . : / = + - @",
    "ChannelName": "may hold only letters, digits, dots, hyphens and underscores",
    "TrainingEnvironmentKey": "may hold only letters, digits and underscores, and may not start with a digit",
}


class ServiceShape(Protocol):
    """The part of `botocore.model.Shape` that this module uses."""

    @property
    def name(self) -> str:
        """The shape's name in the service model: `TrainingJobName`."""

    @property
    def type_name(self) -> str:
        """`structure`, `list`, `map`, `string`, `integer`, `long`, `boolean`, ..."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The shape's constraints by name: `required`, `min`, `max`, `pattern`, `enum`; each of them may be missing."""


class _StructureShape(ServiceShape, Protocol):
    @property
    def members(self) -> Mapping[str, ServiceShape]: ...


class _ListShape(ServiceShape, Protocol):
    @property
    def member(self) -> ServiceShape: ...


class _MapShape(ServiceShape, Protocol):
    @property
    def key(self) -> ServiceShape: ...
    @property
    def value(self) -> ServiceShape: ...


def against_model(request: object, shape: ServiceShape) -> list[ValidationIssue]:
    """Return the issues of a request that was parsed from JSON, in the request's order.

    The issues of an object begin with its missing fields. The list has at most `MOST_ISSUES` issues, and is empty if
    the request fits.

    :param shape: CreateTrainingJob's input.
    """
    return list(islice(_check(request, shape, "", 0), MOST_ISSUES))


def _check(value: object, shape: ServiceShape, field: str, depth: int) -> Iterator[ValidationIssue]:
    check = _CHECKS.get(shape.type_name)
    if check is None:
        return  # no field of a training job has such a type today; SageMaker checks the value
    if depth > _DEEPEST:
        yield field_issue(field, f"is nested too deeply: at most {_DEEPEST} levels are read.")
        return
    yield from check(value, shape, field, depth)


def _structure(value: object, shape: ServiceShape, field: str, depth: int) -> Iterator[ValidationIssue]:
    if not isinstance(value, dict):
        yield _wrong_type(value, field, "an object with named fields")
        return
    members = cast(_StructureShape, shape).members
    for name in shape.metadata.get("required", ()):
        if name not in value:
            yield field_issue(member(field, name), "is missing; SageMaker requires it.")
    for name, inner in value.items():
        if name in members:
            yield from _check(inner, members[name], member(field, name), depth + 1)
        else:
            yield field_issue(
                member(field, name), f"is not a field of CreateTrainingJob; {_instead(name, list(members))}"
            )


def _list(value: object, shape: ServiceShape, field: str, depth: int) -> Iterator[ValidationIssue]:
    if not isinstance(value, list):
        yield _wrong_type(value, field, "a list")
        return
    yield from _size(len(value), "items", shape, field)
    item_shape = cast(_ListShape, shape).member
    for index, item in enumerate(islice(value, shape.metadata.get("max"))):
        yield from _check(item, item_shape, f"{field}[{index}]", depth + 1)


def _map(value: object, shape: ServiceShape, field: str, depth: int) -> Iterator[ValidationIssue]:
    if not isinstance(value, dict):
        yield _wrong_type(value, field, "an object with names and values")
        return
    yield from _size(len(value), "entries", shape, field)
    shapes = cast(_MapShape, shape)
    for key, inner in islice(value.items(), shape.metadata.get("max")):
        entry = member(field, key)
        for issue in _check(key, shapes.key, f"The name {quoted(key)} in {field}", depth + 1):
            yield ValidationIssue(entry, issue.message)
        yield from _check(inner, shapes.value, entry, depth + 1)


def _string(value: object, shape: ServiceShape, field: str, depth: int) -> Iterator[ValidationIssue]:
    if not isinstance(value, str):
        yield _wrong_type(value, field, "text")
    elif (values := shape.metadata.get("enum")) is not None:
        if value not in values:
            yield field_issue(field, f"is {quoted(value)}, unknown to SageMaker; {_instead(value, values)}")
    elif oversized := list(_size(len(value), "characters", shape, field)):
        yield from oversized  # patterns are only tried on texts of limited length
    elif not is_unicode(value):
        yield field_issue(field, "holds half a character (an unpaired surrogate), which cannot be sent.")
    elif (pattern := shape.metadata.get("pattern")) is not None and not _matches(pattern, value):
        yield field_issue(field, f"{_rule_of(shape.name, pattern)}.")


def _whole_number(value: object, shape: ServiceShape, field: str, depth: int) -> Iterator[ValidationIssue]:
    if not isinstance(value, int) or isinstance(value, bool):
        yield _wrong_type(value, field, "a whole number, without quotes or a decimal point")
        return
    limit = 2 ** (_INTEGER_BITS[shape.type_name] - 1)
    least, most = shape.metadata.get("min", -limit), shape.metadata.get("max", limit - 1)
    if value < least:
        yield field_issue(field, f"is too small: it must be at least {least}.")
    elif value > most:
        yield field_issue(field, f"is too large: it must be at most {most}.")


def _boolean(value: object, shape: ServiceShape, field: str, depth: int) -> Iterator[ValidationIssue]:
    if not isinstance(value, bool):
        yield _wrong_type(value, field, "true or false, without quotes")


_CHECKS: Mapping[str, Callable[[object, ServiceShape, str, int], Iterator[ValidationIssue]]] = {
    "structure": _structure,
    "list": _list,
    "map": _map,
    "string": _string,
    "integer": _whole_number,
    "long": _whole_number,
    "boolean": _boolean,
}


def _size(size: int, units: str, shape: ServiceShape, field: str) -> Iterator[ValidationIssue]:
    least, most = shape.metadata.get("min", 0), shape.metadata.get("max")
    if size < least:
        yield field_issue(field, f"has too few {units}: {size} of at least {least}.")
    elif most is not None and size > most:
        yield field_issue(field, f"has too many {units}: {size} of at most {most}.")


def _wrong_type(value: object, field: str, wanted: str) -> ValidationIssue:
    if value is None:
        return field_issue(field, f"is null: it must be {wanted}, or be left out where it is optional.")
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return field_issue(field, f"must be {wanted}, but it is {kinds.get(type(value), 'something else')}.")


def _instead(wrong: str, names: list[str]) -> str:
    """Return the end of a sentence: the names that were probably meant, else some of the possible names."""
    if meant := _of_family(wrong, names) or near(wrong, names):
        return f"did you mean {' or '.join(meant)}?"
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return f"there are {', '.join(names[:_FEW])}{more}."


def _of_family(wrong: str, names: list[str]) -> list[str]:
    """Return some instance types of the family that a wrong type names: `p5` or `ml.p5.huge` name p5."""
    found = _INSTANCE_TYPE.fullmatch(wrong.casefold()) if len(wrong) <= LONGEST_GUESS else None
    family = [name for name in names if name.startswith(f"ml.{found[1]}.")] if found else []
    return near(wrong, family) or family[:_FEW]


def _rule_of(shape_name: str, pattern: str) -> str:
    if pattern in (".*", ".+"):
        return "must be on one line"
    return _PATTERNS_IN_WORDS.get(shape_name, f"must match SageMaker's pattern {pattern}")


def _matches(pattern: str, text: str) -> bool:
    try:
        return _compiled(pattern).fullmatch(text, timeout=_PATIENCE) is not None
    except TimeoutError:
        return False


@cache
def _compiled(pattern: str) -> "regex.Pattern[str]":
    """Compile a pattern of the service model with the meaning that it has in Java.

    In Java, general categories such as \\p{L} are Unicode's, while \\p{Alnum}, \\d and \\w are ASCII's. A dot does not
    match a line feed, in Java as in Python.
    """
    has_categories = regex.search(r"\\p\{[A-Z][a-z]?\}", pattern) is not None
    return regex.compile(pattern, flags=regex.UNICODE if has_categories else regex.ASCII)
