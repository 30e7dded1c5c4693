"""The demo passes however busy the machine is, and Ctrl-C leaves nothing of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.local_cloud.test_commands import local_cloud, nothing_left

SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
HANGS = 1800  # seconds; a demo that takes as long does not come to an end


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """Processes that take all the time of the processors they can get."""
    spinners: list[subprocess.Popen[bytes]] = []
    try:
        spinners += [subprocess.Popen([sys.executable, "-I", "-S", "-c", SPIN]) for _ in range(count)]
        yield
        assert [spinner.poll() for spinner in spinners] == [None] * count
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def test_it_passes_while_all_processors_are_busy(tmp_path: Path) -> None:
    with spinning(2 * (os.cpu_count() or 1)), local_cloud(tmp_path, "demo") as process:
        told, complaints = process.communicate(timeout=HANGS)
    assert process.returncode == 0, f"{told}\n{complaints}"
    assert "Each job completed exactly once; job1 in two attempts." in told
    assert complaints == "The queue is empty.\n"  # smq's own word, where there is no table
    assert nothing_left(tmp_path)


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    with local_cloud(tmp_path, "demo") as process:
        assert process.stdout
        for line in process.stdout:
            if "job4 outranks all" in line:  # three jobs train, one of them is being stopped
                break
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        told, complaints = process.communicate(timeout=HANGS)
        assert (process.returncode, complaints) == (128 + signal.SIGINT, "")
        assert told.endswith("- Stopping the local cloud ...\n")
        assert nothing_left(tmp_path)
