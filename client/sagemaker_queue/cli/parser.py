"""How commands are added to the parser of ``smq``."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sagemaker_queue.client import QueueClient

HELP_WIDTH = 78

LocalCommand = Callable[[argparse.Namespace], int]  # returns the exit code
Command = Callable[["QueueClient", argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """Keeps what follows ``--`` apart where the default of ``after_dashes`` says that a command may follow."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the arguments that are known, and the others."""
        if not args or "--" not in args or self.get_default("after_dashes") is None:
            return self._known(*super().parse_known_args(args, namespace))
        place = list(args).index("--")
        known, others = super().parse_known_args(args[:place], namespace)
        known.after_dashes = args[place + 1 :]
        return self._known(known, others)

    def _known(self, known: Any, others: list[str]) -> Any:
        """Have the command itself complain of what it does not know, with its own usage."""
        if others:
            self.error(f"unrecognized arguments: {' '.join(others)}")
        return known, others


class Commands:
    """The commands of ``smq``, or of one of its commands."""

    def __init__(self, parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
        self._parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
        self._common = common

    def add(
        self, name: str, command: Command, *, help: str, description: str, examples: Iterable[str]
    ) -> argparse.ArgumentParser:
        """Return the parser of a new command, which is run with a client of the queue, for its arguments."""
        run = partial(_with_queue, command)
        return self.add_local(name, run, help=help, description=description, examples=examples)

    def add_local(
        self, name: str, command: LocalCommand | None, *, help: str, description: str, examples: Iterable[str]
    ) -> argparse.ArgumentParser:
        """Return the parser of a new command that works without a queue, for its arguments."""
        parser = self._parsers.add_parser(
            name,
            parents=[self._common],
            help=help,
            description=textwrap.fill(description, HELP_WIDTH),
            epilog="\n".join(["examples:", *(f"  {example}" for example in examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=command)
        return parser

    def add_group(self, name: str, *, help: str, description: str, examples: Iterable[str]) -> Commands:
        """Return the commands of a new command that has some of its own."""
        return Commands(self.add_local(name, None, help=help, description=description, examples=examples), self._common)


def _with_queue(command: Command, arguments: argparse.Namespace) -> int:
    from sagemaker_queue.client import QueueClient  # noqa: PLC0415  # boto3 takes longer than most commands

    return command(QueueClient(url=arguments.url, profile=arguments.profile), arguments)
