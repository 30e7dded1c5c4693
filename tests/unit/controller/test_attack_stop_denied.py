"""Attempts that their owners have made impossible to stop: told of, and nobody waits for them in silence."""

import json

import pytest

from job_queue.adapters.cloudwatch_metrics import QueueMetrics
from job_queue.domain.domain_events import DomainEvent, JobEvent, job_event
from job_queue.domain.job import STOP_DENIED_SECONDS
from job_queue.domain.state_machine import JobTransition
from job_queue.scheduler import WaitReason
from tests.queue_harness import Harness

pytestmark = pytest.mark.attack


class Told:
    """Keeps the events of jobs."""

    def __init__(self) -> None:
        self.events: list[tuple[str, JobEvent]] = []

    def notify(self, event: DomainEvent) -> None:
        if isinstance(event, JobTransition) and (what := job_event(event)):
            self.events.append((event.new.name, what))


def test_another_victim_makes_room_for_an_attempt_that_cannot_be_stopped() -> None:
    told = Told()
    queue = Harness(slots=2, notify=told.notify)
    queue.submit("hostile", 1)
    queue.submit("honest", 2)
    queue.training.untagged.add("hostile-qstamp-1")
    queue.submit("urgent", 1000)
    assert queue.state("hostile") == "running"
    assert queue.training.stopped == {"honest-qstamp-1"}
    queue.end("honest-qstamp-1", "Stopped")
    assert queue.states() == {"hostile": "running", "urgent": "running", "honest": "preempted"}
    assert ("hostile", JobEvent.UNSTOPPABLE) in told.events
    assert "denies the queue to stop hostile-qstamp-1" in queue.record("hostile").history[-1].cause


def test_who_waits_for_it_is_told() -> None:
    queue = Harness(slots=1)
    queue.submit("hostile", 1)
    queue.training.untagged.add("hostile-qstamp-1")
    queue.submit("urgent", 1000)
    cluster, plan = queue.forecast()
    (hold,) = [hold for hold in plan.holds if hold.job == "urgent"]
    assert hold.reason is WaitReason.WAITING_FOR_CAPACITY
    assert "hostile (SageMaker does not let the queue stop it)" in hold.message


def test_it_is_tried_again_after_a_while() -> None:
    queue = Harness(slots=1)
    queue.submit("hostile", 1)
    queue.training.untagged.add("hostile-qstamp-1")
    queue.submit("urgent", 1000)
    asked = queue.training.calls.count(("stop", "hostile-qstamp-1"))
    assert asked == 1
    for _ in range(3):
        queue.tick()
    assert queue.training.calls.count(("stop", "hostile-qstamp-1")) == asked
    queue.training.untagged.clear()
    queue.tick(STOP_DENIED_SECONDS)
    assert queue.training.stopped == {"hostile-qstamp-1"}
    queue.end("hostile-qstamp-1", "Stopped")
    assert queue.states() == {"urgent": "running", "hostile": "preempted"}


def test_its_end_frees_its_slots() -> None:
    queue = Harness(slots=1)
    queue.submit("hostile", 1)
    queue.training.untagged.add("hostile-qstamp-1")
    queue.submit("urgent", 1000)
    queue.end("hostile-qstamp-1")
    assert (queue.state("hostile"), queue.state("urgent")) == ("completed", "running")


def test_a_cancelled_job_that_cannot_be_stopped_does_not_keep_the_queue_busy() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.training.untagged.add("job1-qstamp-1")
    queue.cancel("job1")
    assert queue.state("job1") == "running"
    queue.tick()
    assert queue.training.calls.count(("stop", "job1-qstamp-1")) == 1
    queue.training.untagged.clear()
    queue.tick(STOP_DENIED_SECONDS)
    assert queue.state("job1") == "stopping"
    queue.end("job1-qstamp-1", "Stopped")
    assert queue.state("job1") == "stopped"


def test_tags_that_are_removed_while_it_stops_change_nothing() -> None:
    queue = Harness(slots=1)
    queue.submit("victim", 1)
    queue.submit("urgent", 1000)
    queue.training.untagged.add("victim-qstamp-1")
    queue.tick()
    queue.end("victim-qstamp-1", "Stopped")
    assert queue.states() == {"urgent": "running", "victim": "preempted"}


def test_it_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = QueueMetrics()
    queue = Harness(slots=1, notify=metrics.notify)
    queue.submit("hostile", 1)
    queue.training.untagged.add("hostile-qstamp-1")
    queue.submit("urgent", 1000)
    metrics.flush()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "UnstoppableAttempts" in line]
    assert [line["UnstoppableAttempts"] for line in lines] == [[1.0]]
