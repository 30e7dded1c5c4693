"""Predicted runtimes: from jobs that are alike, from more of them where these are few, within what is known."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_queue.prediction import runtimes
from job_queue.prediction.runtimes import MIN_RUNTIMES, RUNTIMES_PER_GROUP, JobTraits, RuntimePredictor, stem

ADA = JobTraits("vision", "ada", "resnet-2026-11-20-12-00-00-123", "image:1", "1 GPUs")
BOB = JobTraits("vision", "bob", "bert-7", "image:1", "1 GPUs")
STRANGER = JobTraits("nlp", "cyd", "gpt", "image:2", "64 GPUs")

durations = st.floats(0, 1e6, allow_subnormal=False)


def learned(*seen: tuple[JobTraits, list[float]]) -> RuntimePredictor:
    predictor = RuntimePredictor()
    for traits, durations in seen:
        for duration in durations:
            predictor.learn(traits, duration)
    return predictor


@pytest.mark.parametrize(
    ("name", "stemmed"),
    [
        ("resnet-2026-11-20-12-00-00-123", "resnet"),
        ("sweep-0007-lr0.001", "sweep-lr"),
        ("ResNet50_v2", "resnet-v"),
        ("12345", ""),
    ],
)
def test_a_names_digits_and_dates_tell_jobs_of_one_script_apart_and_nothing_else(name: str, stemmed: str) -> None:
    assert stem(name) == stemmed


def test_too_little_is_known_of_a_runtime_until_a_few_jobs_have_ended() -> None:
    assert RuntimePredictor().predict(ADA) is None
    assert learned((STRANGER, [100.0] * (MIN_RUNTIMES - 1))).predict(ADA) is None
    assert learned((STRANGER, [100.0] * MIN_RUNTIMES)).predict(ADA) is not None


def test_many_like_it_tell_nearly_all() -> None:
    predicted = learned((STRANGER, [90_000.0] * 20), (ADA, [100.0] * 20)).predict(ADA)
    assert predicted is not None
    assert (predicted.median, predicted.low, predicted.alike) == (100, 100, 20)


def test_few_like_it_tell_less_than_the_group_above() -> None:
    """Of ada there is one job; bob, of the same project, has twenty."""
    predictor = learned((BOB, [1000.0] * 20), (ADA, [100.0]))
    predicted = predictor.predict(ADA)
    assert predicted is not None
    assert predicted.median == 1000
    assert 500 < predicted.expected < 1000
    assert predicted.low == 100


def test_a_newcomer_is_as_others_of_its_project_and_size_before_all_others() -> None:
    newcomer = JobTraits("vision", "new", "first", "image:9", "1 GPUs")
    predicted = learned((STRANGER, [90_000.0] * 20), (BOB, [1000.0] * 20)).predict(newcomer)
    assert predicted is not None
    assert predicted.median == 1000


def test_who_has_run_is_predicted_from_those_that_ran_longer() -> None:
    predictor = learned((ADA, [10.0] * 10 + [5000.0] * 6))
    at_first, later = predictor.predict(ADA), predictor.predict(ADA, ran=60)
    assert at_first is not None and later is not None
    assert at_first.median == 10
    assert (later.median, later.low, later.remaining(60).median) == (5000, 5000, 4940)
    assert predictor.predict(ADA, ran=5000) is None, "none ran longer than that"


def test_the_latest_count() -> None:
    predictor = learned((ADA, [10.0] * 100 + [7000.0] * RUNTIMES_PER_GROUP))
    predicted = predictor.predict(ADA)
    assert predicted is not None
    assert (predicted.low, predicted.high) == (7000, 7000)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "MAX_GROUPS", 30)
    predictor = RuntimePredictor()
    for number in range(1000):
        predictor.learn(JobTraits("p", f"owner{number}", "job", size="1"), 100)
    groups = predictor._groups
    assert len(groups) == 30
    assert all(len(group.ordered) == len(group.latest) <= RUNTIMES_PER_GROUP for group in groups.values())
    assert predictor.predict(JobTraits("p", "owner999", "job", size="1")) is not None
    assert predictor.predict(STRANGER) is not None, "all there are are not forgotten"


@given(st.lists(durations, min_size=MIN_RUNTIMES, max_size=60), durations, durations)
def test_quantiles_are_in_order_and_within_what_is_known(seen: list[float], ran: float, longest: float) -> None:
    predictor = RuntimePredictor()
    for place, duration in enumerate(seen):
        predictor.learn((ADA, BOB, STRANGER)[place % 3], duration)
    predicted = predictor.predict(ADA, ran, longest)
    if predicted is not None:
        assert ran <= predicted.low <= predicted.median <= predicted.high <= max(longest, ran, 0)
        assert ran <= predicted.expected * (1 + 1e-9)
        assert predicted.expected <= max(longest, ran) * (1 + 1e-9)
    else:
        assert sum(duration > ran for duration in seen[-RUNTIMES_PER_GROUP:]) < MIN_RUNTIMES


def test_the_interval_holds_four_of_five() -> None:
    random = Random(7)
    predictor, within = RuntimePredictor(), 0
    for number in range(2000):
        runtime = random.lognormvariate(7, 1)
        predicted = predictor.predict(ADA)
        within += number >= 1000 and predicted is not None and predicted.low <= runtime <= predicted.high
        predictor.learn(ADA, runtime)
    assert 700 < within < 860


def test_likely_runtimes_are_equally_likely_parts_of_what_was_seen() -> None:
    predictor = learned((ADA, [float(n) for n in range(1, RUNTIMES_PER_GROUP + 1)]))
    assert predictor.likely(ADA, 4) == (3, 8, 13, 18)
    assert predictor.likely(ADA, 1) == (10,)
    assert predictor.likely(ADA, 2, ran=10, longest=15) == (13, 15), "of those that ran longer, and within the bound"
    assert RuntimePredictor().likely(ADA, 4) is None


def test_who_has_run_longer_than_all_others_runs_for_twice_as_long_in_half_of_the_cases() -> None:
    predictor = learned((ADA, [10.0] * MIN_RUNTIMES))
    assert predictor.likely(ADA, 1, ran=1000) == (2000,)
    assert list(predictor.likely(ADA, 2, ran=1000) or ()) == pytest.approx([1000 / 0.75, 4000])
    assert list(predictor.likely(ADA, 2, ran=1000, longest=1500) or ()) == pytest.approx([1000 / 0.75, 1500])


@given(
    st.lists(durations, min_size=MIN_RUNTIMES, max_size=40),
    st.floats(0, 2e6),
    st.none() | durations,
    st.integers(1, 20),
)
def test_likely_runtimes_are_in_order_and_not_below_what_has_run(
    seen: list[float], ran: float, longest: float | None, count: int
) -> None:
    likely = learned((ADA, seen)).likely(ADA, count, ran, longest)
    if likely is not None:
        assert len(likely) == count
        assert list(likely) == sorted(likely)
        assert likely[0] >= ran
