"""Programs that tests start, and that end with the tests."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psutil


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a program in a session of its own, with pipes of text.

    At the end of the block, also after a failed assertion, kill what is left of the program and of the programs that
    it has started, and close the pipes.
    """
    with subprocess.Popen(command, text=True, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def signal_handlers() -> dict[int, Any]:
    """Return the handler of each signal in this process."""
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def command_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process; empty if the process has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []
