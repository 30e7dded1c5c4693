"""Jobs are changed, held and released."""

import pytest

from job_queue.domain.job import epoch
from tests.unit.queue_api import ADMIN, STRANGER, Api, Governed, a_policy


def test_a_new_priority_takes_effect_at_once() -> None:
    api = Api(slots=1)
    for name in ("run", "first", "second"):
        api.add(name)
    status, answer = api.call("PATCH", "/jobs/second", '{"priority": 9}')
    assert (status, answer["priority"]) == (200, 9)
    assert api.queue.states() == {"run": "stopping", "first": "pending", "second": "pending"}
    assert "priority 9" in api.queue.record("second").history[-1].cause


def test_a_held_job_waits_until_it_is_released() -> None:
    api = Api(slots=1)
    api.add("run")
    api.add("wait")
    assert api.call("PATCH", "/jobs/wait", '{"held": true}')[1]["reason"]["code"] == "HELD_BY_USER"
    api.queue.end("run-qstamp-1")
    assert api.queue.states() == {"wait": "pending"}
    _, job = api.call("GET", "/jobs/wait", advice="true")
    assert "smq release wait" in job["why"]["advice"][0]
    assert api.call("PATCH", "/jobs/wait", '{"held": false}')[1]["state"] == "running"


def test_each_entry_of_the_history_has_the_time_of_its_own_change() -> None:
    api, changed = Api(slots=1), dict[str, float]()
    api.add("run")
    api.add("wait")
    for cause, name, body in [
        ("priority 9", "wait", '{"priority": 9}'),
        ("held", "wait", '{"held": true}'),
        ("released", "wait", '{"held": false}'),
        ("priority 10", "run", '{"priority": 10}'),
    ]:
        api.queue.now += 1000
        changed[cause] = api.queue.now
        assert api.call("PATCH", f"/jobs/{name}", body)[0] == 200
    api.queue.now += 1000
    changed["cancel requested"] = api.queue.now
    assert api.call("DELETE", "/jobs/run")[0] == 202
    entries = [entry for name in ("run", "wait") for entry in api.call("GET", f"/jobs/{name}")[1]["history"]]
    for cause, now in changed.items():
        times = [epoch(entry["at"]) for entry in entries if entry["cause"].startswith(f"{cause} by")]
        assert times == [now], cause


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ('{"state": "running"}', 400, "state"),
        ('{"priority": "9"}', 400, "priority"),
        ('{"priority": true}', 400, "priority"),
        ('{"held": 1}', 400, "held"),
        ('{"held": true}', 409, None),
    ],
)
def test_changes_that_cannot_be_made(body: str, status: int, field: str | None) -> None:
    api = Api()
    api.add("run")
    answered, error = api.call("PATCH", "/jobs/run", body)
    assert (answered, error.get("field")) == (status, field)
    assert api.call("PATCH", "/jobs/run", '{"priority": 3}', caller=STRANGER)[0] == 403


def test_a_finished_job_cannot_be_changed() -> None:
    api = Api()
    api.add("run")
    api.queue.end("run-qstamp-1")
    assert api.call("PATCH", "/jobs/run", '{"priority": 3}')[1]["code"] == "Conflict"


def test_the_ceiling_holds_for_changes_too() -> None:
    api = Governed()
    api.tagged("a", project="ops", priority="1", pools="p4")
    assert api.call("PATCH", "/jobs/a", '{"priority": 11}')[0] == 403
    assert api.call("PATCH", "/jobs/a", '{"priority": 10}')[0] == 200


@pytest.mark.attack
def test_a_former_member_makes_no_job_start_sooner() -> None:
    """Found by an attack: jobs held in reserve were released after their owner had left the project."""
    api, ada = Governed(), "arn:aws:iam::123456789012:user/ada"
    for number in range(4):
        assert api.tagged(f"run{number}", ada, project="nlp", priority="50")[0] == 202
    for name in ("kept", "spare"):
        assert api.tagged(name, ada, project="nlp")[0] == 202
        assert api.call("PATCH", f"/jobs/{name}", '{"held": true}', ada)[0] == 200
    policy = a_policy()
    policy["projects"][1]["members"] = ["arn:aws:iam::*:user/bob"]
    assert api.put(policy, version=1)[0] == 200
    for body in ('{"held": false}', '{"priority": 9}', '{"priority": 9, "held": false}'):
        status, answer = api.call("PATCH", "/jobs/kept", body, ada)
        assert (status, answer["errors"][0]["code"]) == (403, "Forbidden")
        assert "no longer a member of the project nlp" in answer["errors"][0]["message"]
    assert api.call("PATCH", "/jobs/kept", '{"priority": -1}', ada)[0] == 200
    assert api.call("PATCH", "/jobs/kept", '{"held": false}', ADMIN)[0] == 200
    assert api.call("DELETE", "/jobs/spare", None, ada)[0] in (200, 202)
