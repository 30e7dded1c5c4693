"""What is run in a container, and what of the plugin's output is the command's."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagemaker_queue.workflows.remote_shell.command_lines import MarkedCommand, MarkedOutput

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
