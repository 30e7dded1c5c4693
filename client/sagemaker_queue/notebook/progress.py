"""How far something has come: in a notebook as an output that changes, on a terminal as a line that does."""

from __future__ import annotations

import sys
from importlib import import_module
from types import TracebackType
from typing import Any

from sagemaker_queue.job_logs.renderer import JobLogRenderer
from sagemaker_queue.notebook import html


def in_notebook() -> bool:
    """Return whether there is a kernel of Jupyter, whose front end shows outputs and changes them."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python else None
    return getattr(shell, "kernel", None) is not None


class Progress:
    """A context manager; ``silent`` it shows nothing.

    Elsewhere than in a notebook it writes to standard error: on a terminal a line that changes, in a file nothing but
    notes.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._handle: Any = None
        self._shown = ""
        self._renderer: JobLogRenderer | None = None

    def __enter__(self) -> Progress:
        if not self._silent and not in_notebook():
            self._renderer = JobLogRenderer(sys.stderr, sys.stderr)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._renderer:
            self._renderer.close()

    def show(self, sentence: str, page: str | None = None) -> None:
        """Say how things are, in place of what was said before; a notebook shows the ``page`` if there is one."""
        if self._renderer:
            if sys.stderr.isatty():
                self._renderer.status(sentence)
        elif not self._silent:
            self._display(sentence, page or f"<div>{html.text(sentence)}</div>")

    def note(self, sentence: str) -> None:
        """Say something that stays; in a notebook the page has it."""
        if self._renderer:
            self._renderer.note(sentence)

    def hide(self) -> None:
        """Make room on a terminal for what somebody else writes."""
        if self._renderer:
            self._renderer.hide()

    def _display(self, sentence: str, page: str) -> None:
        if page == self._shown:
            return
        self._shown = page
        output = {"text/plain": sentence, "text/html": page}
        if self._handle is None:
            self._handle = import_module("IPython.display").display(output, raw=True, display_id=True)
        else:
            self._handle.update(output, raw=True)
