"""Times and tables as text."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from sagemaker_queue.jobs.formatting import age, file_size
from sagemaker_queue.presentation.text.layout import cut_in_the_middle, facts, folded, table


@pytest.mark.parametrize(
    ("elapsed", "text"),
    [
        (timedelta(seconds=41), "41s"),
        (timedelta(minutes=3, seconds=7), "3m07s"),
        (timedelta(hours=26), "1d2h"),
        (timedelta(seconds=-100), "0s"),  # the queue's clock is ahead
    ],
)
def test_age(elapsed: timedelta, text: str, now: datetime) -> None:
    assert age(now - elapsed) == text


class TestWidth:
    ROWS = (["a" * 40, 7, "z" * 60], ["c", 123, "d"])

    def lines(self, width: int | None, **more: Any) -> list[str]:
        return table(["Job Name", "N", "Reason"], self.ROWS, width=width, **more).splitlines()

    def test_without_a_terminal_nothing_is_cut(self) -> None:
        assert "a" * 40 in self.lines(None)[2] and "z" * 60 in self.lines(None)[2]

    @pytest.mark.parametrize("width", [50, 80, 100, 200])
    @pytest.mark.parametrize("compact", [False, True])
    def test_the_widest_words_are_cut_until_it_fits(self, width: int, compact: bool) -> None:
        lines = self.lines(width, compact=compact)
        assert max(map(len, lines)) <= width
        assert any("…" in line for line in lines) == (width < 120)

    def test_names_that_people_copy_stay_whole(self) -> None:
        row = self.lines(80, whole=("Job Name",))[2]
        assert row.startswith("a" * 40) and row.endswith("…") and len(row) <= 80

    def test_figures_are_never_cut(self) -> None:
        assert self.lines(10)[3].split() == ["c", "123", "d"]

    def test_a_column_that_is_wrapped_takes_what_is_left(self) -> None:
        lines = self.lines(80, wrapped="Reason")
        assert max(map(len, lines)) <= 80
        assert "".join(lines).count("z") == 60 and "a" * 40 in lines[2]

    def test_sentences_hang_below_their_beginning(self) -> None:
        assert folded("- one two three", 40) == "  - one two three"
        text = folded("- " + "word " * 12, 42, hanging="  ").splitlines()
        assert text == ["  - " + "word " * 6 + "word", "    " + "word " * 4 + "word"]

    def test_facts_without_blanks_are_left_in_one_piece(self) -> None:
        arn = "arn:aws:iam::123456789012:role/" + "r" * 60
        assert facts({"Role": arn, "State": "so " * 30}, 60).splitlines()[0] == f"  Role   {arn}"


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["short", "resnet-with-a-long-name-7"], ["short", "resnet-…-name-7"]),
        (
            ["a-long-name-lr-0.1-with-an-end", "a-long-name-lr-0.2-with-an-end"],
            ["a-lon…r-0.1-wi…", "a-lon…r-0.2-wi…"],
        ),
        (["a" * 40, "a" * 40, None], ["a" * 7 + "…" + "a" * 7] * 2 + [None]),
    ],
)
def test_names_that_are_cut_still_differ(names: list[object], shown: list[object]) -> None:
    assert cut_in_the_middle(names, 15) == shown


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (12_345_678, "12.3 MB"),
        (2 * 10**12, "2,000.0 GB"),
    ],
)
def test_sizes_of_files(count: int, text: str) -> None:
    assert file_size(count) == text
