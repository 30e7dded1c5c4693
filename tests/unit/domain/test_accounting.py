"""What remains of an attempt that has ended."""

from typing import Any

import pytest

from job_queue.domain.accounting.attempts import (
    AttemptRecord,
    EndReport,
    attempt_record,
    borrowed_by,
)
from job_queue.domain.job import EndedAttempt, JobRecord, epoch, iso
from job_queue.scheduler import GpuAllocation, JobState, Policy, Pool, Project
from tests.jobs import NOW, P5, a_job

END = NOW + 1000


def record(
    report: EndReport, outcome: str = "completed", attempts: tuple[EndedAttempt, ...] = (), **changes: Any
) -> AttemptRecord:
    started = iso(NOW + 100)
    job = a_job(
        **{"state": JobState.RUNNING, "launched": "job1-qstamp-1", "started": started, "slots": {"p5": 2}, **changes}
    )
    ended = EndedAttempt(job.attempt, job.launched, job.started, iso(END), outcome)
    return attempt_record(JobRecord(job, "{}", attempts=attempts), ended, report)


def times(found: AttemptRecord) -> list[float | None]:
    """Waiting, launched, began, ended: seconds after the submission."""
    texts = (found.waiting_since, found.launched, found.began, found.ended)
    return [None if text is None else epoch(text) - NOW for text in texts]


def test_sagemakers_times_count() -> None:
    told = EndReport(created=NOW + 99, began=NOW + 200, ended=NOW + 990, instances={P5: 2})
    assert times(record(told)) == [0, 99, 200, 990]
    assert record(told).instances == {P5: 2}


def test_without_them_the_queues_own_count() -> None:
    assert times(record(EndReport())) == [0, 100, None, 1000]


def test_a_later_attempt_waits_since_the_one_before_has_ended() -> None:
    before = EndedAttempt(1, "job1-qstamp-1", iso(NOW), iso(NOW + 60), "preempted")
    assert times(record(EndReport(), attempts=(before,), attempt=2))[0] == 60


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (EndReport(created=NOW - 1e9, began=NOW + 1e9, ended=1e18), [0, 100, None, 1000]),  # nobody's times
        (EndReport(created=NOW + 300, began=NOW + 200, ended=NOW + 400), [0, 300, 300, 400]),
        (EndReport(created=NOW + 300, began=NOW + 500, ended=NOW + 400), [0, 300, 400, 400]),
        (EndReport(created=NOW - 2, began=NOW - 1, ended=NOW + 400), [-2, -2, -1, 400]),  # another clock
    ],
)
def test_no_time_is_negative_and_none_is_beyond_belief(told: EndReport, expected: list[float | None]) -> None:
    assert times(record(told)) == expected


@pytest.mark.parametrize(
    ("report", "lost"),
    [
        (EndReport(began=NOW + 200, checkpoint=NOW + 900.4), 100),
        (EndReport(began=NOW + 200, checkpoint=NOW + 20), 800),  # of an attempt before
        (EndReport(began=NOW + 200), None),
        (EndReport(began=NOW + 200, keeps_checkpoints=False), 800),
        (EndReport(), 0),  # it never ran
    ],
)
def test_lost_work_of_interrupted_and_failed_attempts(report: EndReport, lost: int | None) -> None:
    for outcome in ("preempted", "requeued", "failed"):
        assert record(report, outcome).lost == lost
    assert record(report, "completed").lost is None
    assert record(report, "stopped").lost is None


def test_it_says_for_whom_it_made_room() -> None:
    assert record(EndReport(), "preempted", evicted_for="urgent").made_room_for == "urgent"
    assert record(EndReport(), "completed", evicted_for="urgent").made_room_for is None


@pytest.mark.parametrize(("used", "borrowed"), [(0, 0), (2, 0), (3, 1), (4, 2), (9, 2)])
def test_what_is_beyond_the_quota_is_borrowed(used: int, borrowed: int) -> None:
    policy = Policy(pools=(Pool("p5", 16),), projects=(Project("default", quota={"p5": 4}),))
    assert borrowed_by(a_job(), {"p5": 2}, {"p5": used}, policy) == borrowed
    assert borrowed_by(a_job(project="gone"), {"p5": 2}, {}, policy) == 2


def test_markets_have_the_names_of_the_api() -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/may"
    pools = [Pool("p5"), Pool("p5", spot=True), Pool("p5", training_plan=plan)]
    assert [pool.market for pool in pools] == ["on_demand", "spot", "training_plan"]


def test_a_member_has_a_part_of_the_instance_that_its_carrier_has() -> None:
    told = EndReport(shared_pool="p5")
    member = record(told, gpus=5, allocation=GpuAllocation("carrier--nlp--1", (3,), 5), slots={})
    assert (member.gpus, member.carrier, member.slots, member.instances) == (5, "carrier--nlp--1", {"p5": 0}, {})
    assert record(EndReport(), gpus=5, slots={}).slots == {}, "of several pools nobody knows which it was"
    carrier = record(EndReport(instances={P5: 1}), carries=8, slots={"p5": 1})
    assert (carrier.carries, carrier.gpus, carrier.carrier, carrier.slots) == (8, None, None, {"p5": 1})
