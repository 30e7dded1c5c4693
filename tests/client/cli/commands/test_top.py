"""``smq top`` on a real (pseudo) terminal, against a queue that answers by script."""

from __future__ import annotations

import re
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_queue.cli import main
from sagemaker_queue.presentation.text.live import KEYS
from tests.client.samples import STATUS, job, refused
from tests.client.terminal import Terminal

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")

TOP = [sys.executable, "-m", "sagemaker_queue", "top", "--interval", "1"]
LEFT = b"\x1b[?1049l"  # the terminal's other screen, on which top draws


def fits(terminal: Terminal, columns: int) -> bool:
    return terminal.rows[-1] == KEYS[: columns - 1]


def status(jobs: int, **more: Any) -> dict[str, Any]:
    waiting = [job(f"wait-{place:03}", "pending", place % 3, position=place) for place in range(1, jobs + 1)]
    return {**STATUS, "active": [job("busy", "running", 9, project="vision")], "waiting": waiting, **more}


class TestLive:
    def test_pools_projects_jobs_and_keys(self, server: ScriptedServer) -> None:
        server.always_answers(200, status(3))
        with Terminal(TOP) as terminal:
            terminal.shows(
                "Policy version 3; 1 job active, 3 waiting.", "ml.p5.48xlarge", "research/vision", "wait-003"
            )
            terminal.wait(lambda: "q:quit" in terminal.rows[-1] and "PgUp/PgDn" in terminal.rows[-1])  # is painted last
            terminal.press("q")
            assert terminal.end() == 0
            assert terminal.is_as_before and LEFT in terminal.written

    def test_news_appear_by_themselves(self, server: ScriptedServer) -> None:
        server.always_answers(200, status(1))
        with Terminal(TOP) as terminal:
            terminal.shows("1 waiting.")
            server.always_answers(200, status(2))
            terminal.shows("2 waiting.", "wait-002")

    def test_trouble_is_told_and_endured_and_the_space_bar_asks_at_once(self, server: ScriptedServer) -> None:
        server.always_answers(200, status(1))
        with Terminal([*TOP[:-1], "3600"], columns=120) as terminal:
            terminal.shows("wait-001")
            server.always_answers(403, refused("Forbidden", "You may not look."))
            terminal.press(" ")
            terminal.shows("No news since", "You may not look.", "wait-001")
            server.always_answers(200, status(2))
            terminal.press(" ")
            terminal.shows("wait-002")
            terminal.wait(lambda: "No news" not in terminal.text)

    def test_keys_go_on_while_the_queue_keeps_silent(self, server: ScriptedServer) -> None:
        server.answers(200, status(1))
        server.keeps_silent()
        with Terminal(TOP) as terminal:
            terminal.shows("wait-001")
            terminal.wait(lambda: len(server.received) >= 2)
            terminal.press("q")
            assert terminal.end() == 0

    def test_pages_and_orders(self, server: ScriptedServer) -> None:
        server.always_answers(200, status(300))
        page_down, end, home, down = "\x1b[6~", "\x1bOF", "\x1bOH", "\x1bOB"
        with Terminal(TOP) as terminal:
            terminal.shows("Jobs 1 to ", " of 301", "busy")
            last = re.search(r"Jobs 1 to (\d+) of", terminal.text)
            assert last
            terminal.press(page_down)
            terminal.shows(f"Jobs {int(last[1]) + 1} to ")
            terminal.press(end)
            terminal.shows(" to 301 of 301", "wait-300")
            terminal.press(page_down)
            terminal.press(home)
            terminal.press(down)
            terminal.shows("Jobs 2 to ")
            terminal.press("n")
            terminal.shows("by name: A to Z", "Jobs 1 to ", "busy")
            terminal.press("R")
            terminal.shows("A to Z, reversed", "wait-300")

    def test_it_fits_whatever_size_the_terminal_gets(self, server: ScriptedServer) -> None:
        server.always_answers(200, status(300))
        with Terminal(TOP) as terminal:
            terminal.shows("Jobs 1 to ")
            for columns, lines in ((132, 50), (40, 10), (3, 2), (110, 30)):
                terminal.resize(columns, lines)
                terminal.wait(partial(fits, terminal, columns))
            terminal.shows("Reason", "In Use")
            terminal.press("q")
            assert terminal.end() == 0

    @pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_the_terminal_is_put_right_however_it_ends(self, server: ScriptedServer, end: signal.Signals) -> None:
        server.always_answers(200, status(1))
        with Terminal(TOP) as terminal:
            terminal.shows("wait-001")
            if end == signal.SIGINT:
                terminal.press("\x03")
            else:
                terminal.process.send_signal(end)
            assert terminal.end() == 128 + end
            assert terminal.is_as_before and LEFT in terminal.written
            assert "Traceback" not in terminal.text

    def test_colours_unless_they_are_not_wanted(self, server: ScriptedServer) -> None:
        server.always_answers(200, status(1))
        with Terminal(TOP) as terminal:
            terminal.shows("wait-001")
            terminal.wait(lambda: {"green", "brown"} <= terminal.colours)
        with Terminal(TOP, environment={"NO_COLOR": "1"}) as terminal:
            terminal.shows("wait-001")
            assert terminal.colours == {"default"}

    @pytest.mark.parametrize("kind", ["nothing-like-it", "dumb", ""])
    def test_a_terminal_that_cannot(self, server: ScriptedServer, kind: str) -> None:
        with Terminal(TOP, columns=120, environment={"TERM": kind}) as terminal:
            assert terminal.end() == 2
            assert "smq top --once prints one" in terminal.text

    def test_no_answer_at_all_is_an_error_like_any_other(self, server: ScriptedServer) -> None:
        server.always_answers(403, refused("Forbidden", "You may not look."))
        with Terminal(TOP) as terminal:
            assert terminal.end() == 1
            assert terminal.rows[0] == "smq: You may not look."
            assert LEFT not in terminal.written


class TestOnce:
    @pytest.mark.parametrize("option", [["--once"], []])  # pytest's standard output is no terminal
    def test_all_of_it_as_plain_text(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str], option: list[str]
    ) -> None:
        server.answers(200, status(300))
        assert main(["top", *option]) == 0
        text = capsys.readouterr().out
        assert "wait-300" in text and "research/vision" in text and "\x1b" not in text and "q:quit" not in text
        assert len(server.received) == 1

    def test_filters_and_orders_are_those_of_ls(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, status(12))
        assert main(["top", "--once", "wait-00?", "--sort", "name", "--reverse"]) == 0
        names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("wait-")]
        assert names == [f"wait-00{number}" for number in range(9, 0, -1)]

    def test_more_jobs_wait_than_the_queue_lists(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, status(3, moreWaiting=True, moreActive=True))
        assert main(["top", "--once"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "1+ jobs active, 3+ waiting." in lines[0]
        assert "Jobs 1 to 4 of 4+" in lines

    def test_what_becomes_of_instances_is_drawn(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, status(0))
        assert main(["top", "--once"]) == 0
        rows = {line.split()[0]: line.split()[-1] for line in capsys.readouterr().out.splitlines()[2:5]}
        assert rows == {"Pool": "Use", "p5": "####!!o.", "c6": "...."}

    def test_pools_that_back_off(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        pause = {"pool": "p5", "instances": 4, "until": "2026-11-21T10:05:30Z"}
        server.answers(200, status(0, pauses=[pause]))
        server.answers(200, status(0, pauses=[pause] * 3))
        assert main(["top", "--once"]) == 0
        assert "p5 backs off until 10:05:30 UTC: SageMaker had no" in capsys.readouterr().out
        assert main(["top", "--once"]) == 0
        assert "3 pools back off (smq status says why" in capsys.readouterr().out

    def test_a_pool_whose_region_does_not_respond(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.answers(200, status(0, pauses=[{"pool": "p5", "until": "2026-11-21T10:05:30Z", "unreachable": True}]))
        assert main(["top", "--once"]) == 0
        out = capsys.readouterr().out
        assert "p5 backs off until 10:05:30 UTC: its region or account does not respond." in out
        assert "had no instances" not in out

    def test_a_pool_that_waits_for_quota_does_not_lack_instances(
        self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]
    ) -> None:
        counted = "SageMaker still counts 8 of 8 instances as in use, and the queue knows of 0."
        server.answers(200, status(0, pauses=[{"pool": "p5", "until": "2026-11-21T10:05:30Z", "quotaLag": counted}]))
        assert main(["top", "--once"]) == 0
        out = capsys.readouterr().out
        assert f"p5 waits until 10:05:30 UTC: {counted}" in out
        assert "had no instances" not in out

    def test_an_empty_queue(self, server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
        server.answers(200, {"pools": [], "active": [], "waiting": []})
        assert main(["top", "--once"]) == 0
        assert capsys.readouterr().out.endswith(" UTC\n\nThe queue is empty.\n")
