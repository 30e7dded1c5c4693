"""Cycles: the article's example, news and the lease, stops, gangs, and that each failure leaves only itself behind."""

from typing import Any

import pytest

from job_queue.adapters.dynamodb import Update
from job_queue.adapters.metadata import LEASE_SECONDS, WAITING_QUEUE_UNUSED_SECONDS, Lease, LeaseHeld
from job_queue.domain import state_machine
from job_queue.domain.errors import Unavailable
from tests.jobs import NOW
from tests.queue_harness import Harness


def test_the_article_example() -> None:
    queue = Harness(slots=2)
    queue.submit("job1", 1)
    queue.submit("job2", 2)
    queue.submit("job3", 1)
    assert queue.states() == {"job1": "running", "job2": "running", "job3": "pending"}
    queue.submit("job4", 3)
    assert queue.states() == {"job1": "stopping", "job2": "running", "job3": "pending", "job4": "pending"}
    queue.end("job1-qstamp-1", "Stopped")
    assert queue.states() == {"job1": "preempted", "job2": "running", "job3": "pending", "job4": "running"}
    queue.end("job2-qstamp-1")
    assert queue.states() == {"job1": "running", "job3": "pending", "job4": "running"}
    queue.end("job4-qstamp-1")
    queue.end("job1-qstamp-2")
    queue.end("job3-qstamp-1")
    assert queue.states() == {}
    assert {name: queue.state(f"job{name}") for name in "1234"} == dict.fromkeys("1234", "completed")


def test_a_slot_is_free_only_when_sagemaker_says_so_and_the_stop_is_asked_for_again_until_then() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.submit("high", 2)
    for _ in range(3):
        queue.tick()
    assert queue.states() == {"low": "stopping", "high": "pending"}
    assert queue.training.in_use() == 1
    assert queue.training.calls.count(("stop", "low-qstamp-1")) == 4
    queue.end("low-qstamp-1", "Stopped")
    assert queue.states() == {"low": "preempted", "high": "running"}


def test_a_preempted_job_is_guaranteed_a_runtime() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.submit("high", 2)
    queue.end("low-qstamp-1", "Stopped")
    queue.end("high-qstamp-1")
    assert queue.state("low") == "running"
    began = queue.now
    queue.submit("urgent", 2)
    while queue.now < began + 2100:
        assert queue.states() == {"low": "running", "urgent": "pending"}
        queue.tick()
    assert queue.states() == {"low": "stopping", "urgent": "pending"}


def test_slots_freed_for_a_gang_are_not_taken_by_a_lower_priority() -> None:
    queue = Harness(slots=2)
    queue.submit("a", 1)
    queue.submit("b", 1)
    queue.submit("small", 0)
    queue.submit("gang", 9, instances=2)
    queue.end("a-qstamp-1", "Stopped")
    assert queue.states() == {"a": "preempted", "b": "stopping", "small": "pending", "gang": "pending"}
    queue.tick()
    assert queue.training.in_use() == 1
    queue.end("b-qstamp-1", "Stopped")
    assert queue.state("gang") == "running"


def test_a_preempted_job_that_completes_while_stopping_is_completed() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.submit("high", 2)
    queue.end("low-qstamp-1", "Completed")
    assert queue.state("low") == "completed"


# --- news and the lease ------------------------------------------------------------------------------


def test_change_that_comes_while_the_lease_is_held_is_seen_by_its_holder() -> None:
    queue = Harness()
    arrived: list[str] = []

    def stop_or_submit(name: str) -> object:  # runs inside the cycle of job1, after its world was read
        if not arrived:
            arrived.append(name)
            queue.accept("job2", 1)
            queue.wake()  # finds the lease held, and leaves it to the holder
            assert queue.states().get("job2") == "pending"
        return original(name)

    original, queue.training.stop = queue.training.stop, stop_or_submit  # type: ignore[method-assign, assignment]
    queue.submit("job0", 0)
    queue.submit("job0b", 0)
    queue.submit("job1", 5)
    assert arrived
    assert queue.state("job2") == "pending"
    queue.end("job0b-qstamp-1", "Stopped")
    assert queue.state("job1") == "running"


def test_the_lease_is_tried_again_when_change_came_before_its_release() -> None:
    queue = Harness()
    release = queue.repository.release
    accepted: list[int] = []

    def news_before_release(lease: object) -> None:
        if not accepted:
            accepted.append(1)
            queue.accept("second", 1)
            queue.repository.raise_generation()
            assert isinstance(queue.repository.acquire("somebody", queue.now), LeaseHeld)
        release(lease)  # type: ignore[arg-type]

    queue.repository.release = news_before_release  # type: ignore[method-assign]
    queue.submit("first", 1)
    assert queue.states() == {"first": "running", "second": "running"}


def test_a_crashed_holder_is_replaced_when_its_lease_ends() -> None:
    queue = Harness()
    assert isinstance(queue.repository.acquire("crashed", queue.now), Lease)
    queue.submit("job1", 1)
    assert queue.state("job1") == "pending"
    queue.tick(LEASE_SECONDS + 1)
    assert queue.state("job1") == "running"


def test_no_cycle_begins_without_the_time_to_end_it() -> None:
    queue = Harness()
    queue.accept("job1", 1)
    queue.controller.wake(queue.invocation(remaining=lambda: 19.0))
    assert queue.state("job1") == "pending"
    assert queue.training.calls == []
    (by,) = queue.woken  # another invocation runs the cycle
    queue.controller.wake(queue.invocation(remaining=lambda: 19.0, woken_by=by))
    assert queue.woken == [by], "an invocation without time for any cycle wakes no other one for ever"
    queue.controller.wake(queue.invocation(may_wait=True, woken_by=queue.woken.pop()))
    assert queue.state("job1") == "running"


def test_a_launch_is_not_asked_for_without_the_time_for_its_answer() -> None:
    queue = Harness()
    queue.accept("job1", 1)
    commit, left = queue.repository.commit, [45.0]

    def slow_commit(*args: object, **options: object) -> None:
        commit(*args, **options)  # type: ignore[arg-type]
        left[0] = 14.0

    queue.repository.commit = slow_commit  # type: ignore[method-assign]
    queue.controller.wake(queue.invocation(remaining=lambda: left[0]))
    assert queue.state("job1") == "starting"
    assert ("create", "job1-qstamp-1") not in queue.training.calls
    queue.tick()
    assert queue.state("job1") == "running"


def test_a_database_that_fails_for_a_moment_loses_nothing() -> None:
    queue = Harness()
    transact, failures = queue.tables.transact, iter([True])

    def fail_once(writes: Any) -> None:
        if isinstance(writes[0], Update) and len(writes) > 3 and next(failures, False):  # a cycle's
            raise Unavailable("scripted")
        transact(writes)

    queue.tables.transact = fail_once  # type: ignore[method-assign]
    queue.submit("job1", 1)
    assert next(failures, None) is None
    assert queue.state("job1") == "running"


def test_what_changed_since_it_was_read_is_planned_again() -> None:
    queue = Harness(slots=1)
    queue.accept("job1", 1)
    queue.accept("job2", 2)
    cancelled: list[int] = []
    commit = queue.repository.commit

    def cancel_first(*args: object, **options: object) -> None:
        if not cancelled:
            cancelled.append(1)
            queue.repository.apply(state_machine.cancel(queue.job("job2"), "ada", queue.now), queue.now)
        commit(*args, **options)  # type: ignore[arg-type]

    queue.repository.commit = cancel_first  # type: ignore[method-assign]
    queue.wake()
    assert queue.states() == {"job1": "running"}
    assert queue.state("job2") == "stopped"


# --- cancelling --------------------------------------------------------------------------------------


def test_a_cancelled_waiting_job_ends_at_once_and_does_not_come_back() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.submit("job2", 1)
    queue.cancel("job2")
    assert queue.state("job2") == "stopped"
    queue.end("job1-qstamp-1")
    queue.tick()
    assert queue.state("job2") == "stopped"
    assert list(queue.training.jobs) == ["job1-qstamp-1"]


@pytest.mark.parametrize(
    ("status", "outcome"), [("Stopped", "stopped"), ("Completed", "completed"), ("Failed", "stopped")]
)
def test_a_cancelled_running_job_is_stopped(status: str, outcome: str) -> None:
    queue = Harness()
    queue.submit("job1", 1)
    queue.cancel("job1")
    assert queue.training.stopped == {"job1-qstamp-1"}
    assert queue.state("job1") == "stopping"
    queue.end("job1-qstamp-1", status)
    assert queue.state("job1") == outcome


def test_cancelling_a_job_that_is_being_preempted_ends_it() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.submit("high", 2)
    queue.cancel("low")
    queue.end("low-qstamp-1", "Stopped")
    assert queue.states() == {"high": "running"}
    assert queue.state("low") == "stopped"


def test_a_stop_that_comes_too_late_brings_the_end_in() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.training.end("low-qstamp-1")  # its event is lost
    queue.submit("high", 2)
    assert queue.state("low") == "completed"
    assert queue.state("high") == "running"


# --- size --------------------------------------------------------------------------------------------


def test_more_starts_than_fit_in_a_transaction_all_start() -> None:
    queue = Harness(slots=70)
    for number in range(70):
        queue.accept(f"job{number}", 1)
    queue.wake()
    assert set(queue.states().values()) == {"running"}
    assert queue.training.in_use() == 70


def test_waiting_queues_that_nobody_uses_are_forgotten() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    queue.end("job1-qstamp-1")
    assert len(queue.repository.metadata().waiting_queues) == 1
    queue.tick(WAITING_QUEUE_UNUSED_SECONDS + 60)
    assert queue.repository.metadata().waiting_queues == {}
    queue.submit("job2", 1)
    assert queue.state("job2") == "running"
    assert queue.now > NOW
