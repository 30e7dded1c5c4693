"""``smq completion``: a real bash completes commands, options, orders and names of jobs at the Tab key."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sagemaker_queue.cli import main
from tests.client.samples import job
from tests.client.terminal import Terminal

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

JOBS = {"jobs": [job("resnet-1", "running", 1), job("resnet-2", "pending", 1), job("bert", "pending", 1)], "next": None}
SWITCHED_ON = 'eval "$(smq completion bash)"\n'


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``smq`` as it is installed."""
    (tmp_path / "smq").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sagemaker_queue "$@"\n')
    (tmp_path / "smq").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


@pytest.fixture
def bash(path: None) -> Iterator[Terminal]:
    with Terminal(["bash", "--norc", "--noprofile", "-i"], columns=100, environment={"PS1": "ready> "}) as terminal:
        terminal.shows("ready>")
        terminal.press(f"{SWITCHED_ON}clear\n")
        terminal.wait(lambda: terminal.rows[0] == "ready>")
        yield terminal


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("smq set-p\t", "smq set-priority"),
        ("smq policy ap\t", "smq policy apply"),
        ("smq ls --rev\t", "smq ls --reverse"),
        ("smq ls --sort wai\t", "smq ls --sort waiting"),
        ("smq completion z\t", "smq completion zsh"),
        ("smq why b\t", "smq why bert"),
        ("smq cancel bert res\t", "smq cancel bert resnet-"),
        ("smq top be\t", "smq top bert"),
        ("smq logs -f be\t", "smq logs -f bert"),
        ("smq submit --checkp\t", "smq submit --checkpoint"),
        ("smq -c research config us\t", "smq -c research config use"),
    ],
)
def test_bash(server: ScriptedServer, bash: Terminal, typed: str, completed: str) -> None:
    server.always_answers(200, JOBS)
    bash.press(typed)
    bash.shows(f"ready> {completed}")


def test_a_queue_that_does_not_answer_completes_nothing_and_says_nothing(
    server: ScriptedServer, bash: Terminal
) -> None:
    server.always_answers(500, {"message": "broken"})
    bash.press("smq why \t")
    bash.wait(lambda: server.received)
    bash.press("x\n")  # bash reads on when the completion has come to its end
    bash.shows("ready> smq why x")
    assert len(server.received) == 1  # one try
    assert "Traceback" not in bash.text


@pytest.mark.parametrize(("shell", "text"), [("bash", "complete "), ("zsh", "#compdef smq"), ("fish", "--command smq")])
def test_every_shell_has_its_script(capsys: pytest.CaptureFixture[str], shell: str, text: str) -> None:
    assert main(["completion", shell]) == 0
    assert text in capsys.readouterr().out


def test_it_needs_no_queue(path: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
    done = subprocess.run(["bash", "-c", f"{SWITCHED_ON}complete -p smq"], capture_output=True, text=True, check=True)
    assert done.stdout.endswith(" smq\n") and not done.stderr
