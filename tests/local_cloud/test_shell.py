"""A shell in a local cloud: it has smq, and says what to do with it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_cloud.commands import up_and_exec
from tests.client.terminal import Terminal
from tests.local_cloud.test_commands import nothing_left

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = str(Path(sys.executable).parent)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Terminal]:
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PS1": "ready> "}
    bare |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "VIRTUAL_ENV": ""}
    with Terminal([sys.executable, "-m", "local_cloud", "exec", "--", "sh"], 120, 40, bare) as terminal:
        yield terminal


@pytest.mark.thorough
def test_a_shell_at_a_terminal_says_what_next_and_what_it_says_works(shell: Terminal, tmp_path: Path) -> None:
    shell.shows("local_cloud: up after", "smq ls --all", "ready>")
    shell.press("mkdir work && cd work\n")
    for line in up_and_exec.WHAT_NEXT.splitlines():
        if line.startswith("  smq "):
            shell.press(f"{line.strip()}\n")
    shell.shows("This is a training job.\n", "completed")
    shell.press("exit\n")
    assert shell.end() == 0
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({"PATH": "/bin"}, f"{OURS}:/bin"),
        ({"PATH": "/mine/bin:/bin", "VIRTUAL_ENV": "/mine"}, f"/mine/bin:/bin:{OURS}"),
        ({"PATH": "/mine/bin:/bin", "CONDA_PREFIX": "/mine"}, f"/mine/bin:/bin:{OURS}"),
        ({}, f"{OURS}:{os.defpath}"),
    ],
)
def test_smq_is_on_the_path_behind_an_environment_that_somebody_chose(environment: dict[str, str], path: str) -> None:
    assert up_and_exec.path_with_smq(environment) == path


def test_nothing_is_said_where_nobody_types(capsys: pytest.CaptureFixture[str]) -> None:
    assert not up_and_exec.is_interactive_shell(["bash"])  # standard input of a test is no terminal
