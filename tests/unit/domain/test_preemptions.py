"""Preemptions of a job: which are stored, and which count for its guaranteed runtime."""

from typing import Any

from job_queue.adapters.items import job_from, job_item
from job_queue.domain import state_machine
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.job import MOST_PREEMPTIONS, Job, JobRecord, iso
from job_queue.scheduler import JobState
from tests.jobs import NOW, a_job

DAY = 24 * 3600


def running(**changes: Any) -> Job:
    return a_job(state=JobState.RUNNING, launched="job1-qstamp-1", started=iso(NOW), slots={"p5": 1}, **changes)


def made_room(job: Job, now: float, status: str = "Stopped") -> Job:
    evicted = state_machine.evict(job, "high", "preempt", now).new
    return state_machine.end(JobRecord(evicted, "{}"), Ending(status), now).new


def test_a_preemption_is_stored_when_the_attempt_has_ended() -> None:
    job = running(preempted=(int(NOW) - 100,))
    assert state_machine.evict(job, "high", "preempt", NOW).new.preempted == job.preempted
    after = made_room(job, NOW + 7.9)
    assert (after.state, after.preempted) == ("preempted", (int(NOW) - 100, int(NOW) + 7))
    assert job_from(job_item(after)) == after


def test_a_denied_stop_and_an_attempt_that_completes_are_no_preemptions() -> None:
    evicted = state_machine.evict(running(), "high", "preempt", NOW).new
    assert state_machine.stop_denied(evicted, NOW).new.preempted == ()
    assert made_room(running(), NOW, "Completed").preempted == ()


def test_preemptions_count_for_a_day() -> None:
    waits = a_job(preempted=(int(NOW), int(NOW) + 100))
    assert [waits.preemptions(NOW + later) for later in (200, DAY - 1, DAY, DAY + 99, DAY + 100)] == [2, 2, 1, 1, 0]


def test_the_day_of_an_active_job_ends_with_its_start() -> None:
    """Its guaranteed runtime does not change while it runs."""
    runs = running(preempted=(int(NOW) - DAY, int(NOW) - DAY + 1))
    assert [runs.preemptions(NOW + later) for later in (0, DAY)] == [1, 1]


def test_only_the_last_preemptions_of_a_day_are_stored() -> None:
    job = running(preempted=tuple(int(NOW) - 100 + number for number in range(MOST_PREEMPTIONS)))
    assert made_room(job, NOW).preempted == (*job.preempted[1:], int(NOW))
    assert made_room(job, NOW + DAY).preempted == (int(NOW) + DAY,)


def test_a_job_without_preemptions_has_no_attribute_for_them() -> None:
    assert "preempted" not in job_item(a_job())
