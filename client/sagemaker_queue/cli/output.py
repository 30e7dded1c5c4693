"""What every command of ``smq`` prints alike, and how it may end."""

from __future__ import annotations

import json
import shutil
import sys

from sagemaker_queue.errors import ConfigError, InvalidDocument, InvalidOption, NotAuthenticated, NotFound, QueueError

DONE, REFUSED, USAGE, NOT_FOUND, ENDED_OTHERWISE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 4, 130, 141

EXIT_CODES = {
    DONE: "done",
    REFUSED: "the queue or S3 refused, failed or could not be reached, the folder cannot be packed,"
    ' "policy diff" has found a difference, or "doctor" something wrong',
    USAGE: "wrong usage, a file that cannot be read, no queue or not enough of a job given, or no AWS credentials",
    NOT_FOUND: "no such job, or nothing at that place in S3",
    ENDED_OTHERWISE: "the job that was followed to its end has failed, or was stopped",
    INTERRUPTED: "interrupted (Ctrl-C)",
    BROKEN_PIPE: "whoever read the output has gone, as head does",
}


def complain(error: QueueError) -> int:
    """Print what was wrong, and return the exit code for it."""
    print(f"smq: {error}", file=sys.stderr)
    if isinstance(error, NotFound):
        return NOT_FOUND
    wrong_use = isinstance(error, (ConfigError, NotAuthenticated, InvalidDocument, InvalidOption))
    return USAGE if wrong_use else REFUSED


def print_json(value: object) -> None:
    """Print for programs."""
    print(json.dumps(value, indent=2))


def width() -> int | None:
    """Return the columns of the terminal that the output goes to; None if it goes elsewhere, and need not fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
