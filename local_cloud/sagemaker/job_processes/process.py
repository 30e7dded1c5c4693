"""One process of a job, in its own session and with its output in a file.

The children of the process are killed when the process ends.
"""

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
MARK = "LOCAL_CLOUD_JOB"  # environment variable by which all processes of a job are found, in any process group


@dataclass(frozen=True)
class ProcessLaunch:
    """A command with its environment, directory and mounts."""

    command: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    """The working directory, as the process sees it after mounting."""
    stage: Path
    """An empty working folder for mounting."""
    mounts: Sequence[tuple[Path, str]] = field(default=())
    """Pairs of a folder or file and the path at which the process sees it."""


class ContainerProcess:
    """A running command, whose output is appended to the file `output`."""

    def __init__(self, launch: ProcessLaunch, output: Path) -> None:
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
        """Return the exit code, or None while the process runs.

        If a signal ended the process, the code is 128 + the signal's number, as a container reports it.
        """
        if self._exit_code is None:
            # WNOWAIT leaves the process a zombie, so that its id is not reused before its group has been killed.
            state = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if state is not None:
                self.signal(signal.SIGKILL)
                code = self._popen.wait()
                self._exit_code = code if code >= 0 else 128 - code
        return self._exit_code

    def terminate(self) -> bool:
        """Send SIGTERM to the first process only, as `docker stop` does. Return whether the process handles SIGTERM.

        In a container the first process is process 1, and the kernel drops a signal for which process 1 has no handler.
        Here the first process has another id. Therefore a process without a handler is not sent the signal.
        """
        handled = self.exit_code() is None and catches_sigterm(self._popen.pid)
        if handled:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._popen.pid, signal.SIGTERM)
        return handled

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group, unless the process is already known to have ended."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number)


def launcher(mounts: Sequence[tuple[Path, str]], stage: Path, cwd: str, command: Sequence[str]) -> list[str]:
    """Return the command line for launch.py to run `command` with the mounts.

    The arguments are those of `ProcessLaunch`.
    """
    plan = {"mounts": [[str(source), target] for source, target in mounts], "stage": str(stage), "cwd": cwd}
    return [sys.executable, "-I", "-S", _LAUNCHER, json.dumps(plan), *command]


def catches_sigterm(pid: int) -> bool:
    """Return whether a process has a handler for SIGTERM. On a system without /proc, the result is always True."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return not Path("/proc/self/status").exists()
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def can_mount(folder: Path) -> bool:
    """Return whether this machine allows a folder to be mounted at /opt/ml. `folder` is created for the trial."""
    folder.mkdir(parents=True)
    (folder / "shown").mkdir()
    launch = ProcessLaunch(["/bin/test", "-d", "/opt/ml/shown"], {}, "/", folder / "stage", [(folder, "/opt/ml")])
    process = ContainerProcess(launch, folder / "output")
    while (code := process.exit_code()) is None:
        time.sleep(0.005)
    return code == 0


def kill_marked(mark: str) -> None:
    """Kill all processes whose environment has `mark`, including processes that are started meanwhile.

    Only the mark finds processes that have left their process group.
    """
    quiet = 0
    # A program that is just starting has no environment for a moment. So two successive searches must find none.
    while quiet < 2:
        marked = list(_marked(mark))
        for process in marked:
            with contextlib.suppress(psutil.Error):
                process.kill()
        quiet = 0 if marked else quiet + 1
        time.sleep(0.02)


def signal_marked(mark: str, number: signal.Signals) -> None:
    """Send a signal to all processes whose environment has `mark`."""
    for process in _marked(mark):
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                yield process
