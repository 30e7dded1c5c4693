"""Progress bars of transfers on a terminal: bytes, speed and remaining time."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from sagemaker_queue.cli.output import raw

if TYPE_CHECKING:
    from rich.progress import Progress


LEAST_BYTES = 1_000_000  # a smaller transfer ends before its speed is known


class TransferProgress:
    """A context manager with a progress bar. Call the object with each number of transferred bytes, from any thread.

    The bar is shown only if stderr is a terminal, and ``total`` is at least LEAST_BYTES.
    """

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._progress: Progress | None = None

    def __enter__(self) -> TransferProgress:
        if sys.stderr.isatty() and self._total >= LEAST_BYTES:
            from rich.console import Console  # noqa: PLC0415  # slow to import
            from rich.progress import (  # noqa: PLC0415
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=Console(file=raw(sys.stderr)), transient=True)
            self._progress.add_task(self._title, total=self._total)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress:
            self._progress.stop()

    def __call__(self, moved: int) -> None:
        """Add ``moved`` bytes to the bar."""
        if self._progress:
            self._progress.advance(self._progress.task_ids[0], moved)
