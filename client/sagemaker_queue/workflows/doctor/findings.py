"""The results of the steps of ``smq doctor``: ok, warning, failed or skipped, each with a message and a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK, WARNED, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"
NOT_CHECKED = "Not checked, because the step"  # the beginning of a message about a step that depends on a failed one


@dataclass(frozen=True)
class Finding:
    """The result of one step. ``remedy`` says what to do, and is set if the step failed or warns."""

    check: str
    status: str  # OK, WARNED, FAILED or SKIPPED
    message: str
    remedy: str | None = None


def ok(check: str, message: str) -> Finding:
    """Return the finding of a step that passed."""
    return Finding(check, OK, message)


def warned(check: str, message: str, remedy: str) -> Finding:
    """Return the finding of a step that passed, with something that should be changed."""
    return Finding(check, WARNED, message, remedy)


def failed(check: str, message: str, remedy: str) -> Finding:
    """Return the finding of a step that failed."""
    return Finding(check, FAILED, message, remedy)


def skipped(check: str, message: str) -> Finding:
    """Return the finding of a step that could not be checked, or that has nothing to check."""
    return Finding(check, SKIPPED, message)


def healthy(findings: Iterable[Finding]) -> bool:
    """Return whether no step failed; warnings and skipped steps are allowed."""
    return all(finding.status != FAILED for finding in findings)
