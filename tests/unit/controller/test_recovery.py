"""A holder of the lease that is killed keeps the others waiting for a short while only; stops are paced."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from job_queue.adapters.items import LEASE
from job_queue.adapters.metadata import LEASE_SECONDS, Lease, LeaseHeld
from job_queue.adapters.sagemaker import StopResult
from job_queue.controller.cycle import CYCLE_SECONDS
from job_queue.controller.stops import STOP_AGAIN_SECONDS
from job_queue.domain.errors import Unavailable
from tests.queue_harness import Harness, LastFirst


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


def test_a_holder_without_time_for_the_cycle_that_others_rely_on_wakes_another_one() -> None:
    queue = Harness()
    crashed(queue)
    queue.submit("job1", 1)
    (by,) = queue.woken
    queue.woken.clear()
    commit, acquire, left, accepted = queue.repository.commit, queue.repository.acquire, [45.0], list[str]()

    def commit_beside_a_submission(*args: Any, **options: Any) -> None:
        commit(*args, **options)
        if not accepted:
            accepted.append("job2")
            queue.submit("job2", 1)  # finds the lease held, and relies on the promise of the holder

    def slow_acquire(*args: Any, **options: Any) -> Any:
        acquired = acquire(*args, **options)
        left[0] = 19.0 if accepted else 45.0
        return acquired

    queue.repository.commit = commit_beside_a_submission  # type: ignore[method-assign]
    queue.repository.acquire = slow_acquire  # type: ignore[method-assign]
    queue.controller.wake(queue.invocation(remaining=lambda: left[0], may_wait=True, woken_by=by))
    assert (queue.states(), queue.woken) == ({"job1": "running", "job2": "pending"}, [by])
    assert isinstance(queue.repository.acquire("any", queue.now), Lease), "the lease is free"


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
    assert record.history[-1].cause == f"made room for high; it failed while it was being stopped: {failure}"


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


def failing_once(call: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """The call, whose first use fails: before it takes effect, or after that (the answer is lost)."""
    failed: list[bool] = []

    def once(*args: Any, **options: Any) -> Any:
        answer = call(*args, **options) if failed or after else None
        if not failed:
            failed.append(True)
            raise Unavailable("DynamoDB did not answer; send the same request again.")
        return answer

    return once


def lease_is_free(queue: Harness) -> bool:
    return isinstance(queue.repository.acquire("another", queue.now), Lease)


@pytest.mark.parametrize("kind", [Harness, LastFirst])
@pytest.mark.parametrize("read", ["raise_generation", "metadata", "active", "external", "waiting"])
def test_a_call_that_fails_beside_the_acquisition_leaves_the_lease_free(read: str, kind: type[Harness]) -> None:
    queue = kind()
    queue.submit("job1", 1)
    accepted = queue.accept("job2", 1)
    setattr(queue.repository, read, failing_once(getattr(queue.repository, read)))
    queue.controller.wake(queue.invocation(), accepted.metadata)
    assert queue.state("job2") == "pending", "the call has failed"
    assert lease_is_free(queue)


def test_a_read_that_fails_beside_a_later_acquisition_leaves_the_lease_free() -> None:
    queue = Harness()
    queue.repository.metadata = failing_once(queue.repository.metadata)  # type: ignore[method-assign]
    queue.wake()
    assert lease_is_free(queue)


@pytest.mark.parametrize("kind", [Harness, LastFirst])
def test_an_acquisition_without_an_answer_leaves_the_lease_free(kind: type[Harness]) -> None:
    queue = kind()
    queue.submit("job1", 1)
    accepted = queue.accept("job2", 1)
    queue.repository.acquire = failing_once(queue.repository.acquire, after=True)  # type: ignore[method-assign]
    queue.controller.wake(queue.invocation(), accepted.metadata)
    assert queue.state("job2") == "pending", "the answer was lost"
    assert lease_is_free(queue)


class Threaded(Harness):
    """Calls at the same time are made in threads, as in the function; the first error does not wait for the others."""

    def parallel(self, calls: Sequence[Callable[[], Any]], /) -> list[Any]:
        with ThreadPoolExecutor(16) as pool:
            return [future.result() for future in [pool.submit(call) for call in calls]]


def test_an_acquisition_that_takes_effect_after_the_error_leaves_the_lease_free() -> None:
    queue, failed = Threaded(), Event()
    accepted = queue.accept("job1", 1)
    acquire, give_back = queue.repository.acquire, queue.repository.give_back

    def late(*args: Any) -> Any:
        failed.wait(0.2)  # seconds; the lease is not given back before, so that nothing sets it
        return acquire(*args)

    def noted(*args: Any) -> None:
        give_back(*args)
        failed.set()

    queue.repository.metadata = failing_once(queue.repository.metadata)  # type: ignore[method-assign]
    queue.repository.acquire, queue.repository.give_back = late, noted  # type: ignore[method-assign, assignment]
    queue.controller.wake(queue.invocation(), accepted.metadata)
    queue.repository.acquire = acquire  # type: ignore[method-assign]
    assert lease_is_free(queue)


def test_rows_that_cannot_be_read_leave_the_lease_free() -> None:
    queue = Harness()
    accepted = queue.accept("job1", 1)
    row = next(row for (_, line, *_), row in queue.tables.rows.items() if line == accepted.record.job.waiting_queue)
    del row["submission"]
    queue.controller.wake(queue.invocation(), accepted.metadata)
    assert lease_is_free(queue)


def test_an_invocation_that_has_no_time_left_for_a_cycle_leaves_the_lease_free() -> None:
    queue = Harness()
    accepted = queue.accept("job1", 1)
    left = [CYCLE_SECONDS + 1.0]
    metadata = queue.repository.metadata

    def slow() -> Any:
        left[0] -= 2
        return metadata()

    queue.repository.metadata = slow  # type: ignore[method-assign]
    queue.controller.wake(queue.invocation(lambda: left[0]), accepted.metadata)
    assert queue.state("job1") == "pending"
    assert lease_is_free(queue)


def test_the_lease_of_another_is_not_given_back() -> None:
    queue = Harness()
    crashed(queue)
    queue.repository.metadata = failing_once(queue.repository.metadata)  # type: ignore[method-assign]
    queue.wake()
    assert isinstance(queue.repository.acquire("another", queue.now), LeaseHeld)


def test_what_a_holder_has_learned_stays_when_the_lease_is_given_back() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.submit("high", 9)  # asks for a stop
    row = queue.tables.rows["sagemaker-queue-lines", "control", LEASE]
    asked = row["stopsAskedAt"]
    assert asked > 0
    queue.repository.metadata = failing_once(queue.repository.metadata)  # type: ignore[method-assign]
    queue.wake()
    assert queue.tables.rows["sagemaker-queue-lines", "control", LEASE]["stopsAskedAt"] == asked
