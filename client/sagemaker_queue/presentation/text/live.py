"""The live screen of ``smq top`` on a terminal, by curses."""

import curses
import os
from contextlib import suppress
from dataclasses import replace

from api_contract.models import QueueStatus
from sagemaker_queue.jobs.formatting import one_line
from sagemaker_queue.presentation.text.top import ORDER_KEYS, Style, TopPage, TopView, top_page
from sagemaker_queue.workflows.poller import Poller

REDRAW_MILLISECONDS = 250
KEYS = f"q:quit {' '.join(f'{key}:{order}' for key, order in ORDER_KEYS.items())} R:reverse PgUp/PgDn"


class LiveScreen:
    """The screen and its keys. Use it within ``curses.wrapper``, which restores the terminal even after an error."""

    def __init__(self, window: curses.window, poller: Poller[QueueStatus], view: TopView) -> None:
        self._window = window
        self._poller = poller
        self._view = view
        self._attributes = _attributes()

    def run(self) -> None:
        """Draw the screen and handle keys until q is pressed."""
        self._window.timeout(REDRAW_MILLISECONDS)
        while True:
            page = self._draw()
            key = self._window.getch()
            if key in (ord("q"), ord("Q")):
                return
            self._handle_key(key, page)

    def _draw(self) -> TopPage:
        height, width = self._window.getmaxyx()
        # The last column stays free: writing to the bottom right corner would scroll.
        page = top_page(
            self._poller.latest,
            self._view,
            self._poller.at,
            width=width - 1,
            height=height - 1,
            outage=self._poller.outage,
        )
        self._window.erase()
        for row, line in enumerate(page.lines[: height - 1]):
            self._write(row, line.text, width, self._attributes[line.style])
        self._write(height - 1, KEYS, width, self._attributes[Style.HEADERS])
        self._window.refresh()
        return page

    def _write(self, row: int, text: str, width: int, attribute: int) -> None:
        if width > 1:
            self._window.addnstr(row, 0, one_line(text), width - 1, attribute)

    def _handle_key(self, key: int, page: TopPage) -> None:
        moves = {
            curses.KEY_UP: -1,
            curses.KEY_DOWN: 1,
            curses.KEY_PPAGE: -page.shown,
            curses.KEY_NPAGE: page.shown,
            curses.KEY_HOME: -page.jobs,
            curses.KEY_END: page.jobs,
        }
        letter = chr(key) if 0 <= key < 128 else ""
        if key in moves:
            first = max(0, min(page.first + moves[key], page.jobs - page.shown))
            self._view = replace(self._view, first=first)
        elif letter in ORDER_KEYS:
            self._view = replace(self._view, order=ORDER_KEYS[letter], first=0)
        elif letter == "R":
            self._view = replace(self._view, reverse=not self._view.reverse, first=0)
        elif letter == " ":
            self._poller.hurry()


def _attributes() -> dict[Style, int]:
    """Return the curses attributes of each style, without colours if the terminal has none or NO_COLOR is set."""
    attributes = dict.fromkeys(Style, curses.A_NORMAL)
    attributes |= {Style.TITLE: curses.A_BOLD, Style.HEADERS: curses.A_REVERSE, Style.WARNING: curses.A_BOLD}
    with suppress(curses.error):  # some terminals cannot hide their cursor
        curses.curs_set(0)
    if not curses.has_colors():
        return attributes
    curses.use_default_colors()  # the terminal's own colours, which may be dark on light
    if os.environ.get("NO_COLOR"):
        return attributes
    colours = {Style.ACTIVE: curses.COLOR_GREEN, Style.WAITING: curses.COLOR_YELLOW, Style.WARNING: curses.COLOR_RED}
    for number, (style, colour) in enumerate(colours.items(), start=1):
        curses.init_pair(number, colour, -1)
        attributes[style] |= curses.color_pair(number)
    return attributes
