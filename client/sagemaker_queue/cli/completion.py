"""What the Tab key completes: click does the work, and asks here for names of jobs and files."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING

from api_contract.models import MAX_PAGE
from sagemaker_queue.cli.parser import connection
from sagemaker_queue.errors import QueueError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

VARIABLE = "_SMQ_COMPLETE"  # which the shell's function sets
PROGRAM = "smq"
SHELLS = ("bash", "zsh", "fish")
_NAME = re.compile("[A-Za-z0-9-]+")  # of a job
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
    """Return the names of live jobs that begin so; none if the queue does not answer at once."""
    try:
        queue = connection(context).queue(tries=1, timeout_seconds=(SECONDS, SECONDS))
        names = [job.job for job in islice(queue.jobs(), MAX_PAGE) if job.job.startswith(incomplete)]
        return [name for name in names if _NAME.fullmatch(name)]  # the shell puts them on its command line as they are
    except QueueError:
        return []


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415

    return [CompletionItem(incomplete, type="file")]
