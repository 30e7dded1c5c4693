"""The rank that failed first, from the log lines of all ranks with their streams and times."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from job_queue.domain.failures.classification import gravity
from job_queue.domain.failures.log_text import LONGEST_LINE, MOST_LINES, bounded_line, printable, without_prefix

LAST_LINES = 20  # lines of the rank that are returned
MAX_RANK = 100  # characters of a rank's name

_RANK = re.compile(r"^\s{0,20}\[(?:(?:rank|default)(?P<torch>\d{1,5})|\d{1,5},(?:mpirank:)?(?P<mpi>\d{1,5})\b)")
_HOST = re.compile(r"(?:^|/)(?P<host>algo-\d{1,5})\b")


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """A line of a log, with the log stream and the time in milliseconds that CloudWatch reports."""

    stream: str  # <training job>/algo-<n>-<time>
    at: int
    text: str


def first_failed(events: Iterable[LoggedLine]) -> tuple[str, tuple[str, ...]]:
    """Return the name of the rank that failed first, such as `algo-2 rank 3`, and its last log lines.

    The earliest line that names the gravest cause decides. Without a cause, the earliest consequence decides, such as a
    time-out of NCCL. Without both, return the rank with the earliest last line. The name is empty if there are no
    lines.
    """
    kept = sorted(events, key=lambda event: event.at)[-MOST_LINES:]
    if not kept:
        return "", ()
    weighed = [(gravity(without_prefix(bounded_line(event.text))), index) for index, event in enumerate(kept)]
    gravest = min(((known, index) for known, index in weighed if known is not None), default=None)
    last_lines = {_rank(event): index for index, event in enumerate(kept)}
    first = _rank(kept[gravest[1]]) if gravest else min(last_lines, key=last_lines.__getitem__)
    lines = [event.text for event in kept if _rank(event) == first]
    return first, tuple(printable(line, LONGEST_LINE) for line in lines[-LAST_LINES:])


def _rank(event: LoggedLine) -> str:
    host = _HOST.search(event.stream[-200:])
    name = host["host"] if host else printable(event.stream, MAX_RANK)
    rank = _RANK.match(event.text[:100])
    return f"{name} rank {rank['torch'] or rank['mpi']}" if rank else name
