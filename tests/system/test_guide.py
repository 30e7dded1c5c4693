"""docs/guide.md is followed to the letter, on a local cloud: its first job runs, and survives a preemption."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sagemaker_queue.cli import main
from tests.system.conftest import System

GUIDE = (Path(__file__).parents[2] / "docs/guide.md").read_text()
FIRST_JOB = GUIDE.partition("## Your first job\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^    smq (.*)$", FIRST_JOB, re.MULTILINE)
(SCRIPT,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def test_the_first_job(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = system.cloud.environment()
    queues, role, image = (environment.pop(f"SAGEMAKER_QUEUE_{name}") for name in ("URL", "ROLE", "IMAGE"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("URL", "ROLE", "IMAGE"):
        monkeypatch.delenv(f"SAGEMAKER_QUEUE_{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("train.py").write_text(SCRIPT)
    here = {"url": queues, "role": role, "image": image}

    said: dict[str, str] = {}
    for line in COMMANDS:
        words = shlex.split(line)
        if words[:2] == ["config", "set"] and words[2] in here:
            words[3] = here[words[2]]
        assert main(words) == 0, line
        said[line] = capsys.readouterr().out
        if words[0] == "submit":  # somebody with two instances' worth of urgency comes by
            system.wait("the first checkpoint", lambda: "step 10: loss 0.7374" in system.log("first-qstamp-1"))
            system.submit("urgent", "pass", instances=2, priority=1)

    log = said["logs -f first"].splitlines()
    starts = [int(step) for step in re.findall(r"^starting at step (\d+)$", said["logs -f first"], re.MULTILINE)]
    assert len(starts) == 2 and starts[0] == 0 and starts[1] >= 10
    assert log[-1] == "step 60: loss 0.1608"
    assert "completed" in said["show first"]


def test_the_script_is_of_twenty_lines_and_runs_at_home_too(tmp_path: Path) -> None:
    assert len([line for line in SCRIPT.splitlines() if line.strip()]) <= 20
    fast = SCRIPT.replace("time.sleep(0.1)", "pass")
    for begin in ("starting at step 0", "starting at step 60"):
        done = subprocess.run(
            [sys.executable, "-c", fast], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(begin)
