"""What a transfer shows on a terminal, and elsewhere."""

import os
import sys
from pathlib import Path

import pytest

from sagemaker_queue.cli.progress_bars import TransferProgress
from tests.client.terminal import Terminal

PROGRAM = """
import sys
from sagemaker_queue.cli.progress_bars import TransferProgress
with TransferProgress("Uploading", 4_000_000) as progress:
    progress(1_000_000)
    progress(1_000_000)
    open(sys.argv[1]).read()
print("done")
"""


def test_it_counts_bytes_and_leaves_nothing_behind(tmp_path: Path) -> None:
    end = tmp_path / "end"
    os.mkfifo(end)
    with Terminal([sys.executable, "-c", PROGRAM, str(end)]) as terminal:
        terminal.shows("Uploading", "2.0/4.0 MB", "B/s", "0:00:")
        end.write_text("now")
        terminal.shows("done")
        assert "Uploading" not in terminal.text
        assert terminal.end() == 0


def test_a_small_transfer_has_no_bar() -> None:
    with Terminal([sys.executable, "-c", PROGRAM.replace("4_000_000", "92"), os.devnull]) as terminal:
        assert terminal.end() == 0
        assert "Uploading" not in terminal.text and b"?" not in terminal.written


def test_elsewhere_than_on_a_terminal_it_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with TransferProgress("Uploading", 100) as progress:
        progress(50)
    assert capsys.readouterr() == ("", "")
