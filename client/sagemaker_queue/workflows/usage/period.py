"""Select finished attempts by time, owner, project and other conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from api_contract.history import PastAttempt
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.times import iso_time
from sagemaker_queue.workflows.selection import Selection

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient

_AGO = re.compile(r"(\d{1,5})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPECIAL = re.compile(r"[*?\[]")


def moment_of(text: str, now: datetime | None = None) -> datetime:
    """Parse a time: 2026-11-22 or 2026-11-22T10:00 (UTC without a time zone), or 12h or 7d before ``now``.

    Raises InvalidOption for any other text.
    """
    ago = _AGO.fullmatch(text.strip())
    if ago:
        return (now or datetime.now(timezone.utc)) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        return iso_time(text)
    except (ValueError, OverflowError):
        raise InvalidOption(
            f"{text!r} is not a time; write 2026-11-22, 2026-11-22T10:00 (UTC), or 7d, 12h ago"
        ) from None


def moment_ahead(text: str, now: datetime | None = None) -> datetime:
    """Parse a time: 2026-11-22 or 2026-11-22T10:00 (UTC without a time zone), or 12h or 7d after ``now``.

    Raises InvalidOption for any other text.
    """
    now = now or datetime.now(timezone.utc)
    if _AGO.fullmatch(text.strip()):
        return now + (now - moment_of(text, now))
    try:
        return moment_of(text, now)
    except InvalidOption:
        raise InvalidOption(
            f"{text!r} is not a time; write 2026-11-22, 2026-11-22T10:00 (UTC), or 12h, 7d from now"
        ) from None


def past_attempts(
    queue: QueueClient, meant: Selection, since: datetime, until: datetime | None
) -> Iterator[PastAttempt]:
    """Yield the selected attempts, the earliest end first.

    The queue filters by one owner and one project; other conditions are applied here.
    """
    only = meant.owners[0] if len(meant.owners) == 1 and meant.owners[0].startswith("arn:") else None
    project = meant.projects[0] if len(meant.projects) == 1 and not _SPECIAL.search(meant.projects[0]) else None
    found = queue.history(since, until, owner=meant.mine or only, project=project)
    return (attempt for attempt in found if attempt in meant)
