"""Shell completion of commands, options, files, and names in the queue: jobs, groups, projects, instance types."""

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

    from api_contract.models import JobSummary
    from sagemaker_queue.queue.client import QueueClient

VARIABLE = "_SMQ_COMPLETE"  # set by the shell's completion function
PROGRAM = "smq"
SHELLS = ("bash", "zsh", "fish")
_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]*")  # names without characters that are special to a shell
SECONDS = 2.0  # timeout of a connection to the queue, and of each answer, after a press of the Tab key


def script(root: click.Command, shell: str) -> str:
    """Return the script that a shell evaluates to enable completion."""
    from click.shell_completion import get_completion_class  # noqa: PLC0415

    completion = get_completion_class(shell)
    assert completion is not None, f"click completes in {shell}"
    return completion(root, {}, PROGRAM, VARIABLE).source()


def complete_for_shell(root: click.Command) -> None:
    """Print completions and raise SystemExit if a shell's completion function started the process."""
    if VARIABLE in os.environ:
        from click.shell_completion import shell_complete  # noqa: PLC0415

        raise SystemExit(shell_complete(root, {}, PROGRAM, VARIABLE, os.environ[VARIABLE]))


def job_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of live jobs that begin with ``incomplete``."""
    return _from_queue(context, incomplete, lambda queue: (job.job for job in _jobs(queue, "live")))


def all_job_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of live and finished jobs that begin with ``incomplete``."""
    return _from_queue(
        context, incomplete, lambda queue: (job.job for states in ("live", "finished") for job in _jobs(queue, states))
    )


def groups(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the live jobs' groups that begin with ``incomplete``."""
    return _from_queue(context, incomplete, lambda queue: (job.group or "" for job in _jobs(queue, "live")))


def projects(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the projects that begin with ``incomplete``."""
    return _from_queue(context, incomplete, lambda queue: (project.name for project in queue.queue().projects))


def instance_types(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the pools' instance types that begin with ``incomplete``."""
    return _from_queue(context, incomplete, lambda queue: (pool.instance_type or "" for pool in queue.queue().pools))


def one_of(words: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a completion function for one or more of these words, separated by commas."""
    return lambda _, __, incomplete: _completions(words, incomplete)


def _jobs(queue: QueueClient, states: str) -> Iterator[JobSummary]:
    return islice(queue.jobs(states), MAX_PAGE)


def _from_queue(context: click.Context, incomplete: str, ask: Callable[[QueueClient], Iterable[str]]) -> list[str]:
    """Return the queue's names that complete the word.

    Return an empty list if the queue fails, or if a connection or an answer takes longer than SECONDS.
    """
    try:
        queue = connection(context).queue(tries=1, timeout_seconds=(SECONDS, SECONDS))
        return _completions(ask(queue), incomplete)
    except QueueError:
        return []


def _completions(words: Iterable[str], incomplete: str) -> list[str]:
    before, comma, begun = incomplete.rpartition(",")
    # The shell inserts completions without quoting. So words with special characters are left out.
    fitting = dict.fromkeys(word for word in words if word.startswith(begun) and _NAME.fullmatch(word))
    return [f"{before}{comma}{word}" for word in fitting]


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return an item that makes the shell complete the name of a file."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415

    return [CompletionItem(incomplete, type="file")]
