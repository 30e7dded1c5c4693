"""Attempts that used little of their GPUs: the ones with the most unused GPU-hours are kept."""

from __future__ import annotations

import pytest

from api_contract.history import PastAttempt
from sagemaker_queue.workflows.usage.low_use import LOW_PERCENT, MOST, LowUseAttempts

HOUR = 3600.0


def attempt(name: str, mean: int | None, hours: float = 1, gpus: float | None = 8) -> PastAttempt:
    return PastAttempt(name, 1, ran_seconds=hours * HOUR, gpus=gpus, gpu_mean_percent=mean)


def worst(*attempts: PastAttempt) -> dict[str, tuple[float, float]]:
    found = LowUseAttempts()
    assert list(found.watching(attempts)) == list(attempts)
    return {it.attempt.job: (it.gpu_hours, it.unused_gpu_hours) for it in found.worst()}


def test_the_most_unused_hours_come_first() -> None:
    found = worst(attempt("short", 0), attempt("long", 20, hours=10), attempt("half", 10, gpus=0.5))
    assert list(found) == ["long", "short", "half"]
    assert found["long"] == pytest.approx((80, 64))
    assert found["half"] == pytest.approx((0.5, 0.45))


def test_busy_and_unmeasured_attempts_are_left_out() -> None:
    busy = attempt("busy", LOW_PERCENT)
    assert worst(busy, attempt("unmeasured", None), attempt("no GPUs", 0, gpus=None)) == {}


def test_a_shared_instance_counts_with_the_gpus_of_its_members() -> None:
    carrier = PastAttempt("carrier", 1, ran_seconds=HOUR, carries=8, gpu_mean_percent=10)
    assert worst(carrier)["carrier"] == pytest.approx((8, 7.2))


def test_the_list_is_bounded() -> None:
    found = worst(*(attempt(f"job{number}", 0, hours=number + 1) for number in range(3 * MOST)))
    assert list(found) == [f"job{number}" for number in reversed(range(2 * MOST, 3 * MOST))]


def test_equal_attempts_stay_in_their_order() -> None:
    assert list(worst(attempt("a", 0), attempt("b", 0))) == ["a", "b"]
