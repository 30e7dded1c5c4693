"""The rank that failed first, from the log lines of all ranks with their streams and times."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from job_queue.domain.failures.clues import Weight, python_exception, sightings
from job_queue.domain.failures.log_text import LONGEST_LINE, MOST_LINES, bounded_line, printable, without_prefix

LAST_LINES = 20  # lines of the rank that are returned
MAX_RANK = 100

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

    The first rank is the one with the earliest line that names a cause; without one, the one with the earliest line
    that names a consequence, such as a time-out of NCCL; without both, the one that was silent first. An empty name
    means that there are no lines.
    """
    kept = sorted(events, key=lambda event: event.at)[-MOST_LINES:]
    if not kept:
        return "", ()
    by_rank: dict[str, list[LoggedLine]] = {}
    for event in kept:
        by_rank.setdefault(_rank(event), []).append(event)
    first = min(by_rank, key=lambda rank: min((_order(event) for event in by_rank[rank]), default=(2, 0)))
    if all(_order(event)[0] == 2 for event in kept):
        first = min(by_rank, key=lambda rank: by_rank[rank][-1].at)
    return first, tuple(printable(event.text, LONGEST_LINE) for event in by_rank[first][-LAST_LINES:])


def _order(event: LoggedLine) -> tuple[int, int]:
    line = without_prefix(bounded_line(event.text))
    found = list(sightings(line))
    if any(sighting.clue.weight < Weight.KILLED for sighting in found) or (not found and python_exception(line)):
        return 0, event.at
    return (1 if found else 2), event.at


def _rank(event: LoggedLine) -> str:
    host = _HOST.search(event.stream[-200:])
    name = host["host"] if host else printable(event.stream, MAX_RANK)
    rank = _RANK.match(event.text[:100])
    return f"{name} rank {rank['torch'] or rank['mpi']}" if rank else name
