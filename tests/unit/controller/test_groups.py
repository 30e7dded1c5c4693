"""Groups with `max_parallel` in the cycle: where they are longer than the window, too."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from job_queue.controller.waiting.parking import next_of_groups
from job_queue.domain import state_machine
from job_queue.scheduler import WaitReason
from tests.jobs import OWNER
from tests.queue_harness import Harness

WINDOW = 4
ON_P4: dict[str, Any] = {
    "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30}
}


def a_queue(slots: int = 8, window: int = WINDOW) -> Harness:
    queue = Harness(slots=slots)
    apply(queue, slots, window)
    return queue


def apply(queue: Harness, slots: int, window: int = WINDOW) -> None:
    document = {
        "pools": [{"name": "p5", "capacity": slots, "instance_type": "ml.p5.48xlarge"}],
        "projects": [{"name": "default", "quota": {"p5": slots}}],
        "settings": {"window": window},
    }
    store_policy(queue, document)


def apply_two_pools(queue: Harness, p5: int, window: int = 2) -> None:
    """A policy with a second pool, of one instance."""
    types = {"p5": "ml.p5.48xlarge", "p4": "ml.p4d.24xlarge"}
    counts = {"p5": p5, "p4": 1}
    document = {
        "pools": [{"name": name, "capacity": counts[name], "instance_type": kind} for name, kind in types.items()],
        "projects": [{"name": "default", "quota": counts}],
        "settings": {"window": window},
    }
    store_policy(queue, document)


def store_policy(queue: Harness, document: dict[str, Any]) -> None:
    stored = queue.repository.policy()
    queue.repository.apply_policy(json.dumps(document), stored.version if stored else 0, OWNER, queue.now)


def sweep(queue: Harness, count: int, at_a_time: int, name: str = "sweep", priority: int = 5, **changes: Any) -> None:
    for number in range(count):
        tags = {"priority": str(priority), "group": "sweep", "max_parallel": str(at_a_time)}
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        queue.accept(f"{name}{number}", None, Tags=listed, **changes)


@contextmanager
def few_cycles(queue: Harness, most: int = 10) -> Iterator[None]:
    """Within it, fewer cycles than this run: none wakes the next one without end."""
    before = queue.repository.metadata().fencing_token
    yield
    assert queue.repository.metadata().fencing_token < before + most


def running(queue: Harness) -> set[str]:
    return {job.name for job in queue.repository.active()}


def test_a_sweep_runs_so_many_at_a_time() -> None:
    queue = a_queue(window=100)
    sweep(queue, 6, 2)
    queue.wake()
    assert running(queue) == {"sweep0", "sweep1"}
    queue.end("sweep1-qstamp-1")
    assert running(queue) == {"sweep0", "sweep2"}
    queue.end("sweep0-qstamp-1", "Failed")
    assert running(queue) == {"sweep2", "sweep3"}


@pytest.mark.attack
def test_a_sweep_longer_than_the_window_leaves_it_to_others() -> None:
    queue = a_queue()
    sweep(queue, 5 * WINDOW, 2)
    queue.submit("honest", 1)
    assert running(queue) == {"sweep0", "sweep1", "honest"}


def test_the_next_of_a_group_comes_back_at_once() -> None:
    queue = a_queue()
    sweep(queue, 5 * WINDOW, 2)
    queue.wake()
    done = 0
    while live := running(queue):
        assert len(live) == min(2, 5 * WINDOW - done), "no tick, and no time, is needed"
        first = min(live, key=lambda name: int(name.removeprefix("sweep")))
        queue.end(f"{first}-qstamp-1")
        done += 1
    assert done == 5 * WINDOW


def test_whoever_is_parked_for_its_group_is_told_so() -> None:
    queue = a_queue()
    sweep(queue, 5 * WINDOW, 2)
    queue.wake()
    (key,) = queue.repository.metadata().waiting_queues
    parked = [job for job in queue.repository.waiting(key) if job.parked is not None]
    assert len(parked) > WINDOW
    assert {job.parked_for for job in parked} == {"GROUP_LIMIT"}


@pytest.mark.attack
def test_who_waits_for_something_else_is_not_brought_back_for_its_group() -> None:
    # A cycle that brought them back would park them again, and the next would begin at once.
    queue = a_queue()
    sweep(queue, 5 * WINDOW, 2, instances=4)
    apply(queue, 3)  # and none of them fits any more
    queue.submit("honest", 1)
    assert running(queue) == {"honest"}
    with few_cycles(queue):
        queue.tick()
    queue.end("honest-qstamp-1")
    apply(queue, 8)
    queue.tick(700)
    assert running(queue) == {"sweep0", "sweep1"}


@pytest.mark.attack
def test_a_job_that_stops_to_be_on_hold_takes_a_place_of_its_group() -> None:
    # A cycle that parked the next one, for a full group, and brought it back would begin again at once, until the stop.
    queue = a_queue()
    sweep(queue, 5 * WINDOW, 2)
    queue.wake()
    queue.change("sweep0", held=True, now=True)
    assert queue.state("sweep0") == "stopping"
    with few_cycles(queue):
        queue.tick()
    assert running(queue) == {"sweep0", "sweep1"}
    queue.end("sweep0-qstamp-1", "Stopped")
    assert running(queue) == {"sweep1", "sweep2"}


@pytest.mark.attack
def test_the_smallest_limit_of_a_group_counts_also_if_its_jobs_are_parked() -> None:
    # A cycle that brought back as many as the larger limit allows would park them again, and the next begin at once.
    queue = a_queue()
    sweep(queue, 2, 1, "careful", priority=4)
    queue.now += 10
    sweep(queue, 6, 3)
    queue.wake()
    assert running(queue) == {"sweep0", "sweep1", "sweep2"}
    with few_cycles(queue):
        queue.end("sweep0-qstamp-1")
        queue.end("sweep1-qstamp-1")
        queue.tick()


@pytest.mark.attack
def test_a_job_whose_parking_is_over_takes_a_place_of_its_group() -> None:
    # A cycle that did not count it would return a job that the next one parks again, and the next begin at once.
    queue = a_queue(slots=1)
    queue.submit("other", 9)
    tags = {"priority": "8", "group": "sweep", "max_parallel": "1", "pools": "p5"}  # a waiting queue that is not full
    queue.accept("first", None, Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    first = queue.record("first").job
    queue.repository.apply(state_machine.park(first, int(queue.now) + 5, queue.now, WaitReason.GROUP_LIMIT), queue.now)
    queue.now += 10
    sweep(queue, 5 * WINDOW, 1)
    queue.change("other", held=True, now=True)
    with few_cycles(queue):
        queue.tick()
    assert queue.record("first").job.parked is not None
    queue.end("other-qstamp-1", "Stopped")
    assert running(queue) == {"first"}


@pytest.mark.attack
def test_a_parked_job_that_the_plan_counts_in_its_group_keeps_the_next_one_parked() -> None:
    # A cycle that returned the next one would park it again, and the next begin at once: until the parking is over.
    queue = Harness(slots=2)
    apply_two_pools(queue, 1)
    queue.submit("low", 0)
    sweep(queue, 1, 1, "first", **ON_P4)
    queue.wake()
    sweep(queue, 4, 1, "high", priority=9)
    queue.wake()
    assert queue.record("high2").job.parked_for == "GROUP_LIMIT"
    queue.cancel("high0")  # so that the waiting queue is no longer than the window, which nobody returns jobs to
    queue.cancel("high1")
    sweep(queue, 4, 1, "late", priority=3, **ON_P4)
    queue.wake()
    with few_cycles(queue):
        queue.end("first0-qstamp-1")
    assert queue.state("low") == "stopping"
    assert "high2" in queue.repository.metadata().reservations
    queue.end("low-qstamp-1", "Stopped")
    assert running(queue) == {"high2"}


@pytest.mark.attack
def test_a_parked_job_with_a_reservation_returns_before_the_next_ones_of_its_group() -> None:
    # If the next ones took its place in the window, it would lose the reservation, for which others are being stopped.
    queue = Harness(slots=4)
    apply_two_pools(queue, 3)
    for number in range(3):
        queue.submit(f"low{number}", 0)
    sweep(queue, 1, 1, "first", **ON_P4)
    queue.wake()
    sweep(queue, 1, 1, "big", priority=9, instances=3)
    apply_two_pools(queue, 2)  # and it does not fit any more
    sweep(queue, 4, 1, "late", priority=3)
    queue.wake()
    assert queue.record("big0").job.parked_for == "NEVER_FITS"
    apply_two_pools(queue, 3)
    with few_cycles(queue):
        queue.end("first0-qstamp-1")
    for number in range(3):
        queue.end(f"low{number}-qstamp-1", "Stopped")
    assert running(queue) == {"big0"}


def test_jobs_behind_the_window_do_not_return_one_after_the_other() -> None:
    queue = a_queue(slots=1)
    queue.submit("busy", 9)
    sweep(queue, 30, 1)
    queue.wake()
    for number in range(WINDOW):
        queue.accept(f"other{number}", 7)
    with few_cycles(queue, 20):
        queue.tick()


def test_a_job_behind_the_window_returns_only_if_another_one_leaves_the_window() -> None:
    queue = a_queue(slots=1)
    sweep(queue, 4 * WINDOW, 1)
    queue.wake()
    for number in range(WINDOW):
        queue.accept(f"other{number}", 7)
    cluster = queue.dry_run.cluster()
    (key,) = cluster.truncated_queues
    parked = [job for job in queue.repository.waiting(key) if job.parked is not None]
    assert {job.name for job in cluster.waiting.values()} == {f"other{number}" for number in range(WINDOW)}
    assert list(next_of_groups(cluster, parked, {}, queue.now)) == []
    assert len(list(next_of_groups(cluster, parked, {key: 1}, queue.now))) == 1


def test_jobs_that_wait_for_something_else_by_now_are_parked_for_that() -> None:
    queue = a_queue()
    sweep(queue, 30, 2, instances=4)
    queue.wake()
    apply(queue, 3)  # and none of them fits any more
    for number in range(2):
        queue.end(f"sweep{number}-qstamp-1")
    with few_cycles(queue, 40):
        queue.now += 30
        queue.tick()
    (key,) = queue.repository.metadata().waiting_queues
    assert {job.parked_for for job in queue.repository.waiting(key)} == {"NEVER_FITS"}
