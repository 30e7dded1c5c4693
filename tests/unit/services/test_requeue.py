"""Running jobs are requeued, or put on hold at once, over the API."""

import json
from typing import Any

import pytest

from job_queue.adapters.sagemaker import StopResult
from job_queue.domain.job import STOP_DENIED_SECONDS, iso
from tests.jobs import OWNER
from tests.unit.queue_api import ADMIN, STRANGER, Api

REQUEUE = '{"requeue": true}'
HOLD_NOW = '{"held": true, "now": true}'


def patch(api: Api, name: str, body: str = REQUEUE, caller: str = OWNER) -> tuple[int, dict[str, Any]]:
    return api.call("PATCH", f"/jobs/{name}", body, caller=caller)


def requeued_and_stopped(api: Api, name: str, body: str = REQUEUE) -> None:
    status, answer = patch(api, name, body)
    assert (status, answer["state"]) == (200, "stopping")
    api.queue.end(f"{name}-qstamp-{answer['attempt']}", "Stopped")


def test_a_requeued_job_waits_in_its_old_position_and_resumes() -> None:
    api = Api(slots=1)
    for name in ("first", "second"):
        api.add(name)
    requeued_and_stopped(api, "first")
    assert api.queue.states() == {"first": "preempted", "second": "running"}, "its slots were promised to the next one"
    api.add("third")
    api.queue.end("second-qstamp-1")
    assert api.queue.states() == {"first": "running", "third": "pending"}
    record = api.queue.record("first")
    assert (record.job.attempt, [it.outcome for it in record.attempts]) == (2, ["requeued"])
    assert (record.job.preempted, record.job.retried) == ((), 0)
    causes = [entry.cause for entry in record.history]
    assert causes[3:6] == [f"requeue requested by {OWNER}", f"stopping: requeued by {OWNER}", f"requeued by {OWNER}"]
    _, history = api.call("GET", "/history", since=iso(api.queue.now - 3600))
    assert [(it["job"], it["outcome"], it["madeRoomFor"]) for it in history["attempts"]] == [
        ("first", "requeued", None)
    ]


@pytest.mark.parametrize("priority", [1, 5])
def test_it_resumes_at_once_if_no_other_job_comes_first(priority: int) -> None:
    api = Api(slots=1)
    api.add("first", priority)
    if priority > 1:
        api.add("second")
    requeued_and_stopped(api, "first")
    assert (api.queue.state("first"), api.queue.job("first").attempt) == ("running", 2)


def test_others_start_before_it_if_they_come_first() -> None:
    api = Api(slots=1)
    api.add("first")
    api.add("second", 0)
    assert patch(api, "first", '{"requeue": true, "priority": -1}')[0] == 200
    api.queue.end("first-qstamp-1", "Stopped")
    assert api.queue.states() == {"second": "running", "first": "preempted"}


def test_a_hold_now_keeps_the_job_until_it_is_released() -> None:
    api = Api(slots=1)
    api.add("first")
    api.add("second")
    requeued_and_stopped(api, "first", HOLD_NOW)
    assert api.queue.states() == {"first": "preempted", "second": "running"}
    assert api.queue.job("first").held
    api.queue.end("second-qstamp-1")
    api.queue.tick()
    assert api.queue.state("first") == "preempted"
    assert patch(api, "first", '{"held": false}')[1]["state"] == "running"
    assert api.queue.job("first").attempt == 2


def test_a_waiting_job_is_held_now_as_by_any_hold() -> None:
    api = Api(slots=1)
    api.add("run")
    api.add("wait")
    status, answer = patch(api, "wait", HOLD_NOW)
    assert (status, answer["held"], answer["state"]) == (200, True, "pending")


def test_the_same_request_again_changes_nothing() -> None:
    api = Api(slots=1)
    api.add("first")
    api.add("second")
    for body in (REQUEUE, HOLD_NOW):
        assert patch(api, "first", body)[1]["state"] == "stopping"
        before = api.queue.record("first")
        assert patch(api, "first", body)[0] == 200
        assert api.queue.record("first") == before
    assert api.queue.training.calls.count(("stop", "first-qstamp-1")) == 1


def test_a_requeue_of_a_job_that_makes_room_changes_nothing_and_a_hold_now_holds_it() -> None:
    api = Api(slots=1)
    api.add("low", 0)
    api.add("high", 9)
    before = api.queue.record("low")
    assert patch(api, "low")[1]["state"] == "stopping"
    assert api.queue.record("low") == before
    assert patch(api, "low", HOLD_NOW)[1]["held"] is True
    api.queue.end("low-qstamp-1", "Stopped")
    assert [it.outcome for it in api.queue.record("low").attempts] == ["preempted"]
    api.queue.end("high-qstamp-1")
    assert (api.queue.state("low"), api.queue.job("low").held) == ("preempted", True)


def test_released_while_it_is_stopped_it_resumes() -> None:
    api = Api(slots=1)
    api.add("first")
    patch(api, "first", HOLD_NOW)
    assert patch(api, "first", '{"held": false}')[1]["state"] == "stopping"
    api.queue.end("first-qstamp-1", "Stopped")
    assert (api.queue.state("first"), api.queue.job("first").attempt) == ("running", 2)


@pytest.mark.parametrize(
    ("body", "status", "field", "words"),
    [
        (REQUEUE, 409, None, "wait waits already: it is pending."),
        ('{"requeue": true, "priority": 9}', 409, None, "wait waits already"),
        ('{"now": true}', 400, "now", "The option now needs held: true."),
        ('{"held": false, "now": true}', 400, "now", "The option now needs held: true."),
        ('{"requeue": 1}', 400, "requeue", "requeue cannot be 1"),
        ('{"requeue": false}', 200, None, ""),
    ],
)
def test_requests_of_a_waiting_job(body: str, status: int, field: str | None, words: str) -> None:
    api = Api(slots=1)
    api.add("run")
    api.add("wait")
    before = api.queue.record("wait")
    answered, error = patch(api, "wait", body)
    assert (answered, error.get("field")) == (status, field)
    assert words in error.get("message", "")
    assert api.queue.record("wait") == before


def test_a_finished_or_cancelled_job_is_not_requeued() -> None:
    api = Api(slots=2)
    api.add("done")
    api.add("gone")
    api.queue.end("done-qstamp-1")
    assert api.call("DELETE", "/jobs/gone")[0] == 202
    for body in (REQUEUE, HOLD_NOW):
        assert patch(api, "done", body)[1]["code"] == "Conflict"
        status, error = patch(api, "gone", body)
        assert (status, error["code"]) == (409, "Conflict")
        assert "is cancelled" in error["message"]
    api.queue.end("gone-qstamp-1", "Stopped")
    assert api.queue.state("gone") == "stopped"


def test_cancelled_after_a_requeue_it_ends() -> None:
    api = Api(slots=1)
    api.add("job")
    patch(api, "job")
    assert api.call("DELETE", "/jobs/job")[0] == 202
    api.queue.end("job-qstamp-1", "Stopped")
    assert api.queue.state("job") == "stopped"


@pytest.mark.attack
@pytest.mark.parametrize("body", [REQUEUE, HOLD_NOW, '{"requeue": true, "priority": 0}'])
def test_strangers_requeue_nothing_and_admins_may(body: str) -> None:
    api = Api(slots=1)
    api.add("job")
    before = api.queue.record("job")
    assert patch(api, "job", body, STRANGER)[0] == 403
    assert api.queue.record("job") == before
    assert not api.queue.training.calls.count(("stop", "job-qstamp-1"))
    assert patch(api, "job", body, ADMIN)[1]["state"] == "stopping"


def test_a_starting_job_is_stopped_once_sagemaker_has_accepted_it() -> None:
    api = Api(slots=1)
    create = api.queue.training.create
    asked: list[int] = []

    def slow(*args: Any, **named: Any) -> Any:
        if not asked:
            asked.append(patch(api, "job")[0])
            assert api.queue.state("job") == "starting"
        return create(*args, **named)

    api.queue.training.create = slow  # type: ignore[method-assign]
    api.add("job")
    assert asked == [200]
    assert api.queue.state("job") == "stopping"
    api.queue.end("job-qstamp-1", "Stopped")
    assert (api.queue.state("job"), api.queue.job("job").attempt) == ("running", 2)


def test_a_denied_stop_is_requested_again_later() -> None:
    api = Api(slots=1)
    api.add("job")
    api.queue.training.untagged.add("job-qstamp-1")
    assert patch(api, "job")[1]["state"] == "running"
    assert "denies the queue to stop job-qstamp-1" in api.queue.record("job").history[-1].cause
    api.queue.training.untagged.clear()
    api.queue.tick(STOP_DENIED_SECONDS)
    assert api.queue.state("job") == "stopping"


def test_it_ends_by_itself_before_the_stop_arrives() -> None:
    api = Api(slots=1)
    api.add("job")
    stop = api.queue.training.stop

    def late(name: str) -> StopResult:
        api.queue.training.end(name)
        return stop(name)

    api.queue.training.stop = late  # type: ignore[method-assign]
    assert patch(api, "job")[1]["state"] == "completed"


def test_the_answer_of_a_stranger_names_who_may() -> None:
    api = Api(slots=1)
    api.add("job")
    answer = json.dumps(patch(api, "job", REQUEUE, STRANGER)[1])
    assert "may cancel, requeue or change it" in answer
