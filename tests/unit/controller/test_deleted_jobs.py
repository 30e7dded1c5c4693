"""Training jobs that are deleted in SageMaker: their ends, and their names, which are free again."""

from dataclasses import replace

import pytest

from job_queue.adapters.sagemaker import CLOCK_SECONDS, DELETING, LaunchResult, StopResult
from job_queue.controller.launcher import SIGNATURE_SECONDS
from job_queue.domain.state_machine import MISSING_SECONDS
from tests.queue_harness import Harness
from tests.unit.controller.test_attack_forged_attempts import forge, tags_of

ATTEMPT = "job1-qstamp-1"
LATER = CLOCK_SECONDS + 1  # after its launch: what is created then is another training job


def delete(queue: Harness, name: str = ATTEMPT) -> None:
    """Delete a training job that has ended; its name is free at once."""
    queue.training.deletion_seconds = 0
    assert queue.training.delete(name)
    assert queue.training.known(name) is None


def end_and_delete(queue: Harness, status: str = "Completed") -> dict[str, object]:
    """End and delete the attempt before the queue hears of its end; return the event, which is late."""
    queue.training.end(ATTEMPT, status)
    event = queue.training.event(ATTEMPT)
    delete(queue)
    return event


def external_end_and_deletion(queue: Harness, status: str = "Completed") -> dict[str, object]:
    """Run, end and delete an external job; return the event of its end or of its deletion, which is late."""
    queue.start_outside("theirs")
    queue.event("theirs")
    queue.training.end("theirs", "Completed" if status == DELETING else status)
    event = queue.training.event("theirs")
    delete(queue, "theirs")
    queue.tick()
    assert queue.repository.external() == []
    queue.training.calls.clear()
    return {**event, "TrainingJobStatus": status}


def with_taken_name(*, slots: int = 3, proof: bool = False) -> Harness:
    """Return a queue with a job whose attempt was deleted, and whose name another training job has taken later.

    :param proof: whether that training job has a copy of the attempt's tags.
    """
    queue = Harness(slots=slots)
    queue.submit("job1", 1)
    tags = tags_of(queue, ATTEMPT)
    queue.tick(LATER)
    end_and_delete(queue)
    forge(queue, ATTEMPT, tags if proof else {})
    return queue


def outlast_missing(queue: Harness) -> None:
    """Let time pass until a deleted attempt counts as ended."""
    queue.tick()
    queue.tick(MISSING_SECONDS)


def creates(queue: Harness) -> list[str]:
    return [name for kind, name in queue.training.calls if kind == "create"]


# --- the end of a deleted attempt ---------------------------------------------------------------------


@pytest.mark.parametrize(("status", "state"), [("Completed", "completed"), ("Failed", "failed")])
def test_a_late_event_tells_how_a_deleted_attempt_ended(status: str, state: str) -> None:
    queue = Harness()
    queue.submit("job1", 1)
    event = end_and_delete(queue, status)
    queue.tick()
    queue.tick(MISSING_SECONDS - 60)
    assert queue.state("job1") == "running"
    queue.controller.training_job_changed(event, queue.invocation())
    assert queue.state("job1") == state


def test_a_deleted_attempt_without_an_event_is_stopped_and_not_run_again() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    end_and_delete(queue)
    outlast_missing(queue)
    assert queue.state("job1") == "stopped"
    assert "before the queue knew its outcome" in str(queue.job("job1").reason)
    queue.tick()
    assert creates(queue) == [ATTEMPT]


def test_a_deleted_attempt_that_was_making_room_is_preempted_and_goes_on() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.submit("urgent", 9)
    assert queue.state("job1") == "stopping"
    end_and_delete(queue, "Stopped")
    outlast_missing(queue)
    assert queue.states() == {"urgent": "running", "job1": "preempted"}
    queue.end("urgent-qstamp-1")
    assert queue.job("job1").launched == "job1-qstamp-2"


def test_a_cancelled_job_whose_attempt_was_deleted_is_stopped_as_cancelled() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    queue.cancel("job1")
    end_and_delete(queue, "Stopped")
    outlast_missing(queue)
    assert queue.state("job1") == "stopped"
    assert queue.job("job1").reason == "cancelled"


def test_an_attempt_that_is_being_deleted_holds_its_slots_until_its_end_is_told() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.submit("job2", 1)
    queue.training.jobs[ATTEMPT] = replace(queue.training.jobs[ATTEMPT], status=DELETING, secondary="")
    queue.tick()
    assert queue.states() == {"job1": "running", "job2": "pending"}
    queue.tick(MISSING_SECONDS)
    assert queue.state("job1") == "stopped"
    assert queue.state("job2") == "running"


# --- its name, which is free again --------------------------------------------------------------------


@pytest.mark.attack
@pytest.mark.parametrize("proof", [True, False])
@pytest.mark.parametrize("state", ["running", "stopping"])
def test_a_training_job_that_takes_the_name_of_a_deleted_attempt_is_not_the_attempt(proof: bool, state: str) -> None:
    queue = with_taken_name(proof=proof)
    if state == "stopping":
        queue.cancel("job1")
    queue.tick()
    assert queue.state("job1") == state
    assert [job.name for job in queue.repository.external()] == [ATTEMPT]
    queue.training.end(ATTEMPT, "Failed")
    queue.event(ATTEMPT)
    assert queue.state("job1") == state, "the end of another training job"
    queue.tick(MISSING_SECONDS)
    assert queue.state("job1") == "stopped"


@pytest.mark.attack
def test_a_training_job_with_the_name_of_a_deleted_attempt_and_no_proof_is_left_alone() -> None:
    queue = with_taken_name()
    outlast_missing(queue)
    queue.tick()
    assert queue.state("job1") == "stopped"
    assert queue.training.stopped == set()
    assert [job.name for job in queue.repository.external()] == [ATTEMPT]


@pytest.mark.attack
def test_a_stop_that_the_new_owner_of_a_name_denies_does_not_count_as_denied() -> None:
    queue = with_taken_name(slots=1)
    queue.training.untagged.add(ATTEMPT)
    queue.submit("urgent", 9)
    assert queue.state("job1") == "stopping"
    assert queue.job("job1").stop_denied is None


@pytest.mark.parametrize("status", ["Completed", "Failed", DELETING])
def test_a_late_end_of_a_deleted_external_job_is_not_the_end_of_a_newer_one_of_its_name(status: str) -> None:
    queue = Harness(slots=1)
    late_event = external_end_and_deletion(queue, status)
    queue.start_outside("theirs")
    queue.event("theirs")
    queue.controller.training_job_changed(late_event, queue.invocation())
    assert [job.name for job in queue.repository.external()] == ["theirs"]
    queue.submit("job1", 1)
    assert (queue.state("job1"), queue.training.in_use()) == ("pending", 1)
    queue.end("theirs")
    assert (queue.state("job1"), queue.repository.external()) == ("running", [])


def test_a_late_end_of_a_deleted_external_job_leaves_the_warm_pool_of_a_newer_one_counted() -> None:
    queue = Harness(slots=1)
    late_event = external_end_and_deletion(queue)
    forge(queue, "theirs", {}, KeepAlivePeriodInSeconds=3600)
    queue.end("theirs")
    queue.training.releases = False  # SageMaker needs some time for it
    queue.submit("job1", 1, EnableNetworkIsolation=True)
    queue.controller.training_job_changed(late_event, queue.invocation())
    (warm_pool,) = queue.repository.external()
    assert warm_pool.warm is not None
    assert warm_pool.warm.releasing is not None
    assert (queue.state("job1"), creates(queue)) == ("pending", [])


# --- calls that are late ------------------------------------------------------------------------------


def launched_by_the_second_call(slots: int = 1) -> Harness:
    """A job whose first call may still take effect, and that runs by its second."""
    queue = Harness(slots=slots)
    queue.training.script = ["late"]
    queue.submit("job1", 1)
    queue.now += 60
    queue.wake()
    assert queue.state("job1") == "running" and creates(queue) == [ATTEMPT] * 2
    return queue


def test_a_late_call_launches_a_deleted_attempt_and_the_next_one_waits_for_its_end() -> None:
    queue = launched_by_the_second_call(slots=3)
    queue.training.end(ATTEMPT, "Stopped", failure="CapacityError: no instances")
    queue.event(ATTEMPT)
    assert queue.state("job1") == "pending"
    delete(queue)
    queue.training.land()
    queue.tick()
    assert ATTEMPT in queue.training.stopped, "nobody waits for it"
    queue.tick(SIGNATURE_SECONDS + 60)
    queue.tick(SIGNATURE_SECONDS)
    assert creates(queue) == [ATTEMPT] * 2, "it is alive, and two attempts at once would share their checkpoints"
    queue.training.end(ATTEMPT, "Stopped")
    for _ in range(20):
        queue.tick()
    assert queue.job("job1").launched == "job1-qstamp-2"
    assert queue.state("job1") == "running"


def test_a_late_call_counts_though_an_earlier_call_that_has_expired_launched_the_attempt() -> None:
    queue = Harness(slots=3)
    queue.training.script = ["lost", "late"]  # the first call takes effect unseen
    queue.submit("job1", 1)
    queue.training.end(ATTEMPT, "Stopped", failure="CapacityError: no instances")
    event = queue.training.event(ATTEMPT)
    delete(queue)
    queue.now += 2 * SIGNATURE_SECONDS
    queue.wake()
    assert len(queue.job("job1").calls) == 1, "the first call has expired"
    queue.controller.training_job_changed(event, queue.invocation())
    assert queue.state("job1") == "pending"
    queue.training.land()
    queue.tick()
    assert ATTEMPT in queue.training.stopped, "nobody waits for it"
    assert creates(queue) == [ATTEMPT] * 2


def test_the_next_attempt_is_not_kept_back_without_a_late_call() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.submit("urgent", 9)
    queue.end(ATTEMPT, "Stopped")
    queue.end("urgent-qstamp-1")
    assert queue.job("job1").launched == "job1-qstamp-2"


def test_a_taken_name_is_not_given_up_while_an_older_call_may_take_effect() -> None:
    queue = Harness(slots=3)
    queue.training.script = ["late"]
    queue.submit("job1", 1)
    forge(queue, ATTEMPT, {})
    queue.now += 10
    queue.wake()
    queue.training.end(ATTEMPT)
    queue.tick()
    assert queue.job("job1").launched == ATTEMPT, "its owner can delete the training job, and the first call lands"
    delete(queue)
    queue.training.land()
    queue.tick()
    assert (queue.job("job1").launched, queue.state("job1")) == (ATTEMPT, "running")
    assert queue.training.in_use() == 1


@pytest.mark.parametrize("seen", [True, False])
def test_a_call_that_was_refused_because_its_name_was_taken_is_not_waited_for(seen: bool) -> None:
    queue = Harness(slots=3)
    queue.training.script = ["lost"]
    queue.submit("job1", 1)
    queue.training.jobs[ATTEMPT].tags.clear()  # type: ignore[attr-defined]
    first = queue.job("job1").calls
    queue.training.down = not seen
    queue.now += 60
    queue.controller.wake(queue.invocation())
    assert creates(queue) == [ATTEMPT] * 2
    assert queue.job("job1").calls == first
    assert queue.job("job1").in_doubt


def test_a_refusal_after_a_deletion_is_of_the_next_attempt() -> None:
    queue = launched_by_the_second_call()
    queue.training.script = [LaunchResult.REFUSED]
    queue.submit("urgent", 9)
    assert queue.training.stop(ATTEMPT) is StopResult.ASKED
    queue.end(ATTEMPT, "Stopped")
    assert queue.state("job1") in ("preempted", "pending")
    assert queue.job("job1").late is not None
