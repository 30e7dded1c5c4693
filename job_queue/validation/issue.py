"""Validation issues: the field of a request that is wrong, and a message. Every check yields such issues."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from job_queue.domain.errors import ValidationIssue

MOST_ISSUES = 20
"""The largest number of issues that a check returns: enough to repair a request."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")
_LONGEST_QUOTE = 60  # characters
LONGEST_GUESS = 100  # characters; a longer name is not compared


def field_issue(field: str, predicate: str) -> ValidationIssue:
    """Return an issue of a field. The message is a sentence: the field's name, then `predicate`."""
    return ValidationIssue(field, f"{field or 'The request'} {predicate}")


def member(field: str, key: str) -> str:
    """Return the name of a field's member; a key that could be misread is quoted: `HyperParameters['a.b']`."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{field}[{quoted(key)}]"
    return f"{field}.{key}" if field else key


def near(wrong: str, names: Iterable[str], *, most: int = 3, likeness: float = 0.6) -> list[str]:
    """Return the names that are spelled similarly to a wrong one, ignoring case, the most similar first."""
    by_small = {name.casefold(): name for name in names}
    found = get_close_matches(wrong.casefold(), by_small, most, likeness) if len(wrong) <= LONGEST_GUESS else []
    return [by_small[name] for name in found]


def first(issues: Sequence[ValidationIssue]) -> list[ValidationIssue]:
    """Return the first `MOST_ISSUES` issues and, if there are more, an issue with the number of the others."""
    shown = list(issues[:MOST_ISSUES])
    if more := len(issues) - len(shown):
        shown.append(ValidationIssue("", f"There are {more} more faults."))
    return shown


def shown(value: object) -> str:
    """Return the value as a short text for a sentence."""
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "..."


def quoted(text: str) -> str:
    """Return text for a sentence: quoted, on one line, printable and short."""
    return repr(text if len(text) <= _LONGEST_QUOTE else text[: _LONGEST_QUOTE - 3] + "...")
