"""A program on a pseudo terminal whose screen can be read."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyte

from tests.waiting import PATIENCE

_END = b"\x1b_end of the output\x1b\\"  # no program writes this


class Terminal:
    """Runs a command on a terminal of its own, which is the one that controls it."""

    def __init__(
        self, command: Sequence[str], columns: int = 80, lines: int = 24, environment: Mapping[str, str] | None = None
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.written = b""
        self._master, self._slave = pty.openpty()
        self.resize(columns, lines)
        self.settings = self._settings()
        # The leader of a new session gets the terminal that it opens first.
        shell = ["sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(self._slave), *command]
        settings = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(environment or {})}
        # pytest-xdist sets the size of its own terminal, which curses would believe.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            shell,
            start_new_session=True,
            env={**inherited, **settings},
            # A shell has what it runs in the background ignore it, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    @property
    def rows(self) -> list[str]:
        """What stands on the screen, without the blanks at the ends of lines."""
        return [row.rstrip() for row in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    def has(self, text: str) -> bool:
        """Whether it stands on the screen, wherever the terminal breaks its lines."""
        return "".join(text.split()) in "".join(self.text.split())

    @property
    def cells(self) -> list[list[Any]]:
        """The characters of each row, with their colours."""
        buffer = self._screen.buffer
        return [[buffer[row][column] for column in range(self._screen.columns)] for row in range(self._screen.lines)]

    @property
    def colours(self) -> set[str]:
        return {cell.fg for row in self._screen.buffer.values() for cell in row.values()}

    def _settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    @property
    def is_as_before(self) -> bool:
        """Whether the program left the terminal as it found it."""
        return self._settings() == self.settings

    def resize(self, columns: int, lines: int) -> None:
        self._screen.resize(lines, columns)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait(self, reached: Callable[[], Any]) -> None:
        """Let the program write until the screen is as expected."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            assert time.monotonic() < deadline, f"the screen never was as expected:\n{self.text}"
            ended = self.process.poll() is not None
            if select.select([self._master], [], [], 0.1)[0]:
                self._read()
            elif ended:
                self._read_to_the_end()
                assert reached(), f"the program has ended:\n{self.text}"

    def shows(self, *texts: str) -> None:
        self.wait(lambda: all(text in self.text for text in texts))

    def end(self) -> int:
        """Read until the program has ended; its exit code."""
        self.wait(lambda: self.process.poll() is not None)
        self._read_to_the_end()
        return self.process.returncode

    def _read(self) -> None:
        self._show(os.read(self._master, 65536))

    def _read_to_the_end(self) -> None:
        """Read everything that has been written so far.

        The kernel delivers the output of a program in order, but sometimes only after the end of the program. So this
        method writes a mark behind the output, and reads up to the mark.
        """
        while select.select([self._master], [], [], 0)[0]:
            self._read()
        os.write(self._slave, _END)
        got = b""
        while _END not in got:
            got += os.read(self._master, 65536)
        self._show(got.replace(_END, b""))

    def _show(self, got: bytes) -> None:
        self.written += got
        self._stream.feed(got)
