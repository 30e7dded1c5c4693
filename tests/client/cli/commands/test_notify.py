"""``smq notify``: a queue that answers by script is watched, and a person is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_queue.cli import main
from tests.client.conftest import serving
from tests.client.samples import DETAIL, job
from tests.programs import started

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

NONE: dict[str, Any] = {"jobs": [], "next": None}
ENDED: dict[str, Any] = {**DETAIL, "state": "completed", "stateSince": "2026-11-21T11:00:00Z"}
ENDED["history"] = [*ENDED["history"], {"at": "2026-11-21T11:00:00Z", "state": "completed", "attempt": 2, "cause": ""}]
RUNS = job("job1", "running", 1, stateSince="2026-11-21T10:30:00Z")
TOLD = "job1 (ann, project default) is completed, 1h00m after it was submitted."


@pytest.fixture
def chat() -> Iterator[ScriptedServer]:
    with serving() as server:
        server.always_answers(200, "ok")
        yield server


def it_runs_and_ends(server: ScriptedServer) -> None:
    server.answers(200, {"jobs": [RUNS], "next": None})
    server.answers(200, NONE)
    server.answers(200, NONE)
    server.answers(200, {"jobs": [ENDED], "next": None})
    server.always_answers(200, ENDED)


def test_named_jobs_are_watched_to_their_end(
    server: ScriptedServer, chat: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    it_runs_and_ends(server)
    assert main(["notify", "job1", "--interval", "1", "--webhook", f"{chat.url}/secret"]) == 0
    out, errors = capsys.readouterr()
    assert out.rstrip().endswith(TOLD) and "Watching 1 live job" in errors
    assert [json.loads(received.body) for received in chat.received] == [{"text": TOLD}]


def test_the_profile_says_where_and_shows_no_secret(
    server: ScriptedServer, chat: ScriptedServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SAGEMAKER_QUEUE_URL")
    assert main(["config", "set", "url", server.url]) == 0
    assert main(["config", "set", "notify_webhook", f"{chat.url}/secret"]) == 0
    assert main(["config", "set", "notify_on", "failed"]) == 0
    assert main(["config", "set", "notify_on", "fail"]) == 2
    assert main(["config", "show"]) == 0
    assert main(["config", "show", "--json"]) == 0
    out, errors = capsys.readouterr()
    assert "secret" not in out + errors
    assert "there are started, late, preempted, unsaved, hangs, hardware, failed, finished" in errors
    it_runs_and_ends(server)
    assert main(["notify", "job1", "--interval", "1"]) == 0
    assert not chat.received  # it is not told of an end
    it_runs_and_ends(server)
    assert main(["notify", "job1", "--interval", "1", "--on", "finished"]) == 0
    assert len(chat.received) == 1


def test_an_outage_and_a_chat_that_refuses_end_nothing(
    server: ScriptedServer, chat: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    chat.always_answers(410, "gone")
    server.answers(200, {"jobs": [RUNS], "next": None})
    server.answers(200, NONE)
    for _ in range(4):
        server.answers(503, {"message": "Service Unavailable"})
    server.answers(200, NONE)
    server.answers(200, {"jobs": [ENDED], "next": None})
    server.always_answers(200, ENDED)
    assert main(["notify", "job1", "--interval", "1", "--webhook", f"{chat.url}/secret"]) == 0
    out, errors = capsys.readouterr()
    assert TOLD in out
    assert "The command continues." in errors and "answers 410" in errors and "secret" not in errors


def test_jobs_that_are_not_live_are_not_waited_for(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.always_answers(200, NONE)
    assert main(["notify", "typo"]) == 0
    assert "all of these jobs have finished" in capsys.readouterr().err


def test_ctrl_c_ends_it(server: ScriptedServer) -> None:
    server.always_answers(200, NONE)
    command = [sys.executable, "-m", "sagemaker_queue", "notify", "--everybody", "--interval", "3600"]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr
        assert "Watching 0 live jobs" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert (process.wait(), process.stderr.read()) == (130, "")
