"""Who has which lanes of a pool, and who borrows."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from api_contract.history import PastAttempt
from api_contract.models import Expectation, ExternalJob, JobSummary, PoolStatus, ProjectStatus, QueueStatus
from sagemaker_queue.ui.figures.lanes import EXPECTED, EXTERNAL, GOES_ON, RAN, RUNS, Span, adjacent_lanes, spans
from sagemaker_queue.ui.loans import Loan, loans

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
P5 = PoolStatus("p5", capacity=3, instance_type="ml.p5.48xlarge")
C6 = PoolStatus("c6", capacity=2, instance_type="ml.c6i.xlarge")


def drawn(status: QueueStatus, *past: PastAttempt) -> list[Span]:
    return spans(status, past, NOW - 6 * HOUR, NOW, NOW + 6 * HOUR)


def runs(name: str, count: int = 1, ends: datetime | None = NOW + HOUR) -> JobSummary:
    return JobSummary(name, "running", slots={"p5": count}, started=NOW - HOUR, expected_end=ends)


def waits(name: str, start: datetime, **more: object) -> JobSummary:
    more = {"instance_types": ("ml.p5.48xlarge",), **more}
    return JobSummary(name, "pending", position=1, expected_start=Expectation(start=start), **more)  # type: ignore[arg-type]


def test_who_runs_goes_on_to_the_end_that_is_expected() -> None:
    first, second = drawn(QueueStatus(pools=(P5,), active=(runs("a", 2),)))
    assert (first.kind, first.start, first.end, first.lanes) == (RUNS, NOW - HOUR, NOW, (0, 1))
    assert (second.kind, second.start, second.end, second.lanes) == (GOES_ON, NOW, NOW + HOUR, (0, 1))


def test_an_end_that_nobody_knows_is_not_drawn() -> None:
    (only,) = drawn(QueueStatus(pools=(P5,), active=(runs("a", ends=None),)))
    assert (only.kind, only.end, only.end_is_known) == (RUNS, NOW, False)


def test_nobody_shares_a_lane_and_who_comes_later_takes_what_is_free() -> None:
    past = PastAttempt("old", 1, slots={"p5": 3}, launched=NOW - 3 * HOUR, ended=NOW - 2 * HOUR, outcome="preempted")
    next_one = waits("next", NOW + HOUR, expected_end=NOW + 2 * HOUR)
    found = drawn(QueueStatus(pools=(P5,), active=(runs("a", 2), runs("b")), waiting=(next_one,)), past)
    lanes = {(span.job, span.kind): span.lanes for span in found}
    assert lanes[("old", RAN)] == (0, 1, 2)
    assert lanes[("a", RUNS)] == (0, 1) and lanes[("b", RUNS)] == (2,)
    assert lanes[("next", EXPECTED)] == (0,)


def test_more_than_the_pool_has_gets_lanes_of_its_own() -> None:
    found = drawn(QueueStatus(pools=(P5,), active=(runs("a", 2), runs("b", 2))))
    assert {lane for span in found for lane in span.lanes} == {0, 1, 2, 3}


def test_an_expected_job_takes_an_idle_lane_before_a_lane_without_a_known_end() -> None:
    endless, waiting = runs("endless", ends=None), waits("next", NOW + HOUR)
    found = drawn(QueueStatus(pools=(P5,), active=(endless, runs("long", ends=NOW + 5 * HOUR)), waiting=(waiting,)))
    assert {span.job: span.lanes for span in found} == {"endless": (0,), "long": (1,), "next": (2,)}
    both = waits("next", NOW + HOUR, instances=2)
    found = drawn(QueueStatus(pools=(P5,), active=(endless, runs("long", ends=NOW + 5 * HOUR)), waiting=(both,)))
    assert {span.job: span.lanes for span in found} == {"endless": (0,), "long": (1,), "next": (0, 2)}


def test_an_expected_job_takes_an_idle_pool_before_a_pool_without_known_ends() -> None:
    either = waits("either", NOW + HOUR, instance_types=())
    found = drawn(QueueStatus(pools=(P5, C6), active=(runs("endless", 3, ends=None),), waiting=(either,)))
    assert {span.job: span.pool for span in found} == {"endless": "p5", "either": "c6"}


def test_external_jobs_without_a_known_start_share_no_lane() -> None:
    external = tuple(ExternalJob(name, {"p5": 1}) for name in ("one", "two"))
    found = drawn(QueueStatus(pools=(P5,), external=external))
    assert {span.job: span.lanes for span in found} == {"one": (0,), "two": (1,)}


def test_an_expected_end_before_the_expected_start_is_not_known() -> None:
    (only,) = drawn(QueueStatus(pools=(P5,), waiting=(waits("next", NOW + HOUR, expected_end=NOW),)))
    assert (only.start, only.end, only.end_is_known) == (NOW + HOUR, NOW + 2 * HOUR, False)


def test_who_waits_is_expected_where_it_may_run_and_soonest() -> None:
    busy = runs("a", 3, NOW + 2 * HOUR)
    either = waits("either", NOW, instance_types=())
    named = waits("named", NOW + 2 * HOUR, pools=("p5",))
    late = waits("late", NOW + 7 * HOUR)
    found = drawn(QueueStatus(pools=(P5, C6), active=(busy,), waiting=(either, named, late)))
    pools = {span.job: span.pool for span in found if span.kind == EXPECTED}
    assert pools == {"either": "c6", "named": "p5"}


def test_what_is_not_the_queues_is_there_too_and_the_past_is_cut() -> None:
    status = QueueStatus(pools=(P5,), external=(ExternalJob("by-hand", {"p5": 1}, since=NOW - 9 * HOUR),))
    gone = PastAttempt("gone", 1, slots={"p5": 1}, launched=NOW - 9 * HOUR, ended=NOW - 8 * HOUR)
    (only,) = drawn(status, gone)
    assert (only.kind, only.is_external, only.start) == (EXTERNAL, True, NOW - 6 * HOUR)


def test_who_shares_an_instance_has_no_lane_and_is_named_on_it() -> None:
    carrier = JobSummary("carrier--1", "running", slots={"p5": 1}, started=NOW - HOUR, carries=8)
    members = [JobSummary(name, "running", gpus=0.5, carrier="carrier--1", started=NOW) for name in ("one", "two")]
    late = waits("late", NOW + HOUR, gpus=4.0)
    before = PastAttempt("carrier--0", 1, slots={"p5": 1}, launched=NOW - 3 * HOUR, ended=NOW - HOUR, carries=8)
    was = [
        PastAttempt("old", attempt, slots={"p5": 0}, launched=NOW - 2 * HOUR, carrier="carrier--0")
        for attempt in (1, 2)
    ]
    empty = PastAttempt("carrier--2", 1, slots={"p5": 1}, launched=NOW - 3 * HOUR, ended=NOW - HOUR, carries=8)
    found = drawn(QueueStatus(pools=(P5,), active=(carrier, *members), waiting=(late,)), before, *was, empty)
    assert [(span.job, span.members, span.label) for span in found] == [
        ("carrier--0", ("old",), "old"),
        ("carrier--2", (), "shared, empty"),
        ("carrier--1", ("one", "two"), "one, two"),
    ]


def test_lanes_side_by_side_are_one_bar() -> None:
    assert list(adjacent_lanes((0, 1, 3))) == [(0, 2), (3, 1)]
    assert list(adjacent_lanes((5,))) == [(5, 1)]


def test_who_borrows_and_whose_it_may_be() -> None:
    projects = (
        ProjectStatus("vision", quota={"p5": 1}, used={"p5": 3}),
        ProjectStatus("nlp", quota={"p5": 1}, used={}),
    )
    (loan,) = loans(QueueStatus(pools=(P5,), projects=projects))
    assert loan == Loan("p5", "vision", 2, (("nlp", 1),), 1)
    assert loan.sentence == (
        "vision uses 2 instances of p5 beyond its quota: nlp leaves 1 of its quota unused, 1 instance is in no quota."
    )
    assert not list(loans(QueueStatus(pools=(P5,), projects=projects[1:])))
