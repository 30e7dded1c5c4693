"""Arguments that several commands of ``smq`` have."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sagemaker_queue.cli.completion import completes_jobs
from sagemaker_queue.cli.selection import ORDERS, QUEUE_ORDER, Selection
from sagemaker_queue.errors import NotFound
from sagemaker_queue.models import WAITING

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient


def add_job(parser: argparse.ArgumentParser) -> None:
    """The name of one job."""
    completes_jobs(parser.add_argument("job", metavar="JOB", help="the name that the job was submitted under"))


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """One job or more, by name or by group."""
    which = parser.add_mutually_exclusive_group(required=True)
    completes_jobs(
        which.add_argument(
            "jobs",
            metavar="JOB",
            nargs="*",
            default=[],
            help="the name that a job was submitted under, or a pattern that live jobs match, such as 'lr-*'",
        )
    )
    which.add_argument(
        "--group", metavar="GROUPS", type=patterns, help="all live jobs of these groups, such as a sweep"
    )


def named_jobs(queue: QueueClient, arguments: argparse.Namespace) -> list[str]:
    """Return the names of the jobs that ``add_jobs`` meant; raises NotFound if a pattern or group has none.

    Of a pattern or group those that wait come first: were one that runs cancelled first, the next would start.
    """
    if arguments.group:
        return _live_jobs(queue, Selection(groups=arguments.group), f"in the group {', '.join(arguments.group)}")
    names: list[str] = []
    for name in arguments.jobs:
        is_pattern = any(letter in name for letter in "*?[")
        names += _live_jobs(queue, Selection(names=(name,)), f"like {name}") if is_pattern else [name]
    return list(dict.fromkeys(names))


def _live_jobs(queue: QueueClient, meant: Selection, which: str) -> list[str]:
    found = sorted(meant.of(queue.jobs()), key=lambda job: job.state not in WAITING)
    if not found:
        raise NotFound(f"There are no live jobs {which}.")
    return [job.job for job in found]


def add_json(parser: argparse._ActionsContainer, help: str = "the same for programs") -> None:
    """JSON instead of text for people."""
    parser.add_argument("--json", action="store_true", help=help)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Which jobs, and in what order."""
    names = "only jobs of these names; * and ? stand for any letters, in quotes"
    completes_jobs(parser.add_argument("names", metavar="NAME", nargs="*", help=names))
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--mine", action="store_true", help="only jobs that were submitted with your AWS credentials")
    whose.add_argument(
        "--owner",
        metavar="OWNERS",
        type=patterns,
        default=(),
        help="only jobs of these owners, as the tables show them or by ARN",
    )
    parser.add_argument("--project", metavar="PROJECTS", type=patterns, default=(), help="only jobs of these projects")
    parser.add_argument(
        "--group", metavar="GROUPS", type=patterns, default=(), help="only jobs of these groups, such as a sweep"
    )
    parser.add_argument(
        "--sort",
        metavar="ORDER",
        choices=tuple(ORDERS),
        default=QUEUE_ORDER,
        help="; ".join(f"{name}: {order.meaning}" for name, order in ORDERS.items()),
    )
    parser.add_argument("--reverse", action="store_true", help="the other way round")


def selection(queue: QueueClient, arguments: argparse.Namespace) -> Selection:
    """Return which jobs the arguments mean."""
    owners = (queue.caller_arn(),) if arguments.mine else arguments.owner
    return Selection(tuple(arguments.names), arguments.project, arguments.group, owners)


def patterns(text: str) -> tuple[str, ...]:
    """Words with commas between."""
    return tuple(word.strip() for word in text.split(","))


def whole_number(text: str) -> int:
    """A number of things to show: 1 or more."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


whole_number.__name__ = "whole number from 1 on"  # as argparse names it in "invalid ... value"
