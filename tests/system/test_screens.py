"""``smq ls``, ``top`` and changes to several jobs, on a local cloud: owners, groups and places are the queue's own."""

import sys
from collections.abc import Callable

import pytest

from sagemaker_queue.cli import main
from tests.client.terminal import Terminal
from tests.system.conftest import FOREVER, System

pytestmark = pytest.mark.thorough


@pytest.fixture
def smq(system: System, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    for name, value in system.cloud.environment().items():
        monkeypatch.setenv(name, value)

    def smq(*arguments: str) -> str:
        capsys.readouterr()
        assert main(list(arguments)) == 0
        return capsys.readouterr().out

    return smq


def names(table: str) -> list[str]:
    return [line.split()[0] for line in table.splitlines()[2:]]


def test_jobs_are_found_and_changed_together(system: System, smq: Callable[..., str]) -> None:
    group = {"Key": "group", "Value": "lr"}
    system.submit("busy", FOREVER, priority=5, instances=2)
    system.wait_state("busy", "running")
    for number in (1, 2, 3):
        tags = [{"Key": "priority", "Value": str(number)}, *([group] if number != 2 else [])]
        system.submit(f"lr-{number}", FOREVER, Tags=tags)

    system.settles(lambda: names(smq("ls", "--mine")), ["busy", "lr-3", "lr-2", "lr-1"])
    # Its place among all jobs, not among those shown.
    system.settles(lambda: smq("ls", "lr-1", "-o", "position").split()[-1], "3")
    assert smq("ls", "--owner", "nobody") == ""
    assert names(smq("ls", "--running")) == ["busy"]
    assert names(smq("ls", "--waiting", "--sort", "waiting")) == ["lr-1", "lr-2", "lr-3"]
    assert names(smq("ls", "--group", "lr", "--sort", "name", "--limit", "1")) == ["lr-1"]
    assert names(smq("ls", "lr-*", "--project", "default", "--reverse")) == ["lr-1", "lr-2", "lr-3"]

    text = smq("top", "--once", "--sort", "position")
    assert "1 job active, 3 waiting." in text and "4 jobs, by position" in text
    assert smq("hold", "lr-?").splitlines() == ["lr-3 is on hold", "lr-2 is on hold", "lr-1 is on hold"]
    assert smq("cancel", "--group", "lr").splitlines() == ["lr-3 is stopped", "lr-1 is stopped"]
    system.settles(lambda: names(smq("ls")), ["busy", "lr-2"])


def test_the_live_screen_follows_the_queue(system: System, smq: Callable[..., str]) -> None:
    system.submit("watched", FOREVER)
    with Terminal([sys.executable, "-m", "sagemaker_queue", "top", "--interval", "1"], columns=120) as terminal:
        terminal.shows("watched", "1 job active, 0 waiting.")
        smq("cancel", "watched")
        terminal.shows("The queue is empty.")
        terminal.press("q")
        assert terminal.end() == 0 and terminal.is_as_before
