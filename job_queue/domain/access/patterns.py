"""Patterns in which `*` matches any characters except `/` and `:`, so only characters within one part of a name.

So `user/*` does not match `user/team/ann`, and `assumed-role/x*/*` matches role and session separately. IAM's own
`*`, as in the stack's parameter AllowedRoleArns, also matches `/` and `:`. A pattern is not compiled to a regular
expression, because the match of a pattern with many `*` could then take exponential time.
"""

import re

_SEPARATOR = re.compile("([/:])")


def matches_pattern(pattern: str, text: str) -> bool:
    """Return whether a pattern matches the whole text. The match is case-sensitive."""
    parts, found = _SEPARATOR.split(pattern), _SEPARATOR.split(text)
    return len(parts) == len(found) and all(map(_part_fits, parts, found))


def _part_fits(pattern: str, text: str) -> bool:
    first, *others = pattern.split("*")
    if not others:
        return pattern == text
    last = others.pop()
    end = len(text) - len(last)
    if end < len(first) or not (text.startswith(first) and text.endswith(last)):
        return False
    at = len(first)
    for piece in others:  # the leftmost match of each piece leaves the most text for the later pieces
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True
