"""The token bucket of launches."""

import pytest

from job_queue.domain.launching.launch_rate import DOUBLING_SECONDS, LOWEST_RATE, RATE_DECREASE, CreateRate, TokenBucket

RATE = CreateRate(per_second=2, burst=4)


def test_a_full_bucket_has_the_burst() -> None:
    assert TokenBucket.full(RATE, 100).calls == 4


def test_calls_are_spent_and_come_back_at_the_rate() -> None:
    spent = TokenBucket.full(RATE, 100).spent(4)
    assert spent.calls == 0
    assert spent.next_at == 100.5
    assert spent.filled(RATE, 100.4).calls == 0
    assert spent.filled(RATE, 100.5).calls == 1
    assert spent.filled(RATE, 101).calls == 2
    assert spent.filled(RATE, 900).calls == 4


def test_a_throttled_call_lowers_the_rate_and_leaves_no_burst() -> None:
    slower = TokenBucket.full(RATE, 100).spent(2).throttled()
    assert slower.rate == pytest.approx(2 * RATE_DECREASE)
    assert slower.filled(RATE, 100).calls == 0
    assert slower.filled(RATE, 110).calls == 1


def test_the_rate_stays_above_a_bound_and_comes_back_with_time() -> None:
    bucket = TokenBucket.full(RATE, 100)
    for _ in range(20):
        bucket = bucket.throttled()
    assert bucket.rate == pytest.approx(LOWEST_RATE)
    for second in range(DOUBLING_SECONDS + 1):
        bucket = bucket.filled(RATE, 100 + second).spent(0)
    assert bucket.rate == pytest.approx(2 * LOWEST_RATE)
    assert bucket.filled(RATE, 900).calls == 4


def test_the_operators_new_rate_counts_at_once() -> None:
    assert TokenBucket.full(RATE, 100).filled(CreateRate(0.5, 1), 100) == TokenBucket(1, 100, 0.5)


def test_a_clock_that_goes_back_takes_nothing() -> None:
    assert TokenBucket(1, 100, 2).filled(RATE, 90) == TokenBucket(1, 90, 2)


def test_a_rate_below_the_slowest_is_kept() -> None:
    rate = CreateRate(per_second=0.05, burst=1)
    bucket = TokenBucket.full(rate, 100).throttled()
    assert bucket.filled(rate, 100).rate == pytest.approx(0.05)
