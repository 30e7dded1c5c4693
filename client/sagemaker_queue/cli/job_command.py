"""Commands of ``smq`` whose remaining arguments are the command of a job."""

from __future__ import annotations

from typing import Any

import click

from sagemaker_queue.cli.completion import files
from sagemaker_queue.cli.output import print_note
from sagemaker_queue.cli.parser import Command, Decorator, argument
from sagemaker_queue.formatting import one_line

_COMMON_OPTIONS = frozenset({"-c", "-h", "--help"})  # options of many programs, such as sh -c: no note about them


class RunCommand(Command):
    """A command of ``smq`` that ends with the command of a job.

    The job's command begins with the first word that is neither an option of ``smq`` nor the value of one.
    """

    def __init__(self, *args: Any, context_settings: dict[str, Any] | None = None, **attributes: Any) -> None:
        settings = {"allow_interspersed_args": False, **(context_settings or {})}
        super().__init__(*args, context_settings=settings, usage="[OPTIONS] [--] COMMAND", **attributes)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print a note if the job's command has options that ``smq`` also has, and no -- precedes it."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        words: tuple[str, ...] = ctx.params["command"]
        has_dashes = "--" in given[: len(given) - len(words)]
        known = {name for parameter in self.get_params(ctx) for name in parameter.opts} - _COMMON_OPTIONS
        doubtful = dict.fromkeys(name for name in (word.partition("=")[0] for word in words) if name in known)
        if doubtful and not has_dashes and not ctx.resilient_parsing:
            print_note(
                f"The command {one_line(words[0])} gets {', '.join(doubtful)}, as smq passes on all words after "
                "its first one. Put options of smq before the command; -- before the command hides this note."
            )
        return rest


class PlanCommand(Command):
    """A command of ``smq`` that takes a file, or the command of a job after --."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the words after -- as the parameter ``command``."""
        end = args.index("--") if "--" in args else len(args)
        rest = super().parse_args(ctx, args[:end])
        ctx.params["command"] = tuple(args[end + 1 :])
        return rest


def job_command(help: str) -> Decorator:
    """Add the command of a job to a command of ``smq``, as its last argument."""
    return argument(
        "command",
        metavar="COMMAND",
        nargs=-1,
        type=click.UNPROCESSED,
        shell_complete=files,
        usage="[--] COMMAND",
        help=help,
    )
