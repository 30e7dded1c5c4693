"""Jobs that cannot start fill the window: they are parked behind it, and everybody else is looked at."""

import json
from typing import Any

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from job_queue.api.pages import JobPages, states_of
from job_queue.domain.job import Job
from job_queue.services.job_commands import JobCommands
from job_queue.services.submission import one_by_one
from tests.jobs import OWNER
from tests.queue_harness import Harness

pytestmark = pytest.mark.attack

WINDOW = 4


def a_queue(slots: int = 2) -> Harness:
    """With a small window."""
    queue = Harness(slots=slots)
    apply(queue, slots)
    return queue


def apply(queue: Harness, slots: int, window: int = WINDOW) -> None:
    document = json.dumps(
        {
            "pools": [{"name": "p5", "capacity": slots, "instance_type": "ml.p5.48xlarge"}],
            "projects": [{"name": "default", "quota": {"p5": slots}}],
            "settings": {"window": window},
        }
    )
    stored = queue.repository.policy()
    queue.repository.apply_policy(document, stored.version if stored else 0, OWNER, queue.now)


def commands(queue: Harness) -> JobCommands:
    return JobCommands(queue.repository, queue.policies, queue.settings, queue.clock)


def fill(queue: Harness, count: int = 3 * WINDOW, **changes: Any) -> None:
    for number in range(count):
        queue.accept(f"idle{number}", 1000, **changes)


def waiting(queue: Harness) -> list[Job]:
    """All jobs of the one waiting queue, in order."""
    (key,) = queue.repository.metadata().waiting_queues
    return queue.repository.waiting(key)


def test_held_jobs_of_a_high_priority_take_no_place() -> None:
    queue = a_queue()
    fill(queue)
    for number in range(3 * WINDOW):
        commands(queue).change(f"idle{number}", OWNER, held=True)
    queue.submit("honest", 1)
    assert queue.state("honest") == "running"
    commands(queue).change("idle7", OWNER, held=False)
    queue.wake()
    assert queue.state("idle7") == "running", "released, it is back at its place"


def test_jobs_that_can_never_start_take_no_place() -> None:
    queue = a_queue(slots=3)
    fill(queue, instances=3)
    apply(queue, 2)
    queue.submit("honest", 1)
    assert queue.state("honest") == "running"
    queue.end("honest-qstamp-1")
    apply(queue, 3)
    queue.tick(700)
    assert queue.state("idle0") == "running", "with another policy it fits"


def test_jobs_that_back_off_take_no_place_and_come_back() -> None:
    queue = a_queue()
    fill(queue)
    queue.training.script = [LaunchResult.NOT_NOW] * (3 * WINDOW)
    queue.wake()
    queue.submit("honest", 1)
    assert queue.state("honest") == "running"
    queue.tick(120)
    assert (queue.state("idle0"), queue.state("honest")) == ("running", "stopping")


def test_parked_jobs_come_back_in_their_order_after_those_that_wait() -> None:
    queue = a_queue(slots=2)
    queue.submit("first", 2000)
    fill(queue, instances=2)
    apply(queue, 1)
    queue.accept("small", 1)
    queue.tick()
    order = [job.name for job in waiting(queue)]
    assert order == ["small", *(f"idle{number}" for number in range(3 * WINDOW))]


def test_a_cycle_reads_and_writes_no_more_for_a_long_waiting_queue() -> None:
    costs = []
    for count in (5 * WINDOW, 50 * WINDOW):
        queue = a_queue(slots=3)
        fill(queue, count, instances=3)
        apply(queue, 2)
        written: list[int] = []
        transact = queue.tables.transact

        def counted(writes: Any, transact: Any = transact, written: list[int] = written) -> None:
            written.append(len(writes))
            transact(writes)

        queue.tables.transact = counted  # type: ignore[method-assign]
        invocation = queue.invocation()
        invocation = type(invocation)(invocation.holder, invocation.remaining, lambda: False)
        queue.controller.wake(invocation)
        costs.append(sum(written))
    assert costs[0] == costs[1]


def test_why_a_parked_job_waits_is_told() -> None:
    queue = a_queue()
    fill(queue)
    for number in range(3 * WINDOW):
        commands(queue).change(f"idle{number}", OWNER, held=True)
    queue.wake()
    assert all(job.parked is not None for job in waiting(queue)[:-WINDOW])
    commands(queue).cancel("idle3", OWNER)
    assert queue.state("idle3") == "stopped"


def test_a_page_of_jobs_has_each_parked_job_once() -> None:
    queue = a_queue()
    fill(queue)
    for number in range(3 * WINDOW):
        commands(queue).change(f"idle{number}", OWNER, held=True)
    queue.submit("honest", 1)
    pages, found, token = JobPages(queue.repository, one_by_one), list[str](), None
    while True:
        page, token = pages.page(states_of("live"), 3, token)
        found += [job.name for job in page]
        if token is None:
            break
    assert sorted(found) == sorted(["honest", *(f"idle{number}" for number in range(3 * WINDOW))])


@pytest.mark.parametrize("window", [100, WINDOW])
@pytest.mark.parametrize(
    "leaves", [True, False], ids=["a job before it is cancelled", "a job before it is tried first"]
)
def test_a_reservation_outlives_a_backoff(window: int, leaves: bool) -> None:
    queue = Harness(slots=10)
    apply(queue, 10, window)
    queue.submit("low", 0, instances=8)
    queue.now += 3600
    queue.submit("high", 9, instances=8)
    assert queue.states() == {"low": "stopping", "high": "pending"}
    for number in range(3 * WINDOW):
        queue.accept(f"small{number}", 0)
    queue.training.script = [LaunchResult.NO_CAPACITY]
    queue.submit("first", 10, instances=2)
    assert "high" in queue.repository.metadata().reservations
    if leaves:
        queue.cancel("first")
    queue.now += 2
    queue.end("low-qstamp-1", "Stopped")
    queue.tick(60)
    queue.tick(60)
    assert queue.state("high") == "running", "the slots for which another job was stopped go to no smaller job"
