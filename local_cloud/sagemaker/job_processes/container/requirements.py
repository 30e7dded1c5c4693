"""Installation of a script's requirements.txt: packages that the interpreter lacks go to the job's own folder."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_PIP = (sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")


class InstallError(Exception):
    """A failure of pip. The message is pip's error output."""


def install(requirements: Path, target: Path, environment: Mapping[str, str], cancelled: threading.Event) -> bool:
    """Install the missing packages into `target` and return whether any were installed. Raise InstallError.

    A dry run of pip lists the missing packages first: pip would otherwise install existing packages in `target` again.

    :param environment: variables in addition to those of this process.
    :param cancelled: an event that ends the installation early.
    """
    report = target.with_suffix(".json")
    wanted = ("--requirement", str(requirements))
    _run([*_PIP, "--dry-run", "--report", str(report), *wanted], requirements.parent, environment, cancelled)
    if cancelled.is_set():
        return False
    missing = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    if not missing:
        return False
    exact = [f"{package['name']}=={package['version']}" for package in missing]
    _run([*_PIP, "--no-deps", "--target", str(target), *exact], requirements.parent, environment, cancelled)
    return not cancelled.is_set()


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str], cancelled: threading.Event) -> None:
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        while True:
            try:
                _, errors = process.communicate(timeout=0.1)
                break
            except subprocess.TimeoutExpired:
                if cancelled.is_set():
                    process.kill()
        if process.returncode != 0 and not cancelled.is_set():
            raise InstallError(errors.strip())
