"""A working folder whose files have the names of modules: nothing of it is imported by the client."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from sagemaker_queue.cli.commands.run import bypass_reason
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.attack, pytest.mark.usefixtures("address")]

SMQ = Path(sys.executable).with_name("smq")
# The library's modules that a start, a search for a module or a command of ours might import, and our own packages.
NAMES = (
    *("types", "json", "re", "typing", "warnings", "contextlib", "functools", "collections", "enum", "threading"),
    *("importlib", "sitecustomize", "usercustomize", "runpy", "subprocess", "tempfile"),
    *("boto3", "botocore", "click", "requests", "yaml", "sagemaker_queue", "sagemaker_queue_startup"),
)


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that has a line for each module of the working folder that was imported."""
    folder, seen = tmp_path / "work", tmp_path / "imported"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"with open({str(seen)!r}, 'a') as f: f.write('{name} ')\n")
    monkeypatch.chdir(folder)
    return seen


@pytest.fixture(scope="module", params=["with the package", "without"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python that a program runs in."""
    if request.param == "with the package":
        return sys.executable
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return str(folder / "bin/python")


def tool(folder: Path, python: str) -> Path:
    """A program that another package manager has installed; it runs in a Python."""
    folder.mkdir(exist_ok=True)
    file = folder / "tool"
    file.write_text(f"#!{python}\nprint('ran')\n")
    file.chmod(0o755)
    return file


def smq(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SMQ, *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("program", ["{bin}/tool", "../bin/tool", "{python}"])
def test_the_probe_of_a_program_imports_nothing_of_it(
    imported: Path, tmp_path: Path, python: str, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    tool(tmp_path / "bin", python)
    command = [program.format(bin=tmp_path / "bin", python=python)]
    done = smq("run", "--", *command, *(["-I", "-c", "print('ran')"] if program == "{python}" else []))
    assert (done.stdout == "ran\n") or "which has no sagemaker-queue" in done.stderr, done
    assert not imported.exists(), imported.read_text()


@pytest.mark.parametrize("command", [["config", "show"], ["proxy", "--", "true"], ["--help"], ["ls"]])
def test_nor_does_a_command(imported: Path, command: list[str]) -> None:
    smq(*command)
    assert not imported.exists(), imported.read_text()


@pytest.mark.parametrize("path", ["", ".", "{folder}", "{other}:", ":{other}", "../work", "{folder}/../work"])
def test_nor_does_the_probe_by_a_path_that_leads_there(imported: Path, tmp_path: Path, python: str, path: str) -> None:
    """An empty part of PYTHONPATH is the working folder, where ``sitecustomize`` would be imported at the start."""
    said = path.replace(":", os.pathsep).format(folder=Path.cwd(), other=tmp_path / "other")
    environment = {**os.environ, "PYTHONPATH": said, "SAGEMAKER_QUEUE_INSTALL": "1"}
    program = str(tool(tmp_path / "bin", python))
    obstacle = bypass_reason((program,), program, environment)
    assert obstacle is None if python == sys.executable else "has no sagemaker-queue" in str(obstacle)
    assert not imported.exists(), imported.read_text()
