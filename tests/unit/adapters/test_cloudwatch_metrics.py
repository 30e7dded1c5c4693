"""Metrics, as CloudWatch finds them in what the function prints."""

import json
from typing import Any

import pytest

from job_queue.adapters.cloudwatch_metrics import NAMESPACE, SERVICE, Metric, QueueMetrics
from job_queue.domain.domain_events import ForgedAttempt, IdleInstances, LeaseConflict, SilentSites, UnrecordedJob
from job_queue.domain.job import STOP_DENIED_SECONDS, waiting_queue
from tests.jobs import P5, a_job
from tests.queue_harness import Harness

Json = dict[str, Any]


class Measured:
    """A queue, and what it prints of itself."""

    def __init__(self, capsys: pytest.CaptureFixture[str], slots: int = 1) -> None:
        self._capsys = capsys
        self.metrics = QueueMetrics()
        self.queue = Harness(slots, notify=self.metrics.notify)

    def lines(self) -> list[Json]:
        """Ends the invocation; gives the lines that CloudWatch takes for metrics."""
        self._capsys.readouterr()
        self.metrics.flush()
        return [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]

    def values(self, metric: Metric, project: str | None = None) -> list[float]:
        """Ends the invocation; gives a metric's values."""
        return [
            value for line in self.lines() if line.get("project") == project for value in line.get(metric.value[0], [])
        ]


@pytest.fixture
def measured(capsys: pytest.CaptureFixture[str]) -> Measured:
    return Measured(capsys)


def test_every_line_is_in_cloudwatchs_embedded_format(measured: Measured) -> None:
    queue = measured.queue
    queue.submit("low", 1)
    queue.training.untagged.add("low-qstamp-1")
    queue.submit("high", 2)
    queue.training.untagged.clear()
    queue.tick(STOP_DENIED_SECONDS)
    queue.end("low-qstamp-1", "Stopped")
    queue.end("high-qstamp-1", "Failed", failure="CapacityError: none left")
    for event in (ForgedAttempt("theirs", "low"), UnrecordedJob("low"), LeaseConflict(), IdleInstances({"p5": 3})):
        measured.metrics.notify(event)
    measured.metrics.notify(SilentSites(1))
    measured.metrics.add(Metric.LOST_NOTIFICATIONS, 3)
    seen: Json = {}
    queue.training.down = True
    queue.tick()
    for line in measured.lines():
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert directive["Namespace"] == NAMESPACE
        (dimensions,) = directive["Dimensions"]
        assert {name: line[name] for name in dimensions} in (
            {"service": SERVICE},
            {"service": SERVICE, "project": "default"},
            {"service": SERVICE, "pool": "p5"},
        )
        assert line["_aws"]["Timestamp"] > 1_700_000_000_000
        for metric in directive["Metrics"]:
            assert line[metric["Name"]]
            seen[metric["Name"]] = (metric["Unit"], "project" in dimensions)
    assert seen == {
        "WaitingJobs": ("Count", True),
        "ActiveJobs": ("Count", True),
        "InstancesInUse": ("Count", True),
        "WaitTime": ("Seconds", True),
        "Preemptions": ("Count", True),
        "Backoffs": ("Count", True),
        "CycleTime": ("Milliseconds", False),
        "MinutesSinceReconciliation": ("None", False),
        "LastingRefusals": ("Count", False),
        "ForgedAttempts": ("Count", False),
        "UnstoppableAttempts": ("Count", False),
        "UnrecordedJobs": ("Count", False),
        "LeaseConflicts": ("Count", False),
        "SilentSites": ("Count", False),
        "LostNotifications": ("Count", False),
        "IdleInstances": ("Count", False),
    }
    assert {metric.value[0] for metric in Metric} == set(seen)


def test_no_dimension_names_a_job(measured: Measured) -> None:
    for number in range(3):
        measured.queue.submit(f"one-of-many-{number}", number)
    assert "one-of-many" not in json.dumps(measured.lines())


def test_the_load_of_a_project_is_what_the_last_cycle_left(measured: Measured) -> None:
    queue = measured.queue
    assert measured.values(Metric.WAITING_JOBS, "default") == []
    for name in ("a", "b", "c"):
        queue.submit(name)
    assert measured.values(Metric.WAITING_JOBS, "default") == [2]
    queue.tick()
    assert measured.values(Metric.ACTIVE_JOBS, "default") == [1]
    queue.end("a-qstamp-1")
    assert measured.values(Metric.WAITING_JOBS, "default") == [1]


def test_a_gang_counts_as_one_job_on_its_instances(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Measured(capsys, slots=8)
    measured.queue.submit("gang", 1, instances=6)
    (line,) = [line for line in measured.lines() if line.get("project") == "default"]
    assert (line["ActiveJobs"], line["InstancesInUse"]) == ([1], [6])


def test_each_project_has_a_line_of_its_own(measured: Measured) -> None:
    demand = ({P5: 1},)
    measured.queue.repository.add(
        a_job("theirs", project="vision", waiting_queue=waiting_queue("vision", demand)), "{}", measured.queue.now
    )
    measured.queue.submit("ours")
    waiting = {line["project"]: line["WaitingJobs"] for line in measured.lines() if "project" in line}
    assert waiting == {"default": [0], "vision": [1]}


@pytest.mark.parametrize(
    ("name", "dimension"),
    [("vision", "vision"), ("Übersetzung", "\\xdcbersetzung"), (" ", "?"), ("x" * 3000, "x" * 250)],
)
def test_a_projects_name_becomes_what_cloudwatch_takes(measured: Measured, name: str, dimension: str) -> None:
    measured.metrics.add(Metric.BACKOFFS, project=name)
    (line,) = measured.lines()
    assert line["project"] == dimension


def test_an_empty_project_of_the_policy_says_so(measured: Measured) -> None:
    measured.queue.tick()
    assert measured.values(Metric.WAITING_JOBS, "default") == [0]


def test_the_wait_is_measured_from_entry_to_first_start_once(measured: Measured) -> None:
    queue = measured.queue
    queue.submit("first")
    queue.submit("second", 2)
    measured.lines()
    queue.now += 100
    queue.end("first-qstamp-1", "Stopped")
    assert measured.values(Metric.WAIT_TIME, "default") == [101]
    queue.end("second-qstamp-1")
    assert queue.state("first") == "running"
    assert measured.values(Metric.WAIT_TIME, "default") == []


def test_a_preemption_counts_when_the_job_has_made_room(measured: Measured) -> None:
    queue = measured.queue
    queue.submit("low", 1)
    queue.submit("high", 2)
    assert measured.values(Metric.PREEMPTIONS, "default") == []
    queue.end("low-qstamp-1", "Stopped")
    assert measured.values(Metric.PREEMPTIONS, "default") == [1]


def test_a_job_that_completes_while_stopping_was_not_preempted(measured: Measured) -> None:
    queue = measured.queue
    queue.submit("low", 1)
    queue.submit("high", 2)
    queue.end("low-qstamp-1", "Completed")
    assert measured.values(Metric.PREEMPTIONS, "default") == []


def test_a_launch_that_came_to_nothing_is_a_backoff(measured: Measured) -> None:
    measured.queue.submit("job1")
    measured.queue.end("job1-qstamp-1", "Failed", failure="CapacityError: none left")
    assert measured.values(Metric.BACKOFFS, "default") == [1]


def test_a_retry_is_no_backoff_and_no_second_wait(measured: Measured) -> None:
    measured.queue.submit("job1", Tags=[{"Key": "retries", "Value": "1"}])
    measured.lines()
    measured.queue.end("job1-qstamp-1", "Failed", failure="AlgorithmError: exit code 1")
    assert measured.queue.job("job1").launched == "job1-qstamp-2"
    printed = {name for line in measured.lines() for name in line}
    assert Metric.ACTIVE_JOBS.value[0] in printed
    assert not printed & {Metric.BACKOFFS.value[0], Metric.WAIT_TIME.value[0]}


def test_lack_of_capacity_while_making_room_is_a_backoff_even_of_a_job_that_was_preempted_before(
    measured: Measured,
) -> None:
    queue = measured.queue
    queue.submit("low", 1)
    queue.submit("high1", 2)
    queue.end("low-qstamp-1", "Stopped")
    queue.end("high1-qstamp-1")
    queue.now += 2100  # after the guaranteed runtime of a job that was preempted once
    queue.submit("high2", 2)
    assert queue.state("low") == "stopping"
    measured.lines()
    queue.end("low-qstamp-2", "Failed", failure="CapacityError: none left")
    (line,) = [line for line in measured.lines() if line.get("project") == "default"]
    assert line["Backoffs"] == [1]
    assert "Preemptions" not in line


def test_cycles_are_timed_and_change_left_to_others_is_counted(measured: Measured) -> None:
    queue = measured.queue
    queue.tick()
    assert measured.values(Metric.CYCLE_TIME) == [0]
    assert queue.repository.acquire("somebody else", queue.now)
    queue.wake()
    (line,) = measured.lines()
    assert line["LeaseConflicts"] == [1]
    assert "CycleTime" not in line


def test_an_invocation_that_measured_nothing_prints_nothing(measured: Measured) -> None:
    assert measured.lines() == []


def test_more_values_than_fit_in_a_line_are_all_printed(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(250):
        measured.metrics.add(Metric.LEASE_CONFLICTS)
    assert sum(len(line["LeaseConflicts"]) for line in measured.lines()) == 250


def test_minutes_since_the_last_reconciliation_grow_while_sagemakers_list_cannot_be_read(measured: Measured) -> None:
    queue = measured.queue
    queue.tick()
    assert measured.values(Metric.RECONCILIATION_AGE) == [0]
    queue.training.down = True
    for minutes in (1, 2, 3):
        queue.tick(60)
        assert measured.values(Metric.RECONCILIATION_AGE) == [minutes]
    queue.training.down = False
    queue.tick(60)
    assert measured.values(Metric.RECONCILIATION_AGE) == [0]


def test_before_the_first_reconciliation_there_is_no_age(measured: Measured) -> None:
    measured.queue.training.down = True
    measured.queue.tick()
    assert measured.values(Metric.RECONCILIATION_AGE) == []


def test_an_event_measures_no_reconciliation(measured: Measured) -> None:
    measured.queue.tick()
    measured.queue.submit("job1")
    measured.lines()
    measured.queue.end("job1-qstamp-1")
    assert measured.values(Metric.RECONCILIATION_AGE) == []
