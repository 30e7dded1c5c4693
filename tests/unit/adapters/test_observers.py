"""What is told of the queue's doings: when, to whom, and that telling fails nothing."""

import io

import pytest

from job_queue.adapters.observers import log_event, notify_all
from job_queue.domain import state_machine
from job_queue.domain.domain_events import DomainEvent, JobQueued
from job_queue.domain.errors import Refused
from job_queue.domain.state_machine import JobTransition
from tests.jobs import a_job
from tests.queue_harness import Harness
from tests.unit.conftest import lines_of


class Notebook:
    """Remembers what it was told of jobs."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def notify(self, event: DomainEvent) -> None:
        match event:
            case JobQueued(job):
                self.notes.append(f"{job.name}: {job.state}")
            case JobTransition(old=old, new=new):
                self.notes.append(f"{new.name}: {old.state} -> {new.state}")


def broken(event: DomainEvent) -> None:
    raise RuntimeError("no pen")


def test_observers_get_every_recorded_transition_once_and_in_order() -> None:
    notebook = Notebook()
    queue = Harness(slots=1, notify=notebook.notify)
    queue.submit("low", 1)
    queue.submit("high", 2)
    queue.end("low-qstamp-1", "Stopped")
    queue.event("low-qstamp-1")  # once more
    queue.cancel("low")
    assert notebook.notes == [
        "low: pending",
        "low: pending -> starting",
        "low: starting -> running",
        "high: pending",
        "low: running -> stopping",
        "low: stopping -> preempted",
        "high: pending -> starting",
        "high: starting -> running",
        "low: preempted -> stopped",
    ]


def test_observers_do_not_get_refused_transitions() -> None:
    notebook = Notebook()
    queue = Harness(slots=0, notify=notebook.notify)
    queue.submit("job1")
    notebook.notes.clear()
    assert queue.repository.add(a_job("job1"), "{}", queue.now) is not None
    record = queue.record("job1")
    queue.cancel("job1")
    assert notebook.notes == ["job1: pending -> stopped"]
    with pytest.raises(Refused):
        queue.repository.apply(state_machine.cancel(record.job, "ada", queue.now), queue.now)
    assert notebook.notes == ["job1: pending -> stopped"]


def test_an_observer_that_fails_keeps_nothing_from_the_queue_or_the_others() -> None:
    notebook = Notebook()
    queue = Harness(slots=1, notify=notify_all(broken, notebook.notify))
    queue.submit("job1")
    assert queue.state("job1") == "running"
    assert notebook.notes == ["job1: pending", "job1: pending -> starting", "job1: starting -> running"]


def test_the_log_has_a_line_for_each_decision_with_its_cycle(written: io.StringIO) -> None:
    queue = Harness(slots=1, notify=notify_all(log_event))
    queue.submit("low", 1)
    lines_of(written)
    queue.submit("high", 2)
    queued, *of_cycle = lines_of(written)
    assert (queued["message"], queued["job"], queued["priority"]) == ("queued", "high", 2)
    assert {"evict", "transition", "cycle"} <= {line["message"] for line in of_cycle}
    assert len({line["cycle"] for line in of_cycle}) == 1, "one id for all that a cycle decides"
    evict, changed, cycle = (
        next(line for line in of_cycle if line["message"] == name) for name in ("evict", "transition", "cycle")
    )
    assert (evict["job"], evict["claimant"], evict["rule"]) == ("low", "high", "preempt")
    assert (changed["job"], changed["was"], changed["state"]) == ("low", "running", "stopping")
    assert changed["attempt"] == "low-qstamp-1"
    assert "making room for high" in changed["cause"]
    assert cycle["evictions"] == 1
    assert cycle["waiting"] == {"WAITING_FOR_STOPPING": 1}
    queue.tick()
    assert lines_of(written)[-1]["cycle"] > cycle["cycle"]
