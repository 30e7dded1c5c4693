"""A holder of the lease that is killed keeps the others waiting for a short while only; stops are paced."""

from job_queue.adapters.metadata import LEASE_SECONDS, Lease
from job_queue.adapters.sagemaker import StopResult
from job_queue.controller.stops import STOP_AGAIN_SECONDS
from tests.queue_harness import Harness


def crashed(queue: Harness) -> None:
    assert isinstance(queue.repository.acquire("crashed", queue.now), Lease)


def test_the_queue_goes_on_at_most_25_s_after_its_holder_was_killed() -> None:
    queue = Harness()
    crashed(queue)
    killed = queue.now
    accepted = queue.accept("job1", 1)
    queue.controller.wake(queue.invocation(), accepted.metadata)  # its caller gets an answer at once ...
    assert queue.now - killed < 2
    assert queue.state("job1") == "pending"
    (by,) = queue.woken  # ... and another invocation is asked for, which waits for the lease
    queue.controller.wake(queue.invocation(may_wait=True, woken_by=by))
    assert queue.state("job1") == "running"
    assert queue.now - killed <= 25


def test_many_that_find_the_lease_held_ask_once() -> None:
    queue = Harness()
    crashed(queue)
    for number in range(9):
        queue.submit(f"job{number}", 1)
    assert len(queue.woken) == 1


def test_an_event_waits_for_the_lease_itself() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.submit("job2", 1)
    crashed(queue)
    queue.training.end("job1-qstamp-1")
    queue.controller.training_job_changed(queue.training.event("job1-qstamp-1"), queue.invocation(may_wait=True))
    assert queue.state("job2") == "running"
    assert queue.woken == []


def test_a_holder_that_works_keeps_the_lease() -> None:
    queue = Harness()
    lease = queue.repository.acquire("slow", queue.now)
    assert isinstance(lease, Lease)
    for _ in range(5):
        queue.now += LEASE_SECONDS - 1
        queue.repository.commit(lease, [], queue.now)
    queue.submit("job1", 1)
    assert queue.state("job1") == "pending"


def test_a_stop_is_asked_for_again_every_ten_seconds_at_most() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.submit("job2", 5)
    asked = [queue.now]
    for _ in range(60):
        queue.now += 1
        before = queue.training.calls.count(("stop", "job1-qstamp-1"))
        queue.wake()
        if queue.training.calls.count(("stop", "job1-qstamp-1")) > before:
            asked.append(queue.now)
    gaps = [later - earlier for earlier, later in zip(asked, asked[1:], strict=False)]
    assert 2 <= len(gaps) <= 6
    assert min(gaps) >= STOP_AGAIN_SECONDS


def test_an_attempt_that_fails_while_it_makes_room_is_preempted() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1, HyperParameters={})
    queue.submit("high", 5)
    failure = "AlgorithmError: ExecuteUserScriptError: exit code 143"
    queue.end("low-qstamp-1", "Failed", failure=failure)
    record = queue.record("low")
    assert (record.job.state, record.job.attempt, record.job.retried) == ("preempted", 2, 0)
    assert [attempt.outcome for attempt in record.attempts] == ["preempted"]
    assert record.history[-1].cause == f"made room for high; while it was being stopped it failed: {failure}"


def test_an_attempt_that_fails_while_it_is_cancelled_is_stopped() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.cancel("job1")
    queue.end("job1-qstamp-1", "Failed", failure="AlgorithmError: exit code 143")
    assert queue.state("job1") == "stopped"


def test_an_end_that_a_holder_records_too_late_is_announced_to_the_next_one() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    stop = queue.training.stop
    read: list[int] = []

    def late(name: str) -> StopResult:
        queue.training.end(name, "Stopped", "Stopped")
        queue.now += LEASE_SECONDS + 1
        assert isinstance(queue.repository.acquire("another", queue.now), Lease)
        read.append(queue.repository.generation())
        return stop(name)

    queue.training.stop = late  # type: ignore[method-assign]
    queue.submit("high", 9)
    assert queue.states() == {"high": "pending", "low": "preempted"}
    assert queue.repository.generation() > read[0], "else nobody would start the other before the next minute"
