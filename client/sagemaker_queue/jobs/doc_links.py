"""Short links to the documentation in messages of ``smq``: to the page of wait reasons, and to the page of errors.

Each code has its own heading on the page. The heading is the code, so the anchor is the code in lower case.
"""

from __future__ import annotations

from collections.abc import Iterable

from api_contract.error_codes import Error, ErrorCode

BASE = "docs/reference/"
"""The address of the reference pages: a folder of the repository, as long as the pages are not published."""

REASONS, ERRORS = "reasons.md", "errors.md"
_CODES = frozenset(code.value for code in ErrorCode)


def reason_link(code: str) -> str:
    """Return the link to the explanation of a wait reason, such as ``OVER_LIMIT``."""
    return f"{BASE}{REASONS}#{code.lower()}"


def error_links(errors: Iterable[Error]) -> list[str]:
    """Return the links to the explanations of the errors' codes; a code of a newer queue has no link."""
    codes = dict.fromkeys(error.code for error in errors if error.code in _CODES)
    return [f"{BASE}{ERRORS}#{code.lower()}" for code in codes]
