"""A validation issue: what is wrong with a request, and in which field. Every check gives such issues."""

import re
from dataclasses import dataclass

MOST_ISSUES = 20
"""That a check gives: enough to repair a request."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")
_LONGEST_QUOTE = 60  # characters


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """One thing that is wrong with a request."""

    field: str
    """Where: `ResourceConfig.InstanceCount`, `Tags[2].Key`, `HyperParameters.lr`; empty for the whole request."""
    message: str
    """A sentence that names the field and says what is wrong and what would be right."""


def field_issue(field: str, predicate: str) -> ValidationIssue:
    """An issue of a field, whose name begins the sentence; `predicate` is the rest of it."""
    return ValidationIssue(field, f"{field or 'The request'} {predicate}")


def member(field: str, key: str) -> str:
    """The name of a field's member; a key that could be misread is quoted: `HyperParameters['a.b']`."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{field}[{quoted(key)}]"
    return f"{field}.{key}" if field else key


def quoted(text: str) -> str:
    """Text as it may stand in a sentence: on one line, printable and short."""
    return repr(text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "...")
