"""A first process that runs the command of a container's image, and forwards SIGTERM to the processes that handle it.

SageMaker stops a job with `docker stop`: process 1 gets SIGTERM, and 120 seconds later all processes are killed. In
AWS's images, process 1 is a shell that neither handles nor forwards SIGTERM, so the user's script is never notified.
This program replaces the shell as process 1, and starts the shell as a child. `sagemaker_queue.launcher` sends the
program in the request, so it uses only the standard library, and runs in Python 3.7 or later. For `smq submit`,
`run.py` does the same, from an input channel. The two programs share no code, because each program is sent alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

IMAGE_COMMANDS = ("start_with_right_hostname.sh", "train")  # the entry points of AWS's images
RETRY_SECONDS = 5  # seconds between two searches for processes that handle SIGTERM
CANNOT_RUN = 127  # exit code, as in a shell
# After a signal, torchrun ends its workers and raises SignalException. The wrapper prevents a traceback in the log.
TORCHRUN = """{interpreter}
import runpy, sys
sys.argv[0] = {path!r}
try:
    runpy.run_path({path!r}, run_name="__main__")
except Exception as error:
    if type(error).__name__ != "SignalException":
        raise
    sys.exit(128 + int(getattr(error, "sigval", 15)))
"""
SIGTERM_BIT = 1 << (signal.SIGTERM - 1)


def main(arguments: list[str]) -> int:
    """Run the arguments as a command if the first is a program, else run the image's command; return the exit code."""
    command = arguments if shutil.which((arguments or [""])[0]) else image_command(arguments)
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, forward_sigterm)
    quieten_torchrun()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores SIGPIPE; the command must not inherit that
        try:
            os.execvp(command[0], command)  # noqa: S606  (the child becomes the user's program)
        finally:
            os._exit(CANNOT_RUN)
    while True:
        pid, status = os.wait()  # process 1 also inherits and reaps orphaned processes
        if pid == child:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def quieten_torchrun() -> None:
    """Put a wrapper of torchrun first in PATH; the wrapper prints no traceback if a signal ends torchrun."""
    path = shutil.which("torchrun")
    with contextlib.suppress(OSError, UnicodeDecodeError):  # without the wrapper, torchrun prints its traceback
        interpreter = Path(path).read_text().partition("\n")[0] if path else ""
        if interpreter.startswith("#!") and "python" in interpreter:
            quiet = Path(tempfile.mkdtemp(prefix="launcher-"), "torchrun")
            quiet.write_text(TORCHRUN.format(interpreter=interpreter, path=path))
            quiet.chmod(0o755)
            quiet.parent.chmod(0o755)
            os.environ["PATH"] = os.pathsep.join([str(quiet.parent), os.environ["PATH"]])


def image_command(arguments: list[str]) -> list[str]:
    """Return the command that the image would run without this program. Exits with a message if the image has none."""
    start, train = (shutil.which(name) for name in IMAGE_COMMANDS)
    if start:
        return ["bash", "-m", start, *(arguments or ["train"])]
    if train and not arguments:
        return [train]
    sys.exit(
        f"launcher: there is no {' '.join(arguments) or IMAGE_COMMANDS[1]}: name the command that the image is to run"
    )


def forward_sigterm(number: int, frame: FrameType | None) -> None:
    """Send SIGTERM to the processes that handle it. If there is none, retry soon: a script may be starting."""
    receivers = list(handlers(os.getpid(), children()))
    for pid in receivers:
        print("launcher: the job is being stopped: SIGTERM to process", pid, flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    if not receivers:
        signal.alarm(RETRY_SECONDS)


def handlers(parent: int, families: Mapping[int, list[int]]) -> Iterator[int]:
    """Yield the topmost processes below `parent` that handle SIGTERM; these processes stop their own children."""
    for pid in families.get(parent, ()):
        if handles(pid):
            yield pid
        else:
            yield from handlers(pid, families)


def children() -> dict[int, list[int]]:
    """Return process id -> ids of its children, for all processes."""
    families: dict[int, list[int]] = {}
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        families.setdefault(int(field(pid, "PPid:") or "-1"), []).append(pid)
    return families


def handles(pid: int) -> bool:
    """Return whether a process has a handler for SIGTERM."""
    return bool(int(field(pid, "SigCgt:") or "0", 16) & SIGTERM_BIT)


def field(pid: int, name: str) -> str:
    """Return a field of /proc/PID/status; empty if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[1] for line in lines if line.startswith(name)), "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[sys.argv.index("--") + 1 :]))
