"""Launches are paced: as fast as AWS allows, the most important first, and nobody is punished for a throttled call."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from job_queue.domain.launching.launch_rate import CreateRate
from tests.fake_sagemaker import FakeTraining
from tests.jobs import P5
from tests.queue_harness import Harness

G5 = "ml.g5.48xlarge"


class Throttling(FakeTraining):
    """SageMaker with a token bucket of its own."""

    def __init__(self, rate: float, burst: int) -> None:
        super().__init__()
        self.queue: Harness | None = None
        self.throttled = 0
        self.launched: list[tuple[float, str]] = []
        self._rate, self._burst = rate, burst
        self._tokens, self._at = float(burst), 0.0

    def create(self, request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        assert self.queue is not None
        now = self.queue.now
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            self.throttled += 1
            return LaunchResult.THROTTLED, "ThrottlingException: Rate exceeded"
        self._tokens -= 1
        answer = super().create(request)
        self.launched.append((now, request["TrainingJobName"]))
        return answer


def a_queue(slots: int, create_rate: CreateRate, rate: float = 1, burst: int = 1) -> tuple[Harness, Throttling]:
    training = Throttling(rate, burst)
    training.queue = queue = Harness(slots=slots, training=training, create_rate=create_rate)
    return queue, training


def keep_going(queue: Harness, until: Any, seconds: float = 600) -> None:
    """Ticks as the schedule gives them, and the invocations that others have asked for."""
    end = queue.now + seconds
    while not until():
        assert queue.now < end, "it did not happen in time"
        if queue.woken:
            by = queue.woken.pop()
            queue.woken.clear()
            queue.controller.wake(queue.invocation(may_wait=True, woken_by=by))
        else:
            queue.now += 60 - queue.now % 60
            queue.controller.wake(queue.invocation(may_wait=True))


def test_a_hundred_free_slots_are_filled_at_the_rate_that_aws_allows() -> None:
    queue, training = a_queue(100, CreateRate(1, 1))
    for number in range(100):
        queue.accept(f"job{number:03}", number)
    began = queue.now
    keep_going(queue, lambda: len(training.launched) == 100)
    assert queue.now - began < 60 + 100 * 1.1  # a tick, and a second for each
    assert training.throttled <= 2


def test_the_most_important_come_first() -> None:
    queue, training = a_queue(10, CreateRate(1, 2), burst=9)
    for number in range(10):
        queue.accept(f"job{number}", number)
    keep_going(queue, lambda: len(training.launched) == 10)
    names = [name for _, name in training.launched]
    assert names == [f"job{number}-qstamp-1" for number in range(9, -1, -1)]


def test_a_newcomer_of_higher_priority_does_not_wait_for_the_rate_of_others() -> None:
    queue, training = a_queue(10, CreateRate(1, 1), burst=9)
    for number in range(9):
        queue.accept(f"job{number}", 1)
    queue.wake()
    assert len(training.launched) == 1
    queue.accept("urgent", 5)
    queue.wake()
    assert training.launched[-1][1] == "urgent-qstamp-1"


def test_a_throttled_launch_keeps_its_slot_and_is_not_punished() -> None:
    queue, training = a_queue(3, CreateRate(5, 5))
    for number in range(3):
        queue.accept(f"job{number}", 1)
    queue.wake()
    assert (len(training.launched), training.throttled) == (1, 2)
    assert sorted(queue.states().values()) == ["running", "starting", "starting"]
    assert queue.woken, "another invocation is asked for, as this one's caller waits for its answer"
    keep_going(queue, lambda: len(training.launched) == 3)
    assert queue.now < training.launched[0][0] + 20
    for number in range(3):
        job, history = queue.job(f"job{number}"), queue.record(f"job{number}").history
        assert (job.tries, job.refusals, job.attempt) == (0, 0, 1)
        assert not any("next try" in entry.cause for entry in history)


def test_the_queue_learns_a_slower_rate_than_its_own() -> None:
    queue, training = a_queue(40, CreateRate(5, 10), rate=0.5)
    for number in range(40):
        queue.accept(f"job{number:02}", 1)
    keep_going(queue, lambda: len(training.launched) == 40)
    assert training.throttled < 20


def test_a_cancelled_job_whose_call_was_throttled_ends_without_an_attempt() -> None:
    queue, training = a_queue(2, CreateRate(5, 5))
    queue.accept("job1", 2)
    queue.accept("job2", 1)
    queue.wake()
    assert queue.states() == {"job1": "running", "job2": "starting"}
    queue.cancel("job2")
    assert queue.state("job2") == "stopped"
    queue.tick()
    assert [name for _, name in training.launched] == ["job1-qstamp-1"]


def test_a_cancelled_job_of_which_an_older_call_is_in_doubt_is_launched_and_stopped() -> None:
    queue = Harness(slots=1)
    queue.training.script = ["lost", LaunchResult.THROTTLED]
    queue.submit("job1", 1)
    queue.tick(20)  # another call, which is throttled
    assert queue.state("job1") == "starting"
    queue.cancel("job1")
    queue.tick(20)
    assert queue.state("job1") == "stopping"
    assert queue.training.jobs["job1-qstamp-1"].status == "Stopping"


def test_an_invocation_whose_caller_waits_does_not_sleep() -> None:
    queue, training = a_queue(5, CreateRate(1, 1))
    for number in range(5):
        queue.accept(f"job{number}", 1)
    before = queue.now
    queue.wake()
    assert queue.now == before
    assert len(training.launched) == 1


def test_of_many_invocations_one_looks_again() -> None:
    queue, _ = a_queue(9, CreateRate(1, 1))
    for number in range(9):
        queue.accept(f"job{number}", 1)
    for _ in range(9):
        queue.wake()
    assert len(queue.woken) == 1


@pytest.mark.parametrize("may_wait", [False, True])
def test_who_waits_for_the_rate_holds_no_lease(*, may_wait: bool) -> None:
    queue, training = a_queue(3, CreateRate(1, 1))
    slept: list[bool] = []
    sleep = queue.sleep

    def asleep(seconds: float) -> None:
        slept.append(queue.repository.metadata().lease_expires == 0)
        sleep(seconds)

    queue.controller._sleep = asleep  # noqa: SLF001
    for number in range(3):
        queue.accept(f"job{number}", 1)
    queue.controller.wake(queue.invocation(may_wait=may_wait))
    assert slept == ([True, True] if may_wait else [])
    assert len(training.launched) == (3 if may_wait else 1)


def test_who_starts_first_is_not_stopped_because_his_start_let_another_be_read() -> None:
    """A window of one job, and one launch a second: the next plan sees one launch of the last, and one job more."""
    queue, _ = a_queue(1, CreateRate(1, 1))
    pools = [
        {"name": "p5", "instance_type": P5, "capacity": 3},
        {"name": "g5", "instance_type": G5, "capacity": 2},
    ]
    projects = [{"name": "vision", "quota": {"p5": 0, "g5": 1}}, {"name": "nlp", "quota": {"p5": 3}, "over_quota": 1}]
    policy = {"pools": pools, "projects": projects, "settings": {"window": 1}}
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)

    def submit(name: str, priority: int, project: str, resources: dict[str, Any], **tags: str) -> None:
        every = {"priority": str(priority), "project": project, **tags}
        listed = [{"Key": key, "Value": value} for key, value in every.items()]
        queue.accept(name, ResourceConfig={**resources, "VolumeSizeInGB": 30}, Tags=listed)

    groups = [
        {"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": 1} for name, kind in (("a", P5), ("b", G5))
    ]
    submit("both", 3, "nlp", {"InstanceGroups": groups})
    submit("too", 1, "nlp", {"InstanceGroups": groups})
    submit("g5", 3, "nlp", {"InstanceType": G5, "InstanceCount": 1})
    submit("either", 0, "vision", {"InstanceType": P5, "InstanceCount": 2}, pools="p5 g5")
    keep_going(queue, lambda: queue.states()["either"] == "running")
    began = queue.now
    keep_going(queue, lambda: queue.now > began + 300)
    assert queue.states() == {"both": "pending", "g5": "pending", "either": "running"}
    assert not [call for call in queue.training.calls if call[0] == "stop"]


def test_what_the_rate_defers_is_not_decided_anew_for_ever() -> None:
    """A plan starts two jobs, and the rate launches the first. The second keeps its slots.

    Without that, the next plan has others stopped for a third job, which the second then passes again, and so on.
    """
    policy = {
        "pools": [
            {"name": "p5", "instance_type": P5, "capacity": 2},
            {"name": "g5", "instance_type": G5, "capacity": 2},
        ],
        "projects": [
            {"name": "vision", "quota": {"p5": 1, "g5": 1}},
            {"name": "nlp", "quota": {"p5": 1}, "over_quota": 3},
        ],
    }
    queue, training = a_queue(4, CreateRate(1, 1))
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)

    def accept(name: str, project: str, priority: int, resources: dict[str, Any]) -> None:
        tags = [{"Key": "project", "Value": project}, {"Key": "priority", "Value": str(priority)}]
        queue.accept(name, None, Tags=tags, ResourceConfig={"VolumeSizeInGB": 30, **resources})

    either = [{"InstanceType": P5}, {"InstanceType": G5}]
    both = [{"InstanceGroupName": kind[3:5], "InstanceType": kind, "InstanceCount": 1} for kind in (P5, G5)]
    accept("job2", "nlp", 2, {"InstanceType": G5, "InstanceCount": 2})
    accept("job4", "nlp", 2, {"InstanceType": P5, "InstanceCount": 2})
    accept("job7", "vision", 1, {"InstanceGroups": both})
    accept("job3", "vision", 2, {"InstancePreferences": either, "InstanceCount": 2})
    keep_going(queue, lambda: queue.state("job2") == queue.state("job3") == "running")
    assert [name for _, name in training.launched] == ["job2-qstamp-1", "job3-qstamp-1"], "nobody was stopped"
