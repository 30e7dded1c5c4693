"""Log lines and reasons as bounded, printable text. Log lines and reasons are untrusted: users' programs write them."""

import re
from collections.abc import Sequence

MOST_LINES = 1_000  # lines of a log that are read, from its end
MOST_CHARACTERS = 200_000  # characters of a log that are read, from its end
LONGEST_LINE = 1_000  # characters of a line that are read
MOST_REASON = 4_000  # characters of a reason that are read; SageMaker's limit is 1,024
MAX_EVIDENCE_LINE = 300  # characters
MAX_SENTENCE = 400  # characters

_HEAD = 700  # characters of a long line that come from its beginning; the rest comes from its end
_PARTS = 20  # parts of a line, such as the states of a progress bar, that are read from its end

# Prefixes that launchers write before a line of a rank: torchrun, mpirun, SageMaker's toolkit, and times.
_PREFIX = re.compile(
    r"\s{0,50}(?:"
    r"\[(?:rank|default|trainer|worker|local_rank)?\s?\d{1,5}\]:?"
    r"|\[\d{1,5},(?:mpirank:)?\d{1,5}(?:,[\w.-]{1,64})?\](?:<std(?:out|err)>)?:?"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?Z?(?= )"
    r")"
)


def printable(text: str, longest: int) -> str:
    """Return text on one line without control characters, of at most ``longest`` characters."""
    kept = text[: 4 * longest]
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in kept).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def bounded_line(line: str) -> str:
    """Return a line without control characters. If the line is long, return only its beginning and its end."""
    if len(line) > LONGEST_LINE:
        line = f"{line[:_HEAD]} … {line[-(LONGEST_LINE - _HEAD - 3) :]}"
    return "".join(letter if letter.isprintable() else " " for letter in line).rstrip()


def without_prefix(line: str) -> str:
    """Return a line without the prefixes of launchers, such as `[rank1]:`."""
    for _ in range(3):
        match = _PREFIX.match(line)
        if match is None:
            break
        line = line[match.end() :]
    return line.removeprefix(" ")


def bounded_lines(lines: Sequence[str]) -> list[str]:
    """Return the last lines of a log, each bounded and without the prefixes of launchers."""
    kept: list[str] = []
    characters = 0
    for line in lines[: -MOST_LINES - 1 : -1]:
        for part in reversed(line[-_PARTS * LONGEST_LINE :].replace("\r", "\n").split("\n")[-_PARTS:]):
            characters += min(len(part), LONGEST_LINE)
            if characters > MOST_CHARACTERS or len(kept) == MOST_LINES:
                return kept[::-1]
            if text := without_prefix(bounded_line(part)):
                kept.append(text)
    return kept[::-1]
