"""Progress displays: an updated output in a notebook, an updated line on a terminal."""

from __future__ import annotations

import sys
from importlib import import_module
from types import TracebackType
from typing import Any

from sagemaker_queue.notebook import html
from sagemaker_queue.workflows.job_logs.renderer import JobLogRenderer


def in_notebook() -> bool:
    """Return whether the process is a Jupyter kernel, so that outputs can be shown and updated."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python else None
    return getattr(shell, "kernel", None) is not None


class Progress:
    """A context manager for a progress display; with ``silent``, nothing is shown.

    Outside a notebook, the display is on standard error: an updated line and notes on a terminal, only notes in a file.
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
        """Replace the displayed status by a sentence; a notebook shows the HTML ``page`` instead, if given."""
        if self._renderer:
            if sys.stderr.isatty():
                self._renderer.status(sentence)
        elif not self._silent:
            self._display(sentence, page or f"<div>{html.text(sentence)}</div>")

    def note(self, sentence: str) -> None:
        """Print a permanent line; notebooks do not show the line, because their pages contain the same information."""
        if self._renderer:
            self._renderer.note(sentence)

    def hide(self) -> None:
        """Remove the status line from a terminal, before the caller prints."""
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
