"""``smq ls`` on a terminal: what a person sees without asking for more."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from job_queue.scheduler import WaitReason
from tests.client.samples import Job, job
from tests.client.terminal import Terminal
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

SMQ = [sys.executable, "-m", "sagemaker_queue"]
FULL = "Needs 16 instances; 0 of 16 are free, 16 are used by resnet (priority 3)."
ANN = "arn:aws:sts::123456789012:assumed-role/SageMakerResearch/ann"


def hours(count: float) -> str:
    return (datetime.now(timezone.utc) + timedelta(hours=count)).isoformat()


def many() -> list[Job]:
    prefix = "bert-large-pretraining-on-books-with-lr"
    waits = {"owner": ANN, "reason": {"code": "X", "message": FULL}, "instances": 16, "project": "language-models"}
    start = {"message": "", "start": hours(2.51), "doubt": "SPREAD"}
    return [
        job("resnet", "running", 3, owner=ANN, instances=16, stateSince=hours(-2.51), entryTime=hours(-50)),
        job(f"{prefix}-0.1-and-dropout-of-0.1", "preempted", 1, position=1, expectedStart=start, **waits),
        job(f"{prefix}-0.2-and-dropout-of-0.1", "pending", 1, position=2, **waits),
        job("broken", "failed", 1, owner=ANN),
    ]


def shown(
    server: ScriptedServer, *arguments: str, columns: int = 80, settings: dict[str, str] | None = None
) -> Terminal:
    """The terminal after the command has ended."""
    server.answers(200, {"jobs": many(), "next": None})
    with Terminal([*SMQ, "ls", *arguments], columns, environment=settings) as terminal:
        assert terminal.end() == 0, terminal.text
    return terminal


def texts_of(least: float, most: float) -> set[str]:
    """How the durations from ``least`` to ``most`` seconds are written."""
    return {f"{minutes // 60}h{minutes % 60:02}m" for minutes in range(int(least // 60), int(most // 60) + 1)}


def headers(terminal: Terminal) -> list[str]:
    return terminal.rows[0].split()


def test_who_waits_how_long_and_why(server: ScriptedServer) -> None:
    began = time.monotonic()
    terminal = shown(server, columns=190)
    took = time.monotonic() - began
    assert headers(terminal) == ["Job", "User", "State", "Prio", "Turn", "Starts", "Inst", "Reason"]
    runs, waits = terminal.rows[1].split(), terminal.rows[2].split(maxsplit=7)
    assert runs.pop(4) in texts_of(2.51 * 3600, 2.51 * 3600 + took)  # 2h30m, unless the machine is slow
    assert waits.pop(5) in {f"~{text}" for text in texts_of(2.51 * 3600 - took, 2.51 * 3600)}
    assert runs == ["resnet", "ann", "running", "3", "16"]
    assert waits == [str(many()[1]["job"]), "ann", "preempted", "1", "1st", "16", FULL[:71] + "…"]


@pytest.mark.parametrize(("projects", "is_shown"), [(["vision", "nlp"], True), (["vision", "vision"], False)])
def test_the_project_is_shown_if_there_are_several(server: ScriptedServer, projects: list[str], is_shown: bool) -> None:
    server.answers(200, {"jobs": [job(name, "running", 1, project=name) for name in projects], "next": None})
    with Terminal([*SMQ, "ls"], 100) as terminal:
        assert terminal.end() == 0
    assert ("Project" in headers(terminal)) == is_shown


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("arguments", [[], ["--wide"]])
def test_each_job_has_one_line(server: ScriptedServer, arguments: list[str], columns: int) -> None:
    terminal = shown(server, *arguments, columns=columns)
    assert [row.split()[0].partition("…")[0][:4] for row in terminal.rows[1:5]] == ["resn", "bert", "bert", "brok"]
    assert not terminal.text.splitlines()[5].strip()
    assert max(map(len, terminal.rows)) <= columns
    assert "Reason" in headers(terminal)
    one, other = (row.split()[0] for row in terminal.rows[2:4])
    assert one != other and "…" in one and one.startswith("bert")


def test_wide_leaves_out_what_has_no_room_and_an_explicit_choice_nothing(server: ScriptedServer) -> None:
    everything = ["Job", "State", "Prio", "Pos", "Starts", "Project", "Owner", "Inst", "Try", "Age", "Reason"]
    assert headers(shown(server, "--wide", columns=120)) == everything
    narrow = headers(shown(server, "--wide", columns=80))
    assert set(narrow) < set(everything) and {"Job", "State", "Owner", "Reason"} <= set(narrow)
    asked = shown(server, "-o", "job,age,reason", columns=110)
    assert headers(asked) == ["Job", "Age", "Reason"]
    assert asked.rows[2].split()[0] == many()[1]["job"]  # whole: it may be copied


def test_every_reason_has_a_short_form_that_fits_and_differs(server: ScriptedServer) -> None:
    waiting = [
        job(f"{number}-resnet-50-on-imagenet", "pending", 1, owner=ANN, reason={"code": code, "message": FULL})
        for number, code in enumerate(WaitReason, 1)
    ]
    server.answers(200, {"jobs": waiting, "next": None})
    with Terminal([*SMQ, "ls"]) as terminal:
        assert terminal.end() == 0, terminal.text
    column = terminal.rows[0].index("Reason")
    told = [row[column:] for row in terminal.rows[1 : len(waiting) + 1]]
    assert len(set(told)) == len(WaitReason)
    assert not [words for words in told if "…" in words or FULL.startswith(words)]


def test_brief_is_the_same_everywhere(server: ScriptedServer) -> None:
    server.answers(200, {"jobs": many(), "next": None})
    piped = subprocess.run([*SMQ, "ls"], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert piped.splitlines()[0].split() == ["Job", "Name", "State", "Priority"]
    assert shown(server, "--brief", columns=100).text.strip().splitlines() == piped.strip().splitlines()


@pytest.mark.parametrize(
    ("settings", "colours"),
    [({}, {"default", "green", "red"}), ({"NO_COLOR": "1"}, {"default"}), ({"TERM": "dumb"}, {"default"})],
)
def test_colours(server: ScriptedServer, settings: dict[str, str], colours: set[str]) -> None:
    terminal = shown(server, settings=settings)
    assert terminal.colours == colours
    assert (b"\x1b" in terminal.written) == (len(colours) > 1)


@pytest.mark.thorough
def test_the_profile_names_the_columns(server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
    for name, value in (("url", server.url), ("region", "us-east-1"), ("columns", "job,instances")):
        subprocess.run([*SMQ, "config", "set", name, value], check=True, timeout=PATIENCE, capture_output=True)
    assert headers(shown(server)) == ["Job", "Inst"]
    assert headers(shown(server, "-o", "job")) == ["Job"]
    assert "Starts" in headers(shown(server, "--wide"))
    server.answers(200, {"jobs": many(), "next": None})
    piped = subprocess.run([*SMQ, "ls"], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert piped.splitlines()[0].split() == ["Job", "Name", "State", "Priority"]  # a script knows no profile
    subprocess.run([*SMQ, "config", "set", "columns", "job,shoe"], check=True, timeout=PATIENCE, capture_output=True)
    server.answers(200, {"jobs": many(), "next": None})
    with Terminal([*SMQ, "ls"], 200) as terminal:
        assert terminal.end() == 2
    assert "columns in the profile: There is no column 'shoe'. Columns: job, state" in terminal.text
