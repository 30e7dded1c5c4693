"""The first process of a training container: runs a command, and hands SIGTERM down to the processes that handle it.

SageMaker stops a job with `docker stop`: SIGTERM goes to process 1, and 120 seconds later all is killed. In the images
of AWS process 1 is a shell that has no handler and passes nothing on, so the user's script never hears of the stop.
This takes the shell's place and starts it as a child. `sagemaker_queue.launcher` sends it along in the request itself,
so it uses the standard library only, and runs in Python 3.7 or later.
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

OWN = ("start_with_right_hostname.sh", "train")  # what the images of AWS begin with
AGAIN = 5  # seconds until it looks again for a process that handles SIGTERM
CANNOT_RUN = 127  # as in a shell
# torchrun raises a signal as an exception, once its workers have ended: the log would end with a traceback.
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
    """Run the command, or what the image would have run with these arguments; returns its exit code."""
    command = arguments if shutil.which((arguments or [""])[0]) else own(arguments)
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, pass_on)
    quieten_torchrun()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and a command would inherit that
        try:
            os.execvp(command[0], command)  # noqa: S606  (it becomes the person's program)
        finally:
            os._exit(CANNOT_RUN)
    while True:
        pid, status = os.wait()  # process 1 inherits the children of others, and waits for them, too
        if pid == child:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def quieten_torchrun() -> None:
    """Put a torchrun before the image's own that runs it, and ends without a traceback where a signal ends it."""
    path = shutil.which("torchrun")
    with contextlib.suppress(OSError, UnicodeDecodeError):  # then it is as noisy as ever
        interpreter = Path(path).read_text().partition("\n")[0] if path else ""
        if interpreter.startswith("#!") and "python" in interpreter:
            quiet = Path(tempfile.mkdtemp(prefix="launcher-"), "torchrun")
            quiet.write_text(TORCHRUN.format(interpreter=interpreter, path=path))
            quiet.chmod(0o755)
            quiet.parent.chmod(0o755)
            os.environ["PATH"] = os.pathsep.join([str(quiet.parent), os.environ["PATH"]])


def own(arguments: list[str]) -> list[str]:
    """What the image runs by itself."""
    start, train = (shutil.which(name) for name in OWN)
    if start:
        return ["bash", "-m", start, *(arguments or ["train"])]
    if train and not arguments:
        return [train]
    sys.exit(f"launcher: there is no {' '.join(arguments) or OWN[1]}: name the command that the image is to run")


def pass_on(number: int, frame: FrameType | None) -> None:
    """Send SIGTERM to those who handle it; while nobody does, try again soon: a script may still be starting."""
    heard = list(handlers(os.getpid(), children()))
    for pid in heard:
        print("launcher: the job is being stopped: SIGTERM to process", pid, flush=True)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    if not heard:
        signal.alarm(AGAIN)


def handlers(parent: int, families: Mapping[int, list[int]]) -> Iterator[int]:
    """The processes below `parent` that handle SIGTERM. Those below them are theirs."""
    for pid in families.get(parent, ()):
        if handles(pid):
            yield pid
        else:
            yield from handlers(pid, families)


def children() -> dict[int, list[int]]:
    """Process id -> ids of its children."""
    families: dict[int, list[int]] = {}
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        families.setdefault(int(field(pid, "PPid:") or "-1"), []).append(pid)
    return families


def handles(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM."""
    return bool(int(field(pid, "SigCgt:") or "0", 16) & SIGTERM_BIT)


def field(pid: int, name: str) -> str:
    """A line of /proc/PID/status; nothing if the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[1] for line in lines if line.startswith(name)), "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[sys.argv.index("--") + 1 :]))
