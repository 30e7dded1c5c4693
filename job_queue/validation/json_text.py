"""The JSON in the body of an API request, read strictly.

Content that can be read in two ways or cannot be passed on is refused: a name that an object contains twice, a number
that is not finite or is too long, half a character, or too many levels. The error names the field where possible.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

from job_queue.domain.errors import InvalidRequest, ValidationIssue
from job_queue.validation.issue import field_issue, member, quoted
from job_queue.validation.values import is_unicode

DEEPEST = 50  # levels; a CreateTrainingJob request has seven
_LONGEST_NUMBER = 100  # characters; the largest number that a request needs has ten
_HALF = "half a character (an unpaired surrogate), which cannot be kept."


def json_object(body: str, wanted: str) -> dict[str, Any]:
    """Return the object that the body contains.

    :param wanted: the expected object, as the end of a sentence: `a CreateTrainingJob request`.
    :raises InvalidRequest: the body is not a JSON object, can be read in two ways, or cannot be passed on.
    """
    try:
        content = json.loads(body, object_pairs_hook=_object, parse_int=_whole)
    except _RepeatedError as repeated:
        name = repeated.args[0]
        raise InvalidRequest(
            f"The name {quoted(name)} stands twice in one object of the body.",
            field=member("", name),
            remedy="Say it once.",
        ) from None
    except RecursionError:
        raise InvalidRequest(f"The body is nested too deeply: at most {DEEPEST} levels are read.") from None
    except ValueError as error:
        raise InvalidRequest(f"The body is not JSON: {error}.") from None
    if not isinstance(content, dict):
        raise InvalidRequest(f"The body must be a JSON object: {wanted}.")
    for issue in _issues(content):
        raise InvalidRequest.of([issue])
    return content


class _RepeatedError(Exception):
    """A name that an object contains twice; the argument is the name."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise _RepeatedError(name)
        content[name] = value
    return content


def _whole(digits: str) -> float:
    """Return a whole number, or infinity for too many digits, since parsing them would take long."""
    return int(digits) if len(digits) <= _LONGEST_NUMBER else math.inf


_Path = tuple["_Path", str | int] | None
"""The place of a value: the place of its object or list, and its name or index there."""


def _field(path: _Path) -> str:
    """Return the name of a field in messages, such as `a.b[0]`."""
    if path is None:
        return ""
    above, key = path
    return f"{_field(above)}[{key}]" if isinstance(key, int) else member(_field(above), key)


def _issues(content: Any) -> Iterator[ValidationIssue]:
    """Yield the issues of parsed JSON, in no special order.

    The name of a field is built only for an issue, because the names of all values would need much memory.
    """
    found: list[tuple[Any, _Path, int]] = [(content, None, 1)]
    while found:
        value, path, depth = found.pop()
        if depth > DEEPEST:
            yield ValidationIssue("", f"The body is nested too deeply: at most {DEEPEST} levels are read.")
        elif isinstance(value, dict):
            for name, inner in value.items():
                if not is_unicode(name):
                    what = "is a name with half a character (an unpaired surrogate), which cannot be kept."
                    yield field_issue(_field((path, name)), what)
                found.append((inner, (path, name), depth + 1))
        elif isinstance(value, list):
            found += [(inner, (path, index), depth + 1) for index, inner in enumerate(value)]
        elif isinstance(value, str) and not is_unicode(value):
            yield field_issue(_field(path), f"holds {_HALF}")
        elif isinstance(value, float) and not math.isfinite(value):
            yield field_issue(_field(path), "is not a number that can be kept: it is too large, or none at all.")
