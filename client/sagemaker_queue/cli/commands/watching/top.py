"""``smq top``: show the queue on a live screen."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from sagemaker_queue.cli.arguments import JobChoice, job_choice_arguments
from sagemaker_queue.cli.commands.watching.interval import TRIES, interval_option
from sagemaker_queue.cli.output import DONE, width
from sagemaker_queue.cli.parser import command, connection, flag
from sagemaker_queue.errors import ConfigError
from sagemaker_queue.presentation.text.top import ORDER_KEYS, TopView, top_page
from sagemaker_queue.queue.config.pace import POLL_SECONDS, states
from sagemaker_queue.workflows.poller import Poller
from sagemaker_queue.workflows.signal_handlers import signal_handlers

TIMEOUT_SECONDS = (5.0, 20.0)


@command(
    "top",
    help="show pools, projects and jobs on a live screen",
    description="Show pools, projects and live jobs on a screen that is updated continuously. Keys: q quits; "
    "arrows, Page Up, Page Down, Home and End scroll; "
    f"{', '.join(f'{key} ({order})' for key, order in ORDER_KEYS.items())} sort the jobs; R reverses the "
    "order; the space bar updates the screen at once.",
    examples=["smq top", "smq top --project vision --sort waiting", "smq top --once > now.txt"],
)
@job_choice_arguments
@interval_option(POLL_SECONDS)
@flag("--once", help="print one complete screen and end, as without a terminal")
def top(choice: JobChoice, interval: float, once: bool) -> int:
    """Show the queue on a live screen, or print it once."""
    # Short timeouts and few tries: the next poll repeats the request, and the screen soon reports a missing answer.
    queue = connection().queue(tries=TRIES, timeout_seconds=TIMEOUT_SECONDS)
    view = TopView(choice.selection(queue), choice.sort, choice.reverse)
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        page = top_page(queue.queue(), view, datetime.now(timezone.utc), width=width())
        print("\n".join(line.text for line in page.lines))
        return DONE
    try:
        import curses  # noqa: PLC0415  # missing on Windows

        from sagemaker_queue.presentation.text.live import LiveScreen  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("This Python cannot draw a live screen; smq top --once prints one.") from error
    try:
        curses.setupterm()
        can_be_drawn_on = curses.tigetstr("cup") is not None  # the terminal can position its cursor
    except curses.error:
        can_be_drawn_on = False
    if not can_be_drawn_on:
        terminal_type = os.environ.get("TERM", "")
        raise ConfigError(
            f"A terminal of the type {terminal_type!r} cannot show a live screen; smq top --once prints one."
        )
    poller = Poller(queue.queue, interval, state_of=states)
    with _ended_by_signals():
        curses.wrapper(lambda window: LiveScreen(window, poller, view).run())
    return DONE


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that the terminal is restored before the process ends."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    with signal_handlers(dict.fromkeys((signal.SIGTERM, signal.SIGHUP), end)):
        yield
