"""The hang watch: what it looks up and when, what it records, and that missing data and errors record nothing."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from job_queue.domain.domain_events import DomainEvent, JobEvent, job_event
from job_queue.domain.errors import Unavailable
from job_queue.domain.expectations.hangs import MOST_HANGS
from job_queue.domain.state_machine import JobTransition
from job_queue.services.outlook import OutlookService
from job_queue.services.watches.hangs import HangWatch
from job_queue.services.watches.idleness import LOOK_SECONDS, IdleWatch
from tests.jobs import OWNER, a_request
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

HALF_AN_HOUR = 1800.0
CHECKPOINTS = {"CheckpointConfig": {"S3Uri": "s3://b/c"}}


class Hanging:
    """A queue whose GPUs are idle; logs and checkpoints are what the test says."""

    def __init__(self, **settings: Any) -> None:
        self.events: list[str] = []
        self.api = Api(slots=4)
        self.queue: Harness = self.api.queue
        self.queue.repository.notify = self._notify
        document = {
            "pools": [{"name": "default", "capacity": 4}],
            "projects": [{"name": "default", "quota": {"default": 4}}],
            "settings": settings,
        }
        self.queue.repository.apply_policy(json.dumps(document), 0, "ada", self.queue.now)
        self.gpus: float | None = 0.0
        self.log: bool | None = False
        self.checkpoint: bool | None = False
        self.broken = False
        self.asked: list[tuple[Any, ...]] = []
        idle = IdleWatch(lambda site: self._utilization, 30, lambda event: None)
        self.watch = HangWatch(self.queue.repository, lambda site: self._wrote_log, lambda site: self._wrote_checkpoint)
        self._service = OutlookService(
            self.queue.repository, self.queue.dry_run.cluster, self.queue.clock, idle, hang_watch=self.watch
        )

    def _notify(self, event: DomainEvent) -> None:
        if isinstance(event, JobTransition) and (known := job_event(event)) is not None:
            self.events.append(known.value.removeprefix("Training Job "))

    def _utilization(
        self, hosts: Sequence[str], since: float, until: float, period: float, may_go_on: Callable[[], bool]
    ) -> dict[str, list[float]]:
        return {} if self.gpus is None else {host: [self.gpus] * 6 for host in hosts}

    def _wrote_log(self, training_job: str, started: float, since: float) -> bool | None:
        self.asked.append((training_job, self.queue.now - since))
        if self.broken:
            raise Unavailable("the log cannot be read")
        return self.log

    def _wrote_checkpoint(self, address: str, since: float) -> bool | None:
        self.asked.append((address, self.queue.now - since))
        return self.checkpoint

    def look(self, later: float = 0) -> None:
        """Run the next tick."""
        self.queue.now += later
        self._service.refresh(lambda: True)


def test_a_hang_is_noticed_once_for_each_attempt_and_shown_while_the_gpus_are_idle() -> None:
    hanging = Hanging()
    hanging.queue.submit("a", **CHECKPOINTS)
    hanging.look(HALF_AN_HOUR - 1)
    assert hanging.asked == [], "its GPUs are not known to be idle for so long"
    hanging.look(301)
    assert hanging.asked == [("a-qstamp-1", HALF_AN_HOUR), ("s3://b/c", HALF_AN_HOUR)]
    assert hanging.events == ["Queued", "Started", "Hangs"][-len(hanging.events) :]
    _, shown = hanging.api.call("GET", "/jobs/a")
    assert shown["hungSince"] is not None
    assert "hangs: no log line, no checkpoint and idle GPUs" in shown["history"][-1]["cause"]
    for _ in range(4):
        hanging.look(LOOK_SECONDS)
    assert len(hanging.asked) == 2
    assert hanging.events.count("Hangs") == 1
    hanging.queue.tick()
    assert (hanging.queue.state("a"), hanging.queue.job("a").hangs) == ("running", 0)
    hanging.gpus = 400.0
    hanging.look(LOOK_SECONDS)
    hanging.queue.now += 10
    _, shown = hanging.api.call("GET", "/jobs/a")
    assert shown["hungSince"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"log": True},  # a process that prints a dot every minute
        {"log": None},
        {"checkpoint": True},
        {"checkpoint": None},
        {"gpus": 400.0},
        {"gpus": None},
        {"broken": True},
    ],
)
def test_activity_missing_data_and_errors_are_no_hang(changes: dict[str, Any]) -> None:
    hanging = Hanging(on_hang="requeue")
    hanging.queue.submit("a", **CHECKPOINTS)
    vars(hanging).update(changes)
    for _ in range(3):
        hanging.look(HALF_AN_HOUR)
    hanging.queue.tick()
    assert (hanging.queue.state("a"), hanging.queue.job("a").hung) == ("running", None)
    assert "Hangs" not in hanging.events


def test_nothing_is_looked_up_if_no_gpus_are_idle_or_the_policy_says_so() -> None:
    for hanging in (Hanging(), Hanging(silent=None)):
        hanging.gpus = hanging.gpus if hanging.queue.dry_run.cluster().policy.settings.silent is None else 400.0
        hanging.queue.submit("a", **CHECKPOINTS)
        for _ in range(3):
            hanging.look(HALF_AN_HOUR)
        assert hanging.asked == []


def test_a_job_without_an_address_for_checkpoints_is_judged_by_its_log_and_its_gpus() -> None:
    hanging = Hanging()
    hanging.checkpoint = None
    request = {name: value for name, value in a_request("a").items() if name != "CheckpointConfig"}
    hanging.queue.submissions.submit(request, OWNER)
    hanging.queue.wake()
    hanging.look(HALF_AN_HOUR + 301)
    assert [asked for asked, _ in hanging.asked] == ["a-qstamp-1"]
    assert hanging.queue.job("a").hung is not None


def test_by_the_policy_the_attempt_is_stopped_and_the_job_waits_again_three_times_at_most() -> None:
    hanging = Hanging(on_hang="requeue")
    hanging.queue.submit("a", **CHECKPOINTS)
    for number in range(1, MOST_HANGS + 1):
        hanging.look(HALF_AN_HOUR + 301)
        hung = hanging.queue.record("a").history[-1]
        assert (hung.attempt, hung.cause and hung.cause.startswith("hangs: ")) == (number, True)
        assert hung.cause and hung.cause.endswith("; it is going to be stopped"), "clients know by it what happens"
        hanging.queue.tick()
        assert hanging.queue.state("a") == "stopping"
        hanging.queue.end(f"a-qstamp-{number}", "Stopped")
        assert hanging.queue.job("a").hangs == number
        hanging.queue.tick()
        assert hanging.queue.job("a").launched == f"a-qstamp-{number + 1}"
    hanging.look(HALF_AN_HOUR + 301)
    hanging.queue.tick()
    assert (hanging.queue.state("a"), hanging.queue.job("a").hung is None) == ("running", False)
    outcomes = [it.outcome for it in hanging.queue.record("a").attempts]
    assert outcomes == ["hung"] * MOST_HANGS
    assert hanging.events.count(JobEvent.HUNG.removeprefix("Training Job ")) == MOST_HANGS
    assert hanging.events.count("Hangs") == MOST_HANGS + 1


def test_a_job_that_has_changed_meanwhile_is_left_alone() -> None:
    hanging = Hanging(on_hang="requeue")
    hanging.queue.submit("a", **CHECKPOINTS)
    hanging.queue.now += HALF_AN_HOUR + 301
    before = hanging.queue.dry_run.cluster()
    hanging.queue.cancel("a")
    hanging.watch.check(before, {"a-qstamp-1": hanging.queue.now - 4000}, hanging.queue.now, lambda: True)
    assert hanging.queue.job("a").hung is None
