"""``smq wait``: how a script learns of the ends of jobs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.cli.commands.results.wait import wait_for
from sagemaker_queue.jobs.formatting import predicate
from sagemaker_queue.queue.client import QueueClient
from tests.client.samples import SEE, job, refused
from tests.client.terminal import Terminal

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

WHY = {"code": "AlgorithmError", "message": "exit code 1"}
LR = [job(f"lr-{place}", "completed", 1, group="lr") for place in (1, 2)]


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["completed", "completed"], 0),
        (["completed", "failed"], 4),
        (["stopped", "completed"], 4),
    ],
)
def test_the_exit_code_tells_whether_all_have_completed(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str], states: list[str], code: int
) -> None:
    for number, state in enumerate(states, 1):
        server.answers(200, job(f"job{number}", state, 1, reason=WHY if state == "failed" else None))
    assert main(["wait", "job1", "job2"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        f"job{at} {predicate(state)}" for at, state in enumerate(states, 1)
    ]
    assert all(line.endswith(": exit code 1") == ("failed" in line) for line in lines)


def test_it_waits_until_the_last_has_ended_and_asks_for_many_at_once(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a", "b", "c", "d"]
    live = [job(name, "running", 1) for name in names]
    server.answers(200, {"jobs": live, "next": None})
    server.answers(503, refused("Unavailable", "Soon again."))  # an outage in the middle
    server.answers(200, {"jobs": live[1:], "next": None})
    server.answers(200, job("a", "completed", 1))
    for name in names[1:]:
        server.answers(200, job(name, "completed", 1))
    assert wait_for(QueueClient(tries=1), names, poll=0) == 0
    captured = capsys.readouterr()
    assert captured.out.split() == [word for name in names for word in (name, "completed")]
    assert "trying again" in captured.err
    assert [request.path.partition("?")[0] for request in server.received] == [
        *["/prod/jobs"] * 3,
        *[f"/prod/jobs/{name}" for name in names],
    ]


def test_patterns_and_groups_mean_those_that_have_ended_too(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["--group", "lr"], ["lr-*"]):
        server.answers(200, {"jobs": [*LR, job("other", "running", 1)], "next": None})
        for one in LR:
            server.answers(200, one)
        assert main(["wait", *arguments]) == 0
        assert capsys.readouterr().out == "lr-1 completed\nlr-2 completed\n"
        assert "state=all" in server.received[-3].path


def test_nobody_of_that_name(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers(404, refused("NotFound", "There is no job nobody."))
    assert main(["wait", "nobody"]) == 3
    server.answers(200, {"jobs": [], "next": None})
    assert main(["wait", "--group", "none"]) == 3
    assert capsys.readouterr().err == f"smq: There is no job nobody.\n{SEE}notfound\nsmq: No jobs in the group none.\n"


def test_ctrl_c_ends_it_and_on_a_terminal_one_sees_what_is_waited_for(server: ScriptedServer) -> None:
    server.always_answers(200, job("job1", "pending", 1, position=3))
    with Terminal([sys.executable, "-m", "sagemaker_queue", "wait", "job1"]) as terminal:
        terminal.shows("job1 is pending, 3rd in the queue")
        terminal.press("\x03")
        assert terminal.end() == 130
