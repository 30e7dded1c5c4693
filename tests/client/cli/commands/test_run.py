"""``smq run``: what a program gets, and what it gives back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.run import python_of
from tests.programs import signal_handlers, started
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

SHOW = "import os; print(*(os.environ.get('SAGEMAKER_QUEUE_' + name) for name in ('INSTALL', 'URL', 'PROFILE')))"

pytestmark = pytest.mark.usefixtures("address")


def smq(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sagemaker_queue", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, **settings},
    )


def script(path: Path, first_line: str, *lines: str) -> Path:
    path.write_text("\n".join([first_line, *lines, ""]))
    path.chmod(0o755)
    return path


class TestWhatItGets:
    def test_the_variable_its_arguments_and_its_own_options(self, server: ScriptedServer) -> None:
        done = smq("run", sys.executable, "-c", f"{SHOW}; import sys; print(sys.argv[1:])", "--url", "-h")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [f"1 {server.url} None", "['--url', '-h']"]

    def test_the_queue_that_was_named(self, tmp_path: Path) -> None:
        file = tmp_path / "config.toml"
        file.write_text('[profiles.research]\nurl = "https://queue.example/prod"\n')
        named = smq("-c", "research", "run", "--", sys.executable, "-c", SHOW, SAGEMAKER_QUEUE_CONFIG=str(file))
        assert named.stdout == "1 None research\n"
        addressed = smq("--url", "http://127.0.0.1:9/x", "run", "--", sys.executable, "-c", SHOW)
        assert addressed.stdout == "1 http://127.0.0.1:9/x None\n"

    def test_no_queue_is_configured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
        done = smq("run", "--", sys.executable, "-c", "print('ran')")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("smq: No queue is configured")


class TestWhatItGivesBack:
    def test_its_exit_code(self) -> None:
        assert smq("run", "--", "sh", "-c", "exit 7").returncode == 7

    def test_its_end_by_a_signal(self) -> None:
        assert smq("run", "--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM

    def test_signals_reach_it(self) -> None:
        program = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9)); print('on', flush=True)"
        command = [sys.executable, "-m", "sagemaker_queue", "run", "--"]
        command += [sys.executable, "-c", f"{program}; signal.pause()"]
        with started(command, stdout=subprocess.PIPE) as process:
            assert process.stdout and process.stdout.readline() == "on\n"
            process.terminate()
            assert process.wait(PATIENCE) == 9

    def test_no_such_command(self) -> None:
        done = smq("run", "--", "no-such-command")
        assert (done.returncode, done.stderr) == (127, "smq: there is no command no-such-command\n")

    def test_what_cannot_be_executed(self, tmp_path: Path) -> None:
        program = script(tmp_path / "odd", "#!/no/such/interpreter")
        done = smq("run", "--", str(program))
        assert (done.returncode, done.stdout) == (126, "")
        assert done.stderr.startswith(f"smq: {program} cannot be executed: ")

    def test_its_own_signal_handlers_if_it_cannot_be_executed(self, tmp_path: Path) -> None:
        program = script(tmp_path / "odd", "#!/no/such/interpreter")
        before = signal_handlers()
        assert main(["run", "--", str(program)]) == 126
        assert signal_handlers() == before


BY_PATH = pytest.mark.skipif(
    not any((Path(folder) / "sagemaker_queue").is_dir() for folder in sys.path),
    reason="the package is found by an import hook, and no folder in PYTHONPATH has it",
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has nothing installed."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder)
    return str(folder / "bin/python")


class TestItsPython:
    @pytest.mark.parametrize("way", ["itself", "a script"])
    def test_without_the_package(self, bare: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PYTHONPATH")
        program = bare if way == "itself" else str(script(tmp_path / "tool", f"#!{bare}", "print('ran')"))
        arguments = ["-c", "print('ran')"] if way == "itself" else []
        done = smq("run", "--", program, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{program} runs in {bare}, which has no sagemaker-queue" in done.stderr
        assert f"{bare} -m pip install CHECKOUT" in done.stderr
        assert smq("run", "--force", "--", program, *arguments).stdout == "ran\n"

    def test_the_aws_cli_2(self, tmp_path: Path) -> None:
        program = script(tmp_path / "aws", "#!/bin/sh", "echo aws-cli/2.27.1 Python/3.13.2 Linux/6.1 exe/x86_64")
        done = smq("run", "--", str(program), "--version")
        assert (done.returncode, done.stdout) == (2, "")
        assert "is the AWS CLI 2, which has a Python of its own" in done.stderr

    @pytest.mark.parametrize(
        ("first", "python"),
        [
            ("#!/opt/env/bin/python3.11", ["/opt/env/bin/python3.11"]),
            ("#! /opt/env/bin/python -E", ["/opt/env/bin/python", "-E"]),
            (f"#!/usr/bin/env -S {sys.executable} -u", [sys.executable, "-u"]),
            ("#!/bin/sh\n'''exec' \"/long/path/python3\" \"$0\" \"$@\"\n' '''", ["/long/path/python3"]),
            ("#!/bin/sh\n'''exec' \"/a folder/python3\" -s \"$0\" \"$@\"\n' '''", ["/a folder/python3", "-s"]),
            ("#!/bin/sh\n'''exec' \"/open/python3 \"$0\" \"$@\"\n' '''", None),
            ("#!/usr/bin/env -S no-such-python3 -u", None),
            ("#!/bin/bash", None),
            ("\x7fELF", None),
        ],
    )
    def test_where_it_can_be_seen(self, first: str, python: list[str] | None, tmp_path: Path) -> None:
        assert python_of(script(tmp_path / "tool", first)) == python

    def test_by_env(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        python = script(tmp_path / "python3", "#!/bin/sh")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert python_of(script(tmp_path / "tool", "#!/usr/bin/env python3")) == [str(python)]

    @pytest.mark.parametrize(
        ("arguments", "flags"),
        [
            (["-s", "-Xutf8", "train.py", "-S"], ["-s", "-Xutf8"]),
            (["-W", "error", "-uE", "-m", "train", "-S"], ["-W", "error", "-uE"]),
            (["-Ic", "print(1)"], ["-I"]),
            (["-", "-S"], []),
            ([], []),
        ],
    )
    def test_how_it_is_told_to_start(self, arguments: list[str], flags: list[str]) -> None:
        assert python_of(Path("/opt/env/bin/python3"), arguments) == ["/opt/env/bin/python3", *flags]

    @BY_PATH
    @pytest.mark.parametrize(
        ("flag", "said"),
        [("-S", "which finds sagemaker-queue but does not start it"), ("-IS", "has no sagemaker-queue")],
    )
    def test_a_python_that_does_not_start_it(
        self, flag: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)  # nothing of the working folder is looked at
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        done = smq("run", "--", sys.executable, flag, "-c", "print('ran')")
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert smq("run", "--", sys.executable, "-u", "-c", "print('ran')").stdout == "ran\n"

    @BY_PATH
    def test_a_package_that_comes_by_the_path_alone(
        self, bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Python reads .pth files of its own environment only."""
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        done = smq("run", "--", bare, "-c", "print('ran')")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{bare}, which finds sagemaker-queue but does not start it" in done.stderr
