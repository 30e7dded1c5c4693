"""The demo passes however busy the machine is, and Ctrl-C leaves nothing of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.client.terminal import Terminal
from tests.local_cloud.test_commands import ROOT, local_cloud, nothing_left

SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
ARTICLE = """
Job Name    State      Priority
----------  -------  ----------
job2        running           2
job1        running           1
job3        pending           1
"""
HANGS = 1800  # seconds; a demo that takes as long does not come to an end


@contextmanager
def on_one_busy_processor(spinner_count: int) -> Iterator[None]:
    """What is started meanwhile has one processor, and spinning processes have it, too.

    The other processors stay with the rest of the tests. Where a process cannot be kept to one, all are kept busy.
    """
    spinners: list[subprocess.Popen[bytes]] = []
    everywhere = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else None
    count = spinner_count if everywhere else spinner_count * (os.cpu_count() or 1)
    try:
        if everywhere:
            os.sched_setaffinity(0, {min(everywhere)})
        spinners += [subprocess.Popen([sys.executable, "-I", "-S", "-c", SPIN]) for _ in range(count)]
        yield
        assert [spinner.poll() for spinner in spinners] == [None] * count
    finally:
        if everywhere:
            os.sched_setaffinity(0, everywhere)
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


@pytest.mark.thorough
def test_it_passes_on_one_processor_that_is_busy_with_others(tmp_path: Path) -> None:
    with on_one_busy_processor(spinner_count=2), local_cloud(tmp_path, "demo") as process:
        told, complaints = process.communicate(timeout=HANGS)
    assert process.returncode == 0, f"{told}\n{complaints}"
    assert "Each job completed exactly once; job1 in two attempts." in told
    assert (
        complaints == "The queue is empty; 4 jobs have finished: add --all to list them.\n"
    )  # smq's own word, where there is no table
    assert nothing_left(tmp_path)


@pytest.mark.thorough
def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "local_cloud", "demo"]
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}
    with Terminal(command, columns=120, lines=100, environment=environment) as terminal:
        terminal.shows("job4 outranks all")  # three jobs train, one of them is being stopped
        assert ARTICLE in terminal.text  # not what `smq ls` has on a terminal
        terminal.process.send_signal(signal.SIGINT)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 128 + signal.SIGINT
        assert terminal.text.rstrip().endswith("\n- Stopping the local cloud ...")
        assert nothing_left(tmp_path)
