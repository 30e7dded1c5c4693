"""What the Tab key completes: click does the work, and asks here for what the queue knows, and for files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from api_contract.models import MAX_PAGE
from sagemaker_queue.cli.parser import connection
from sagemaker_queue.errors import QueueError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.models import JobSummary

VARIABLE = "_SMQ_COMPLETE"  # which the shell's function sets
PROGRAM = "smq"
SHELLS = ("bash", "zsh", "fish")
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]*")  # nothing that a shell would obey
SECONDS = 2.0  # nobody waits longer for the Tab key


def script(root: click.Command, shell: str) -> str:
    """Return what a shell has to evaluate for completion."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    completion = get_completion_class(shell)
    assert completion is not None, f"click completes in {shell}"
    return completion(root, {}, PROGRAM, VARIABLE).source()


def answer_the_shell(root: click.Command) -> None:
    """End the process with completions, if it is a shell that asks."""
    if VARIABLE in os.environ:
        from click.shell_completion import shell_complete  # noqa: PLC0415

        raise SystemExit(shell_complete(root, {}, PROGRAM, VARIABLE, os.environ[VARIABLE]))


def job_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of live jobs that begin so."""
    return _asked(context, incomplete, lambda queue: (job.job for job in _jobs(queue, "live")))


def all_job_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of jobs that begin so, also of those that have ended."""
    return _asked(
        context, incomplete, lambda queue: (job.job for states in ("live", "finished") for job in _jobs(queue, states))
    )


def groups(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups of live jobs that begin so."""
    return _asked(context, incomplete, lambda queue: (job.group or "" for job in _jobs(queue, "live")))


def projects(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the projects that begin so."""
    return _asked(context, incomplete, lambda queue: (project.name for project in queue.queue().projects))


def instance_types(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the instance types of pools that begin so."""
    return _asked(context, incomplete, lambda queue: (pool.instance_type or "" for pool in queue.queue().pools))


def one_of(words: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return what completes these words, several of which may stand with commas between."""
    return lambda _, __, incomplete: _begin_so(words, incomplete)


def _jobs(queue: QueueClient, states: str) -> Iterator[JobSummary]:
    return islice(queue.jobs(states), MAX_PAGE)


def _asked(context: click.Context, incomplete: str, ask: Callable[[QueueClient], Iterable[str]]) -> list[str]:
    """Return what the queue knows that begins so; nothing if it does not answer at once."""
    try:
        queue = connection(context).queue(tries=1, timeout_seconds=(SECONDS, SECONDS))
        return _begin_so(ask(queue), incomplete)
    except QueueError:
        return []


def _begin_so(words: Iterable[str], incomplete: str) -> list[str]:
    before, comma, begun = incomplete.rpartition(",")
    # The shell puts them on its command line as they are.
    fitting = dict.fromkeys(word for word in words if word.startswith(begun) and _NAME.fullmatch(word))
    return [f"{before}{comma}{word}" for word in fitting]


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415

    return [CompletionItem(incomplete, type="file")]
