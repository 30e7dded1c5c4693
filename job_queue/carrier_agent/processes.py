"""A member's processes: its own group, its lines with its name, and an end that leaves none of them.

Who has left the group is found by a variable that all of them inherit; one that takes it away, too, is not.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Dict, List, Optional

MARK = "SMQ_MEMBER"
LONGEST_LINE = 32_768  # bytes; CloudWatch takes 256 KB
PR_SET_CHILD_SUBREAPER = 36

_out_lock = threading.Lock()


def adopt_orphans() -> None:
    """Whose parent has ended becomes a child of the agent, where Linux can do that."""
    try:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def say(name: str, line: str) -> None:
    """One line of the log, with the name of whom it comes from; again after each carriage return, which a terminal, and
    many a reader of logs, takes for the beginning of a line.
    """
    text = line.rstrip("\r").replace("\r", f"\r{name}| ")
    with _out_lock:
        sys.stdout.write(f"{name}| {text}\n")
        sys.stdout.flush()


class Processes:
    """What runs for one attempt, in its folder, which is its mark: no other attempt on this machine has it."""

    def __init__(self, attempt: str, command: List[str], folder: Path, environment: Dict[str, str]) -> None:
        self._folder = folder
        self._first = subprocess.Popen(
            command,
            cwd=str(folder),
            env={**environment, MARK: str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._first.stdout is not None
        self._reader = threading.Thread(target=_copy, args=(attempt, self._first.stdout), daemon=True)
        self._reader.start()

    def wait(self, seconds: float) -> Optional[int]:
        """The exit code of the first process, 128 + the number of a signal that ended it; None: it runs."""
        try:
            code = self._first.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """Send a signal to the group."""
        try:
            os.killpg(self._first.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def end(self) -> None:
        """End all that is left, and read what they said last."""
        self.signal(signal.SIGKILL)
        self._first.wait()
        end_marked(self._folder)
        self._reader.join(10)


def end_marked(folder: Path) -> None:
    """End all processes of the attempt that has this folder, whoever started them."""
    while True:
        pids = _marked(folder)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except OSError:
                pass
        if not pids:
            return
        time.sleep(0.02)


def _marked(folder: Path) -> List[int]:
    """Processes with the mark of an attempt; those that are dead and not yet waited for show none."""
    mark, found = f"{MARK}={folder}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _copy(attempt: str, source: "IO[bytes]") -> None:
    """Each line to the agent's own output, with the name of whom it comes from."""
    while True:
        line = source.readline(LONGEST_LINE)
        if not line:
            return
        say(attempt, line.decode("utf-8", "replace").rstrip("\n"))
