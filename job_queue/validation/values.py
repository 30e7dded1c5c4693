"""Access to a request that is not validated yet: a value that is missing or has the wrong type counts as absent."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from job_queue.domain.errors import ValidationIssue
from job_queue.validation.issue import field_issue, quoted

Json = Mapping[str, Any]


def mapping(parent: Json, name: str) -> Json:
    """Return the object under this name, or an empty object."""
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def mappings(parent: Json, name: str) -> list[Json]:
    """Return the objects of the list under this name; an item of another type becomes an empty object."""
    value = parent.get(name)
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


def integer(parent: Json, name: str) -> int | None:
    """Return the whole number under this name; None: absent."""
    value = parent.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(parent: Json, name: str) -> str:
    """Return the text under this name, or an empty text."""
    value = parent.get(name)
    return value if isinstance(value, str) else ""


def hyperparameter(request: Json, name: str) -> Any:
    """Return the value of a hyperparameter; None if it is absent.

    The SDK sends each value as JSON. Text of other callers that is not JSON is returned unchanged.
    """
    sent = mapping(request, "HyperParameters").get(name)
    try:
        return json.loads(sent) if isinstance(sent, str) else None
    except (ValueError, RecursionError):
        return sent


def repeats(items: Sequence[Json], field: str, key: str) -> Iterator[ValidationIssue]:
    """Yield an issue for each item that has the same text under `key` as an earlier item.

    :param field: the path of the list.
    """
    first: dict[str, int] = {}
    for index, item in enumerate(items):
        value = text(item, key)
        if value and first.setdefault(value, index) != index:
            yield field_issue(
                f"{field}[{index}].{key}", f"is {quoted(value)}, as in {field}[{first[value]}]; use it once."
            )


def is_unicode(text: str) -> bool:
    """Return whether the text consists of whole characters.

    JSON can contain half characters (unpaired surrogates). Such text cannot be encoded, and so cannot be sent.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
