"""The tutorials of docs/start, typed on a terminal: python -m tools.tutorials [PAGE ...] writes their outputs.

Each page is typed from beginning to end, on a local cloud that the page itself starts. Outputs that are similar to
those on the page are kept, so that times and amounts change only together with words.
"""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyte

from tests.client.terminal import Terminal
from tests.waiting import PATIENCE
from tools.page_outputs import Step, steps, with_outputs

ROOT = Path(__file__).parents[1]
PAGES = tuple(ROOT / "docs/start" / name for name in ("first-job.md", "survive-preemption.md", "two-teams.md"))

# Commands that are not typed as they stand: the text that is typed instead, and the reason.
STAND_INS = {
    "make demo": (":", "tests/system/test_guide.py types it in a fresh checkout"),
    ".venv/bin/python": (sys.executable, "the same environment, used from another folder"),
}

_WIDTH, _HEIGHT = 100, 500
_UNWRAPPED = 400  # columns; a page breaks no lines within words, as a terminal does
# The prompt of each shell reveals the status of the last command. Line editing would add control codes.
_PROMPT = re.compile(rb"\x1e(\d+)\x1e\Z")
_STARTUP = "PS1=$'\\x1e$?\\x1e' PS2=''\nset +o emacs\nunset HISTFILE PROMPT_COMMAND\nstty -echo\n"
_QUESTION = re.compile(rb"\[y/N\]:? ?\Z")


class Reader:
    """A person at a terminal who types the steps of a page."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._wait_for_prompt(0)

    def does(self, step: Step) -> str:
        """Carry out one step and return the output of its commands. Raise AssertionError if a command fails."""
        if step.file:
            return self._run(f"cat > {step.file} <<'END OF FILE'\n{step.text}\nEND OF FILE", Step(step.text))
        printed = [self._run(_typed(command), step) for command in step.commands]
        return "\n".join(text for text in printed if text)

    def _run(self, command: str, step: Step) -> str:
        deadline = time.monotonic() + PATIENCE
        while True:
            output, status = self._once(command, step.shown.interrupt if step.shown else "")
            expected = step.shown.exit if step.shown else 0
            if command == "exit" or (step.shown and step.shown.interrupt):
                break  # a shell ends with the status of its last command, and an interrupted command with any
            assert status == expected, f"{command}\nended with {status}:\n{output}"
            if not step.shown or step.shown.repeat in re.sub(r"\s+", " ", output):
                break
            assert time.monotonic() < deadline, f"{command}\nnever printed {step.shown.repeat}:\n{output}"
        return output

    def _once(self, command: str, interrupt: str) -> tuple[str, int]:
        begin = len(self._terminal.written)
        self._terminal.press(f"{command}\n")
        if interrupt:
            self._terminal.wait(lambda: interrupt.encode() in self._terminal.written[begin:])
            self._terminal.press("\x03")
        written = self._wait_for_prompt(begin)
        prompt = _PROMPT.search(written)
        assert prompt
        return rendered(written[: prompt.start()]), int(prompt[1])

    def _wait_for_prompt(self, begin: int) -> bytes:
        """Return what was written since `begin` as soon as the shell waits; answer yes to each question before."""
        answers: list[tuple[int, bytes]] = []

        def waits() -> bool:
            written = self._terminal.written
            asked = answers[-1][0] if answers else begin
            if _QUESTION.search(written[asked:]):
                answers.append((len(written), b"y\r\n"))
                self._terminal.press("y\n")
            return bool(_PROMPT.search(written[begin:]))

        self._terminal.wait(waits)
        written = self._terminal.written[begin:]
        for place, answer in reversed(answers):  # the terminal does not echo what is typed
            written = written[: place - begin] + answer + written[place - begin :]
        return written


def _typed(command: str) -> str:
    """Return the text to type for a command of a page."""
    for text, (instead, _) in STAND_INS.items():
        command = re.sub(rf"^{re.escape(text)}(?=\s|$)", instead.replace("\\", r"\\"), command)
    return command


def rendered(written: bytes) -> str:
    """Return the lines that a terminal shows in the end, after all progress bars and control codes."""
    screen = pyte.Screen(_UNWRAPPED, _HEIGHT)
    pyte.ByteStream(screen).feed(written)
    return "\n".join(row.rstrip() for row in screen.display).strip("\n")


@contextmanager
def reader(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[Reader]:
    """Open a shell in a folder that looks like a checkout, with a home of its own."""
    home, checkout = folder / "home", folder / "sagemaker-queue"
    home.mkdir()
    (home / ".bashrc").write_text(_STARTUP)
    shutil.copytree(ROOT / "examples", checkout / "examples")
    command = ["sh", "-c", 'cd "$0" && exec bash -i', str(checkout)]
    with Terminal(command, _WIDTH, _HEIGHT, {"HOME": str(home), **(environment or {})}) as terminal:
        yield Reader(terminal)


def outputs(page: str, folder: Path) -> list[str]:
    """Type all steps of a page in an empty folder, and return the output of each."""
    with reader(folder) as person:
        return [person.does(step) for step in steps(page)]


def main() -> None:
    """Write the outputs into the pages that the command line names, or into all."""
    for page in [Path(name) for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            text = page.read_text()
            page.write_text(with_outputs(text, outputs(text, Path(folder))))
            print(f"{os.path.relpath(page)} has its outputs")


if __name__ == "__main__":
    main()
