"""What is run in the container for a shell or a command: a script for sh, whatever the image has besides.

The SSM agent starts it without the variables that the job has, and somewhere. A job of ``smq submit`` keeps its
variables in a file; of another job there is none, and the shell has what the agent has.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

# On the local cloud, /opt/ml may be elsewhere; then the variable says where.
_ENTER = (
    'm="${SM_CHANNEL_CODE:-/opt/ml/input/data/code}"; m="${m%/input/data/code}"; '
    '[ -r "$m/shell.env" ] && . "$m/shell.env"; cd "$m/work" 2>/dev/null || cd "$m/code" 2>/dev/null; '
)
_SHELL = _ENTER + 'exec "$(command -v bash || command -v sh)"'


def shell() -> str:
    """Return the command line of a shell in the working folder, with the job's variables."""
    return _line(_SHELL)


@dataclass(frozen=True)
class MarkedCommand:
    """A command whose output and exit status can be told from all that the plugin says: marks stand around it."""

    words: Sequence[str]
    begin: bytes = field(default_factory=lambda: secrets.token_hex(16).encode())
    end: bytes = field(default_factory=lambda: secrets.token_hex(16).encode())

    @property
    def line(self) -> str:
        """The command line."""
        begin, end, words = self.begin.decode(), self.end.decode(), " ".join(shlex.quote(word) for word in self.words)
        return _line(f"{_ENTER}printf %s {begin}; ({words}); printf '%s %s\\n' {end} $?")


class MarkedOutput:
    """Takes the plugin's output as it comes, and gives what the command has written."""

    def __init__(self, command: MarkedCommand) -> None:
        self._command = command
        self._rest = b""
        self._inside = False
        self.status: int | None = None  # of the command; None: not known, or not yet

    def feed(self, block: bytes) -> bytes:
        """Take more of the output, and return what of it is certain to be the command's."""
        self._rest += block
        if not self._inside:
            before, found, after = self._rest.partition(self._command.begin)
            if not found:
                return b""
            self._inside, self._rest = True, after
        written, found, after = self._rest.partition(self._command.end)
        if found:
            status = re.match(rb" (\d+)\s", after)
            self.status = int(status[1]) if status else self.status
            self._rest = self._command.end + after
            return written
        kept = _beginning_of(self._command.end, self._rest)
        self._rest, given = self._rest[len(self._rest) - kept :], self._rest[: len(self._rest) - kept]
        return given


def _beginning_of(mark: bytes, text: bytes) -> int:
    """Return how many bytes at the end of the text may be the beginning of the mark."""
    return next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-size:])), 0)


def _line(script: str) -> str:
    """The agent splits it as a shell would, or hands it to one: this is right for both."""
    return f"/bin/sh -c {shlex.quote(script)}"
