"""What following a waiting job costs stays below a bound, by the client's own schedule and the queue's own reads."""

import pytest

from benchmarks.watching import a_queue, watch_for_an_hour

MOST_CENTS = 0.05  # for a followed waiting hour


@pytest.mark.thorough
@pytest.mark.parametrize("foreseen", [True, False])
def test_an_hour_of_following_a_waiting_job_costs_less_than_a_twentieth_of_a_cent(*, foreseen: bool) -> None:
    watch = watch_for_an_hour(a_queue(20, 20), foreseen=foreseen)
    assert watch.requests > 30, "it is still followed"
    assert watch.calls == 4 * watch.requests
    assert watch.read_units <= 5 * watch.requests
    assert watch.cents < MOST_CENTS
