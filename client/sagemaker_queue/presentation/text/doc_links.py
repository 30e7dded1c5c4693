"""Short links to the documentation, which messages of ``smq`` carry: one page of reasons, one page of errors.

Each code has a heading of its own on its page. The heading is the code, so the anchor is the code in lower case.
"""

from __future__ import annotations

BASE = "docs/reference/"
"""The address of the reference pages: a folder of the repository, until the documentation has a published address."""

_REASONS, _ERRORS = "reasons.md", "errors.md"


def reason_link(code: str) -> str:
    """Return the link to the explanation of a wait reason, such as ``OVER_LIMIT``."""
    return _link(_REASONS, code)


def error_link(code: str) -> str:
    """Return the link to the explanation of an error code of the API, such as ``NameTaken``."""
    return _link(_ERRORS, code)


def _link(page: str, code: str) -> str:
    return f"{BASE}{page}#{code.lower()}"
