"""An owner names 130 jobs behind the window as dependencies, so that each cycle has more to look up than it may."""

import json
from typing import Any

import pytest

from job_queue.controller.waiting.dependencies import MOST_LOOKED_UP
from job_queue.services.job_commands import JobCommands
from tests.jobs import OWNER, ROLE
from tests.queue_harness import Harness
from tests.unit.queue_api import P4, STRANGER

pytestmark = pytest.mark.attack

WINDOW = 40
NAMED = 130
POLICY = {
    "pools": [
        {"name": "p5", "capacity": 8, "instance_type": "ml.p5.48xlarge"},
        {"name": "p4", "capacity": 1, "instance_type": P4},
    ],
    "projects": [{"name": "default", "quota": {"p5": 8, "p4": 1}}],
    "settings": {"window": WINDOW},
}
ON_P4 = {"ResourceConfig": {"InstanceType": P4, "InstanceCount": 1, "VolumeSizeInGB": 30}}


def submit(queue: Harness, name: str, *after: str, **changes: Any) -> None:
    tags = [{"Key": "after", "Value": " ".join(after)}] if after else []
    queue.accept(name, None, Tags=tags, **changes)


def flooded(owners: int = 1) -> Harness:
    """130 jobs wait for one instance, behind the window. Held jobs, which stay in the window, name ten of them each."""
    queue = Harness(slots=8, roles=(ROLE,))
    queue.repository.apply_policy(json.dumps(POLICY), 0, STRANGER, queue.now)
    for number in range(WINDOW + NAMED + 1):
        submit(queue, f"target{number:03d}", owner=STRANGER, **ON_P4)
    targets = [f"target{number:03d}" for number in range(WINDOW + 1, WINDOW + NAMED + 1)]
    commands = JobCommands(queue.repository, queue.policies, queue.settings, queue.clock)
    for number in range(NAMED // 10):
        owner = f"{STRANGER}{number % owners}"
        submit(queue, f"held{number}", *(f"{name}:any" for name in targets[10 * number :][:10]), owner=owner)
        commands.change(f"held{number}", owner, held=True)
    queue.wake()
    return queue


def test_an_end_that_the_queue_has_just_recorded_needs_no_share_of_the_lookups() -> None:
    queue = flooded()
    names = ["a", "target050-train", "z"]
    for name in names:
        submit(queue, name)
        submit(queue, f"{name}-after", name)
    queue.wake()
    for name in names:
        queue.end(f"{name}-qstamp-1")
        assert queue.state(f"{name}-after") == "running", "in the cycle that the end has started"


def test_so_does_an_end_that_a_tick_finds() -> None:
    queue = flooded()
    submit(queue, "z")
    submit(queue, "z-after", "z")
    queue.wake()
    queue.training.end("z-qstamp-1", "Completed")
    queue.tick()
    assert queue.state("z-after") == "running"


def test_so_does_the_cancellation_of_a_waiting_job() -> None:
    queue = flooded()
    submit(queue, "z", instances=8)
    submit(queue, "first", instances=8)
    submit(queue, "z-after", "z:any")
    commands = JobCommands(queue.repository, queue.policies, queue.settings, queue.clock)
    commands.change("z", OWNER, held=True)
    queue.wake()
    queue.end("first-qstamp-1")
    commands.cancel("z", OWNER)
    queue.wake()
    assert queue.state("z-after") == "running"


@pytest.mark.parametrize("owners", [1, 13])
def test_an_end_that_another_process_has_recorded_is_found_by_the_owners_share(owners: int) -> None:
    queue = flooded(owners)
    for number in range(5):
        submit(queue, f"z{number}")
        submit(queue, f"z{number}-after", f"z{number}")
    queue.wake()
    other = Harness(slots=8, tables=queue.tables, training=queue.training)
    for number in range(5):
        queue.training.end(f"z{number}-qstamp-1", "Completed")
        assert other.controller.reconciler.handle_event(queue.training.event(f"z{number}-qstamp-1"))
    for _ in range(5 if owners == 13 else 1):
        queue.tick()
    assert [queue.state(f"z{number}-after") for number in range(5)] == ["running"] * 5


def test_dependencies_that_were_found_alive_come_last() -> None:
    queue = flooded()
    for _ in range(3):
        queue.tick()
    looked_up: list[str] = []
    record = queue.repository.record

    def noted(name: str) -> Any:
        looked_up.append(name)
        return record(name)

    queue.repository.record = noted  # type: ignore[method-assign]
    for _ in range(NAMED // MOST_LOOKED_UP + 1):
        queue.tick()
    seen = {name for name in looked_up if name.startswith("target")}
    assert len(seen) == NAMED, "each of them has its turn"
