"""A clue: a text that points to a class of failures, with a sentence and a weight."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from job_queue.domain.failures.classes import FailureClass


class Weight(IntEnum):
    """The weight of a clue. The clue with the smallest value decides."""

    CAUSE = 0
    LIKELY = 1  # decides if no cause is known
    KILLED = 2  # a launcher may have killed the process after another process had failed
    CONSEQUENCE = 3  # also appears if a peer has failed for another reason


@dataclass(frozen=True, slots=True)
class Clue:
    """A text that points to a class.

    A line has the clue if it contains one of ``markers`` and the ``pattern`` matches a part of the line. Upper and
    lower case are equal. Without a pattern, a marker is enough.
    """

    failure_class: FailureClass
    weight: Weight
    markers: tuple[str, ...]  # lower case
    sentence: str = ""  # with the names of the pattern's groups in braces; empty: the meaning of the class
    pattern: re.Pattern[str] | None = None

    def found_in(self, line: str, lowered: str) -> "Sighting | None":
        """Return the sighting of this clue in a line, or None."""
        if not any(marker in lowered for marker in self.markers):
            return None
        if self.pattern is None:
            return Sighting(self, self.sentence)
        match = self.pattern.search(line)
        if match is None:
            return None
        names = {name: value.strip(" .,:;'\"()") for name, value in match.groupdict().items() if value}
        complete = all(names.get(name) for name in self.pattern.groupindex)
        return Sighting(self, self.sentence.format_map(names) if complete else "")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A clue that was found, and its sentence with the names from the line."""

    clue: Clue
    sentence: str


def clues(failure_class: FailureClass, weight: Weight, rows: Iterable[tuple[str, ...]]) -> Iterator[Clue]:
    """Yield clues from rows of markers (separated by `|`), sentence and pattern."""
    for markers, *rest in rows:
        sentence = rest[0] if rest else ""
        pattern = re.compile(rest[1], re.IGNORECASE) if rest[1:] else None
        yield Clue(failure_class, weight, tuple(markers.split("|")), sentence, pattern)
