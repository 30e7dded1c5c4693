"""Reads a request that is not validated yet: what is missing or has the wrong type counts as absent."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from job_queue.domain.errors import ValidationIssue
from job_queue.validation.issue import field_issue, quoted

Json = Mapping[str, Any]


def mapping(parent: Json, name: str) -> Json:
    """The object under that name, or an empty one."""
    value = parent.get(name)
    return value if isinstance(value, dict) else {}


def mappings(parent: Json, name: str) -> list[Json]:
    """The objects of the list under that name, in their places."""
    value = parent.get(name)
    return [item if isinstance(item, dict) else {} for item in value] if isinstance(value, list) else []


def integer(parent: Json, name: str) -> int | None:
    """The whole number under that name."""
    value = parent.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(parent: Json, name: str) -> str:
    """The text under that name, or an empty one."""
    value = parent.get(name)
    return value if isinstance(value, str) else ""


def hyperparameter(request: Json, name: str) -> Any:
    """A hyperparameter's value: the SDK sends each as JSON, other callers text as it is; None where it is not there."""
    sent = mapping(request, "HyperParameters").get(name)
    try:
        return json.loads(sent) if isinstance(sent, str) else None
    except (ValueError, RecursionError):
        return sent


def repeats(items: Sequence[Json], field: str, key: str) -> Iterator[ValidationIssue]:
    """An issue for each item of the list in `field` whose text under `key` an earlier item has, too."""
    first: dict[str, int] = {}
    for index, item in enumerate(items):
        value = text(item, key)
        if value and first.setdefault(value, index) != index:
            yield field_issue(
                f"{field}[{index}].{key}", f"is {quoted(value)}, as in {field}[{first[value]}]; use it once."
            )


def is_unicode(text: str) -> bool:
    """Whether text is whole characters; JSON can carry half ones, unpaired surrogates, which nothing can send on."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
