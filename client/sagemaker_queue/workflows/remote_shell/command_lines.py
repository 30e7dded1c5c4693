"""Command lines for the container: scripts for sh that start a shell or run a command.

The SSM agent starts the scripts without the job's variables, and in a folder of its own choice. A job of ``smq submit``
stores its variables in a file, which the scripts read. Other jobs have no such file; a shell in another job has only
the agent's variables.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

# On the local cloud, another folder may replace /opt/ml. SM_CHANNEL_CODE is then FOLDER/input/data/code, so
# the script takes the folder from it.
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
    """A command whose output is between two random marks.

    The command's exit status follows the second mark. Everything else outside the marks is output of
    session-manager-plugin, the program of AWS that opens the connection.
    """

    words: Sequence[str]
    begin: bytes = field(default_factory=lambda: secrets.token_hex(16).encode())
    end: bytes = field(default_factory=lambda: secrets.token_hex(16).encode())

    @property
    def line(self) -> str:
        """Command line that prints the first mark, runs the command, and prints the second mark and the exit status."""
        begin, end, words = self.begin.decode(), self.end.decode(), " ".join(shlex.quote(word) for word in self.words)
        return _line(f"{_ENTER}printf %s {begin}; ({words}); printf '%s %s\\n' {end} $?")


class MarkedOutput:
    """A filter that extracts the command's output from the plugin's output."""

    def __init__(self, command: MarkedCommand) -> None:
        self._command = command
        self._rest = b""
        self._inside = False
        self.status: int | None = None  # exit status of the command; None: unknown, or not ended yet

    def feed(self, block: bytes) -> bytes:
        """Add a block of the plugin's output; return the part that is certainly output of the command."""
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
    """Return the number of bytes at the end of the text that may be the beginning of the mark."""
    return next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-size:])), 0)


def _line(script: str) -> str:
    """Return a command line that runs the script, whether the agent or a shell splits the line into words."""
    return f"/bin/sh -c {shlex.quote(script)}"
