"""The classification of a failed attempt by SageMaker's reason, the exit code and the last log lines.

One failure has many texts: if one rank runs out of GPU memory, all others report a time-out of NCCL. So the weight of a
clue decides first, and then the order of the classes. Both go from causes to consequences.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product

from job_queue.domain.failures.classes import MEANINGS, REMEDIES, Failure, FailureClass
from job_queue.domain.failures.clues import Weight
from job_queue.domain.failures.log_text import (
    MAX_EVIDENCE_LINE,
    MAX_SENTENCE,
    MOST_REASON,
    bounded_lines,
    printable,
)
from job_queue.domain.failures.recognition import python_exception, sightings

MOST_EVIDENCE = 5

# From causes to consequences, for clues of the same weight.
_ORDER = (
    FailureClass.HARDWARE,
    FailureClass.GPU_MEMORY,
    FailureClass.DISK_FULL,
    FailureClass.ACCESS_DENIED,
    FailureClass.MISSING_DATA,
    FailureClass.MEMORY,
    FailureClass.QUOTA,
    FailureClass.TIME_LIMIT,
    FailureClass.USER_ERROR,
    FailureClass.COMMUNICATION,
    FailureClass.STOPPED,
    FailureClass.UNKNOWN,
)

# The words before the actual reason, with the job's name if the SDK has written the text.
_PREAMBLE = re.compile(
    r"^\s?(?:Error for Training job [\w.-]{1,100}: )?(?:Failed\.? ?)?(?:(?:for )?reason: '?)?", re.IGNORECASE
)
_QUOTED_BY = re.compile(r"Command \"|SM_\w{1,40}=")  # the rest of the line is the program's own arguments
_ARGUMENTS = re.compile(r"\[(['\"][^'\"]{1,200}['\"]),.{0,900}['\"]\]")
_EXIT_CODE = re.compile(
    r"\b(?:exit[ _]?code|exit status|return code|status code|exited with(?: exit)?(?: code)?|non-zero exit status)"
    r"\s{0,3}[:=]?\s{0,3}(-?\d{1,4})\b",
    re.IGNORECASE,
)
_SCRIPT_EXIT_CODE = re.compile(r"ExecuteUserScriptError:\s{0,3}ExitCode (-?\d{1,4})\b")
_CONTAINER_EXIT_CODE = re.compile(r", exit code: (-?\d{1,4})\s{0,3}$")
_REASONS = (
    ("capacityerror", FailureClass.CAPACITY),
    ("insufficientcapacity", FailureClass.CAPACITY),
    ("ec2insufficientcapacity", FailureClass.CAPACITY),
    ("insufficientinstancecapacity", FailureClass.CAPACITY),
    ("internalservererror", FailureClass.INTERNAL),
    ("an error occurred (500)", FailureClass.INTERNAL),
    ("an error occurred (internal", FailureClass.INTERNAL),
    ("resourcelimitexceeded", FailureClass.QUOTA),
    ("maxruntimeexceeded", FailureClass.TIME_LIMIT),
    ("maxwaittimeexceeded", FailureClass.TIME_LIMIT),
)
_SIGBUS = (FailureClass.MEMORY, "The program was ended by SIGBUS: the shared memory (/dev/shm) is probably full.")
_SIGKILL = (FailureClass.MEMORY, "The program was killed, most likely because memory ran out (exit code 137).")
_EXIT_CODES = {
    2: (FailureClass.USER_ERROR, "The program refused its arguments or was not found (exit code 2)."),
    126: (FailureClass.USER_ERROR, "The program is not executable (exit code 126)."),
    127: (FailureClass.USER_ERROR, "The command of the container does not exist (exit code 127)."),
    132: (FailureClass.UNKNOWN, "The program used an instruction that the processor does not have (exit code 132)."),
    134: (FailureClass.UNKNOWN, "The program aborted (exit code 134)."),
    135: _SIGBUS,
    137: _SIGKILL,
    139: (FailureClass.UNKNOWN, "The program crashed (segmentation fault, exit code 139)."),
    -7: _SIGBUS,
    -9: _SIGKILL,
}


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A line that points to a class."""

    failure_class: FailureClass
    weight: Weight
    sentence: str
    line: str


def exit_code_of(reason: str | None) -> int | None:
    """Return the exit code that a FailureReason of SageMaker names, or None.

    SageMaker's training toolkit itself exits with 1. So the exit code of the user's script, at the beginning of the
    reason, is preferred. For other containers, the exit code is at the end of the reason, after the program's text.
    """
    text = (reason or "")[:MOST_REASON]
    match = _SCRIPT_EXIT_CODE.search(text) or _CONTAINER_EXIT_CODE.search(text) or _EXIT_CODE.search(text)
    return int(match[1]) if match else None


def classify(reason: str | None, exit_code: int | None, lines: Sequence[str]) -> Failure:
    """Return the class of a failed attempt, with the texts that decided.

    ``reason`` is SageMaker's FailureReason, ``lines`` are the last log lines of all ranks in the order of time.
    """
    reason = (reason or "")[:MOST_REASON]
    if preamble := _PREAMBLE.match(reason):
        reason = reason[preamble.end() :]
    failure_class = next((known for text, known in _REASONS if reason.lower().startswith(text)), None)
    if failure_class is not None:
        return _failure(failure_class, _quota_sentence(reason), [reason])
    return _by_texts(reason, exit_code_of(reason) if exit_code is None else exit_code, list(_evidence(reason, lines)))


def gravity(line: str) -> tuple[int, int] | None:
    """Return the gravity of the gravest clue in a line; a smaller value is nearer to the cause. None: no clue."""
    return min((_gravity(evidence) for evidence in _evidence("", [line])), default=None)


def _gravity(evidence: _Evidence) -> tuple[int, int]:
    return evidence.weight, _ORDER.index(evidence.failure_class)


def _by_texts(reason: str, exit_code: int | None, found: Sequence[_Evidence]) -> Failure:
    known = _EXIT_CODES.get(exit_code or 0, (FailureClass.UNKNOWN, ""))
    by_exit = [_Evidence(known[0], Weight.CAUSE, known[1], reason)] if exit_code in _EXIT_CODES else []
    killed = [evidence for evidence in by_exit if evidence.failure_class is FailureClass.MEMORY]
    for weight, failure_class in product(Weight, _ORDER):
        causes = [
            evidence for evidence in found if (evidence.failure_class, evidence.weight) == (failure_class, weight)
        ]
        if weight is Weight.LIKELY and failure_class is FailureClass.MEMORY:
            causes += killed
        if causes:
            return _failure(failure_class, causes[0].sentence, [evidence.line for evidence in causes])
    if not by_exit and reason.startswith("ClientError"):
        return _failure(FailureClass.USER_ERROR, f"SageMaker refused the job: {reason}", [reason])
    return _failure(known[0], known[1], [reason])


def _quota_sentence(reason: str) -> str:
    return next((sighting.sentence for sighting in sightings(reason) if sighting.sentence), "")


def _texts(reason: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the log, then the lines of the reason, which quotes the log. Programs' arguments are cut."""
    for line in chain(bounded_lines(lines), bounded_lines(reason.split("\n"))):
        text = _ARGUMENTS.sub(r"[\1, ...]", _QUOTED_BY.split(line, maxsplit=1)[0])
        if text.strip():
            yield text


def _evidence(reason: str, lines: Sequence[str]) -> Iterator[_Evidence]:
    in_traceback = False
    for line in _texts(reason, lines):
        found = [
            _Evidence(sighting.clue.failure_class, sighting.clue.weight, sighting.sentence, line)
            for sighting in sightings(line)
        ]
        yield from found
        if not found and (sentence := python_exception(line, in_traceback)):
            yield _Evidence(FailureClass.USER_ERROR, Weight.LIKELY, sentence, line)
        in_traceback = "Traceback (most recent" in line or (in_traceback and line.startswith(" "))


def _failure(failure_class: FailureClass, sentence: str, evidence: Sequence[str]) -> Failure:
    texts = dict.fromkeys(filter(None, (printable(text, MAX_EVIDENCE_LINE) for text in evidence[: 2 * MOST_EVIDENCE])))
    return Failure(
        failure_class,
        printable(sentence, MAX_SENTENCE) or MEANINGS[failure_class],
        REMEDIES[failure_class],
        tuple(texts)[:MOST_EVIDENCE],
    )
