"""Arguments and options that several commands of ``smq`` share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from sagemaker_queue.cli.completion import all_job_names, groups, job_names, projects
from sagemaker_queue.cli.parser import argument, bundled, flag, option
from sagemaker_queue.workflows.selection import ORDERS, QUEUE_ORDER, Selection, matching_job_names

if TYPE_CHECKING:
    from sagemaker_queue.queue.client import QueueClient


def patterns(text: str | tuple[str, ...]) -> tuple[str, ...]:
    """Split words separated by commas. A tuple, which is the default of an option, is returned unchanged."""
    return text if isinstance(text, tuple) else tuple(word.strip() for word in text.split(","))


_one_job = partial(argument, "name", metavar="JOB", help="the name of the job")
job_argument = _one_job(shell_complete=all_job_names)
live_job_argument = _one_job(shell_complete=job_names)
optional_job_argument = _one_job(shell_complete=all_job_names, required=False)
_names_argument = partial(argument, "names", nargs=-1, shell_complete=job_names)
_groups_option = partial(
    option, "--group", "groups", metavar="GROUPS", type=patterns, default=(), shell_complete=groups
)


@dataclass(frozen=True)
class JobSet:
    """One or more jobs, given by name, pattern or group."""

    names: tuple[str, ...]
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise UsageError unless either names or groups are given."""
        if self.names and self.groups:
            raise click.UsageError("--group cannot be given together with names of jobs")
        if not self.names and not self.groups:
            raise click.UsageError("Name a job, or give --group.")

    def resolve(self, queue: QueueClient, states: str = "live") -> list[str]:
        """Return the names of the jobs. Raises NotFound if a pattern or group has no job in ``states``."""
        return matching_job_names(queue, self.names, self.groups, states)


job_set_arguments = bundled(
    "jobs",
    JobSet,
    _names_argument(metavar="JOB", help="the name of a job, or a pattern such as 'lr-*' for live jobs"),
    _groups_option(help="all live jobs of these groups, such as a sweep"),
)


@dataclass(frozen=True)
class JobConditions:
    """Conditions on jobs by name, owner, project and group, as given by options."""

    names: tuple[str, ...]
    mine: bool
    owners: tuple[str, ...]
    projects: tuple[str, ...]
    groups: tuple[str, ...]

    def selection(self, queue: QueueClient) -> Selection:
        """Return the selection. If --mine is given, request the identity of the credentials from AWS (STS)."""
        mine = queue.caller_arn() if self.mine else None
        return Selection(self.names, self.projects, self.groups, self.owners, mine)


names_argument = _names_argument(
    metavar="NAME",
    help="list only jobs with these names; * stands for any characters, ? for one (put the pattern in quotes)",
)
filter_options = (
    flag("--mine", exclusive_group="owner", help="only your own jobs, by your AWS credentials"),
    option(
        "--owner",
        "owners",
        metavar="OWNERS",
        type=patterns,
        default=(),
        exclusive_group="owner",
        help="only jobs of these owners: names as in the tables, or ARNs",
    ),
    option(
        "--project",
        "projects",
        metavar="PROJECTS",
        type=patterns,
        default=(),
        shell_complete=projects,
        help="only jobs of these projects",
    ),
    _groups_option(help="only jobs of these groups, such as a sweep"),
)


@dataclass(frozen=True)
class JobChoice(JobConditions):
    """Conditions on jobs, and the order in which to list them."""

    sort: str
    reverse: bool


job_choice_arguments = bundled(
    "choice",
    JobChoice,
    names_argument,
    *filter_options,
    option(
        "--sort",
        metavar="ORDER",
        type=click.Choice(tuple(ORDERS)),
        default=QUEUE_ORDER,
        help="; ".join(f"{name}: {order.meaning}" for name, order in ORDERS.items()),
    ),
    flag("--reverse", help="reverse the order"),
)
