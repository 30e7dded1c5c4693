"""The cleanup process of a local cloud: it ends the cloud's processes and removes its files, even after a crash.

`cleanup.Cleanup` runs this module as a script: python cleanup_process.py MARK

The process makes the private folder and prints its path. When its standard input ends, the cleanup process ends all
processes that have the mark in their environment, and the children of these processes. Then the cleanup process removes
the folder and the files that standard input named.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

GRACE = 3.0  # seconds between SIGTERM and SIGKILL


def main(mark: str) -> None:
    """Make the folder, print its path, and clean up when standard input ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = Path(tempfile.mkdtemp(prefix="local-cloud-")).resolve()
    with contextlib.suppress(BrokenPipeError):
        print(folder, flush=True)
    files = sys.stdin.read().splitlines()
    end_processes(mark)
    for file in files:
        Path(file).unlink(missing_ok=True)
    remove(folder)


def end_processes(mark: str) -> None:
    """End all processes with the variable `mark` and their children, by SIGTERM, then SIGKILL, until none is left."""
    known: set[psutil.Process] = set()
    terminated: set[psutil.Process] = set()
    deadline = time.monotonic() + GRACE
    while True:
        # Repeat the search in every round: a process may have started another one in the meantime.
        for process in marked(mark):
            known.add(process)
            with contextlib.suppress(psutil.Error):
                known.update(process.children(recursive=True))
        alive = [process for process in known if is_alive(process)]
        if not alive:
            return
        for process in alive:
            with contextlib.suppress(psutil.Error):
                if time.monotonic() > deadline:
                    process.kill()
                elif process not in terminated:
                    process.terminate()
        terminated.update(alive)
        time.sleep(0.02)


def marked(mark: str) -> Iterator[psutil.Process]:
    """Yield the processes with the variable `mark` in their environment, except this one."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and mark in process.environ():
                yield process


def is_alive(process: psutil.Process) -> bool:
    """Return whether the process still runs. A zombie counts as ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def remove(folder: Path) -> None:
    """Delete the folder, even if a job has removed its own write permission."""
    for path, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            Path(path).chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        print(f"The local cloud could not remove {folder}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
