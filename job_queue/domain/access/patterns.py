"""Patterns in which `*` stands for any characters of one part of a name: it crosses neither `/` nor `:`.

So `user/*` means no users of other paths, and `assumed-role/x*/*` names role and session apart. IAM's own `*`, as in
the stack's parameter AllowedRoleArns, crosses both. No regular expression of a pattern is made: with many `*` one can
be made to take for ever.
"""

import re

_SEPARATOR = re.compile("([/:])")


def fits(pattern: str, text: str) -> bool:
    """Whether a text is as the pattern says, all of it. Upper and lower case are different."""
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
    for piece in others:  # the leftmost place of each leaves the most for those behind it
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True
