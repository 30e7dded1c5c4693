"""``smq ls``: the jobs of the queue, filtered and sorted."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NoReturn

from sagemaker_queue.cli.arguments import add_json, add_selection, selection, whole_number
from sagemaker_queue.cli.output import DONE, print_json, width
from sagemaker_queue.cli.parser import Commands
from sagemaker_queue.cli.render.jobs import ARTICLE, COLUMNS, WIDE, jobs_table
from sagemaker_queue.cli.selection import Selection
from sagemaker_queue.models import ACTIVE, FINISHED, WAITING

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

_LIVE = "live"


def add_ls(commands: Commands) -> None:
    """Add ``smq ls``."""
    ls = commands.add(
        "ls",
        _ls,
        help="list jobs",
        description="List jobs: those that have not ended, unless told otherwise. A job is shown if it meets all "
        "conditions. Several words with commas between mean any of them; * and ? stand for any letters.",
        examples=[
            "smq ls --wide",
            "smq ls --running --sort running --limit 10",
            "smq ls --waiting --mine -o position,job,age,reason",
            "smq ls 'resnet-*' --project vision --all",
            "smq ls --failed --json",
        ],
    )
    add_selection(ls)
    ls.add_argument("--limit", metavar="N", type=whole_number, help="only the first N of them")
    which = ls.add_mutually_exclusive_group()
    for option, states, help in (
        ("--running", _words(ACTIVE), "only those that hold instances: starting, running or stopping"),
        ("--waiting", _words(WAITING), "only those that wait: pending or preempted"),
        ("--failed", "failed", "only those that have failed"),
        ("--finished", "finished", "only those that have ended: " + ", ".join(sorted(FINISHED))),
        ("--all", "all", "also those that have ended, as long as the queue remembers them"),
    ):
        which.add_argument(option, dest="states", action="store_const", const=states, help=help)
    which.add_argument(
        "--state",
        dest="states",
        metavar="STATES",
        help="only those in these states, such as running,pending; or live, finished, all",
    )
    ls.set_defaults(states=_LIVE)
    how = ls.add_mutually_exclusive_group()
    how.add_argument(
        "-o",
        "--columns",
        type=_columns,
        default=ARTICLE,
        metavar="COLUMNS",
        help=f"any of {', '.join(COLUMNS)}, with commas between",
    )
    how.add_argument(
        "--wide", dest="columns", action="store_const", const=WIDE, help=f"the same as -o {','.join(WIDE)}"
    )
    add_json(how, help="everything, for programs")


def _ls(queue: QueueClient, arguments: argparse.Namespace) -> int:
    meant = selection(queue, arguments)
    found = meant.of(queue.jobs(arguments.states), arguments.sort, reverse=arguments.reverse, limit=arguments.limit)
    jobs = list(found)
    if arguments.json:
        print_json([job.to_json() for job in jobs])
    elif jobs:
        print(jobs_table(jobs, arguments.columns, width=width()))
    else:
        every = arguments.states == _LIVE and meant == Selection()
        print("The queue is empty." if every else "There are no such jobs.", file=sys.stderr)
    return DONE


def _words(states: frozenset[str]) -> str:
    return ",".join(sorted(states))


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        _refuse_columns(unknown)
    return names


def _refuse_columns(unknown: list[str]) -> NoReturn:
    raise argparse.ArgumentTypeError(f"no column {', '.join(map(repr, unknown))}; there are {', '.join(COLUMNS)}")
