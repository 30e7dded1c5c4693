"""``smq drain`` and ``smq undrain``: what they send and say, and the drains in ``smq status``."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_queue.cli import main
from tests.client.samples import STATUS, refused

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

ANN = "arn:aws:iam::123456789012:user/ann"
NOW: dict[str, Any] = {"at": "2026-11-22T18:00:00Z", "inForce": True, "by": ANN, "reason": "new disks", "stops": "all"}
LATER: dict[str, Any] = {**NOW, "inForce": False}


def answer(drain: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {"pool": "p5", "drain": drain, "wasDrained": False, "stopping": 0, "staying": 0, **more}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (answer(NOW), "p5 is drained: no job runs there; smq undrain p5 ends the drain\n"),
        (
            answer(NOW, stopping=1, staying=2),
            "p5 is drained: 1 job is stopped and waits again, 2 jobs run to their ends; smq undrain p5 ends the "
            "drain\n",
        ),
        (
            answer(LATER, stopping=2, staying=1),
            "p5 is drained from 2026-11-22 18:00:00 UTC on: 2 jobs are at that time stopped and wait again, 1 job "
            "runs to its end; smq undrain p5 ends the drain\n",
        ),
    ],
)
def test_a_drain_tells_when_it_begins_and_which_jobs_it_stops(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str], found: dict[str, Any], said: str
) -> None:
    server.answers(200, found)
    assert main(["drain", "p5"]) == 0
    assert capsys.readouterr() == (said, "")
    assert json.loads(server.received[0].body) == {"pool": "p5", "stops": "preemptible"}


def test_the_time_the_reason_and_the_stopped_jobs_are_sent(server: ScriptedServer) -> None:
    server.answers(200, answer(LATER))
    server.answers(200, answer(LATER))
    assert main(["drain", "p5", "--at", "2026-11-22T18:00", "--reason", "new disks", "--stop", "all"]) == 0
    sent = {"pool": "p5", "at": "2026-11-22T18:00:00Z", "reason": "new disks", "stops": "all"}
    assert json.loads(server.received[0].body) == sent
    before = datetime.now(timezone.utc).replace(microsecond=0)  # times are sent in whole seconds
    assert main(["drain", "p5", "--at", "12h"]) == 0
    at = datetime.fromisoformat(json.loads(server.received[1].body)["at"].replace("Z", "+00:00"))
    assert before + timedelta(hours=12) <= at <= datetime.now(timezone.utc) + timedelta(hours=12)


def test_a_wrong_time_is_refused_before_anything_is_sent(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["drain", "p5", "--at", "soon"]) == 2
    assert "2026-11-22T10:00 (UTC), or 12h, 7d from now" in capsys.readouterr().err
    assert server.received == []


@pytest.mark.parametrize(
    ("was_drained", "said"),
    [
        (True, "p5 is no longer drained: jobs start there again\n"),
        (False, "p5 is not drained; nothing is changed\n"),
    ],
)
def test_undrain(server: ScriptedServer, capsys: pytest.CaptureFixture[str], was_drained: bool, said: str) -> None:
    server.answers(200, answer(None, wasDrained=was_drained))
    assert main(["undrain", "p5"]) == 0
    assert capsys.readouterr() == (said, "")
    assert (server.received[0].path, json.loads(server.received[0].body)) == ("/prod/undrain", {"pool": "p5"})


def test_a_refusal_is_told(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(404, refused("NotFound", "The policy has no pool 'P5'. Did you mean p5?"))
    assert main(["drain", "P5"]) == 3
    assert "Did you mean p5?" in capsys.readouterr().err


def test_both_have_json(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(200, answer(NOW, stopping=1))
    server.answers(200, answer(None))
    assert main(["drain", "p5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stopping"] == 1
    assert main(["undrain", "p5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["drain"] is None


def test_status_shows_drained_pools(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    first, *others = STATUS["pools"]
    server.answers(200, {**STATUS, "pools": [{**first, "drain": NOW}, *others]})
    assert main(["status"]) == 0
    told = capsys.readouterr().out
    assert "Drained: no job starts there until smq undrain" in told
    (row,) = [line for line in told.splitlines() if "new disks" in line]
    assert row.split() == [first["name"], "2026-11-22", "18:00:00", "ann", "all", "jobs", "new", "disks"]
