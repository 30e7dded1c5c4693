"""Which attempts that have ended are meant: from when to when, whose, of which projects and groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import click

from sagemaker_queue.cli.arguments import Whose, names_argument, whose_options
from sagemaker_queue.cli.parser import Decorator, bundled, checked, option
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.models import PastAttempt

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

_AGO = re.compile(r"(\d{1,5})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPECIAL = re.compile(r"[*?\[]")


def moment_of(text: str, now: datetime | None = None) -> datetime:
    """Read a time: 2026-11-22, 2026-11-22T10:00, with a time zone or in UTC; or 12h, 7d: so long ago.

    Raises InvalidOption if it is something else.
    """
    ago = _AGO.fullmatch(text)
    if ago:
        return (now or datetime.now(timezone.utc)) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        time = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
        return time.astimezone(timezone.utc) if time.tzinfo else time.replace(tzinfo=timezone.utc)
    except (ValueError, OverflowError):
        raise InvalidOption(
            f"{text!r} is not a time; write 2026-11-22, 2026-11-22T10:00 (UTC), or 7d, 12h ago"
        ) from None


@dataclass(frozen=True)
class Period(Whose):
    """Which attempts."""

    since: datetime
    until: datetime | None

    def __post_init__(self) -> None:
        """Refuse a time that ends before it begins."""
        if self.until is not None and self.until <= self.since:
            raise click.UsageError("--until must be later than --since")

    def attempts(self, queue: QueueClient) -> Iterator[PastAttempt]:
        """Yield them, the earliest end first. What the queue can leave out, it does; the rest is left out here."""
        selection = self.selection(queue)
        only = self.owners[0] if len(self.owners) == 1 and self.owners[0].startswith("arn:") else None
        project = self.projects[0] if len(self.projects) == 1 and not _SPECIAL.search(self.projects[0]) else None
        found = queue.history(self.since, self.until, owner=selection.mine or only, project=project)
        return (attempt for attempt in found if attempt in selection)


def period_arguments(since: str) -> Decorator:
    """Give a command a ``period``, which begins so long ago unless told otherwise."""
    read = checked(moment_of)
    return bundled(
        "period",
        Period,
        names_argument,
        option(
            "--since",
            metavar="TIME",
            type=read,
            default=since,
            help=f"what ended then or later: 2026-11-22, 2026-11-22T10:00 (UTC), or 12h, 7d ago ({since})",
        ),
        option("--until", metavar="TIME", type=read, help="what ended before (now)"),
        *whose_options,
    )
