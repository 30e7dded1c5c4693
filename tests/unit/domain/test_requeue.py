"""A requeue: the recorded wish, the stop, and the ends of the attempt that SageMaker may report meanwhile."""

from typing import Any

import pytest

from job_queue.adapters.items import job_from, job_item
from job_queue.domain import state_machine
from job_queue.domain.accounting.attempts import EndReport
from job_queue.domain.accounting.ending import Ending
from job_queue.domain.domain_events import JobEvent, job_event
from job_queue.domain.job import Job, JobRecord, LaunchCall, iso
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import JobState
from tests.jobs import NOW, a_job

ANN = "arn:aws:iam::123456789012:user/ann"


def running(**changes: Any) -> Job:
    return a_job(state=JobState.RUNNING, launched="job1-qstamp-1", started=iso(NOW), slots={"p5": 1}, **changes)


def requested(job: Job, *, held: bool = False) -> Job:
    return state_machine.change(job, ANN, NOW, priority=job.priority, held=held, requeue=True).new


def ended(job: Job, ending: Ending) -> JobTransition:
    return state_machine.end(JobRecord(job, "{}"), ending, NOW + 60)


def test_the_wish_is_recorded_first_and_the_slots_stay_taken_until_the_end() -> None:
    wish = state_machine.change(running(), ANN, NOW, priority=running().priority, held=False, requeue=True)
    assert (wish.new.state, wish.new.requeued_by, wish.cause) == ("running", ANN, f"requeue requested by {ANN}")
    stop = state_machine.stop_requeued(wish.new, NOW)
    assert (stop.new.state, stop.new.slots, stop.cause) == ("stopping", {"p5": 1}, f"stopping: requeued by {ANN}")
    assert job_from(job_item(stop.new)) == stop.new


def test_a_requeued_job_waits_in_its_old_position_and_is_not_counted_as_preempted() -> None:
    job = running(preempted=(int(NOW) - 100,), retries=2, tries=1, priority=3)
    end = ended(state_machine.stop_requeued(requested(job), NOW).new, Ending("Stopped"))
    new = end.new
    assert (new.state, new.attempt, new.priority, new.entered) == ("preempted", 2, 3, job.entered)
    assert (new.preempted, new.retried, new.tries, new.was_interrupted) == (job.preempted, 0, 0, True)
    assert (new.requeued_by, new.slots, new.backoff_until, new.held) == (None, {}, None, False)
    assert end.cause == f"requeued by {ANN}"
    assert job_event(end) is JobEvent.REQUEUED
    assert end.ended is not None
    assert end.account is not None
    assert (end.ended.outcome, end.account.outcome, end.account.made_room_for) == ("requeued", "requeued", None)


def test_the_lost_work_of_a_requeue_is_in_the_record() -> None:
    job = state_machine.stop_requeued(requested(running()), NOW).new
    report = EndReport(created=NOW, began=NOW + 10, ended=NOW + 50, checkpoint=NOW + 20)
    account = ended(job, Ending("Stopped", report=report)).account
    assert account is not None
    assert account.lost == 30


def test_a_job_on_hold_stays_there() -> None:
    job = state_machine.stop_requeued(requested(running(), held=True), NOW).new
    new = ended(job, Ending("Stopped")).new
    assert (new.state, new.held) == ("preempted", True)


@pytest.mark.parametrize("stops", [True, False])
def test_completed_is_completed(stops: bool) -> None:
    job = requested(running())
    end = ended(state_machine.stop_requeued(job, NOW).new if stops else job, Ending("Completed"))
    assert (end.new.state, end.new.requeued_by) == ("completed", None)
    assert end.ended is not None
    assert end.ended.outcome == "completed"


def test_a_failure_while_it_is_stopped_is_not_the_jobs_own() -> None:
    job = state_machine.stop_requeued(requested(running(retries=1)), NOW).new
    end = ended(job, Ending("Failed", failure="AlgorithmError: exit code 143"))
    assert (end.new.state, end.new.retried) == ("preempted", 0)
    assert end.cause == f"requeued by {ANN}; it failed while it was being stopped: AlgorithmError: exit code 143"


def test_a_failure_before_the_stop_was_requested_is_the_jobs_own() -> None:
    end = ended(requested(running()), Ending("Failed", failure="AlgorithmError: exit code 1"))
    assert end.new.state == "failed"
    again = ended(requested(running(retries=1), held=True), Ending("Failed", failure="AlgorithmError: exit code 1"))
    assert (again.new.state, again.new.held, again.new.retried, again.new.requeued_by) == ("pending", True, 1, None)


def test_a_stop_by_others_before_the_stop_was_requested_ends_the_job() -> None:
    assert ended(requested(running()), Ending("Stopped")).new.state == "stopped"


@pytest.mark.parametrize("status", ["Stopped", "Failed"])
def test_a_later_cancellation_wins(status: str) -> None:
    job = state_machine.stop_requeued(requested(running()), NOW).new
    end = ended(state_machine.cancel(job, ANN, NOW).new, Ending(status, failure="AlgorithmError: exit code 143"))
    assert (end.new.state, end.new.reason) == ("stopped", "cancelled")


def test_an_attempt_that_was_deleted_meanwhile_counts_as_stopped() -> None:
    job = state_machine.stop_requeued(requested(running()), NOW).new
    end = ended(job, Ending("Deleting"))
    assert (end.new.state, end.cause) == ("preempted", f"requeued by {ANN}; job1-qstamp-1 was deleted in SageMaker")


def test_a_denied_stop_is_tried_again() -> None:
    denied = state_machine.stop_denied(state_machine.stop_requeued(requested(running()), NOW).new, NOW).new
    assert (denied.state, denied.requeued_by) == ("running", ANN)
    assert denied.is_stop_denied(NOW)


def test_a_refused_launch_fulfils_the_wish() -> None:
    starting = state_machine.record_launch_intent(a_job(), {"p5": 1}, LaunchCall(int(NOW), 0), NOW).new
    refused = state_machine.record_refusal(requested(starting), int(NOW), "no", for_good=False, now=NOW)
    assert (refused.new.state, refused.new.requeued_by) == ("pending", None)


def test_a_job_that_is_not_requeued_has_no_attribute_for_it() -> None:
    assert "requeuedBy" not in job_item(running())
