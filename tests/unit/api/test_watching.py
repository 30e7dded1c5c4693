"""What following a waiting job costs stays below a bound, by the client's own schedule and the queue's own reads."""

import pytest

from benchmarks import prices
from benchmarks.watching import CALL_SECONDS, Watch, a_queue, watch_for_an_hour

MOST_CENTS = 0.05  # for a followed waiting hour


@pytest.mark.thorough
@pytest.mark.parametrize("foreseen", [True, False])
def test_an_hour_of_following_a_waiting_job_costs_less_than_a_twentieth_of_a_cent(*, foreseen: bool) -> None:
    watch = watch_for_an_hour(a_queue(20, 20), foreseen=foreseen)
    assert watch.requests > 30, "it is still followed"
    assert watch.calls == 4 * watch.requests
    assert watch.read_units <= 5 * watch.requests
    assert watch.cents < MOST_CENTS


def test_a_second_of_lambda_has_the_price_of_the_template_s_default_architecture() -> None:
    watch = Watch(requests=0, read_units=0, calls=round(1 / CALL_SECONDS), own_seconds=0)
    assert watch.cents == pytest.approx(100 * prices.LAMBDA_ARM_GB_SECOND)  # 1 GB
