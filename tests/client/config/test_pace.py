"""The schedule by which clients ask: often at first, rarely later, and never sooner than they are told to."""

import pytest

from api_contract.models import JobSummary, QueueStatus
from sagemaker_queue.queue.config.pace import (
    FIRST_GROWTH,
    FIRST_SECONDS,
    GROWTH,
    JITTER,
    LONGEST_SECONDS,
    OFTEN_SECONDS,
    POLL_SECONDS,
    PollingPace,
    first_pause,
    states,
)

HOUR = 3600.0


def a_pace(least: float = POLL_SECONDS, draw: float = 0.0) -> tuple[PollingPace, list[float]]:
    slept: list[float] = []
    return PollingPace(least, slept.append, lambda: draw), slept


def pauses(pace: PollingPace, seconds: float) -> list[float]:
    found: list[float] = []
    while sum(found) < seconds:
        found.append(pace.seconds())
    return found


def test_it_asks_every_five_seconds_for_a_minute_and_then_more_slowly() -> None:
    pace, _ = a_pace()
    found = pauses(pace, HOUR)
    often = int(OFTEN_SECONDS / POLL_SECONDS)
    assert found[:often] == [POLL_SECONDS] * often
    grown = found[often : often + 9]
    assert grown[:3] == pytest.approx([POLL_SECONDS * GROWTH, POLL_SECONDS * GROWTH**2, POLL_SECONDS * GROWTH**3])
    assert grown[-1] == max(found) == LONGEST_SECONDS
    assert len(found) < 140


def test_a_client_that_waits_begins_after_a_second_and_slows_down() -> None:
    pace = PollingPace(POLL_SECONDS, draw=lambda: 0.0, first=first_pause(POLL_SECONDS))
    found = pauses(pace, HOUR)
    assert found[:3] == pytest.approx([FIRST_SECONDS, FIRST_SECONDS * FIRST_GROWTH, FIRST_SECONDS * FIRST_GROWTH**2])
    assert found[4:8] == [POLL_SECONDS] * 4
    assert len(found) < 145  # at most four requests more than without the short pauses
    pace.observe("running")
    assert pace.seconds() == FIRST_SECONDS
    pace.failed()
    assert pace.seconds() >= POLL_SECONDS, "an outage ends the short pauses"


@pytest.mark.parametrize("poll", [0.0, 0.1, 4.0, 120.0])
def test_a_pause_that_a_user_sets_is_also_the_first_one(poll: float) -> None:
    assert first_pause(poll) == poll


def test_pauses_are_longer_at_random_and_never_shorter() -> None:
    assert a_pace(draw=1.0)[0].seconds() == POLL_SECONDS * (1 + JITTER)
    pace = PollingPace()
    found = pauses(pace, HOUR)
    assert len(set(found)) == len(found)
    assert min(found) >= POLL_SECONDS and max(found) <= LONGEST_SECONDS * (1 + JITTER)


def test_a_change_of_state_makes_them_short_again() -> None:
    pace, _ = a_pace()
    pace.observe("pending")
    pauses(pace, 600)
    pace.observe("pending")
    assert pace.seconds() == LONGEST_SECONDS
    pace.observe("running")
    assert pace.seconds() == POLL_SECONDS


@pytest.mark.parametrize(("least", "longest"), [(0, 0), (0.5, LONGEST_SECONDS), (20, LONGEST_SECONDS), (90, 90)])
def test_what_a_user_sets_is_the_shortest_pause(least: float, longest: float) -> None:
    pace, _ = a_pace(least)
    found = [pace.seconds() for _ in range(300)]
    assert min(found) == found[0] == least
    assert max(found) == longest


def test_the_queue_may_ask_for_longer_pauses_and_take_that_back() -> None:
    pace, _ = a_pace()
    pace.observe("pending", 60)
    assert pace.seconds() == POLL_SECONDS, "the first minute is as ever"
    assert pauses(pace, 900)[-1] == 60
    pace.observe("pending")
    assert pace.seconds() == LONGEST_SECONDS


def test_an_outage_makes_them_longer_and_a_request_to_wait_is_obeyed() -> None:
    pace, _ = a_pace()
    pace.failed()
    assert pace.seconds() == POLL_SECONDS * GROWTH
    pace.failed(20)
    assert pace.seconds() >= 20
    pace.failed(100_000)
    assert pace.seconds() == LONGEST_SECONDS, "no answer keeps a follower away for hours"


def a_status(**states: str) -> QueueStatus:
    return QueueStatus(active=tuple(JobSummary(job=name, state=state) for name, state in states.items()))


def test_a_screen_asks_often_again_when_a_job_changes_and_not_for_new_figures() -> None:
    first, figures = a_status(a="running"), QueueStatus(active=(JobSummary("a", "running", 7),))
    assert states(first) == states(figures) != states(a_status(a="stopping"))
