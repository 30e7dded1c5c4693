"""Calibrated intervals: worked out by hand, and held as often as intended on made-up streams of looks."""

from collections.abc import Sequence
from math import log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.prediction.conformal import (
    FEWEST_LOOKS,
    MOST_LOOKS,
    MOST_SCORES,
    LookScores,
    UsualErrors,
    representative_scores,
    score,
    wait_of,
)
from job_queue.prediction.conformal import usual_errors as errors_of

waits = st.floats(0, 1e7)
scores = st.floats(-8, 8)


def usual_errors(looks: Sequence[Sequence[float]]) -> UsualErrors:
    """Return the errors of looks whose jobs have all started."""
    return errors_of([LookScores(known) for known in looks])


def test_a_score_is_the_logarithm_of_how_many_times_longer_the_wait_was() -> None:
    assert score(2100, 900) == pytest.approx(log(2))
    assert score(900, 2100) == pytest.approx(-log(2))
    assert wait_of(log(2), 900) == pytest.approx(2100)
    assert wait_of(-5, 900) == 0, "a wait is never negative"


@given(waits, waits)
def test_a_wait_is_found_again_from_its_score(wait: float, told: float) -> None:
    assert wait_of(score(wait, told), told) == pytest.approx(wait, rel=1e-6, abs=1e-2)


@given(scores, scores, waits)
def test_a_larger_score_is_a_longer_wait(one: float, other: float, told: float) -> None:
    assert wait_of(min(one, other), told) <= wait_of(max(one, other), told)


@given(st.lists(scores, max_size=40))
def test_few_scores_are_kept_of_a_look_and_none_beyond_its_range(found: list[float]) -> None:
    kept = representative_scores(found)
    assert len(kept) == min(len(found), MOST_SCORES)
    assert list(kept) == sorted(kept)
    if found:
        assert min(found) - 1e-9 <= kept[0] and kept[-1] <= max(found) + 1e-9


def test_kept_scores_are_evenly_spaced() -> None:
    assert representative_scores(range(90)) == pytest.approx([4.5 + 10 * place for place in range(9)])


def test_few_looks_tell_only_how_many_they_are() -> None:
    few = [(1.0,)] * (FEWEST_LOOKS - 1)
    assert usual_errors(few) == UsualErrors(FEWEST_LOOKS - 1)
    assert not usual_errors(few).are_known
    assert not usual_errors([*few, ()]).are_known, "a look without scores does not count"
    assert usual_errors([*few, (2.0,)]).are_known


def test_quantiles_of_looks_with_one_score() -> None:
    errors = usual_errors([(float(number),) for number in range(1, 101)])
    assert (errors.low, errors.middle, errors.high, errors.bound) == pytest.approx((10, 50, 90, 95), abs=1e-3)
    assert errors.looks == 100


def test_a_quantile_is_the_smallest_score_that_enough_scores_do_not_exceed() -> None:
    errors = usual_errors([tuple(map(float, range(9)))] * FEWEST_LOOKS)
    assert (errors.low, errors.middle, errors.high, errors.bound) == (0, 4, 8, 8)


def test_the_part_of_a_job_that_still_waits_is_shared_by_the_larger_scores() -> None:
    """Worked out by hand (Kaplan-Meier): 1/4 up to 1, and half of the other 3/4 for each of the two scores above 2."""
    looks = [LookScores((1.0, 3.0, 4.0), at_least=(2.0,))] * FEWEST_LOOKS
    errors = errors_of(looks)
    assert (errors.low, errors.middle, errors.high) == (1, 3, 4)
    without = errors_of([LookScores((1.0, 3.0, 4.0))] * FEWEST_LOOKS)
    assert without.middle == 3
    early = errors_of([LookScores((1.0, 4.0), at_least=(2.0, 2.0))] * FEWEST_LOOKS)
    assert (early.middle, errors_of([LookScores((1.0, 4.0))] * FEWEST_LOOKS).middle) == (4, 1)


def test_a_limit_above_all_scores_counts_as_a_score() -> None:
    errors = errors_of([LookScores((1.0,), at_least=(5.0,))] * FEWEST_LOOKS)
    assert (errors.low, errors.high, errors.bound) == (1, 5, 5)
    assert not errors_of([LookScores((), at_least=(5.0,))] * 9).are_known


@given(st.lists(st.tuples(st.lists(scores, min_size=1, max_size=9), st.lists(scores, max_size=9)), min_size=2))
def test_jobs_that_still_wait_never_shorten_an_interval(looks: list[tuple[list[float], list[float]]]) -> None:
    found = errors_of([LookScores(known, limits) for known, limits in looks])
    as_if_started_now = errors_of([LookScores([*known, *limits]) for known, limits in looks])
    for part in ("low", "middle", "high", "bound"):
        assert getattr(found, part) >= getattr(as_if_started_now, part) - 1e-9


def test_with_limits_a_stream_is_covered_as_often_as_intended_although_long_waits_are_not_known_yet() -> None:
    """The known scores alone, which are those of early starts, cover too few of the later ones."""
    random = Random(4)
    looks = [a_look(random, 20, 0.3, 1.0) for _ in range(1000)]
    cut = [sorted(look) for look in looks]
    limited = [
        LookScores([it for it in look if it <= limit], [limit for it in look if it > limit])
        for look, limit in zip(cut, (random.gauss(0.5, 1) for _ in cut), strict=True)
    ]
    within = {True: list[float](), False: list[float]()}
    for begin in range(MOST_LOOKS, len(looks), 60):
        for uses_limits, parts in within.items():
            errors = errors_of([it if uses_limits else LookScores(it.known) for it in limited[:begin]])
            parts += [sum(it <= errors.high for it in look) / len(look) for look in looks[begin : begin + 60]]
    assert 0.87 <= sum(within[True]) / len(within[True]) <= 0.93
    assert sum(within[False]) / len(within[False]) < 0.8


def test_each_look_has_the_same_weight_however_many_jobs_waited() -> None:
    small = [(0.0,)] * 9
    errors = usual_errors([*small, tuple([5.0] * 1000)])
    assert (errors.low, errors.high, errors.bound) == pytest.approx((0, 0, 5), abs=1e-3)


def test_the_latest_looks_count() -> None:
    errors = usual_errors([(7.0,)] * MOST_LOOKS + [(1.0,)] * MOST_LOOKS)
    assert (errors.low, errors.bound) == pytest.approx((1, 1))
    assert errors.looks == MOST_LOOKS


@given(st.lists(st.lists(scores, min_size=1, max_size=12), min_size=FEWEST_LOOKS, max_size=30))
def test_quantiles_are_ordered_and_within_the_range_of_the_scores(looks: list[list[float]]) -> None:
    errors = usual_errors(looks)
    everything = [it for look in looks for it in look]
    assert min(everything) <= errors.low <= errors.middle <= errors.high <= errors.bound <= max(everything) + 1e-6


Look = tuple[float, ...]


def a_look(random: Random, jobs: int, shared: float, own: float, shift: float = 0.0) -> Look:
    """Return the scores of jobs with a common error of their look, and an error of each job."""
    common = random.gauss(shift, shared)
    return tuple(common + random.gauss(0, own) for _ in range(jobs))


def coverage(looks: list[Look], first: int, every: int = 60) -> tuple[float, float]:
    """Return the part of later scores in the interval and below the bound; each look has the same weight.

    :param first: the number of the first look that is checked.
    :param every: looks after which the intervals are computed again.
    """
    within, below = [], []
    for begin in range(first, len(looks), every):
        errors = usual_errors(looks[:begin])
        for found in looks[begin : begin + every]:
            within.append(sum(errors.low <= it <= errors.high for it in found) / len(found))
            below.append(sum(it <= errors.bound for it in found) / len(found))
    return sum(within) / len(within), sum(below) / len(below)


def held_as_intended(parts: tuple[float, float]) -> bool:
    within, below = parts
    return 0.77 <= within <= 0.83 and 0.93 <= below <= 0.97


@pytest.mark.parametrize(("jobs", "shared", "own"), [(1, 1.0, 0.0), (30, 1.0, 1.0), (30, 0.2, 1.0), (30, 0.0, 1.0)])
def test_on_a_stationary_stream_intervals_and_bounds_hold_as_often_as_intended(
    jobs: int, shared: float, own: float
) -> None:
    random = Random(1)
    parts = coverage([a_look(random, jobs, shared, own) for _ in range(2000)], MOST_LOOKS)
    assert held_as_intended(parts), parts


def test_with_skewed_errors_the_parts_hold_as_well() -> None:
    random = Random(2)
    common = [random.random() for _ in range(2000)]
    parts = coverage([tuple(it + random.expovariate(1) for _ in range(20)) for it in common], MOST_LOOKS)
    assert held_as_intended(parts), parts


def test_after_a_change_of_load_the_parts_hold_again_once_new_looks_have_replaced_the_old_ones() -> None:
    random = Random(3)
    before = [a_look(random, 20, 0.5, 0.5) for _ in range(200)]
    looks = [*before, *(a_look(random, 20, 1.0, 0.5, shift=1.5) for _ in range(1800))]
    parts = coverage(looks, 200 + MOST_LOOKS)
    assert held_as_intended(parts), parts
    assert coverage(looks[: 200 + 20], 200)[0] < 0.6, "the change is large enough to be noticed"


@given(st.integers(0, 10**6))
def test_the_order_of_jobs_in_a_look_does_not_matter(seed: int) -> None:
    random = Random(seed)
    looks = [a_look(random, 5, 1, 1) for _ in range(FEWEST_LOOKS)]
    mixed = [tuple(random.sample(look, len(look))) for look in looks]
    assert usual_errors(looks) == usual_errors(mixed)
