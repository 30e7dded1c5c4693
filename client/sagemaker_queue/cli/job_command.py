"""Separate a job's options from its command in ``smq submit``, ``sweep`` and ``plan``, and create the job."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import click

from sagemaker_queue.cli import completion
from sagemaker_queue.cli.output import print_note
from sagemaker_queue.cli.parser import Command, Decorator, argument, bundled, checked, option
from sagemaker_queue.errors import InvalidOption
from sagemaker_queue.jobs.formatting import one_line
from sagemaker_queue.jobs.packaging.command import CommandJob, InteractiveSettings, packed_job
from sagemaker_queue.jobs.packaging.job_options import JOB_OPTIONS, JobKeywords, JobOption
from sagemaker_queue.presentation.documents import read_document

if TYPE_CHECKING:
    from sagemaker_queue.jobs.packaging.code import Code
    from sagemaker_queue.jobs.packaging.storage import S3Storage
    from sagemaker_queue.queue.client import QueueClient

# Many programs have these options, such as sh -c. So the note about options in a job's command does not name them.
_COMMON_OPTIONS = frozenset({"-c", "-h", "--help"})
_NAMED = 10  # maximum number of names in the message about files that are not packed


class RunCommand(Command):
    """A command of ``smq`` that ends with the command of a job.

    The job's command begins with the first word that is neither an option of ``smq`` nor an option's value.
    """

    def __init__(self, *args: Any, context_settings: dict[str, Any] | None = None, **attributes: Any) -> None:
        settings = {"allow_interspersed_args": False, **(context_settings or {})}
        super().__init__(*args, context_settings=settings, usage="[OPTIONS] [--] COMMAND", **attributes)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print a note if the job's command has options that ``smq`` also has, and no -- precedes the command."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        words: tuple[str, ...] = ctx.params["command"]
        has_dashes = "--" in given[: len(given) - len(words)]
        known = {name for parameter in self.get_params(ctx) for name in parameter.opts} - _COMMON_OPTIONS
        doubtful = dict.fromkeys(name for name in (word.partition("=")[0] for word in words) if name in known)
        if doubtful and not has_dashes and not ctx.resilient_parsing:
            print_note(
                f"The command {one_line(words[0])} gets {', '.join(doubtful)}, because smq passes on all words "
                "after the first word of the command. Put options of smq before the command; -- before the command "
                "hides this note."
            )
        return rest


class WrapperCommand(Command):
    """A command of ``smq`` that accepts another command after --: a job's command, or one to run inside a job."""

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
        shell_complete=completion.files,
        usage="[--] COMMAND",
        help=help,
    )


def _option(name: str, row: JobOption) -> Decorator:
    """Return the decorator that adds a row of JOB_OPTIONS to a command, as an option with the parameter ``name``."""
    attributes: dict[str, Any] = {"type": row.read if isinstance(row.read, type) else checked(row.read)}
    if row.read is bool:
        attributes = {"is_flag": True}
    elif row.metavar and row.metavar.startswith("["):
        attributes |= {"is_flag": False, "flag_value": ""}
    elif row.choices:
        attributes = {"type": click.Choice(row.choices)}
    elif row.least is not None:
        attributes = {"type": click.IntRange(min=row.least)}
    return option(
        *row.names,
        name,
        metavar=row.metavar,
        section=row.section,
        help=row.help,
        multiple=row.collect is not None,
        shell_complete=getattr(completion, row.completion) if row.completion else None,
        **attributes,
    )


def _given(**values: Any) -> JobKeywords:
    """Return the given options as keywords; repeated values are combined by the option's ``collect``."""
    given = {name: value for name, value in values.items() if value is not None and value is not False and value != ()}
    return cast(
        JobKeywords,
        {name: collect(value) if (collect := JOB_OPTIONS[name].collect) else value for name, value in given.items()},
    )


job_options = bundled("options", _given, *(_option(name, row) for name, row in JOB_OPTIONS.items()), names=JOB_OPTIONS)


@contextmanager
def job_from_options(
    queue: QueueClient,
    options: JobKeywords,
    command: Sequence[str],
    interactive: InteractiveSettings | None = None,
) -> Iterator[tuple[CommandJob, Code, S3Storage]]:
    """Yield the job that the options describe, its packed code, and the storage in S3; upload nothing.

    Print the names of secret files, which are not packed. Raises QueueError if an option is missing or the folder
    cannot be packed.
    """
    if not command and not interactive:
        raise InvalidOption("No command is given: write it at the end, such as: -- python train.py")
    if not command and "launcher" in options:
        raise InvalidOption("--launcher needs a command: write it at the end, after --.")
    if file := options.get("more"):
        options = {**options, "more": read_document(str(file), sys.stdin)}
    described = packed_job(
        queue, options, command, option_text=lambda name: JOB_OPTIONS[name].names[-1], interactive=interactive
    )
    with described as (job, code, storage):
        _print_kept_back(code.archive.kept_back)
        if code.archive.has("compile.sh", "compile.aml.sh"):
            print_note("The job runs compile.sh and not compile.aml.sh: the folder has both.")
        yield job, code, storage


def _print_kept_back(kept_back: Sequence[str]) -> None:
    if not kept_back:
        return
    named = ", ".join(one_line(name) for name in kept_back[:_NAMED])
    others = f" and {len(kept_back) - _NAMED} more" if len(kept_back) > _NAMED else ""
    print(
        f"smq: not packed, as keys and passwords may be in it: {named}{others}. Put secrets of a job into AWS"
        " Secrets Manager. To pack a file anyway: a ! before its name in .smqignore, or --include-secrets PATTERN.",
        file=sys.stderr,
    )
