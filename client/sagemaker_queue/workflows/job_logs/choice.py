"""Filters for the log lines that are shown (instance, attempt, time, last lines), and their format."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagemaker_queue.workflows.job_logs.attempt_logs import LogLine


@dataclass(frozen=True)
class LineChoice:
    """A filter of log lines and their format. Each filter that is None accepts all lines."""

    attempt: int | None = None
    instance: str | None = None  # such as algo-1 or 1
    since: datetime | None = None  # lines written earlier are left out
    tail: int | None = None  # show only this many lines at the end of the present log, and all later lines
    timestamps: bool = False
    as_json: bool = False

    def __contains__(self, line: LogLine) -> bool:
        """Return whether ``since`` and ``instance`` accept a line; ``attempt`` and ``tail`` are not checked."""
        if self.since is not None and line.time < self.since:
            return False
        return self.instance in (None, line.instance, line.instance.removeprefix("algo-"))
