"""``smq sweep`` as a search: what it is told, and what it says before anything is uploaded."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.sweep.search import progress_renderer
from sagemaker_queue.cli.output import escaped_output
from sagemaker_queue.jobs.packaging.sweep import expand
from tests.client.conftest import ScriptedServer

METRIC = ["--metric", "loss=loss: (.*)", "--minimize"]
COMMAND = ["--", "train", "{lr}"]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def sweep(*arguments: str) -> int:
    role = ["--role", "arn:aws:iam::123456789012:role/training"]
    return main(["sweep", *role, "--image", "train:1", "-t", "ml.m5.large", "--bucket", "own", *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (COMMAND, "Nothing is varied: give --grid"),
        (["--space", "lr=0..1", *COMMAND], "--space is of a search, which needs --metric"),
        (["--grid", "lr=1,2", "--trials", "3", *COMMAND], "--trials is of a search"),
        (["--space", "lr=1..0", *METRIC, *COMMAND], "write the lower number first"),
        ([*METRIC, "--maximize", "--space", "lr=0..1", *COMMAND], "--minimize"),
        (["--status", "--storage", "sqlite:///x.db"], "Name the search in this storage"),
        (["--status", "--study", "../x"], "cannot be the name of a study"),
    ],
)
def test_what_is_no_search_is_refused(
    capsys: pytest.CaptureFixture[str], server: ScriptedServer, arguments: list[str], said: str
) -> None:
    if "--status" in arguments:
        pytest.importorskip("optuna")
    assert sweep(*arguments) == 2
    assert said in capsys.readouterr().err
    assert not server.received


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metric", "loss=(.)", "--space", "lr=0..1", *COMMAND], "Give --minimize if a small metric is better"),
        ([*METRIC, "--space", "lr=0..1", "--space", "x=0..1", *COMMAND], "The space x changes nothing"),
        ([*METRIC, "--space", "x=0..1", *COMMAND], "no --space lr"),
        ([*METRIC, "--space", "lr=0..1", "--grid", "lr=1,2", *COMMAND], "given twice"),
        ([*METRIC, "--space", "lr=0..1", "--sampler", "grid", *COMMAND], "A grid needs values"),
        ([*METRIC, "--space", "lr=0..1", "--study", "a", "--name", "b", *COMMAND], "leave --name out"),
        ([*METRIC, "--space", "lr=0..1", "--study", "a" * 50, *COMMAND], "cannot be the name of a study"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    capsys: pytest.CaptureFixture[str], server: ScriptedServer, arguments: list[str], said: str, s3: Any
) -> None:
    pytest.importorskip("optuna")
    assert sweep(*arguments) == 2
    assert said in capsys.readouterr().err
    assert not server.received
    assert "Contents" not in s3.list_objects_v2(Bucket="own")


def test_relative_times_do_not_change_the_name_of_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")

    def first_job(*options: str) -> str:
        assert sweep(*options, *METRIC, "--space", "lr=0..1", "--seed", "1", "--dry-run", "--json", *COMMAND) == 0
        return str(json.loads(capsys.readouterr().out)[0]["TrainingJobName"])

    assert (
        first_job("--start-by", "2h") == first_job("--start-by", "3h:cancel") != first_job("--start-by", "2099-01-01")
    )


def test_without_optuna_it_says_what_to_install_and_a_grid_needs_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, server: ScriptedServer
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for loaded in ("study", "samplers"):
        monkeypatch.delitem(sys.modules, f"sagemaker_queue.tuning.{loaded}", raising=False)
    monkeypatch.delattr("sagemaker_queue.tuning.study", raising=False)
    assert sweep(*METRIC, "--space", "lr=0..1", *COMMAND) == 2
    assert "optuna is not installed: pip install optuna" in capsys.readouterr().err
    server.always_answers(202, {"job": "job1", "state": "pending"})
    assert sweep("--grid", "lr=1,2", *COMMAND) == 0


def test_the_first_trials_are_shown_before_anything_is_done(
    capsys: pytest.CaptureFixture[str], server: ScriptedServer, s3: Any
) -> None:
    pytest.importorskip("optuna")
    search = [*METRIC, "--grid", "opt=adam,sgd", "--grid", "lr=1,2", "--study", "s", "--dry-run", "--json"]
    assert sweep(*search, "--env", "OPT={opt}", *COMMAND) == 0
    requests = json.loads(capsys.readouterr().out)
    assert [request["TrainingJobName"] for request in requests] == ["s-000", "s-001", "s-002", "s-003"]
    assert json.loads(requests[3]["HyperParameters"]["command"]) == ["train", "2"]
    assert requests[1]["Environment"] == {"SM_HP_OPT": "adam", "SM_HP_LR": "2", "OPT": "adam"}
    assert not server.received
    assert "Contents" not in s3.list_objects_v2(Bucket="own")


def test_a_study_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    assert main(["sweep", "--status"]) == 0
    assert "no searches on this machine" in capsys.readouterr().err
    assert main(["sweep", "--study", "none", "--status"]) == 3
    assert "There is no study none" in capsys.readouterr().err


def test_a_grids_jobs_say_how_many_of_them_may_run_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["--name", "lr", "--grid", "lr=1,2", "--max-parallel", "1", "--dry-run", "--json"]
    assert sweep(*grid, *COMMAND) == 0
    for request in json.loads(capsys.readouterr().out):
        tags = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        assert (tags["group"], tags["max_parallel"]) == ("lr", "1")


def test_a_figure_that_lets_nobody_run_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("--grid", "lr=1,2", "--max-parallel", "0", *COMMAND) == 2
    assert "--max-parallel" in capsys.readouterr().err


def test_the_jobs_of_a_grid_may_accept_several_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["--name", "lr", "--grid", "lr=1,2", "-n", "4,2", "--dry-run"]
    assert sweep(*grid, *COMMAND) == 0
    assert "2 jobs, 4 instances, or 2 of" in capsys.readouterr().out
    assert sweep(*grid, "--json", *COMMAND) == 0
    for request in json.loads(capsys.readouterr().out):
        assert {"Key": "instances", "Value": "4 2"} in request["Tags"]
        assert request["ResourceConfig"]["InstanceCount"] == 4


def test_the_studies_of_this_machine_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    folder = tmp_path / "sagemaker-queue" / "studies"
    folder.mkdir(parents=True)
    for name, time in (("older", 1), ("newer", 2)):
        (folder / f"{name}.log").touch()
        os.utime(folder / f"{name}.log", (time, time))
    assert main(["sweep", "--status"]) == 0
    assert capsys.readouterr() == (
        "newer\nolder\n",
        "To print one of these searches: smq sweep --study NAME --status\n",
    )
    assert main(["sweep", "--status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ["newer", "older"]


def test_the_progress_of_a_search_has_no_escaped_control_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    class TerminalText(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = TerminalText()
    monkeypatch.setattr("sys.stderr", screen)
    with escaped_output():
        renderer = progress_renderer()
        renderer.status("0 of 2 trials have ended")
        renderer.note("trial 0 failed: \x1b[31mred")
        renderer.close()
    assert "\\u001b" not in screen.getvalue() and "\r\x1b[K0 of 2 trials" in screen.getvalue()
    assert "\x1b[31m" not in screen.getvalue(), "text from a job stays harmless"


@pytest.mark.parametrize(
    ("group", "grids", "names"),
    [
        ("lr", [("lr", ("0.5", "0.01"))], ["lr-0-5", "lr-0-01"]),
        ("my-lr", [("lr", ("1",))], ["my-lr-1"]),
        ("train", [("lr", ("0.5",))], ["train-lr-0-5"]),
        ("lr", [("lr", ("1",)), ("seed", ("2",))], ["lr-lr-1-seed-2"]),
        ("lr", [("lr", ("-1", "1"))], None),
    ],
)
def test_the_name_of_a_single_grid_is_not_repeated(
    group: str, grids: list[tuple[str, tuple[str, ...]]], names: list[str] | None
) -> None:
    command = ["train", *(f"{{{name}}}" for name, _ in grids)]
    found = [run.name for run in expand(group, grids, command, {})]
    assert found == names if names else len(set(found)) == len(grids[0][1])
