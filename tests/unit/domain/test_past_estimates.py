"""Past estimates of starts: when they are kept, how they are scored, and the intervals that come from them."""

from bisect import bisect_right
from heapq import heappop, heappush
from random import Random
from statistics import fmean

import pytest

from job_queue.domain.expectations.past_estimates import (
    LOOK_SECONDS,
    MOST_ESTIMATES,
    UNKNOWN_WAIT,
    PastEstimates,
    StartInterval,
    depends_on_queue,
    estimated_wait,
    interval,
)
from job_queue.prediction.conformal import (
    FEWEST_LOOKS,
    LEVEL,
    MOST_LOOKS,
    MOST_SCORES,
    LookScores,
    UsualErrors,
    score,
    usual_errors,
)
from job_queue.simulation.forecast import Doubt, Estimate

NOW = 1_000_000.0
KNOWN = UsualErrors(FEWEST_LOOKS, score(600, 1200), score(1200, 1200), score(4800, 1200), score(9000, 1200))


def test_a_look_is_due_every_three_hours_and_needs_estimates() -> None:
    past = PastEstimates()
    assert past.is_due(NOW)
    assert past.with_look(NOW, {}) == past
    past = past.with_look(NOW, {"a": 60.0})
    assert not past.is_due(NOW + LOOK_SECONDS - 1)
    assert past.is_due(NOW + LOOK_SECONDS)


def test_a_job_that_has_started_gives_a_score_of_each_look_that_told_its_start() -> None:
    past = PastEstimates().with_look(NOW, {"a": 1200.0, "b": 1200.0}).with_look(NOW + 600, {"a": 1500.0, "b": 60.0})
    first, second = past.with_starts({"a": (NOW - 500, NOW + 2100, NOW + 9000)}, {"b"}).looks
    assert first.scores == pytest.approx((score(2100, 1200),)), "the first start after the look counts"
    assert second.scores == pytest.approx((score(1500, 1500),))
    assert (first.waiting, second.waiting) == ({"b": 1200}, {"b": 60})


def test_a_job_that_left_without_a_start_is_forgotten_unless_not_all_were_read() -> None:
    past = PastEstimates().with_look(NOW, {"a": 1200.0, "b": 60.0})
    assert past.with_starts({}, {"b"}).looks[0].waiting == {"b": 60}
    assert past.with_starts({}, None) == past


def test_a_job_that_still_waits_gives_a_lower_limit_of_its_score() -> None:
    (look,) = PastEstimates().with_look(NOW, {"a": 1200.0, "b": 9000.0}).looks
    found = look.scores_at(NOW + 3000)
    assert found.known == ()
    assert found.at_least == pytest.approx((score(3000, 1200), score(3000, 9000)))


def test_few_estimates_and_looks_are_kept_and_a_finished_look_has_few_scores() -> None:
    told = {f"{number:03}": float(number) for number in range(10 * MOST_ESTIMATES)}
    past = PastEstimates().with_look(NOW, told)
    waiting = past.looks[0].waiting
    assert len(waiting) == MOST_ESTIMATES
    assert min(waiting.values()) < MOST_ESTIMATES < 9 * MOST_ESTIMATES < max(waiting.values()), (
        "of short and long waits"
    )
    started = past.with_starts(dict.fromkeys(told, (NOW + 1,)), ())
    assert len(started.looks[0].scores) == MOST_SCORES
    for number in range(1, MOST_LOOKS + 5):
        past = past.with_look(NOW + number, {"a": 1.0})
    assert (len(past.looks), past.looks[-1].at) == (MOST_LOOKS, NOW + MOST_LOOKS + 4)


def test_errors_come_from_scores_and_from_limits() -> None:
    past = PastEstimates()
    for number in range(FEWEST_LOOKS):
        past = past.with_look(NOW + number * LOOK_SECONDS, {f"a{number}": 1200.0, "late": 600.0})
    past = past.with_starts({f"a{number}": (NOW + number * LOOK_SECONDS + 2700,) for number in range(20)}, {"late"})
    now = NOW + FEWEST_LOOKS * LOOK_SECONDS
    expected = [
        LookScores((score(2700, 1200),), (score(number * LOOK_SECONDS, 600),)) for number in range(FEWEST_LOOKS, 0, -1)
    ]
    assert past.usual_errors(now) == usual_errors(expected)


def test_an_unknown_start_is_told_an_hour_or_the_wait_so_far() -> None:
    unknown = Estimate("a", doubt=Doubt.FAR)
    assert estimated_wait(unknown, NOW, NOW - 60) == UNKNOWN_WAIT
    assert estimated_wait(unknown, NOW, NOW - 2 * UNKNOWN_WAIT) == 2 * UNKNOWN_WAIT
    assert estimated_wait(Estimate("a", NOW + 60), NOW, NOW - 2 * UNKNOWN_WAIT) == 60
    assert estimated_wait(Estimate("a", NOW - 60), NOW, NOW) == 0


def test_an_interval_comes_from_the_usual_errors() -> None:
    found = interval(Estimate("a", NOW + 1200, earliest=NOW, latest=NOW + 1300), NOW, NOW, KNOWN)
    times = (found.earliest, found.likely, found.latest, found.not_after)
    assert times == pytest.approx((NOW + 600, NOW + 1200, NOW + 4800, NOW + 9000))
    assert (found.level, found.looks) == (LEVEL, FEWEST_LOOKS)
    without_start = interval(Estimate("a", doubt=Doubt.UNKNOWN_RUNTIMES), NOW, NOW, KNOWN)
    assert without_start.latest is not None and without_start.latest > NOW + UNKNOWN_WAIT


def test_without_enough_looks_the_spread_of_the_futures_is_told_without_a_level() -> None:
    few = UsualErrors(FEWEST_LOOKS - 1)
    found = interval(Estimate("a", NOW + 1200, earliest=NOW, latest=NOW + 1300), NOW, NOW, few)
    assert found == StartInterval(NOW, NOW + 1200, NOW + 1300, None, None, FEWEST_LOOKS - 1)
    assert interval(Estimate("a", doubt=Doubt.FAR), NOW, NOW, few) == StartInterval(looks=FEWEST_LOOKS - 1)


@pytest.mark.parametrize("doubt", [Doubt.NEVER, Doubt.REFUSED])
def test_a_job_that_people_keep_waiting_has_no_interval_and_no_score(doubt: Doubt) -> None:
    estimate = Estimate("a", doubt=doubt)
    assert interval(estimate, NOW, NOW, KNOWN) == StartInterval()
    assert not depends_on_queue(estimate)
    assert depends_on_queue(Estimate("a", doubt=Doubt.FAR))


DAY, SLOTS, LOAD = 86_400.0, 8, 0.93
Row = tuple[float, float, float]  # submission, start, runtime


def a_queue(seed: int, days: float, *, changes: bool) -> list[Row]:
    """Jobs that share eight slots, first come first served.

    :param changes: whether jobs of the second half run three times as long, and are a third as many.
    """
    random, now, free = Random(seed), 0.0, [0.0] * SLOTS
    jobs = list[Row]()
    while now < days * DAY:
        mean = 3 * 3600.0 if changes and now > days / 2 * DAY else 3600.0
        now += random.expovariate(SLOTS * LOAD / mean)
        start, runtime = max(now, heappop(free)), mean * random.lognormvariate(-0.5, 1)
        heappush(free, start + runtime)
        jobs.append((now, start, runtime))
    return jobs


def parts_that_hold(jobs: list[Row], days: float) -> tuple[float, float]:
    """Return the parts of intervals and of bounds that hold for the waiting jobs, with one weight for each look.

    A start is estimated as if all jobs ran as long as the latest ones on average, and ended evenly spaced. Errors are
    computed twice a day.
    """
    submitted, started = [it[0] for it in jobs], [it[1] for it in jobs]
    past, errors, number, now = PastEstimates(), UsualErrors(), 0, 0.0
    within, below = [], []
    while (now := now + LOOK_SECONDS) < days * DAY:
        outcomes = {name: (started[int(name)],) for name in past.pending() if started[int(name)] <= now}
        past = past.with_starts(outcomes, None)
        number += 1
        if number % 4 == 0:
            errors = past.usual_errors(now)
        waiting = range(bisect_right(started, now), bisect_right(submitted, now))
        latest = jobs[max(0, waiting.start - 60) : waiting.start]
        mean = fmean([runtime for _, start, runtime in latest if start + runtime <= now][-20:] or [3600.0])
        told = {job: (place + 1) * mean / SLOTS for place, job in enumerate(waiting)}
        if told and errors.are_known:
            found = {job: interval(Estimate("", now + told[job]), now, submitted[job], errors) for job in waiting}
            ends = {job: (it.earliest or 0, it.latest or 0, it.not_after or 0) for job, it in found.items()}
            within.append(fmean(low <= started[job] <= high for job, (low, high, _) in ends.items()))
            below.append(fmean(started[job] <= bound for job, (_, _, bound) in ends.items()))
        past = past.with_look(now, {str(job): wait for job, wait in told.items()})
    return fmean(within), fmean(below)


@pytest.mark.parametrize("changes", [False, True])
def test_on_a_load_of_sixty_days_intervals_and_bounds_hold_nearly_as_often_as_intended(changes: bool) -> None:
    """After the change, looks of before count for two weeks, and intervals hold a little less often."""
    parts = [parts_that_hold(a_queue(seed, 60, changes=changes), 60) for seed in range(4)]
    within, below = (fmean(each) for each in zip(*parts, strict=True))
    assert 0.76 <= within <= 0.83, parts
    assert 0.93 <= below <= 0.97, parts
