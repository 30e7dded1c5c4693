"""``smq policy advise``: a history of four weeks, the lines that it advises, and what ``smq simulate`` says of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from sagemaker_queue.cli import main
from sagemaker_queue.workflows.settings_advice import REQUIRED_PYTHON
from tests.client.samples import ATTEMPT

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = [
    pytest.mark.usefixtures("address"),
    pytest.mark.skipif(sys.version_info < REQUIRED_PYTHON, reason="the simulator needs a newer Python"),
]

HOUR, DAY = 3600.0, 86400.0
BEGIN = datetime(2026, 10, 19, tzinfo=timezone.utc)  # a Monday
POLICY = """\
# The policy of a careful team.
pools:
- {name: p5, capacity: 4}  # four machines
projects:
- {name: vision, quota: {p5: 4}}
settings:
  order: submission
  backfill: bounded
  min_runtime: 21600  # nobody is stopped in the first six hours
"""
APPLIED = {"version": 3, "policy": yaml.safe_load(POLICY), "warnings": []}


def attempt(name: str, submitted: float, ran: float, instances: int = 1, priority: int = 0) -> dict[str, Any]:
    """Return the record of an attempt that started when it was submitted, ``submitted`` seconds after BEGIN."""
    times = (submitted, submitted + 180, submitted + 180 + ran)
    launched, began, ended = ((BEGIN + timedelta(seconds=time)).isoformat() for time in times)
    return {
        **{**ATTEMPT, "job": name, "attempt": 1, "outcome": "completed", "priority": priority},
        **{"slots": {"p5": instances}, "instanceCount": instances, "gpus": 8 * instances, "carrier": None},
        **{"submitted": launched, "waitingSince": launched, "launched": launched, "began": began, "ended": ended},
        **{"waitedSeconds": 0.0, "provisionedSeconds": 180.0, "ranSeconds": ran, "lostSeconds": None},
        **{"madeRoomFor": None, "borrowed": 0, "maxRuntimeSeconds": None},
    }


def four_weeks() -> list[dict[str, Any]]:
    """Return a history in which three settings make jobs wait, each on another day of the week."""
    return list(chain.from_iterable(week(number * 7 * DAY + 9 * HOUR) for number in range(4)))


def week(monday: float) -> Iterator[dict[str, Any]]:
    day = f"{monday / DAY:.0f}"
    for n in range(6):  # Monday: short jobs wait behind long ones
        yield attempt(f"train-{day}-{n}", monday + n, 5 * HOUR + 60 * n)
    for n in range(14):
        yield attempt(f"eval-{day}-{n}", monday + 60 + n, 600 + n)
    wednesday = monday + 2 * DAY  # free instances are kept for a gang that waits for a long job
    yield attempt(f"long-{day}", wednesday - HOUR, 10 * HOUR)
    yield attempt(f"gang-{day}", wednesday - HOUR + 600, 2 * HOUR, instances=4)
    for n in range(10):
        yield attempt(f"eval-{day}-w{n}", wednesday + 600 * n, 600 + n)
    friday = monday + 4 * DAY  # urgent jobs wait for jobs that may not be stopped
    for n in range(4):
        yield attempt(f"train-{day}-f{n}", friday + n, 5 * HOUR + 60 * n)
    for n in range(6):
        yield attempt(f"urgent-{day}-{n}", friday + 1800 + n, 600 + n, priority=5)


def answer(server: ScriptedServer, attempts: list[dict[str, Any]], policy: dict[str, Any] = APPLIED) -> None:
    server.answers(200, policy)
    middle = len(attempts) // 2
    server.answers(200, {"attempts": attempts[:middle], "next": "more"})
    server.answers(200, {"attempts": attempts[middle:], "next": None})


@pytest.mark.thorough
@pytest.mark.slow
def test_the_three_lines_that_reduce_the_wait_most_and_a_simulation_that_confirms_it(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    answer(server, four_weeks())
    assert main(["policy", "advise", "--minutes", "1440", "--json", "--apply-to", str(policy)]) == 0
    output = capsys.readouterr()
    advice = json.loads(output.out)
    settings = {"order": "shortest", "backfill": "predicted", "min_runtime": None}
    assert advice["settings"] == settings
    assert sorted(advice["lines"]) == ["  backfill: predicted", "  min_runtime: null", "  order: shortest", "settings:"]

    assert "+  min_runtime: null  # nobody is stopped in the first six hours\n" in output.err
    assert "# The policy of a careful team.\n" in policy.read_text()
    changed = yaml.safe_load(policy.read_text())
    assert changed == {**APPLIED["policy"], "settings": settings}

    # The same history as a file, by smq simulate: fewer of these lines are worse.
    answer(server, four_weeks())
    server.script.pop(0)
    assert main(["history", "--csv"]) == 0
    history = tmp_path / "history.csv"
    history.write_text(capsys.readouterr().out)
    kept = [names for size in range(4) for names in combinations(settings, size)]
    files = [policy_file(tmp_path / f"{'-'.join(names) or 'as-it-is'}.yaml", settings, names) for names in kept]
    compared = [word for path in files for word in ("--compare", str(path))]
    arguments = ["simulate", str(history), "--policy", str(files.pop(0)), *compared[2:], "--runtimes", "predicted"]
    assert main([*arguments, "--json"]) == 0
    simulated = json.loads(capsys.readouterr().out)["policies"]
    waits = {names: it["overall"]["wait"] for names, it in zip(kept, simulated)}
    assert waits[()] == pytest.approx(advice["inForce"]["overall"]["wait"])
    assert waits[tuple(settings)] == pytest.approx(waits[()] * (1 - advice["gain"]))
    assert all(waits[tuple(settings)] < wait for names, wait in waits.items() if len(names) < 3)
    tried = {tuple(trial["settings"].items()): trial["overall"]["wait"] for trial in advice["tried"]}
    assert min(tried.values()) == pytest.approx(waits[tuple(settings)])


def policy_file(path: Path, settings: dict[str, Any], names: tuple[str, ...]) -> Path:
    document = yaml.safe_load(POLICY)
    document["settings"].update({name: settings[name] for name in names})
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_history_of_the_last_weeks_is_read(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    answer(server, four_weeks()[:50])
    before = datetime.now(timezone.utc) - timedelta(weeks=8)
    assert main(["policy", "advise", "--weeks", "8"]) == 1
    assert "Version 3 of the policy is in force.\n\nHistory: 50 jobs in 7.0 days." in capsys.readouterr().out
    after = datetime.now(timezone.utc) - timedelta(weeks=8)
    query = parse_qs(urlsplit(server.received[1].path).query)
    since = datetime.fromisoformat(query["since"][0].replace("Z", "+00:00"))
    assert before <= since <= after
    assert all(request.method == "GET" for request in server.received)


def test_a_history_that_is_too_small_changes_no_file(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    for attempts in ([], four_weeks()[:50]):
        answer(server, attempts)
        assert main(["policy", "advise", "--apply-to", str(policy)]) == 1
        output = capsys.readouterr()
        assert "Too little history for advice: 100 finished jobs over 3 days at least are needed." in output.out
        assert output.err == f"smq: note: {policy} is not changed.\n"
    assert policy.read_text() == POLICY


def test_a_project_that_the_policy_no_longer_has(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    old = [{**it, "project": "old"} if number % 2 else it for number, it in enumerate(four_weeks())]
    two = {**APPLIED, "policy": {**APPLIED["policy"], "projects": [{"name": "vision"}, {"name": "nlp"}]}}
    answer(server, old, two)
    assert main(["policy", "advise"]) == 2
    error = capsys.readouterr().err
    assert "the policy has no project old (84 jobs): add --map-project 'old=NAME' to count these jobs" in error
    answer(server, old, two)
    assert main(["policy", "advise", "--exclude-project", "old", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["jobs"] == 84
    answer(server, old, two)
    assert main(["policy", "advise", "--exclude-project", "older"]) == 2
    assert "the trace has no project 'older'; it has old, vision" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weeks", "0"], "--weeks: must be a number from 1 to 52, not '0'"),
        (["--weeks", "two"], "--weeks: must be a number from 1 to 52, not 'two'"),
        (["--minutes", "nan"], "--minutes: must be a number from 0.1 to 1440, not 'nan'"),
        (["--map-project", "old"], "--map-project: must be OLD=NEW, two names of projects, not 'old'"),
        (["--apply-to", "-"], "--apply-to: must be a file, not the standard input"),
        (["--apply-to", "no-such-file.yaml"], "no-such-file.yaml cannot be read: No such file or directory."),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(
    arguments: list[str], message: str, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", "advise", *arguments]) == 2
    assert message in capsys.readouterr().err.replace("'--", "--").replace("':", ":")
    assert not server.received


def test_an_interruption_ends_it(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    answer(server, four_weeks())
    monkeypatch.setattr("job_queue.simulation.simulator.Simulator.run", interrupted)
    assert main(["policy", "advise"]) == 130
    assert capsys.readouterr() == ("", "")
