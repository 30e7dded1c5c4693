"""What a step found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK, WARNED, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"


@dataclass(frozen=True)
class Finding:
    """What one step found. ``remedy`` says what to do, and is there where it failed or warns."""

    check: str
    status: str  # OK, WARNED, FAILED or SKIPPED
    message: str
    remedy: str | None = None


def ok(check: str, message: str) -> Finding:
    """It is as it must be."""
    return Finding(check, OK, message)


def warned(check: str, message: str, remedy: str) -> Finding:
    """It works, and should be otherwise."""
    return Finding(check, WARNED, message, remedy)


def failed(check: str, message: str, remedy: str) -> Finding:
    """It is not."""
    return Finding(check, FAILED, message, remedy)


def skipped(check: str, message: str) -> Finding:
    """It could not be looked at, or there is nothing to look at."""
    return Finding(check, SKIPPED, message)


def healthy(findings: Iterable[Finding]) -> bool:
    """Whether nothing failed."""
    return all(finding.status != FAILED for finding in findings)
