"""``smq completion``: commands, options, orders and names of jobs, and how a real bash completes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import ShellComplete

from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.simulate import Simulate
from sagemaker_queue.cli.completion import PROGRAM, VARIABLE
from sagemaker_queue.cli.entry import build_parser
from tests.client.samples import STATUS, job
from tests.client.terminal import Terminal

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

JOBS = {
    "jobs": [job("resnet-1", "running", 1, group="lr"), job("resnet-2", "pending", 1), job("bert", "pending", 1)],
    "next": None,
}
ENDED = {"jobs": [job("bee", "completed", 1), job("-rf", "failed", 1)], "next": None}
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
        ("set-p", ["set-priority"]),
        ("policy ap", ["apply"]),
        ("ls --rev", ["--reverse"]),
        ("ls --sort wai", ["waiting"]),
        ("completion z", ["zsh"]),
        ("why b", ["bert"]),
        ("checkpoints pr", ["prune"]),
        ("checkpoints be", ["bert", "bee"]),
        ("checkpoints bee --js", ["--json"]),
        ("checkpoints prune be", ["bert", "bee"]),
        ("cancel bert res", ["resnet-1", "resnet-2"]),
        ("top be", ["bert"]),
        ("show be", ["bert", "bee"]),
        ("resubmit bee", ["bee"]),
        ("show ", ["resnet-1", "resnet-2", "bert", "bee"]),
        ("cancel bee", []),
        ("submit --after be", ["bert"]),
        ("cancel --group l", ["lr"]),
        ("ls -o job,pri", ["job,priority"]),
        ("ls -o user,sta", ["user,state"]),
        ("logs -f be", ["bert", "bee"]),
        ("submit --checkp", ["--checkpoint"]),
        ("-c research config us", ["use"]),
    ],
)
def test_what_is_completed(server: ScriptedServer, typed: str, completed: list[str]) -> None:
    server.answers(200, JOBS)
    server.always_answers(200, ENDED)
    assert completions(typed) == completed


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("submit --project v", ["vision"]),
        ("ls --project ops,v", ["ops,vision"]),
        ("submit -t ml.p", ["ml.p5.48xlarge"]),
        ("sweep --instance-type x", []),
    ],
)
def test_what_the_fleet_has_is_completed(server: ScriptedServer, typed: str, completed: list[str]) -> None:
    server.always_answers(200, STATUS)
    assert completions(typed) == completed


def test_the_options_of_the_simulator_are_left_out_where_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagemaker_queue.workflows.settings_advice.REQUIRED_PYTHON", (99, 0))
    complete = ShellComplete(Simulate("simulate"), {}, PROGRAM, VARIABLE)
    assert [item.value for item in complete.get_completions([], "--")] == ["--profile", "--url", "--help"]


def completions(typed: str) -> list[str]:
    *words, incomplete = typed.split(" ")
    completion = ShellComplete(build_parser(), {}, PROGRAM, VARIABLE)
    return [item.value for item in completion.get_completions(words, incomplete)]


def test_in_bash_the_tab_key_completes(server: ScriptedServer, bash: Terminal) -> None:
    server.always_answers(200, JOBS)
    bash.press("smq can\t")
    bash.shows("ready> smq cancel")
    bash.press("bert res\t")
    bash.shows("ready> smq cancel bert resnet-")


OTHER_SHELLS = {
    "zsh": (
        ["zsh", "-f", "-i"],
        'PS1="ready> "; autoload -Uz compinit; compinit -u; eval "$(smq completion zsh)"; clear',
    ),
    "fish": (
        ["fish", "--no-config", "-i"],
        "function fish_prompt; echo 'ready> '; end; smq completion fish | source; clear",
    ),
}


@pytest.mark.parametrize("name", OTHER_SHELLS)
def test_in_other_shells_the_tab_key_completes(server: ScriptedServer, path: None, name: str) -> None:
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    server.always_answers(200, JOBS)
    command, switched_on = OTHER_SHELLS[name]
    with Terminal(command, columns=100) as shell:
        shell.press(f"{switched_on}\n")
        shell.wait(lambda: shell.rows[0] == "ready>")
        shell.press("smq can\t")
        shell.shows("ready> smq cancel")
        shell.press("be\t")
        shell.shows("ready> smq cancel bert")
        shell.press("res\t")
        shell.shows("ready> smq cancel bert resnet-")


def test_a_queue_that_does_not_answer_completes_nothing_and_says_nothing(
    server: ScriptedServer, bash: Terminal
) -> None:
    server.always_answers(500, {"message": "broken"})
    bash.press("smq why \t")
    bash.wait(lambda: server.received)
    bash.press("x")  # bash reads on when the completion has come to its end
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
