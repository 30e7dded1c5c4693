"""What SageMaker says: events in any order and number, lost ones, jobs from elsewhere, strays of our own."""

import itertools
from dataclasses import replace

import pytest

from job_queue.adapters.lookups.training_list import ListedJob
from job_queue.adapters.metadata import Lease
from job_queue.controller.launcher import attempt_request
from job_queue.controller.reconciler import MOST_DESCRIBED
from job_queue.domain import state_machine
from job_queue.domain.backoff import backoff_seconds
from job_queue.domain.job import ExternalTrainingJob
from job_queue.domain.names import apply_qstamp
from job_queue.domain.state_machine import MISSING_SECONDS
from tests.jobs import NOW, P5, a_job, a_request
from tests.queue_harness import Harness

# --- ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "secondary", "failure", "state", "reason"),
    [
        ("Completed", "Completed", None, "completed", None),
        ("Failed", "Failed", "AlgorithmError: exit 1", "failed", "AlgorithmError: exit 1"),
        ("Stopped", "Stopped", None, "stopped", "its training job was stopped outside the queue"),
        ("Stopped", "MaxRuntimeExceeded", None, "stopped", "it reached its MaxRuntimeInSeconds"),
        ("Stopped", "MaxWaitTimeExceeded", None, "stopped", "it reached its MaxWaitTimeInSeconds"),
    ],
)
def test_an_end_is_sagemakers(status: str, secondary: str, failure: str | None, state: str, reason: str | None) -> None:
    queue = Harness()
    queue.submit("job1", 1)
    queue.end("job1-qstamp-1", status, secondary, failure)
    job = queue.job("job1")
    assert (job.state, job.reason) == (state, reason)
    assert queue.record("job1").attempts[0].outcome == state
    assert queue.record("job1").history[-1].cause == (f"{state}: {reason}" if reason else state)


def test_out_of_runtime_while_being_preempted_is_an_end() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.submit("high", 2)
    queue.end("low-qstamp-1", "Stopped", "MaxRuntimeExceeded")
    assert queue.state("low") == "stopped"


def test_sagemakers_own_fault_is_nobodys_failure_and_is_tried_again_ever_more_slowly() -> None:
    queue, why = Harness(slots=1), "InternalServerError: try again"
    queue.submit("job1", 1)
    waits = []
    for attempt in range(1, 4):
        queue.end(f"job1-qstamp-{attempt}", "Failed", failure=why)
        job = queue.job("job1")
        assert (job.state, job.attempt, job.reason) == ("pending", attempt + 1, why)
        assert job.backoff_until is not None
        waits.append(job.backoff_until - int(queue.now))
        queue.tick(60 * 5)
        assert queue.job("job1").launched == f"job1-qstamp-{attempt + 1}"
    assert waits == [backoff_seconds("job1", tries) for tries in (1, 2, 3)]
    assert [attempt.outcome for attempt in queue.record("job1").attempts] == ["failed"] * 3


def test_events_may_come_in_any_order_and_number() -> None:
    for order in itertools.permutations(range(3)):
        queue = Harness(slots=1)
        queue.submit("job1", 1)
        started = queue.training.event("job1-qstamp-1")
        queue.training.end("job1-qstamp-1")
        ended = queue.training.event("job1-qstamp-1")
        for number in order:
            queue.controller.reconciler.handle_event([started, ended, ended][number])
        queue.wake()
        assert queue.state("job1") == "completed"
        assert len(queue.record("job1").attempts) == 1


def test_a_late_event_of_an_earlier_attempt_changes_nothing() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.submit("high", 2)
    queue.end("low-qstamp-1", "Stopped")
    queue.end("high-qstamp-1")
    assert queue.job("low").launched == "low-qstamp-2"
    queue.event("low-qstamp-1")
    assert queue.state("low") == "running"


def test_an_event_without_tags_is_looked_up() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    queue.training.end("job1-qstamp-1")
    detail = queue.training.event("job1-qstamp-1")
    del detail["Tags"]
    assert queue.controller.reconciler.handle_event(detail)
    assert queue.state("job1") == "completed"


@pytest.mark.parametrize(
    "odd",
    [
        {"SecondaryStatusTransitions": [{"Status": "Training", "StartTime": "yesterday"}]},
        {"SecondaryStatusTransitions": [{}]},
        {"SecondaryStatusTransitions": 7},
        {"ResourceConfig": {"InstanceType": "ml.p5.48xlarge"}},
        {"ResourceConfig": None},
    ],
)
def test_an_event_that_is_not_as_events_are_is_looked_up(odd: dict[str, object]) -> None:
    queue = Harness()
    queue.submit("job1", 1)
    queue.training.end("job1-qstamp-1")
    assert queue.controller.reconciler.handle_event({**queue.training.event("job1-qstamp-1"), **odd})
    assert queue.state("job1") == "completed"


# --- lost events -------------------------------------------------------------------------------------


def test_sagemaker_is_asked_for_its_list_by_ticks_alone_so_that_nobody_waits_for_it() -> None:
    queue = Harness()
    queue.now += 3600
    queue.submit("job1", 1)
    queue.event("job1-qstamp-1")
    assert ("list", "") not in queue.training.calls
    queue.tick()
    assert queue.training.calls.count(("list", "")) == 1


def test_the_lease_is_free_while_sagemaker_is_asked() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    seen = []

    def asked(names: list[str]) -> list[ListedJob]:
        lease = queue.repository.acquire("somebody", queue.now)
        seen.append(lease)
        if isinstance(lease, Lease):
            queue.repository.release(lease)
        return []

    queue.training.page = asked  # type: ignore[method-assign]
    queue.tick()
    assert [isinstance(lease, Lease) for lease in seen] == [True]


def test_an_attempt_that_is_not_listed_is_described_before_anything_is_concluded() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    queue.training.lists_nobody = True
    queue.tick()
    assert queue.state("job1") == "running"
    assert ("describe", "job1-qstamp-1") in queue.training.calls


def test_a_deleted_attempt_is_stopped_after_a_quarter_of_an_hour_and_not_failed() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    deleted = queue.training.jobs.pop("job1-qstamp-1")
    queue.tick()
    assert queue.state("job1") == "running"
    queue.training.jobs["job1-qstamp-1"] = deleted
    queue.tick()
    assert queue.job("job1").missing_since is None
    del queue.training.jobs["job1-qstamp-1"]
    queue.tick()
    queue.tick(MISSING_SECONDS - 60)
    assert queue.state("job1") == "running"
    queue.tick()
    assert queue.state("job1") == "stopped", "it may have completed"
    assert "deleted" in (queue.job("job1").reason or "")


def test_sagemaker_that_does_not_answer_stops_nobody_from_planning() -> None:
    queue = Harness()
    queue.training.down = True
    queue.submit("job1", 1)
    assert queue.state("job1") == "running"


# --- jobs from elsewhere -----------------------------------------------------------------------------


def test_a_job_from_elsewhere_uses_capacity_and_is_never_touched() -> None:
    queue = Harness(slots=2)
    queue.start_outside("theirs")
    queue.event("theirs")
    queue.submit("job1", 1)
    queue.submit("job2", 9)
    queue.tick()
    assert queue.state("job2") == "pending" or queue.state("job1") in ("stopping", "preempted")
    assert queue.training.in_use() == 2
    assert "theirs" not in queue.training.stopped
    queue.end("theirs")
    assert queue.repository.external() == []
    queue.tick()
    assert queue.training.in_use() == 2


def test_a_job_from_elsewhere_whose_event_was_lost_is_found_by_the_tick() -> None:
    queue = Harness(slots=1)
    queue.start_outside("theirs")
    queue.tick()
    queue.submit("job1", 1)
    assert queue.state("job1") == "pending"
    queue.training.end("theirs")
    queue.tick()
    assert queue.state("job1") == "running"


def test_a_late_event_does_not_bring_a_dead_job_back() -> None:
    queue = Harness(slots=1)
    queue.start_outside("theirs")
    late = queue.training.event("theirs")
    queue.training.end("theirs")
    queue.controller.reconciler.handle_event(late)
    assert queue.repository.external() == []


# --- strays of our own -------------------------------------------------------------------------------


def launched(queue: Harness, name: str, attempt: int) -> str:
    """SageMaker has an attempt that the queue launched and no record names, as after a restore of the tables."""
    job = queue.job(name)
    job = replace(job, attempt=attempt, launched=apply_qstamp(name, attempt), sent=job.sent + 1)
    queue.training.create(attempt_request(job, queue.record(name).details, queue.policies.of(None).policy))
    return str(job.launched)


def test_an_attempt_that_its_job_does_not_record_uses_a_slot_and_is_stopped() -> None:
    queue = Harness(slots=1)
    queue.accept("gone", 1)
    stray = launched(queue, "gone", 4)
    queue.cancel("gone")
    queue.tick()
    queue.submit("job1", 1)
    assert queue.state("job1") == "pending"
    assert queue.training.stopped == {"gone-qstamp-4"}
    queue.end(stray, "Stopped")
    assert queue.state("job1") == "running"


def test_an_attempt_whose_job_waits_at_its_number_is_adopted() -> None:
    queue = Harness(slots=1)
    queue.submit("other", 5)
    queue.submit("job1", 1)
    launched(queue, "job1", 1)
    queue.tick()
    assert queue.state("job1") == "running"
    assert "job1-qstamp-1" not in queue.training.stopped


def test_earlier_refusals_of_an_adopted_job_are_forgotten() -> None:
    waits = a_job("job1", refusals=3, refused=(0, 4000), reason="CapacityError: none left")
    adopted = state_machine.adopted(waits, {P5: 1}, NOW).new
    assert (adopted.state, adopted.refusals, adopted.refused, adopted.reason) == ("running", 0, None, None)


def test_an_attempt_that_was_counted_as_a_stray_is_left_alone_once_its_job_records_it() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.repository.add_external(ExternalTrainingJob("job1-qstamp-1", {P5: 1}, queue.job("job1").since, orphan=True))
    queue.tick()
    assert queue.state("job1") == "running"
    assert queue.training.stopped == set()
    assert queue.repository.external() == []


def test_a_finished_jobs_stray_attempt_is_stopped() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.end("job1-qstamp-1")
    launched(queue, "job1", 2)
    queue.tick()
    assert queue.training.stopped == {"job1-qstamp-2"}
    assert queue.state("job1") == "completed"


# --- how often SageMaker is asked --------------------------------------------------------------------


def described(queue: Harness) -> list[str]:
    return [name for verb, name in queue.training.calls if verb == "describe"]


def test_an_external_job_is_described_once() -> None:
    queue = Harness(slots=4)
    queue.start_outside("theirs")
    for _ in range(3):  # Starting, Downloading, Training
        queue.event("theirs")
    for _ in range(3):
        queue.tick()
    assert described(queue) == ["theirs"]
    queue.end("theirs")
    assert queue.repository.external() == []


def test_more_is_stopped_at_once_if_an_external_job_takes_what_others_are_stopped_for() -> None:
    queue = Harness(slots=2)
    for name in ("low1", "low2"):
        queue.submit(name, 1)
    queue.submit("high", 9)
    assert sorted(queue.states().values()) == ["pending", "running", "stopping"]
    queue.training.create(a_request("theirs"))
    queue.event("theirs")
    assert queue.states() == {"low1": "stopping", "low2": "stopping", "high": "pending"}


def test_an_external_job_is_counted_where_it_runs_in_the_end() -> None:
    queue = Harness(slots=4)
    queue.start_outside("theirs")
    queue.event("theirs")
    queue.training.jobs["theirs"] = replace(queue.training.jobs["theirs"], instance_counts={"ml.g5.xlarge": 2})
    queue.event("theirs")
    assert [job.instance_counts for job in queue.repository.external()] == [{"ml.g5.xlarge": 2}]


def test_a_quiet_minute_costs_one_list_and_no_description() -> None:
    queue = Harness(slots=4)
    queue.submit("job1", 1)
    queue.start_outside("theirs")
    queue.tick()
    queue.training.calls.clear()
    queue.tick()
    assert queue.training.calls == [("list", "")]


def test_many_strangers_are_counted_over_several_minutes() -> None:
    queue = Harness(slots=4)
    names = {f"theirs{number:02}" for number in range(50)}
    for name in names:
        queue.start_outside(name)
    counted = []
    for _ in range(3):
        queue.training.calls.clear()
        queue.tick()
        assert len(described(queue)) <= MOST_DESCRIBED
        counted.append(len(queue.repository.external()))
    assert counted == [20, 40, 50]
    assert {job.name for job in queue.repository.external()} == names


def running_unlisted(job_count: int) -> Harness:
    """A queue whose jobs all run, and are in no list of SageMaker's."""
    queue = Harness(slots=job_count)
    for number in range(job_count):
        queue.accept(f"job{number:02}", 1)
    queue.wake()
    queue.training.lists_nobody = True
    return queue


def test_a_list_that_is_cut_off_hides_no_end_for_ever() -> None:
    queue = running_unlisted(50)
    queue.training.end("job49-qstamp-1")
    for _ in range(3):
        queue.training.calls.clear()
        queue.tick()
        assert len(described(queue)) <= MOST_DESCRIBED
    assert queue.state("job49") == "completed"
    assert list(queue.states().values()).count("running") == 49


def test_what_was_described_first_does_not_keep_back_the_others() -> None:
    queue = running_unlisted(60)
    queue.training.calls.clear()
    for _ in range(3):
        queue.tick()
    assert len(set(described(queue))) == len(described(queue)) == 60
