"""Logs and reasons that programs have written to harm: no error, bounded output, time in proportion to the length."""

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.domain.failures import Failure, LoggedLine, classify, exit_code_of, first_failed
from job_queue.domain.failures.classification import MOST_EVIDENCE
from job_queue.domain.failures.first_failure import LAST_LINES, MAX_RANK
from job_queue.domain.failures.known_texts import CLUES
from job_queue.domain.failures.log_text import LONGEST_LINE, MAX_EVIDENCE_LINE, MAX_SENTENCE, MOST_LINES
from job_queue.domain.failures.recognition import sightings

MARKERS = sorted({marker for clue in CLUES for marker in clue.markers})
FRAGMENTS = [
    *MARKERS,
    *(
        "\x1b[31m",
        "\x00",
        "\u202e",
        "\r",
        "\n",
        "[rank1]: ",
        "[1,mpirank:3,algo-1]<stderr>:",
        '"',
        "'",
        "[",
        "]",
        "{",
        "}",
    ),
    *("NCCL WARN ", "CUDA error: ", "ValueError: ", "Traceback (most recent call last)", "Xid (PCI:0000:01:00): 79"),
    *("s3://bucket/key", "/opt/ml/input/data/train", "exit code: ", "ExitCode ", "137", "-9", "{name}", "%s", "…"),
    *("AlgorithmError: ", "ClientError: ", "InternalServerError", "Command ", "ErrorMessage "),
]
LINES = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=20), max_size=12).map("".join)
LOGS = st.lists(LINES, max_size=20)
REASONS = st.none() | LINES
# Lines on which patterns try many positions.
HEAVY = [
    " ".join(MARKERS)[start : start + LONGEST_LINE] for start in range(0, len(" ".join(MARKERS)), LONGEST_LINE)
] + ["NCCL " * 200, '"A' * 500, '"A.' * 333, "cuda " * 200 + "out of memory", "['" * 500, " " * 1000, "a" * 1000]


def assert_bounded(failure: Failure) -> None:
    assert 0 < len(failure.sentence) <= MAX_SENTENCE
    assert failure.remedy
    assert len(failure.evidence) <= MOST_EVIDENCE
    for text in (failure.sentence, *failure.evidence):
        assert text.isprintable()
    assert all(0 < len(text) <= MAX_EVIDENCE_LINE for text in failure.evidence)


@given(reason=REASONS, exit_code=st.none() | st.integers(), lines=LOGS)
def test_each_log_has_a_class_and_printable_sentences(
    reason: str | None, exit_code: int | None, lines: Sequence[str]
) -> None:
    assert_bounded(classify(reason, exit_code, lines))
    exit_code_of(reason)


@given(events=st.lists(st.builds(LoggedLine, LINES, st.integers(0, 10), LINES), max_size=20))
def test_the_first_rank_is_one_of_the_log(events: list[LoggedLine]) -> None:
    rank, lines = first_failed(events)
    assert bool(lines) is bool(events)
    assert len(rank) <= MAX_RANK + 20
    assert rank.isprintable()
    assert len(lines) <= LAST_LINES
    assert all(line.isprintable() and len(line) <= LONGEST_LINE for line in lines)


@given(line=LINES)
def test_no_sentence_has_an_empty_place(line: str) -> None:
    for sighting in sightings(line):
        assert "{" not in sighting.sentence or "{" in line


@pytest.mark.parametrize("line", HEAVY, ids=range(len(HEAVY)))
def test_the_time_grows_with_the_length_of_the_log_only(line: str) -> None:
    short, long = (_seconds([line] * lines) for lines in (20, 80))
    assert long < 10 * short + 0.05  # 4 if it is proportional; the machine is shared


def test_a_log_beyond_the_limit_costs_no_more() -> None:
    line = "step 100 loss 1.5"
    assert _seconds([line] * 20 * MOST_LINES) < 3 * _seconds([line] * MOST_LINES) + 0.05
    assert _seconds(["x" * 10_000_000]) < 1


def _seconds(lines: Sequence[str]) -> float:
    """Return the processor time of one classification, the smallest of three."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        classify("AlgorithmError: , exit code: 1", None, lines)
        times.append(time.process_time() - begin)
    return min(times)
