"""``smq cancel``, ``set-priority``, ``hold``, ``release`` and ``requeue``: what they change and say."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from sagemaker_queue.cli import main
from tests.client.samples import SEE, job, refused
from tests.client.terminal import Terminal

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")


class TestCancel:
    def test_each_job_is_told_of(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(202, job("job1", "running", 1, cancelRequested=True))
        server.answers(202, job("job2", "stopped", 1))
        server.answers(200, job("job3", "completed", 1))
        assert main(["cancel", "job1", "job2", "job3"]) == 0
        assert capsys.readouterr() == (
            "Stopping job1 ...\njob2 is stopped\njob3 had already finished: completed\n",
            "",
        )

    def test_one_that_cannot_be_cancelled_does_not_keep_the_others(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(404, refused("NotFound", "There is no job job1."))
        server.answers(403, refused("Forbidden", "job2 is ann's."))
        server.answers(202, job("job3", "stopped", 1))
        assert main(["cancel", "job1", "job2", "job3"]) == 3
        errors = f"smq: There is no job job1.\n{SEE}notfound\nsmq: job2 is ann's.\n{SEE}forbidden\n"
        assert capsys.readouterr() == ("job3 is stopped\n", errors)

    @pytest.mark.thorough
    def test_many_are_asked_for_at_a_real_terminal(self, server: ScriptedServer) -> None:
        command = [sys.executable, "-m", "sagemaker_queue", "--url", server.url, "cancel"]
        server.answers(200, LIVE)
        with Terminal([*command, "--group", "lr"], columns=100) as terminal:
            terminal.shows("Cancel 2 jobs: lr-2, lr-1? [y/N]")
            terminal.press("n\r")
            assert terminal.end() == 1
            assert "Nothing is cancelled." in terminal.text
        assert [one.method for one in server.received] == ["GET"]
        server.always_answers(202, job("lr-1", "stopped", 1))
        with Terminal([*command, "lr-1", "lr-2"], columns=100) as terminal:
            terminal.shows("[y/N]")
            terminal.press("y\r")
            assert terminal.end() == 0
        for arguments in (["lr-1", "lr-2", "--yes"], ["lr-1"]):
            with Terminal([*command, *arguments], columns=100) as terminal:
                assert terminal.end() == 0
                assert "[y/N]" not in terminal.text
        assert [one.method for one in server.received[1:]] == ["DELETE"] * 5


class TestChange:
    @pytest.mark.parametrize("priority", [5, -5])
    def test_set_priority(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], priority: int) -> None:
        server.answers(200, job("job1", "pending", priority))
        assert main(["set-priority", "job1", str(priority)]) == 0
        assert capsys.readouterr() == (f"job1 has priority {priority}\n", "")
        assert (server.received[0].method, server.received[0].path) == ("PATCH", "/prod/jobs/job1")
        assert json.loads(server.received[0].body) == {"priority": priority}

    @pytest.mark.parametrize(
        ("command", "held", "what"), [("hold", True, "on hold"), ("release", False, "no longer on hold")]
    )
    def test_one_that_cannot_be_changed_does_not_keep_the_others(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], command: str, held: bool, what: str
    ) -> None:
        server.answers(409, refused("Conflict", "job1 runs."))
        server.answers(200, job("job2", "pending", 1, held=held))
        assert main([command, "job1", "job2"]) == 1
        assert capsys.readouterr() == (f"job2 is {what}\n", f"smq: job1 runs.\n{SEE}conflict\n")
        assert [json.loads(one.body) for one in server.received] == [{"held": held}] * 2


class TestRequeue:
    def test_each_job_is_told_of(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, job("job1", "stopping", 1))
        server.answers(409, refused("Conflict", "job2 waits already: it is pending."))
        server.answers(200, job("job3", "preempted", 1))
        assert main(["requeue", "job1", "job2", "job3"]) == 1
        assert capsys.readouterr() == (
            "Stopping job1, which then waits again ...\njob3 waits again\n",
            f"smq: job2 waits already: it is pending.\n{SEE}conflict\n",
        )
        assert [json.loads(one.body) for one in server.received] == [{"requeue": True}] * 3

    def test_hold_now(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, job("job1", "stopping", 1, held=True))
        server.answers(200, job("job2", "pending", 1, held=True))
        assert main(["hold", "--now", "job1", "job2"]) == 0
        assert capsys.readouterr() == ("Stopping job1, which is then on hold ...\njob2 is on hold\n", "")
        assert [json.loads(one.body) for one in server.received] == [{"held": True, "now": True}] * 2


LIVE = {"jobs": [job("lr-1", "running", 1, group="lr"), job("lr-2", "pending", 1, group="lr"), job("x", "pending", 1)]}


class TestSeveralAtOnce:
    @pytest.mark.parametrize("which", [["lr-*"], ["--group", "lr"]])
    def test_by_pattern_or_group(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], which: list[str]
    ) -> None:
        server.answers(200, LIVE)
        server.answers(202, job("lr-2", "stopped", 1))
        server.answers(202, job("lr-1", "running", 1))
        assert main(["cancel", *which]) == 0
        # Had the one that runs been first, the one that waits would have started in its place.
        assert capsys.readouterr() == ("lr-2 is stopped\nStopping lr-1 ...\n", "")
        assert [one.path for one in server.received[1:]] == ["/prod/jobs/lr-2", "/prod/jobs/lr-1"]

    def test_a_job_that_is_named_twice_is_changed_once(self, server: ScriptedServer) -> None:
        server.answers(200, LIVE)
        server.answers(200, job("x", "pending", 1, held=True))
        assert main(["hold", "x", "?"]) == 0
        assert len(server.received) == 2

    @pytest.mark.parametrize(
        ("which", "said"), [(["y-*"], "match y-*"), (["--group", "gone,lost"], "in the group gone, lost")]
    )
    def test_there_are_none(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], which: list[str], said: str
    ) -> None:
        server.answers(200, LIVE)
        assert main(["release", *which]) == 3
        assert capsys.readouterr() == ("", f"smq: No live jobs {said}.\n")
