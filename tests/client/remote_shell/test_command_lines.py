"""What is run in a container, and what of the plugin's output is the command's."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_queue.workflows.remote_shell import session
from sagemaker_queue.workflows.remote_shell.command_lines import MarkedCommand, MarkedOutput
from tests.waiting import until

COMMAND = MarkedCommand(["true"], begin=b"<begin>", end=b"<end>")


@pytest.mark.thorough
@given(st.binary(max_size=60), st.lists(st.integers(1, 7), max_size=40))
def test_output_is_told_from_the_plugins_words_however_it_is_cut(written: bytes, sizes: list[int]) -> None:
    written = written.replace(b"<end>", b"")
    said = b"\nStarting session with SessionId: x\n<begin>" + written + b"<end> 7\n\n\nExiting session\n"
    output, got = MarkedOutput(COMMAND), b""
    for size in sizes:
        block, said = said[:size], said[size:]
        got += output.feed(block)
    got += output.feed(said)
    assert (got, output.status) == (written, 7)


def test_what_is_certain_is_given_at_once() -> None:
    output = MarkedOutput(COMMAND)
    assert output.feed(b"banner <begin>at work\n<e") == b"at work\n"
    assert output.feed(b"cho>") == b"<echo>"
    assert output.status is None


def test_a_session_that_breaks_off_has_no_status() -> None:
    output = MarkedOutput(COMMAND)
    assert output.feed(b"<begin>half") == b"half"
    assert output.feed(b"<end> ") == b""
    assert output.status is None


def test_output_is_complete_if_its_reader_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin ends when all of its output is in the pipe."""
    command, pid = MarkedCommand(["seq", "8000"]), tmp_path / "pid"

    class Pager(io.BytesIO):
        def write(self, block: Any, /) -> int:
            until(lambda: not psutil.pid_exists(int(pid.read_text())))
            return super().write(block)

    def terminate() -> None:
        pytest.fail("the session ends by itself")

    monkeypatch.setattr(session, "_TO_END_SECONDS", 0)
    pager, plugin = Pager(), ["sh", "-c", f"echo $$ > {pid}; {command.line}"]
    assert session.Session(plugin, dict(os.environ), command, terminate).run(lambda: True, pager) == 0
    assert pager.getvalue() == b"".join(b"%d\n" % number for number in range(1, 8001))


def test_marks_cannot_be_guessed() -> None:
    first, second = MarkedCommand(["true"]), MarkedCommand(["true"])
    assert len({first.begin, first.end, second.begin, second.end}) == 4
    assert len(first.begin) == 32


@pytest.mark.parametrize("word", ["a b", "it's", "$HOME", "`id`", "a\nb", ""])
def test_words_stay_words(word: str) -> None:
    command = MarkedCommand(["printf", "[%s]", word])
    written = subprocess.run(["sh", "-c", command.line], capture_output=True, check=True).stdout
    output = MarkedOutput(command)
    assert output.feed(written) == f"[{word}]".encode()
    assert output.status == 0
