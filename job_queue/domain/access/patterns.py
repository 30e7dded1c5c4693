"""Patterns in which `*` stands for any characters of one part of a name: it crosses neither `/` nor `:`.

So `user/*` means no users of other paths, and `assumed-role/x*/*` names role and session apart. IAM's own `*`, as in
the stack's parameter AllowedRoleArns, crosses both.
"""

import re
from functools import lru_cache


@lru_cache(maxsize=2000)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = (re.escape(part) for part in re.split(r"\*+", pattern))
    return re.compile("[^/:]*".join(parts))


def fits(pattern: str, text: str) -> bool:
    """Whether a text is as the pattern says, all of it. Upper and lower case are different."""
    return _compiled(pattern).fullmatch(text) is not None
