"""Ranges of call numbers hold what was put into them, and little more where they are many."""

from hypothesis import given
from hypothesis import strategies as st

from job_queue.domain.launching.numbers import MOST_RANGES, Ranges, contains, with_number, without_number

CALLS = st.lists(st.booleans(), max_size=200)  # whether each call was refused


def unheard(refused: list[bool]) -> Ranges:
    ranges: Ranges = ()
    for number, is_refused in enumerate(refused, 1):
        ranges = with_number(ranges, number)
        if is_refused:
            ranges = without_number(ranges, number)
    return ranges


@given(CALLS)
def test_no_unheard_number_is_lost_and_there_are_few_ranges(refused: list[bool]) -> None:
    ranges = unheard(refused)
    assert len(ranges) <= MOST_RANGES
    assert all(contains(ranges, number) for number, it in enumerate(refused, 1) if not it)


@given(CALLS.filter(lambda refused: sum(refused) < MOST_RANGES - 1))
def test_a_refused_number_is_none_of_them(refused: list[bool]) -> None:
    ranges = unheard(refused)
    assert [contains(ranges, number) for number in range(1, len(refused) + 1)] == [not it for it in refused]


def test_a_number_in_the_middle_is_taken_out() -> None:
    assert without_number(((1, 3), (7, 9)), 8) == ((1, 3), (7, 7), (9, 9))
    assert without_number(((1, 3),), 5) == ((1, 3),)
