"""The classification of a failed attempt by SageMaker's reason, the exit code and the last log lines.

One failure has many texts: if one rank runs out of GPU memory, all others report a time-out of NCCL. So the classes
have an order, from causes to consequences, and the first class of this order that a text points to is the answer.
"""

import re
from collections.abc import Iterator, Sequence

from job_queue.domain.failures.classes import MEANINGS, REMEDIES, Failure, FailureClass
from job_queue.domain.failures.clues import REASONS, Sighting, python_exception, sightings
from job_queue.domain.failures.log_text import (
    MAX_EVIDENCE_LINE,
    MAX_SENTENCE,
    MOST_REASON,
    bounded_lines,
    printable,
)

MOST_EVIDENCE = 5

# From causes to consequences.
_ORDER = (
    FailureClass.HARDWARE,
    FailureClass.GPU_MEMORY,
    FailureClass.DISK_FULL,
    FailureClass.ACCESS_DENIED,
    FailureClass.MISSING_DATA,
    FailureClass.MEMORY,
    FailureClass.USER_ERROR,
)
_EXIT_CODE = re.compile(
    r"\b(?:exit ?code:?|exit status|exited with code|returned non-zero exit status) {0,3}(-?\d{1,4})\b", re.I
)
_COMMAND = re.compile(r"Command \"")
_EXIT_CODES = {
    2: (FailureClass.USER_ERROR, "The program refused its arguments or was not found (exit code 2)."),
    126: (FailureClass.USER_ERROR, "The program is not executable (exit code 126)."),
    127: (FailureClass.USER_ERROR, "The command of the container does not exist (exit code 127)."),
    135: (FailureClass.MEMORY, "The program was ended by SIGBUS: the shared memory (/dev/shm) is probably full."),
    137: (FailureClass.MEMORY, "The program was killed, most likely because memory ran out (exit code 137)."),
    -7: (FailureClass.MEMORY, "The program was ended by SIGBUS: the shared memory (/dev/shm) is probably full."),
    -9: (FailureClass.MEMORY, "The program was killed, most likely because memory ran out (SIGKILL)."),
}


def exit_code_of(reason: str | None) -> int | None:
    """Return the exit code that a FailureReason of SageMaker names, or None."""
    match = _EXIT_CODE.search((reason or "")[:MOST_REASON])
    return int(match[1]) if match else None


def classify(reason: str | None, exit_code: int | None, lines: Sequence[str]) -> Failure:
    """Return the class of a failed attempt, with the texts that decided.

    ``reason`` is SageMaker's FailureReason, ``lines`` are the last log lines of all ranks in the order of time.
    """
    reason = (reason or "")[:MOST_REASON]
    return _by_reason(reason) or _by_texts(reason, exit_code_of(reason) if exit_code is None else exit_code, lines)


def _by_reason(reason: str) -> Failure | None:
    for clue in REASONS:
        if clue.found_in(reason, reason.lower()):
            return _failure(clue.failure_class, "", [reason])
    return None


def _by_texts(reason: str, exit_code: int | None, lines: Sequence[str]) -> Failure:
    found = list(_sightings(reason, lines))
    for failure_class in _ORDER:
        causes = [(line, sighting.sentence) for line, sighting in found if _is_cause(sighting, failure_class)]
        if not causes and failure_class is FailureClass.MEMORY and _is_killed(exit_code):
            causes = [(reason, _EXIT_CODES[exit_code or 0][1])]
        if not causes and failure_class is FailureClass.USER_ERROR:
            causes = list(_exceptions(reason, lines))
        if causes:
            return _failure(failure_class, causes[0][1], [line for line, _ in causes])
    if found:
        return _failure(found[0][1].clue.failure_class, found[0][1].sentence, [line for line, _ in found])
    failure_class, sentence = _EXIT_CODES.get(exit_code or 0, (FailureClass.UNKNOWN, ""))
    return _failure(failure_class, sentence, [reason])


def _is_cause(sighting: Sighting, failure_class: FailureClass) -> bool:
    return sighting.clue.failure_class is failure_class and not sighting.clue.is_symptom


def _is_killed(exit_code: int | None) -> bool:
    return exit_code in _EXIT_CODES and _EXIT_CODES[exit_code][0] is FailureClass.MEMORY


def _texts(reason: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the log, then those of the reason, which repeats the log, without the command."""
    yield from bounded_lines(lines)
    yield from bounded_lines([_COMMAND.split(reason, maxsplit=1)[0]])


def _sightings(reason: str, lines: Sequence[str]) -> Iterator[tuple[str, Sighting]]:
    for line in _texts(reason, lines):
        for sighting in sightings(line):
            yield line, sighting


def _exceptions(reason: str, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in _texts(reason, lines):
        if (sentence := python_exception(line)) and not any(sightings(line)):
            yield line, sentence


def _failure(failure_class: FailureClass, sentence: str, evidence: Sequence[str]) -> Failure:
    texts = dict.fromkeys(filter(None, (printable(text, MAX_EVIDENCE_LINE) for text in evidence[: 2 * MOST_EVIDENCE])))
    return Failure(
        failure_class,
        printable(sentence, MAX_SENTENCE) or MEANINGS[failure_class],
        REMEDIES[failure_class],
        tuple(texts)[:MOST_EVIDENCE],
    )
