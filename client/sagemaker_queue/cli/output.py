"""What every command of ``smq`` prints alike, and how it may end."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from sagemaker_queue.errors import ConfigError, InvalidDocument, InvalidOption, NotAuthenticated, NotFound, QueueError
from sagemaker_queue.formatting import visible

DONE, REFUSED, USAGE, NOT_FOUND, ENDED_OTHERWISE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 4, 130, 141

EXIT_CODES = {
    DONE: "done",
    REFUSED: "the queue or S3 refused, failed or could not be reached, the folder cannot be packed,"
    ' "policy diff" has found a difference, "policy check" or "doctor" something wrong,'
    ' or "policy apply" or "cancel" got no yes',
    USAGE: "wrong usage, a file that cannot be read, no queue or not enough of a job given, or no AWS credentials",
    NOT_FOUND: "no such job, or nothing at that place in S3",
    ENDED_OTHERWISE: "a job that was followed to its end, or waited for, has failed or was stopped;"
    ' the attempt that "shell" was in has ended; no trial of a search has completed',
    INTERRUPTED: "interrupted (Ctrl-C)",
    BROKEN_PIPE: "whoever read the output has gone, as head does",
}


class _Visible:
    """An output stream to which others' words may be written: what a terminal would obey is escaped on the way."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text, and nothing that a terminal obeys."""
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def nothing_is_obeyed() -> Iterator[None]:
    """Let all that is printed meanwhile, by whatever command, pass through ``visible``."""
    output, errors = sys.stdout, sys.stderr
    with redirect_stdout(cast(TextIO, _Visible(output))), redirect_stderr(cast(TextIO, _Visible(errors))):
        yield


def raw(stream: TextIO) -> TextIO:
    """Return the stream for what is ours to make the terminal do; others' words go there escaped, or not at all."""
    return stream.stream if isinstance(stream, _Visible) else stream


def complain(error: QueueError) -> int:
    """Print what was wrong, and return the exit code for it."""
    print(f"smq: {error}", file=sys.stderr)
    if isinstance(error, NotFound):
        return NOT_FOUND
    wrong_use = isinstance(error, (ConfigError, NotAuthenticated, InvalidDocument, InvalidOption))
    return USAGE if wrong_use else REFUSED


def print_warning(text: str) -> None:
    """Print what its author may want to change; on a terminal no word of it is broken."""
    _print_whole_words(f"smq: warning: {text}")


def print_note(text: str) -> None:
    """Print how ``smq`` has understood its arguments; on a terminal no word of it is broken."""
    _print_whole_words(f"smq: note: {text}")


def _print_whole_words(told: str) -> None:
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        told = textwrap.fill(told, columns, break_long_words=False, break_on_hyphens=False)
    print(told, file=sys.stderr)


def print_json(value: object) -> None:
    """Print for programs."""
    print(json.dumps(value, indent=2))


def may_ask() -> bool:
    """Return whether there is somebody to ask: input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirmed(question: str) -> bool:
    """Ask on the terminal, and return whether the answer was yes."""
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def colours() -> bool:
    """Return whether the output may have colours: it goes to a terminal, and nobody asked for none (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int | None:
    """Return the columns of the terminal that the output goes to; None if it goes elsewhere, and need not fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
