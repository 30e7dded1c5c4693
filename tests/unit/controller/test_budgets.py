"""Budgets in the cycle: what runs is counted, and who is kept back leaves the window to others."""

import json
from typing import Any

import pytest

from tests.jobs import OWNER
from tests.queue_harness import Harness

WINDOW = 4
OTHER = "arn:aws:iam::123456789012:user/bob"


def a_queue(**budgets: Any) -> Harness:
    queue = Harness(slots=8)
    document = {
        "pools": [{"name": "p5", "capacity": 8, "instance_type": "ml.p5.48xlarge"}],
        "projects": [{"name": "default", "quota": {"p5": 8}, **budgets}],
        "settings": {"window": WINDOW},
    }
    queue.repository.apply_policy(json.dumps(document), 0, OWNER, queue.now)
    return queue


def running(queue: Harness) -> set[str]:
    return {job.name for job in queue.repository.active()}


def parked(queue: Harness) -> set[str]:
    names = [f"mine{number}" for number in range(3 * WINDOW)]
    return {name for name in names if queue.record(name).job.parked is not None}


@pytest.mark.attack
def test_jobs_that_an_owners_budget_keeps_back_leave_the_window_to_others() -> None:
    queue = a_queue(owner_budget={"instance_hours": 0.01, "period": "month"})
    queue.submit("first", 9)
    queue.tick(60)  # more than 36 seconds
    for number in range(3 * WINDOW):
        queue.accept(f"mine{number}", 5)
    queue.accept("honest", 1, owner=OTHER)
    queue.wake()
    assert running(queue) == {"first", "honest"}
    assert parked(queue)


def test_where_the_projects_own_is_spent_nobody_is_parked() -> None:
    queue = a_queue(budget={"instance_hours": 0.01, "period": "month"})
    queue.submit("first", 9)
    queue.tick(60)
    for number in range(3 * WINDOW):
        queue.accept(f"mine{number}", 5)
    queue.wake()
    assert running(queue) == {"first"}
    assert not parked(queue)
