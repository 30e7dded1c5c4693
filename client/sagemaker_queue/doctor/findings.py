"""What a step found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OK, FAILED, SKIPPED = "ok", "failed", "skipped"


@dataclass(frozen=True)
class Finding:
    """What one step found. ``remedy`` says what to do, and is there where it failed."""

    check: str
    status: str  # OK, FAILED or SKIPPED
    message: str
    remedy: str | None = None


def ok(check: str, message: str) -> Finding:
    """It is as it must be."""
    return Finding(check, OK, message)


def failed(check: str, message: str, remedy: str) -> Finding:
    """It is not."""
    return Finding(check, FAILED, message, remedy)


def skipped(check: str, message: str) -> Finding:
    """It could not be looked at, or there is nothing to look at."""
    return Finding(check, SKIPPED, message)


def healthy(findings: Iterable[Finding]) -> bool:
    """Whether nothing failed."""
    return all(finding.status != FAILED for finding in findings)
