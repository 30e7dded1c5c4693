"""Intervals of expected starts as text, in a sentence and short, and the sentence about a job that has one."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from api_contract.intervals import interval_in_words, short_interval
from api_contract.models import Expectation, JobSummary, Reason
from sagemaker_queue.jobs.formatting import starts_in, state_sentence

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
MINUTE, HOUR, DAY = 60, 3600, 86400


def expected(earliest: float, latest: float, level: float | None = 0.8, now: datetime = NOW) -> Expectation:
    return Expectation(earliest=now + timedelta(seconds=earliest), latest=now + timedelta(seconds=latest), level=level)


@pytest.mark.parametrize(
    ("earliest", "latest", "words", "short"),
    [
        (20 * MINUTE, 3 * HOUR, "between 20 min and 3 h", "20m-3h"),
        (24 * MINUTE, 2.6 * HOUR, "between 20 min and 3 h", "20m-3h"),  # rounded outwards
        (3.9 * MINUTE, 41 * MINUTE, "between 3 min and 45 min", "3m-45m"),
        (59 * MINUTE, 59.5 * MINUTE, "between 55 min and 1 h", "55m-1h"),
        (1.7 * HOUR, 11.2 * HOUR, "between 1.5 h and 12 h", "1.5h-12h"),
        (30.5 * HOUR, 2.7 * DAY, "between 30 h and 3 days", "30h-3d"),
        (2.6 * DAY, 12 * DAY, "between 2.5 days and 12 days", "2.5d-12d"),
        (0, 3 * HOUR, "within 3 h", "<3h"),
        (59, 10 * MINUTE, "within 10 min", "<10m"),
        (-5 * MINUTE, -2 * MINUTE, "within 1 min", "<1m"),
        (10 * MINUTE, 10 * MINUTE, "in about 10 min", "10m"),
    ],
)
def test_an_interval_is_a_wait_in_lengths_that_people_use(
    earliest: float, latest: float, words: str, short: str
) -> None:
    assert interval_in_words(expected(earliest, latest), NOW) == f"{words} (8 of 10)"
    assert short_interval(expected(earliest, latest), NOW) == short
    assert interval_in_words(expected(earliest, latest, level=None), NOW) == f"{words} (a guess)"
    assert short_interval(expected(earliest, latest, level=None), NOW) == f"~{short}"


@pytest.mark.parametrize("known", [Expectation(), Expectation(earliest=NOW), Expectation(latest=NOW)])
def test_without_both_ends_there_is_no_interval(known: Expectation) -> None:
    assert interval_in_words(known, NOW) is None
    assert short_interval(known, NOW) is None


def a_job(expectation: Expectation | None, reason: str = "It waits.") -> JobSummary:
    return JobSummary("job1", "pending", position=2, expected_start=expectation, reason=Reason("X", reason))


def test_the_sentence_about_a_job_has_the_interval_or_the_start_that_an_earlier_queue_tells(now: datetime) -> None:
    soon = expected(24 * MINUTE, 170 * MINUTE, now=now)
    begin = "job1 is pending, 2nd in the queue: It waits."
    assert state_sentence(a_job(soon)) == f"{begin} Expected wait: between 20 min and 3 h (8 of 10)."
    assert state_sentence(a_job(Expectation(start=NOW))) == f"{begin} Expected start: about 2026-11-21 12:00 UTC."
    assert state_sentence(a_job(Expectation())) == state_sentence(a_job(None)) == begin
    assert state_sentence(a_job(soon, "It waits")).endswith(": It waits")


def test_the_column_of_starts_shows_an_interval_even_if_simulations_have_no_start(now: datetime) -> None:
    known = Expectation(
        earliest=now + timedelta(minutes=22), latest=now + timedelta(hours=2.9), level=0.8, doubt="UNKNOWN_RUNTIMES"
    )
    assert starts_in(known) == "20m-3h"
    assert starts_in(Expectation(doubt="NEVER")) == ""
