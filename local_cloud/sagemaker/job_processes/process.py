"""One process of a job: a session of its own, its output in a file, and an end that leaves no child behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_LAUNCHER = str(Path(__file__).with_name("launch.py"))
MARK = "LOCAL_CLOUD_JOB"  # environment variable by which a job's processes are found, wherever they went


@dataclass(frozen=True)
class Launch:
    """What to run, where, and which folders it sees elsewhere."""

    command: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    """As the process sees it, after mounting."""
    stage: Path
    """An empty folder for the mounting."""
    mounts: Sequence[tuple[Path, str]] = field(default=())
    """(folder or file, where it appears)."""


class Process:
    """A running command. `mark` is what its environment carries under `MARK`."""

    def __init__(self, launch: Launch, output: Path) -> None:
        launch.stage.mkdir(parents=True, exist_ok=True)
        with output.open("ab") as file:
            self._popen = subprocess.Popen(
                launcher(launch.mounts, launch.stage, launch.cwd, launch.command),
                env=dict(launch.environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._exit_code: int | None = None

    def exit_code(self) -> int | None:
        """None while it runs; 128 + the signal's number if a signal ended it, as a container reports it."""
        if self._exit_code is None:
            # The process stays a zombie until its group is ended: its id cannot be another's by then.
            state = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if state is not None:
                self.signal(signal.SIGKILL)
                code = self._popen.wait()
                self._exit_code = code if code >= 0 else 128 - code
        return self._exit_code

    def terminate(self) -> bool:
        """`docker stop`: SIGTERM to the first process only. Gives whether it hears it.

        In a container that is process 1, for which the kernel drops a signal that it has no handler for. So nothing is
        sent to a process without one, here where it is not process 1.
        """
        heard = self.exit_code() is None and catches_sigterm(self._popen.pid)
        if heard:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._popen.pid, signal.SIGTERM)
        return heard

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its children; to none if it has been found to have ended."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number)


def launcher(mounts: Sequence[tuple[Path, str]], stage: Path, cwd: str, command: Sequence[str]) -> list[str]:
    """What becomes the command, once it sees the mounts; the arguments are those of `Launch`."""
    plan = {"mounts": [[str(source), target] for source, target in mounts], "stage": str(stage), "cwd": cwd}
    return [sys.executable, "-I", "-S", _LAUNCHER, json.dumps(plan), *command]


def catches_sigterm(pid: int) -> bool:
    """Whether a process has a handler for SIGTERM; where the kernel does not tell, it is taken to have one."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return not Path("/proc/self/status").exists()
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def can_mount(folder: Path) -> bool:
    """Whether this machine lets a process see a folder at /opt/ml; `folder` is for trying."""
    folder.mkdir(parents=True)
    (folder / "shown").mkdir()
    launch = Launch(["/bin/test", "-d", "/opt/ml/shown"], {}, "/", folder / "stage", [(folder, "/opt/ml")])
    process = Process(launch, folder / "output")
    while (code := process.exit_code()) is None:
        time.sleep(0.005)
    return code == 0


def kill_marked(mark: str) -> None:
    """End the processes that left their group: all whose environment has `mark`, and what they start meanwhile."""
    quiet = 0
    # A program that is just being started has no environment for a moment: one look is not enough.
    while quiet < 2:
        marked = list(_marked(mark))
        for process in marked:
            with contextlib.suppress(psutil.Error):
                process.kill()
        quiet = 0 if marked else quiet + 1
        time.sleep(0.02)


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                yield process
