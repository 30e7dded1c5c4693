"""How commands are added to the parser of ``smq``."""

import argparse
import textwrap
from collections.abc import Callable, Iterable

from sagemaker_queue.api import QueueClient

HELP_WIDTH = 78

Command = Callable[[QueueClient, argparse.Namespace], int]  # returns the exit code


class Commands:
    """The commands of ``smq``, or of one of its commands."""

    def __init__(self, parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
        self._parsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
        self._common = common

    def add(
        self, name: str, command: Command | None, *, help: str, description: str, examples: Iterable[str] = ()
    ) -> argparse.ArgumentParser:
        """Return the parser of a new command, for its arguments."""
        parser = self._parsers.add_parser(
            name,
            parents=[self._common],
            help=help,
            description=textwrap.fill(description, HELP_WIDTH),
            epilog="\n".join(["examples:", *(f"  {example}" for example in examples)]) if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(command=command)
        return parser

    def add_group(self, name: str, *, help: str, description: str) -> "Commands":
        """Return the commands of a new command that has some of its own."""
        return Commands(self.add(name, None, help=help, description=description), self._common)
