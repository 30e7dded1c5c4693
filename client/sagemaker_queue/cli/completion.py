"""``smq completion``: what a shell needs to complete ``smq`` at the Tab key; argcomplete does the work."""

from __future__ import annotations

import argparse
import os
from itertools import islice
from typing import Any

from api_contract.models import MAX_PAGE
from sagemaker_queue.cli.output import DONE
from sagemaker_queue.cli.parser import Commands
from sagemaker_queue.errors import QueueError

_ASKED = "_ARGCOMPLETE"  # which the shell's function sets
SHELLS = ("bash", "zsh", "fish")
SECONDS = 2.0  # nobody waits longer for the Tab key


def add_completion(commands: Commands) -> None:
    """Add ``smq completion``."""
    completion = commands.add_local(
        "completion",
        _completion,
        help="complete commands, options and names of jobs at the Tab key",
        description="Print what a shell needs to complete commands, options and the names of live jobs. "
        "One line in the shell's own file switches it on.",
        examples=[
            'eval "$(smq completion bash)"      in ~/.bashrc',
            'eval "$(smq completion zsh)"       in ~/.zshrc, below compinit',
            "smq completion fish | source       in ~/.config/fish/config.fish",
        ],
    )
    completion.add_argument("shell", metavar="SHELL", choices=SHELLS, help="one of " + ", ".join(SHELLS))


def _completion(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415

    print(shellcode(["smq"], shell=arguments.shell))
    return DONE


def answer_the_shell(parser: argparse.ArgumentParser) -> None:
    """End the process with completions, if it is a shell that asks."""
    if _ASKED in os.environ:
        import argcomplete  # noqa: PLC0415

        argcomplete.autocomplete(parser, always_complete_options=False)


def completes_jobs(action: argparse.Action) -> None:
    """Let the names of live jobs complete an argument."""
    action.completer = job_names  # type: ignore[attr-defined]  # where argcomplete looks


def job_names(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return the names of live jobs that begin so; none if the queue does not answer at once."""
    from sagemaker_queue.client import QueueClient  # noqa: PLC0415

    try:
        queue = QueueClient(
            url=parsed_args.url, profile=parsed_args.profile, tries=1, timeout_seconds=(SECONDS, SECONDS)
        )
        return [job.job for job in islice(queue.jobs(), MAX_PAGE) if job.job.startswith(prefix)]
    except QueueError:
        return []
