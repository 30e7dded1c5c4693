"""Failures on real parts: events twice, out of order and lost; the function's process killed in the middle."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws.stack import LocalCloud
from local_cloud.faults.time_warp import TimeWarp
from local_cloud.sagemaker.events import RuleTargets
from tests.system.conftest import FOREVER, WAIT, System
from tests.waiting import until


class Unreliable:
    """Delivers each event twice, every second one late and behind those that follow it, and loses some."""

    def __init__(self) -> None:
        self.deliver: Callable[[dict[str, Any]], None] = lambda event: None
        self._late: list[threading.Timer] = []
        self.lose: Callable[[dict[str, Any]], bool] = lambda event: False
        self._count = 0

    def __call__(self, event: dict[str, Any]) -> None:
        self._count += 1
        if self.lose(event):
            return
        if self._count % 2:
            timer = threading.Timer(0.5, self._twice, [event])
            self._late.append(timer)
            timer.start()
        else:
            self._twice(event)

    def finish(self) -> None:
        """Let nothing more be delivered, and wait for the deliveries that are late. Call this before the cloud ends."""
        self.lose = lambda event: True
        for timer in self._late:
            timer.join()

    def _twice(self, event: dict[str, Any]) -> None:
        for _ in range(2):
            self.deliver(event)


@pytest.mark.thorough
def test_events_twice_late_and_out_of_order(tmp_path: Path) -> None:
    events, go = Unreliable(), tmp_path / "go"
    with LocalCloud(slots=2, deliver=events) as cloud:
        events.deliver = RuleTargets(cloud.client("events"), cloud.client("lambda")).deliver
        system = System(cloud)
        try:
            for number in range(6):
                system.submit(f"job{number}", WAIT.format(file=str(go)), priority=9 - number)
            system.wait("two to run", lambda: sum(job.state == "running" for job in system.queue.jobs()) == 2)
            go.touch()
            system.wait("all to complete", lambda: not list(system.queue.jobs()))
            assert {system.state(f"job{number}") for number in range(6)} == {"completed"}
            assert system.most_at_once() == 2
            statuses = [job["TrainingJobStatus"] for job in system.attempts()]
            assert statuses.count("Completed") == 6
        finally:
            events.finish()


@pytest.mark.thorough
def test_lost_events_are_made_good_by_the_schedule() -> None:
    with LocalCloud(slots=1, deliver=lambda event: None) as cloud:
        stop_the_schedule(cloud)
        system = System(cloud)
        system.submit("first", "pass")
        system.submit("second", FOREVER)
        ended = lambda: [job["TrainingJobStatus"] for job in system.attempts()] == ["Completed"]  # noqa: E731
        system.wait("SageMaker to have ended it", ended)
        assert system.state("first") == "running"
        cloud.tick()
        assert system.state("first") == "completed"
        system.wait_state("second", "running")  # with --strict-cloud once its quota has come back


@pytest.mark.thorough
@pytest.mark.parametrize("phase", ["before", "after"])
def test_the_process_is_killed_around_the_launch(phase: str) -> None:
    """Before: between intent and launch. After: SageMaker has started the attempt, nobody has recorded it."""
    killed = threading.Event()
    clouds: list[LocalCloud] = []
    created: list[str] = []
    created_before_kill: list[list[str]] = []

    def kill(moment: str, operation: str, request: dict[str, Any]) -> None:
        if operation == "CreateTrainingJob" and moment == "after":
            created.append(request["TrainingJobName"])
        if operation == "CreateTrainingJob" and moment == phase and not killed.is_set():
            created_before_kill.append(list(created))
            for pid in clouds[0].lambda_pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.set()
            raise ConnectionAbortedError  # its call goes nowhere, and its answer reaches nobody

    with LocalCloud(slots=1, intercept=kill) as cloud:
        clouds.append(cloud)
        system = System(cloud)
        system.submit("job1", FOREVER)  # the client tries again, and is told that it is known
        until(killed.is_set)  # the schedule may have held the lease, and launches it then
        assert created_before_kill == [[] if phase == "before" else ["job1-qstamp-1"]]
        # The dead holder's lease runs out 10 s after its invocation would have been killed; then a tick takes over.
        system.wait("another to take over", lambda: system.state("job1") == "running", TimeWarp(cloud))
        assert [(job["TrainingJobName"], job["TrainingJobStatus"]) for job in system.attempts()] == [
            ("job1-qstamp-1", "InProgress")
        ]
        system.queue.cancel("job1")
        system.wait_state("job1", "stopped")


def stop_the_schedule(cloud: LocalCloud) -> None:
    """From now on, `tick` alone calls the function as the schedule does."""
    events = cloud.client("events")
    for rule in events.list_rules()["Rules"]:
        if "ScheduleExpression" in rule:
            events.disable_rule(Name=rule["Name"])
