"""Jobs that wait for others (tag `after`): they start once these have ended as asked, or are stopped."""

import json
from typing import Any

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from job_queue.api.queue_position import QueuePosition
from job_queue.controller.waiting.dependencies import MOST_LOOKED_UP
from job_queue.domain import state_machine
from job_queue.domain.errors import Refused, Unwritable
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.services.job_commands import JobCommands
from tests.jobs import OWNER
from tests.queue_harness import Harness
from tests.unit.controller.test_aws_calls import Meter

WINDOW = 4


def submit(queue: Harness, name: str, after: str = "", priority: int = 1, **changes: Any) -> None:
    tags = {"priority": str(priority), **({"after": after} if after else {})}
    queue.submit(name, None, Tags=[{"Key": key, "Value": value} for key, value in tags.items()], **changes)


def reason(queue: Harness, name: str) -> tuple[str, str]:
    found = QueuePosition(PublishedPlan.of(*queue.forecast(), queue.now)).reason(queue.job(name))
    assert found is not None
    return found.code, found.message


def small_window(queue: Harness, slots: int) -> None:
    document = {
        "pools": [{"name": "p5", "capacity": slots, "instance_type": "ml.p5.48xlarge"}],
        "projects": [{"name": "default", "quota": {"p5": slots}}],
        "settings": {"window": WINDOW},
    }
    queue.repository.apply_policy(json.dumps(document), 0, OWNER, queue.now)


def commands(queue: Harness) -> JobCommands:
    return JobCommands(queue.repository, queue.policies, queue.settings, queue.clock)


def test_it_waits_until_the_others_have_completed() -> None:
    queue = Harness(slots=3)
    submit(queue, "a")
    submit(queue, "b", priority=0, instances=3)
    submit(queue, "c", after="a b:any")
    assert queue.state("c") == "pending", "though slots are idle"
    assert reason(queue, "c") == ("DEPENDENCY", "Waits for a (running) to complete and b (waiting) to end.")
    queue.end("a-qstamp-1")
    assert (queue.state("b"), queue.state("c")) == ("running", "pending")
    assert reason(queue, "c") == ("DEPENDENCY", "Waits for b (running) to end.")
    queue.end("b-qstamp-1", "Failed")
    assert queue.state("c") == "running"
    causes = [entry.cause for entry in queue.record("c").history]
    assert causes[:3] == ["submitted", "a has completed", "b has failed"]


@pytest.mark.parametrize("status", ["Failed", "Stopped"])
def test_it_is_stopped_when_another_ends_otherwise_than_asked(status: str) -> None:
    queue = Harness()
    submit(queue, "a")
    submit(queue, "b", after="a:ok")
    submit(queue, "c", after="b")
    submit(queue, "d", after="c:any")
    queue.end("a-qstamp-1", status)
    ended = status.lower()
    assert [queue.state(name) for name in "abcd"] == [ended, "stopped", "stopped", "running"]
    assert queue.job("b").reason == f"a has {ended}, and this job was to start once that had completed"
    assert queue.job("c").reason == "b has stopped, and this job was to start once that had completed"


def test_a_long_chain_is_stopped_without_another_wake_up() -> None:
    queue = Harness(slots=1)
    submit(queue, "j0")
    for number in range(1, 50):
        submit(queue, f"j{number}", after=f"j{number - 1}")
    queue.end("j0-qstamp-1", "Failed")
    assert {queue.state(f"j{number}") for number in range(1, 50)} == {"stopped"}


def test_whoever_is_preempted_or_tried_again_has_not_ended() -> None:
    queue = Harness(slots=1)
    queue.submit("a", None, Tags=[{"Key": "retries", "Value": "1"}])
    submit(queue, "b", after="a:any")
    queue.submit("urgent", 9)
    queue.end("a-qstamp-1", "Stopped")
    assert (queue.state("a"), queue.state("b")) == ("preempted", "pending")
    queue.end("urgent-qstamp-1")
    assert (queue.state("a"), queue.state("b")) == ("running", "pending")
    queue.end("a-qstamp-2", "Failed")
    queue.tick(120)
    assert (queue.state("a"), queue.state("b")) == ("running", "pending")
    queue.end("a-qstamp-3", "Failed")
    assert (queue.state("a"), queue.state("b")) == ("failed", "running")


def test_an_end_between_the_check_and_the_write_is_seen() -> None:
    queue = Harness()
    submit(queue, "a")
    add = queue.repository.add

    def add_late(*args: Any, **options: Any) -> Any:
        queue.repository.add = add  # type: ignore[method-assign]
        queue.end("a-qstamp-1")
        return add(*args, **options)

    queue.repository.add = add_late  # type: ignore[method-assign]
    submit(queue, "b", after="a")
    assert queue.state("b") == "running"


def test_an_event_that_comes_twice_changes_nothing() -> None:
    queue = Harness()
    submit(queue, "a")
    submit(queue, "b", after="a")
    queue.end("a-qstamp-1")
    before = queue.record("b")
    queue.event("a-qstamp-1")
    assert queue.record("b") == before


def test_a_change_of_the_dependent_at_the_same_moment_loses_nothing() -> None:
    queue = Harness()
    submit(queue, "a")
    submit(queue, "b", after="a")
    commit, raced = queue.repository.commit, list[bool]()

    def commit_late(lease: Any, transitions: Any, *args: Any, **options: Any) -> None:
        if not raced and [it.old.name for it in transitions] == ["b"]:
            raced.append(True)
            commands(queue).change("b", OWNER, priority=7)
        commit(lease, transitions, *args, **options)

    queue.repository.commit = commit_late  # type: ignore[method-assign]
    queue.end("a-qstamp-1")
    queue.tick()
    assert raced
    assert (queue.state("b"), queue.job("b").priority) == ("running", 7)


@pytest.mark.attack
@pytest.mark.parametrize("error", [Refused({}), Unwritable("too large")], ids=["changed meanwhile", "too large"])
def test_a_dependent_that_cannot_be_recorded_keeps_nobody_back(error: Exception) -> None:
    queue = Harness(slots=4)
    submit(queue, "a")
    for name in ("b", "spoilt", "c"):
        submit(queue, name, after="a")
    commit = queue.repository.commit

    def commit_others(lease: Any, transitions: Any, *args: Any, **options: Any) -> None:
        if "spoilt" in [it.old.name for it in transitions]:
            raise error
        commit(lease, transitions, *args, **options)

    queue.repository.commit = commit_others  # type: ignore[method-assign]
    queue.end("a-qstamp-1")
    assert [queue.state(name) for name in ("b", "spoilt", "c")] == ["running", "pending", "running"]


def test_a_cancelled_dependency_ends_at_once() -> None:
    queue = Harness(slots=1)
    queue.submit("first", 9)
    submit(queue, "a")
    submit(queue, "b", after="a:any")
    submit(queue, "c", after="a")
    queue.cancel("a")
    assert (queue.state("b"), queue.state("c")) == ("pending", "stopped")
    assert reason(queue, "b")[0] != "DEPENDENCY"


def test_a_dependency_whose_launch_is_refused_for_good_ends() -> None:
    queue = Harness(slots=1)
    queue.submit("first", 9)
    submit(queue, "a")
    submit(queue, "b", after="a")
    queue.training.script = [LaunchResult.REFUSED]
    queue.end("first-qstamp-1")
    assert (queue.state("a"), queue.state("b")) == ("failed", "stopped")


def test_a_launch_that_is_given_up_before_it_was_sent_ends_its_dependents() -> None:
    queue = Harness(slots=1)
    queue.training.script = [LaunchResult.THROTTLED] * 2
    submit(queue, "a")
    submit(queue, "b", after="a")
    assert queue.state("a") == "starting"
    queue.cancel("a")
    assert (queue.state("a"), queue.state("b")) == ("stopped", "stopped")


def test_a_dependent_can_be_cancelled_and_held() -> None:
    queue = Harness()
    submit(queue, "a")
    submit(queue, "b", after="a")
    submit(queue, "c", after="a")
    queue.cancel("b")
    commands(queue).change("c", OWNER, held=True)
    queue.end("a-qstamp-1")
    assert (queue.state("b"), queue.state("c")) == ("stopped", "pending")
    commands(queue).change("c", OWNER, held=False)
    queue.wake()
    assert queue.state("c") == "running"


def test_another_job_of_the_name_is_not_the_one_that_was_meant() -> None:
    queue = Harness(slots=1)
    submit(queue, "a")
    for name, after in (("ok", "a"), ("any", "a:any")):
        submit(queue, name, after=after)
        commands(queue).change(name, OWNER, held=True)
    queue.tables.rows[("sagemaker-queue", "a")]["submission"] = "of another"
    queue.repository.apply(state_machine.cancel(queue.job("a"), "ada", queue.now), queue.now)
    queue.wake()
    assert (queue.state("ok"), queue.state("any")) == ("stopped", "pending")
    assert queue.job("ok").reason == (
        "a has ended and is not known any more, and this job was to start once that had completed"
    )
    assert not queue.job("any").after


@pytest.mark.attack
def test_dependents_take_no_place_in_the_window_and_are_found_behind_it() -> None:
    queue = Harness(slots=2)
    small_window(queue, 2)
    submit(queue, "a", instances=2, priority=5)
    for number in range(3 * WINDOW):
        submit(queue, f"b{number}", after="a", priority=9)
    submit(queue, "honest", priority=2)
    cluster, _ = queue.forecast()
    assert "honest" in cluster.waiting, "it is in view"
    assert "b9" not in cluster.waiting
    assert reason(queue, "b9") == ("DEPENDENCY", "Waits for a to complete.")
    queue.end("a-qstamp-1")
    running = {job.name for job in queue.repository.active()}
    assert running == {"b0", "b1"}, "with no tick in between"


@pytest.mark.attack
def test_a_flood_of_dependents_has_so_many_records_read() -> None:
    # Of jobs behind the window, which a cycle does not see.
    costs = []
    for count in (40, 80):
        queue = Harness(slots=1)
        small_window(queue, 1)
        submit(queue, "busy", priority=9)
        for number in range(count):
            submit(queue, f"a{number}", priority=-1)
            submit(queue, f"b{number}", after=f"a{number}", priority=5)
        meter = Meter(queue)
        queue.tick()
        costs.append(meter.total)
        assert meter.total < 2 * MOST_LOOKED_UP + 30
    assert costs[0] == costs[1]


def test_one_behind_the_window_is_not_taken_for_ended() -> None:
    queue = Harness(slots=1)
    small_window(queue, 1)
    submit(queue, "busy", priority=9)
    for number in range(2 * WINDOW):
        submit(queue, f"w{number}", priority=5)
    submit(queue, "a", priority=0)
    submit(queue, "b", after="a", priority=8)
    cycles = queue.repository.metadata().fencing_token
    queue.tick()
    assert queue.state("b") == "pending"
    assert queue.repository.metadata().fencing_token < cycles + 10, "and the cycles come to an end"
    for name in ("busy", *(f"w{number}" for number in range(2 * WINDOW))):
        queue.end(f"{name}-qstamp-1")
    assert queue.state("a") == "running"
    queue.end("a-qstamp-1")
    assert queue.state("b") == "running"


def test_whoever_depends_on_more_than_a_cycle_looks_up_starts_all_the_same() -> None:
    queue = Harness(slots=1)
    small_window(queue, 1)
    submit(queue, "busy", priority=9)
    for number in range(60):
        submit(queue, f"a{number}", priority=-1)
        submit(queue, f"b{number}", after=f"a{number}:any", priority=5)
    for number in range(60):
        queue.cancel(f"a{number}")
    for _ in range(6 * 11):
        queue.tick()
    assert all(not job.after for job in map(queue.job, (f"b{number}" for number in range(60))))


def test_a_cycle_without_dependents_makes_no_further_call_and_one_with_them_a_few() -> None:
    def cost(*after: str) -> tuple[int, int]:
        queue = Harness(slots=1)
        submit(queue, "a")
        for number, name in enumerate(after):
            submit(queue, f"b{number}", after=name)
        meter = Meter(queue)
        queue.submit("plain", 0)
        submitted = meter.total
        queue.end("a-qstamp-1")
        return submitted, meter.total - submitted

    plain, with_dependents = cost(), cost("a:any", "a:any")
    assert with_dependents[0] == plain[0], "of a submission: a is in view"
    assert with_dependents[1] <= plain[1] + 2, "its record, and the write"
