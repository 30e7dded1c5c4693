"""The live screen of ``smq top`` on a terminal, by curses."""

import curses
import os
from contextlib import suppress
from dataclasses import replace

from sagemaker_queue.cli.render.overview import ORDER_KEYS, Overview, Style, View, compose
from sagemaker_queue.cli.render.watch import Watch

REDRAW_MILLISECONDS = 250
KEYS = f"q:quit {' '.join(f'{key}:{order}' for key, order in ORDER_KEYS.items())} R:reverse PgUp/PgDn"


class Live:
    """The screen and its keys; ``curses.wrapper`` sets the terminal up, and right again however it ends."""

    def __init__(self, window: curses.window, watch: Watch, view: View) -> None:
        self._window = window
        self._watch = watch
        self._view = view
        self._looks = _looks()

    def run(self) -> None:
        """Draw and obey keys until one of them ends it."""
        self._window.timeout(REDRAW_MILLISECONDS)
        while True:
            screen = self._draw()
            key = self._window.getch()
            if key in (ord("q"), ord("Q")):
                return
            self._obey(key, screen)

    def _draw(self) -> Overview:
        height, width = self._window.getmaxyx()
        # The last column stays free: writing to the last corner would scroll.
        screen = compose(
            self._watch.status,
            self._view,
            self._watch.at,
            width=width - 1,
            height=height - 1,
            notice=self._watch.notice,
        )
        self._window.erase()
        for row, line in enumerate(screen.lines[: height - 1]):
            self._write(row, line.text, width, self._looks[line.style])
        self._write(height - 1, KEYS, width, self._looks[Style.HEADERS])
        self._window.refresh()
        return screen

    def _write(self, row: int, text: str, width: int, look: int) -> None:
        if width > 1:
            self._window.addnstr(row, 0, text, width - 1, look)

    def _obey(self, key: int, screen: Overview) -> None:
        moves = {
            curses.KEY_UP: -1,
            curses.KEY_DOWN: 1,
            curses.KEY_PPAGE: -screen.shown,
            curses.KEY_NPAGE: screen.shown,
            curses.KEY_HOME: -screen.jobs,
            curses.KEY_END: screen.jobs,
        }
        letter = chr(key) if 0 <= key < 128 else ""
        if key in moves:
            first = max(0, min(screen.first + moves[key], screen.jobs - screen.shown))
            self._view = replace(self._view, first=first)
        elif letter in ORDER_KEYS:
            self._view = replace(self._view, order=ORDER_KEYS[letter], first=0)
        elif letter == "R":
            self._view = replace(self._view, reverse=not self._view.reverse, first=0)
        elif letter == " ":
            self._watch.hurry()


def _looks() -> dict[Style, int]:
    """How each kind of line looks: without colours where there are none, or NO_COLOR is set."""
    looks = dict.fromkeys(Style, curses.A_NORMAL)
    looks |= {Style.TITLE: curses.A_BOLD, Style.HEADERS: curses.A_REVERSE, Style.TROUBLE: curses.A_BOLD}
    with suppress(curses.error):  # there are terminals that cannot hide their cursor
        curses.curs_set(0)
    if not curses.has_colors():
        return looks
    curses.use_default_colors()  # those of the terminal, which may be dark on light
    if os.environ.get("NO_COLOR"):
        return looks
    colours = {Style.ACTIVE: curses.COLOR_GREEN, Style.WAITING: curses.COLOR_YELLOW, Style.TROUBLE: curses.COLOR_RED}
    for number, (style, colour) in enumerate(colours.items(), start=1):
        curses.init_pair(number, colour, -1)
        looks[style] |= curses.color_pair(number)
    return looks
