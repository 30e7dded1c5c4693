"""One job's trouble stays its own: odd rows, answers and people stop neither the queue nor anybody else's job."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from job_queue.adapters.metadata import WAITING_QUEUE_UNUSED_SECONDS
from job_queue.adapters.sagemaker import LaunchResult
from job_queue.controller.cycle import Invocation
from job_queue.controller.launcher import SIGNATURE_SECONDS
from job_queue.controller.stops import STOP_AGAIN_SECONDS
from job_queue.domain import state_machine
from job_queue.domain.errors import Refused, Unavailable
from job_queue.domain.job import Job
from job_queue.domain.state_machine import JobTransition
from tests.jobs import P5
from tests.queue_harness import Harness, LastFirst
from tests.unit.queue_api import Api

DEAD = SIGNATURE_SECONDS + 120
G5 = "ml.g5.48xlarge"


def failing(original: Callable[..., Any], fails: Callable[..., bool], error: Exception) -> Callable[..., Any]:
    """The original, but it raises where `fails` says so."""

    def call(*args: Any, **options: Any) -> Any:
        if fails(*args):
            raise error
        return original(*args, **options)

    return call


def cycles_of_a_wake(queue: Harness) -> int:
    asked = []

    def may_go_on() -> bool:
        asked.append(1)
        return len(asked) < 20

    queue.controller.wake(Invocation("somebody", lambda: 45.0, may_go_on))
    return len(asked)


# --- the tables --------------------------------------------------------------------------------------


def test_a_waiting_queue_is_kept_if_those_of_it_that_were_read_have_started_meanwhile() -> None:
    queue = LastFirst(slots=1)
    pools = [{"name": "p5", "instance_type": P5, "capacity": 1}]
    policy = {
        "pools": pools,
        "projects": [{"name": "default", "quota": {"p5": 1}}],
        "settings": {"window": 1},
    }
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    queue.accept("first", 1)
    queue.accept("second", 1)
    queue.now += 2 * WAITING_QUEUE_UNUSED_SECONDS
    read = queue.repository.waiting

    def another_goes_first(*arguments: Any) -> list[Job]:
        found = read(*arguments)
        queue.repository.waiting = read  # type: ignore[method-assign]
        queue.now += 60  # the lease is over
        queue.wake()
        return found

    queue.repository.waiting = another_goes_first  # type: ignore[method-assign, assignment]
    queue.wake()
    assert queue.states() == {"first": "running", "second": "pending"}
    queue.end("first-qstamp-1")
    assert queue.state("second") == "running"


def test_a_job_that_goes_back_to_a_waiting_queue_forgotten_meanwhile_is_not_lost() -> None:
    queue = Harness(slots=1)
    queue.submit("first", 5, ResourceConfig={"InstanceType": G5, "InstanceCount": 1, "VolumeSizeInGB": 30})
    queue.submit("job1", 1)
    queue.tick(WAITING_QUEUE_UNUSED_SECONDS + 10)
    queue.training.script = ["never"]
    queue.end("first-qstamp-1")
    assert queue.state("job1") == "starting"
    queue.training.script = ["never"]
    queue.tick()
    key, known = queue.job("job1").waiting_queue, queue.repository.metadata().waiting_queues
    assert key in known, "an active job can return to it"
    queue.repository.forget_waiting_queue(key, known[key])
    queue.now += DEAD
    queue.training.script = [LaunchResult.NOT_NOW]
    queue.tick()
    assert queue.state("job1") == "pending"
    queue.tick()
    assert queue.state("job1") == "running"


def test_a_job_that_cannot_be_written_stops_no_other() -> None:
    queue = Harness(slots=2)
    of_bad = lambda writes: any(getattr(write, "key", {}).get("jobName") == "bad" for write in writes)  # noqa: E731
    queue.tables.transact = failing(queue.tables.transact, of_bad, Unavailable("too large"))  # type: ignore[method-assign]
    queue.accept("good", 1)
    queue.accept("bad", 9)
    queue.tick()
    assert queue.states() == {"bad": "pending", "good": "running"}


def test_reservations_that_cannot_be_written_keep_back_no_stop() -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    queue.submit("job2", 1)
    queue.cancel("job1")  # its slot is set aside for job2
    only_control = lambda writes: len(writes) > 1 and all(write.table.endswith("lines") for write in writes)  # noqa: E731
    queue.tables.transact = failing(queue.tables.transact, only_control, Unavailable("busy"))  # type: ignore[method-assign]
    queue.training.calls.clear()
    queue.now += STOP_AGAIN_SECONDS
    queue.cancel("job2")
    assert queue.training.calls.count(("stop", "job1-qstamp-1")) == 1


def test_a_live_item_without_its_job_stops_no_other() -> None:
    queue = Harness(slots=2)
    queue.accept("ghost", 9)
    del queue.tables.rows["sagemaker-queue", "ghost"]  # by the hand of an operator
    queue.accept("job1", 1)
    assert cycles_of_a_wake(queue) <= 3
    assert queue.state("job1") == "running"


def test_a_release_that_meets_a_transaction_is_tried_again() -> None:
    queue = Harness()
    met: list[int] = []

    def meets_one(update: Any) -> bool:
        met.append(1) if update.set.get("owner") == "" and not met else None
        return len(met) == 1 and not met.append(2)  # type: ignore[func-returns-value]

    queue.tables.update = failing(queue.tables.update, meets_one, Refused({0: {}}))  # type: ignore[method-assign]
    queue.submit("job1", 1)
    queue.submit("job2", 1)
    assert set(queue.states().values()) == {"running"}


def test_a_promise_that_meets_a_transaction_is_tried_again() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    met = iter([True, False])
    queue.tables.update = failing(queue.tables.update, lambda _: next(met), Refused({0: {}}))  # type: ignore[method-assign]
    assert queue.repository.promise("me", queue.now, queue.now + 60, queue.now + 30, queue.now + 40)


@pytest.mark.parametrize("name", ["", "a" * 64, "a" * 3000])
def test_what_cannot_be_a_name_is_no_job(name: str) -> None:
    assert Harness().repository.record(name) is None


# --- SageMaker ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Unavailable("throttled"), KeyError("ResourceConfig")])
def test_a_training_job_that_cannot_be_described_hides_no_other(error: Exception) -> None:
    queue = Harness(slots=3)
    queue.submit("a", 1)
    queue.submit("b", 1)
    for name in ("aaa", "bbb"):
        queue.start_outside(name)
    for attempt in ("a-qstamp-1", "b-qstamp-1"):
        queue.training.end(attempt)
    odd = lambda name: name in ("a-qstamp-1", "aaa")  # noqa: E731
    queue.training.describe = failing(queue.training.describe, odd, error)  # type: ignore[method-assign]
    queue.tick()
    assert queue.state("b") == "completed"
    assert [row.name for row in queue.repository.external()] == ["bbb"]


def test_a_list_that_surprises_is_not_the_callers_fault() -> None:
    api = Api()
    api.queue.training.page = failing(api.queue.training.page, lambda: True, KeyError("x"))  # type: ignore[method-assign]
    status, answer = api.add("job1")
    assert (status, answer["state"]) == (202, "running")


def test_a_stopping_attempt_that_is_gone_makes_no_hot_loop() -> None:
    queue = Harness(slots=1)
    queue.submit("low", 1)
    queue.submit("high", 2)
    del queue.training.jobs["low-qstamp-1"]
    queue.now += 60
    assert cycles_of_a_wake(queue) <= 2


def test_a_name_that_is_neither_free_nor_found_is_passed_over_in_the_end() -> None:
    queue = Harness(slots=1)
    queue.training.script = [LaunchResult.NAME_TAKEN] * 30
    queue.submit("job1", 1)
    for _ in range(10):
        queue.tick()
    assert (queue.state("job1"), queue.job("job1").attempt) == ("starting", 1)
    queue.training.script = queue.training.script[:20]
    for _ in range(30):
        queue.tick()
    assert (queue.state("job1"), queue.job("job1").attempt > 1) == ("running", True)


def test_alternatives_of_other_sizes_never_exceed_what_was_planned() -> None:
    queue = Harness(slots=2)
    preferences = [{"InstanceType": P5, "InstanceCount": 1}, {"InstanceType": G5, "InstanceCount": 4}]
    queue.submit("job1", 1, ResourceConfig={"InstancePreferences": preferences, "VolumeSizeInGB": 30})
    sent = queue.training.requests["job1-qstamp-1"]["ResourceConfig"]
    assert sent == {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 30}


# --- one launch and another --------------------------------------------------------------------------


def test_an_answer_that_cannot_be_recorded_loses_no_other() -> None:
    queue = Harness(slots=3)
    queue.training.create = lambda request: (  # type: ignore[method-assign]
        (LaunchResult.REFUSED, "bad") if request["TrainingJobName"].startswith("b-") else create(request)
    )
    create = FakeCreate(queue)

    def of_a(lease: Any, transitions: list[JobTransition], *_: Any) -> bool:
        return any((done.new.name, done.new.state) == ("a", "running") for done in transitions)

    queue.repository.commit = failing(queue.repository.commit, of_a, Unavailable("x"))  # type: ignore[method-assign]
    for name, priority in [("a", 2), ("b", 1), ("c", 0)]:
        queue.accept(name, priority)
    queue.wake()
    assert (queue.state("a"), queue.state("b"), queue.state("c")) == ("starting", "failed", "running")


class FakeCreate:
    def __init__(self, queue: Harness) -> None:
        self._create = type(queue.training).create
        self._training = queue.training

    def __call__(self, request: Any) -> Any:
        return self._create(self._training, request)


def test_an_end_that_races_a_cancel_aborts_nobody() -> None:
    queue = Harness(slots=2)
    queue.training.script = ["lost", "never"]
    queue.accept("job1", 2)
    queue.accept("job2", 1)
    queue.wake()
    queue.training.end("job1-qstamp-1")
    apply = queue.repository.apply

    def cancelled_first(end: Any, now: float, metadata: Any = None) -> None:
        queue.repository.apply = apply  # type: ignore[method-assign]
        apply(state_machine.cancel(queue.job("job1"), "ada", queue.now), queue.now)
        apply(end, now, metadata)

    queue.repository.apply = cancelled_first  # type: ignore[method-assign, assignment]
    queue.tick(20)
    assert queue.state("job2") == "running"
    assert queue.state("job1") == "completed"


# --- people ------------------------------------------------------------------------------------------


def test_a_crafted_name_stops_nobody_elses_attempt() -> None:
    queue = Harness(slots=2)
    long = "a" * 60
    queue.submit(long, 1)
    crafted = (queue.job(long).launched or "").rpartition("-qstamp-")[0]
    queue.submit(crafted, 1)
    queue.tick()
    assert queue.training.stopped == set()
    assert queue.job(crafted).launched == f"{crafted}-qstamp-2"


def test_a_training_job_with_half_of_our_tags_is_counted() -> None:
    queue = Harness(slots=1)
    queue.start_outside("half", queue_name="sagemaker-queue")
    queue.tick()
    assert [row.name for row in queue.repository.external()] == ["half"]
    queue.end("half")
    assert queue.repository.external() == []
