"""Which lines of a job's log are shown, and how."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sagemaker_queue.job_logs.attempt_logs import LogLine


@dataclass(frozen=True)
class LineChoice:
    """All lines, unless told otherwise."""

    attempt: int | None = None
    instance: str | None = None  # such as algo-1 or 1
    since: datetime | None = None  # not what was written before
    tail: int | None = None  # of what there is at first, no more than the last so many
    timestamps: bool = False
    as_json: bool = False

    def __contains__(self, line: LogLine) -> bool:
        """Whether a line is one of them, if it is late enough for ``tail``."""
        if self.since is not None and line.time < self.since:
            return False
        return self.instance in (None, line.instance, line.instance.removeprefix("algo-"))
