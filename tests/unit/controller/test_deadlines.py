"""Deadlines in the cycle: `not_before`, `start_by` with its actions, and `max_total_runtime` over several attempts."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from job_queue.controller.waiting.deadlines import SOON_SECONDS
from job_queue.domain.domain_events import DomainEvent, JobEvent, job_event
from job_queue.domain.errors import InvalidRequest
from job_queue.domain.job import LEAST_RUNTIME_SECONDS
from job_queue.domain.state_machine import JobTransition
from tests.jobs import NOW, OWNER, P5
from tests.queue_harness import Harness

POOLS = {
    "pools": [
        {"name": "p5", "capacity": 1, "instance_type": P5},
        {"name": "p4", "capacity": 1, "instance_type": "ml.p4d.24xlarge"},
    ],
    "projects": [{"name": "default", "quota": {"p5": 1}, "pools": ["p5", "p4"]}],
}


def at(seconds: float) -> str:
    """Return a time after the beginning of the test, as a tag has it."""
    return datetime.fromtimestamp(NOW + seconds, UTC).isoformat().replace("+00:00", "Z")


def tagged(**tags: str) -> dict[str, Any]:
    return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def apply(queue: Harness, **changes: Any) -> None:
    queue.repository.apply_policy(json.dumps(POOLS | changes), 0, OWNER, queue.now)


def wait_until(queue: Harness, seconds: float) -> None:
    """Let ticks pass until a time after the beginning of the test."""
    while queue.now < NOW + seconds:
        queue.tick(min(60, NOW + seconds - queue.now))


def end(queue: Harness, attempt: str, *how: str, tell: bool = True, **more: str) -> None:
    """End a training job, whose instances came at once, as SageMaker tells it."""
    queue.training.run(attempt, queue.training.created[attempt], queue.now)
    if tell:
        queue.end(attempt, *how, **more)
    else:
        queue.training.end(attempt, *how, **more)


# --- not_before --------------------------------------------------------------------------------------


def test_a_job_does_not_start_before_its_time_and_blocks_no_other_job() -> None:
    queue = Harness(slots=1)
    assert queue.submit("later", None, **tagged(not_before=at(600), priority="9")).job.state.waits
    (hold,) = queue.forecast()[1].holds
    assert hold.reason == "NOT_BEFORE"
    assert hold.message == f"It may not start before {_words(600)}, in 10 min (tag not_before)."
    assert queue.submit("small", 1).job.state == "running"
    queue.end("small-qstamp-1")
    wait_until(queue, 595)
    assert queue.state("later") == "pending"
    wait_until(queue, 600)
    assert queue.state("later") == "running"


def _words(seconds: float) -> str:
    return f"{datetime.fromtimestamp(NOW + seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def test_a_job_starts_on_time_without_a_call() -> None:
    # The cycle of the tick promises a cycle for the time. One invocation cannot wait for it, so that another follows.
    queue = Harness(slots=1)
    queue.submit("later", None, **tagged(not_before=at(100)))
    assert not queue.woken, "the time is not close yet"
    queue.now = NOW + 100 - SOON_SECONDS + 1
    queue.controller.tick(queue.invocation(may_wait=True))
    invocations = 0
    while queue.woken:
        by = queue.woken.pop()
        queue.controller.wake(queue.invocation(may_wait=True, woken_by=by))
        invocations += 1
    assert queue.state("later") == "running"
    assert NOW + 100 <= queue.now < NOW + 101
    assert invocations <= 4, "each invocation waits as long as it may"


@pytest.mark.parametrize("may_wait", [True, False])
def test_a_time_far_away_wakes_no_invocation(may_wait: bool) -> None:  # noqa: FBT001
    queue = Harness(slots=1)
    queue.submit("later", None, **tagged(not_before=at(3600)))
    began = queue.now
    queue.controller.tick(queue.invocation(may_wait=may_wait))
    assert (queue.woken, queue.now) == ([], began)


def test_more_jobs_than_the_window_with_a_time_leave_the_window_to_others_and_start_on_time() -> None:
    queue = Harness(slots=8)
    document = {**POOLS, "settings": {"window": 3}}
    document["pools"] = [{"name": "p5", "capacity": 8, "instance_type": P5}]
    document["projects"] = [{"name": "default", "quota": {"p5": 8}}]
    queue.repository.apply_policy(json.dumps(document), 0, OWNER, queue.now)
    for number in range(7):
        queue.accept(f"later{number}", None, **tagged(not_before=at(900), priority="9"))
    assert queue.submit("small", 1).job.state == "running"
    wait_until(queue, 860)
    assert set(queue.states().values()) == {"pending", "running"}
    queue.controller.tick(queue.invocation(may_wait=True))
    while queue.woken:
        queue.controller.wake(queue.invocation(may_wait=True, woken_by=queue.woken.pop()))
    assert {state for name, state in queue.states().items() if name.startswith("later")} == {"running"}
    assert queue.now < NOW + 905


# --- start_by ----------------------------------------------------------------------------------------


def occupied(events: list[JobTransition] | None = None, **changes: Any) -> Harness:
    """Return a queue whose only p5 instance runs a job."""

    def notify(event: DomainEvent) -> None:
        if events is not None and isinstance(event, JobTransition):
            events.append(event)

    queue = Harness(slots=1, notify=notify)
    apply(queue, **changes)
    queue.submit("first", 5)
    return queue


def test_a_job_that_has_not_started_in_time_is_cancelled() -> None:
    queue = occupied()
    queue.submit("late", None, **tagged(start_by=at(300), start_by_action="cancel"))
    wait_until(queue, 299)
    assert queue.state("late") == "pending"
    wait_until(queue, 300)
    assert queue.state("late") == "stopped"
    assert queue.job("late").reason == f"it had not started by {_words(300)} (tag start_by)"


def test_dependents_of_a_job_that_was_cancelled_for_its_start_are_stopped_in_the_same_cycle() -> None:
    queue = occupied()
    queue.submit("late", None, **tagged(start_by=at(300), start_by_action="cancel"))
    queue.submit("next", None, **tagged(after="late"))
    wait_until(queue, 300)
    assert (queue.state("late"), queue.state("next")) == ("stopped", "stopped")


def test_a_late_job_is_announced_once_and_keeps_waiting() -> None:
    events: list[JobTransition] = []
    queue = occupied(events)
    queue.submit("late", None, **tagged(start_by=at(300)))
    wait_until(queue, 900)
    assert [job_event(it) for it in events if it.new.name == "late"].count(JobEvent.LATE) == 1
    assert queue.state("late") == "pending"
    assert queue.record("late").history[-1].cause == f"it had not started by {_words(300)} (tag start_by)"
    end(queue, "first-qstamp-1")
    assert queue.state("late") == "running"


def test_a_late_job_may_run_in_the_further_pools_of_its_project() -> None:
    queue = occupied()
    queue.submit("late", None, **tagged(start_by=at(300), start_by_action="next_pool"))
    wait_until(queue, 299)
    assert queue.state("late") == "pending", "its instance type is that of the pool p5"
    wait_until(queue, 300)
    queue.wake()
    assert (queue.state("late"), queue.job("late").slots) == ("running", {"p4": 1})
    causes = [it.cause for it in queue.record("late").history]
    missed = f"it had not started by {_words(300)} (tag start_by)"
    assert f"{missed}; it may now run in p5 and p4" in causes, "clients know by this text that the job has moved"
    sent = queue.training.requests["late-qstamp-1"]
    assert sent["ResourceConfig"]["InstanceType"] == "ml.p4d.24xlarge"


def test_a_late_job_without_further_pools_is_announced_and_keeps_waiting() -> None:
    events: list[JobTransition] = []
    queue = occupied(events, projects=[{"name": "default", "quota": {"p5": 1}, "pools": ["p5"]}])
    tags = tagged(start_by=at(300), start_by_action="next_pool")
    (warning,) = (it for it in queue.accept("late", None, **tags).warnings if "start_by_action" in it)
    assert warning.startswith(f"If the job has not started by {_words(300)}, it is only announced")
    assert "its project default has no further pools" in warning
    wait_until(queue, 900)
    missed = f"it had not started by {_words(300)} (tag start_by)"
    (cause,) = (it.cause for it in queue.record("late").history if (it.cause or "").startswith("it had not"))
    assert cause == f"{missed}; its project has no further pools in which it could run"
    assert [job_event(it) for it in events if it.new.name == "late"].count(JobEvent.LATE) == 1
    assert (queue.state("late"), queue.job("late").pools) == ("pending", ())
    end(queue, "first-qstamp-1")
    assert queue.state("late") == "running"


def test_a_job_with_further_pools_is_accepted_without_a_warning() -> None:
    queue = occupied()
    warnings = queue.accept("late", None, **tagged(start_by=at(300), start_by_action="next_pool")).warnings
    assert not [it for it in warnings if "start_by_action" in it]


def test_a_job_that_has_run_is_not_late_after_its_preemption() -> None:
    queue = Harness(slots=1)
    apply(queue, settings={"preempted_min_runtime": 0})
    queue.submit("early", None, **tagged(start_by=at(300), start_by_action="cancel"))
    queue.now += 200
    queue.submit("urgent", 9)
    end(queue, "early-qstamp-1", "Stopped")
    assert queue.state("early") == "preempted"
    wait_until(queue, 600)
    assert queue.state("early") == "preempted"


def test_a_job_has_run_also_if_its_instances_came_and_ended_in_the_same_moment() -> None:
    queue = Harness(slots=1)
    queue.submit("brief", None, **tagged(start_by=at(300), start_by_action="cancel", retries="1"))
    queue.submit("urgent", 9)
    queue.training.run("brief-qstamp-1", queue.now, queue.now)
    queue.end("brief-qstamp-1", "Failed", failure="AlgorithmError: exit code 1")
    assert queue.state("urgent") == "running"
    wait_until(queue, 600)
    assert queue.state("brief") in ("pending", "preempted")


def test_a_job_whose_attempt_got_no_instances_can_still_be_late() -> None:
    queue = Harness(slots=1)
    queue.submit("early", None, **tagged(start_by=at(110), start_by_action="cancel"))
    queue.training.starve("early-qstamp-1")
    queue.now += 100
    queue.event("early-qstamp-1")
    assert queue.state("early") == "pending"
    wait_until(queue, 110)
    assert queue.state("early") == "stopped"


# --- max_total_runtime -------------------------------------------------------------------------------


def test_the_next_attempt_gets_the_rest_and_the_job_ends_when_nothing_is_left() -> None:
    queue = Harness(slots=1)
    apply(queue, settings={"preempted_min_runtime": 0})
    queue.submit("long", None, **tagged(max_total_runtime="3000"))
    limits = []
    for attempt, seconds in ((1, 1000), (2, 1500)):
        name = f"long-qstamp-{attempt}"
        limits.append(_limit(queue, name))
        queue.now += seconds
        queue.submit(f"urgent{attempt}", 9)
        end(queue, name, "Stopped")
        queue.end(f"urgent{attempt}-qstamp-1")
        assert queue.state("long") == "running"
    limits.append(_limit(queue, "long-qstamp-3"))
    ran = queue.job("long").run_seconds
    assert limits[0] == 3000
    assert limits[2] == 3000 - ran
    assert 2500 <= ran < 2550
    queue.now += limits[2]
    end(queue, "long-qstamp-3", "Stopped", "MaxRuntimeExceeded")
    assert queue.state("long") == "stopped"
    assert queue.job("long").reason == "its 3 attempts ran for 50 min, and its max_total_runtime is 50 min"


def _limit(queue: Harness, attempt: str) -> int:
    limit = queue.training.requests[attempt]["StoppingCondition"]["MaxRuntimeInSeconds"]
    assert isinstance(limit, int)
    return limit


def test_a_preempted_job_whose_time_is_used_up_does_not_wait_again() -> None:
    queue = Harness(slots=1)
    apply(queue, settings={"preempted_min_runtime": 0})
    queue.submit("long", None, **tagged(max_total_runtime="600"))
    queue.now += 590
    queue.submit("urgent", 9)
    queue.now += 30  # it saves its work
    end(queue, "long-qstamp-1", "Stopped")
    assert queue.state("long") == "stopped"
    assert "its max_total_runtime is 10 min" in str(queue.job("long").reason)
    assert queue.record("long").attempts[-1].outcome == "stopped"


def test_the_last_attempt_gets_a_minute_at_least() -> None:
    queue = Harness(slots=1)
    queue.submit("long", None, **tagged(max_total_runtime="600", retries="3"))
    queue.now += 590
    end(queue, "long-qstamp-1", "Failed", failure="AlgorithmError: exit code 1")
    assert queue.state("long") == "running"
    assert _limit(queue, "long-qstamp-2") == LEAST_RUNTIME_SECONDS


def test_an_end_that_is_reported_twice_counts_once_and_a_lost_event_counts_later() -> None:
    queue = Harness(slots=1)
    queue.submit("long", None, **tagged(max_total_runtime="1h", retries="3"))
    queue.now += 500
    end(queue, "long-qstamp-1", "Failed", failure="AlgorithmError: exit code 1")
    once = queue.job("long").run_seconds
    queue.event("long-qstamp-1")
    assert queue.job("long").run_seconds == once
    queue.now += 500
    end(queue, "long-qstamp-2", "Failed", failure="AlgorithmError: exit code 1", tell=False)
    ended = queue.now
    queue.tick(3600)  # the event is lost, and the comparison with SageMaker finds the end much later
    assert queue.job("long").run_seconds <= once + 500 + 5
    assert queue.now - ended > 3000


def test_an_attempt_that_got_no_instances_does_not_count() -> None:
    queue = Harness(slots=1)
    queue.submit("long", None, **tagged(max_total_runtime="600"))
    queue.training.starve("long-qstamp-1")
    queue.now += 3600
    queue.event("long-qstamp-1")
    assert (queue.state("long"), queue.job("long").run_seconds) == ("pending", 0)


def test_a_shorter_limit_of_the_request_still_ends_the_job() -> None:
    queue = Harness(slots=1)
    queue.submit("long", None, StoppingCondition={"MaxRuntimeInSeconds": 100}, **tagged(max_total_runtime="1h"))
    assert _limit(queue, "long-qstamp-1") == 100
    queue.now += 100
    end(queue, "long-qstamp-1", "Stopped", "MaxRuntimeExceeded")
    assert queue.job("long").reason == "it reached its MaxRuntimeInSeconds"


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "field", "message"),
    [
        ({"start_by": at(-60)}, 0, "which is past"),
        ({"start_by": at(60), "not_before": at(60)}, 0, "it never could"),
        ({"not_before": at(31 * 86_400)}, 0, "30 days"),
        ({"not_before": "tomorrow"}, 0, "must be a time in ISO 8601"),
        ({"not_before": "0001-01-01T00:00:00+14:00"}, 0, "must be a time in ISO 8601"),
        ({"not_before": "9999-12-31T23:59:59.5Z"}, 0, "must be a time in ISO 8601"),
        ({"start_by": "9999-12-31T23:59:59.5Z"}, 0, "must be a time in ISO 8601"),
        ({"start_by": "9999-12-31T23:59:59.5Z:cancel"}, 0, "must be a time in ISO 8601"),
        ({"start_by": "9999-12-31T23:59:59Z"}, 0, "more than a hundred years ahead"),
        ({"start_by": at(60), "start_by_action": "stop"}, 1, "must be notify, cancel or next_pool"),
        ({"start_by_action": "cancel"}, 0, "needs a tag start_by"),
        ({"start_by": f"{at(60)}:cancel", "start_by_action": "notify"}, 1, "the tag start_by ends in cancel"),
        ({"max_total_runtime": "59"}, 0, "from 60 seconds to ten years"),
        ({"max_total_runtime": "99999999d"}, 0, "from 60 seconds to ten years"),
        ({"max_preemptions": "-1"}, 0, "whole number from 0"),
    ],
)
def test_deadlines_that_cannot_be_met_are_refused(tags: dict[str, str], field: int, message: str) -> None:
    queue = Harness(slots=1)
    with pytest.raises(InvalidRequest, match=message) as refused:
        queue.submit("job", None, **tagged(**tags))
    assert refused.value.field == f"Tags[{field}].Value"


def test_a_known_job_is_returned_also_after_its_deadline() -> None:
    queue = occupied()
    request = tagged(start_by=f"{at(300)}:notify", not_before=at(100))
    queue.submit("late", None, **request)
    queue.now += 1000
    assert queue.accept("late", None, **request).known


def test_a_job_that_can_never_start_is_refused_also_if_it_must_wait_first() -> None:
    queue = Harness(slots=1)
    with pytest.raises(InvalidRequest, match="cannot be met"):
        queue.accept("large", None, 2, **tagged(not_before=at(600)))
