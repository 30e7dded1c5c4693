"""Output shared by all commands of ``smq``: errors, notes, JSON, questions, and the exit codes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

from sagemaker_queue.errors import ConfigError, InvalidDocument, InvalidOption, NotAuthenticated, NotFound, QueueError
from sagemaker_queue.jobs.doc_links import error_links
from sagemaker_queue.jobs.formatting import one_line, visible

DONE, REFUSED, USAGE, NOT_FOUND, ENDED_OTHERWISE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 4, 130, 141

EXIT_CODES = {
    DONE: "done",
    REFUSED: "the queue or S3 refused the request, failed or could not be reached; the folder cannot be packed;"
    ' "policy diff" found a difference; "policy check" or "doctor" found a fault;'
    ' "policy advise" had too little history; or a question was not answered with yes',
    USAGE: "wrong usage, an unreadable file, no queue, missing settings of a job, or no AWS credentials",
    NOT_FOUND: "no such job, or no object at that address in S3",
    ENDED_OTHERWISE: "a job that was followed or waited for failed or was stopped;"
    ' the attempt of "shell" ended; no trial of a search completed',
    INTERRUPTED: "interrupted (Ctrl-C)",
    BROKEN_PIPE: "the reader of the output, such as head, has closed it",
}
_MOST_LEFT_OUT = 20  # maximum number of lines about files that were left out


class _EscapingStream:
    """An output stream for untrusted text, which escapes the characters that control a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text with its control characters escaped; return its original length."""
        self.stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several lines, escaped like ``write``."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def escaped_output() -> Iterator[None]:
    """Escape the control characters in all text that the block prints to stdout and stderr."""
    output, errors = sys.stdout, sys.stderr
    escaped_errors = redirect_stderr(cast(TextIO, _EscapingStream(errors)))
    with redirect_stdout(cast(TextIO, _EscapingStream(output))), escaped_errors:
        yield


def raw(stream: TextIO) -> TextIO:
    """Return the stream without escaping, for callers that write control sequences.

    The callers must clean untrusted text themselves.
    """
    return stream.stream if isinstance(stream, _EscapingStream) else stream


def print_error(error: QueueError) -> int:
    """Print an error with the link to its explanation, and return its exit code."""
    print(f"smq: {error}", file=sys.stderr)
    for link in error_links(error.errors):
        print(f"smq: see {link}", file=sys.stderr)
    if isinstance(error, NotFound):
        return NOT_FOUND
    wrong_use = isinstance(error, (ConfigError, NotAuthenticated, InvalidDocument, InvalidOption))
    return USAGE if wrong_use else REFUSED


def for_each(names: Iterable[str], act: Callable[[str], object]) -> int:
    """Call ``act`` for each job, and return the highest exit code.

    If the queue refuses a job, print the error and continue with the next job.
    """
    code = DONE
    for name in names:
        try:
            act(name)
        except (ConfigError, NotAuthenticated):
            raise  # every other job would fail in the same way
        except QueueError as error:
            code = max(code, print_error(error))
    return code


def print_warning(text: str) -> None:
    """Print a warning to stderr; on a terminal, wrapped between words."""
    _print_whole_words(f"smq: warning: {text}")


def print_note(text: str) -> None:
    """Print a note to stderr, such as how ``smq`` understood its arguments; on a terminal, wrapped between words."""
    _print_whole_words(f"smq: note: {text}")


def print_left_out(left_out: Sequence[tuple[object, str]], action: str) -> None:
    """Print to stderr the files that were left out of an action, such as ``downloaded``, each with a reason.

    If there are more than _MOST_LEFT_OUT files, print only the first ones and the number of the others.
    """
    for thing, reason in left_out[:_MOST_LEFT_OUT]:
        print(f"smq: not {action}: {one_line(f'{thing}: {reason}')}", file=sys.stderr)
    if len(left_out) > _MOST_LEFT_OUT:
        print(f"smq: not {action}: {len(left_out) - _MOST_LEFT_OUT} more", file=sys.stderr)


def _print_whole_words(text: str) -> None:
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        text = textwrap.fill(text, columns, break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr)


def print_json(value: object) -> None:
    """Print a value as JSON, for programs."""
    print(json.dumps(value, indent=2))


def is_interactive() -> bool:
    """Return whether a user can answer a question: input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirmed(question: str) -> bool:
    """Ask on the terminal, and return whether the answer was yes."""
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def colours() -> bool:
    """Return whether stdout is a terminal that shows colours, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int | None:
    """Return the number of columns of the output's terminal; None if the output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
