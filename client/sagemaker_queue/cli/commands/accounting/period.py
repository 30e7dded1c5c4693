"""Options that select finished attempts by time, owner, project and group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from api_contract.history import PastAttempt
from sagemaker_queue.cli.arguments import JobConditions, filter_options, names_argument
from sagemaker_queue.cli.parser import Decorator, bundled, checked, option
from sagemaker_queue.workflows.usage.period import moment_of, past_attempts

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient


@dataclass(frozen=True)
class Period(JobConditions):
    """Conditions on finished attempts: the conditions of JobConditions, and the time at which the attempt ended."""

    since: datetime
    until: datetime | None

    def __post_init__(self) -> None:
        """Raise UsageError unless ``until`` is later than ``since``."""
        if self.until is not None and self.until <= self.since:
            raise click.UsageError("--until must be later than --since")

    def attempts(self, queue: QueueClient) -> Iterator[PastAttempt]:
        """Yield the selected attempts, the earliest end first."""
        return past_attempts(queue, self.selection(queue), self.since, self.until)


def period_arguments(since: str, *, by_name: bool = True) -> Decorator:
    """Add the parameter ``period`` to a command.

    ``since`` is the default of --since, such as 7d. With ``by_name``, the command accepts names of jobs as arguments.
    """
    read = checked(moment_of)
    given = [field.name for field in fields(Period) if by_name or field.name != "names"]
    return bundled(
        "period",
        Period if by_name else partial(Period, ()),
        *([names_argument] if by_name else []),
        option(
            "--since",
            metavar="TIME",
            type=read,
            default=since,
            help=f"attempts that ended from this time on: 2026-11-22, 2026-11-22T10:00 (UTC), or 12h, 7d ago ({since})",
        ),
        option("--until", metavar="TIME", type=read, help="attempts that ended before this time (now)"),
        *filter_options,
        names=given,
    )
