"""Plans: what would become of a job, and nothing is stored."""

import copy
import json

from tests.jobs import a_request
from tests.unit.queue_api import Api


def test_a_plan_tells_what_would_happen_and_stores_nothing() -> None:
    api = Api(slots=1)
    api.add("run", 1)
    before = copy.deepcopy(api.queue.tables.rows)
    status, answer = api.call("POST", "/plan", json.dumps(a_request("urgent", 9)))
    assert (status, answer["wouldStart"], answer["evicts"]) == (200, True, [{"job": "run", "rule": "preempt"}])
    assert (answer["slots"], answer["reason"]["code"]) == ({"default": 1}, "WAITING_FOR_STOPPING")
    assert before == api.queue.tables.rows
    _, answer = api.call("POST", "/plan", json.dumps(a_request("humble", 1)))
    assert (answer["evicts"], answer["position"], answer["reason"]["code"]) == ([], 1, "WAITING_FOR_CAPACITY")
    assert answer["blockers"] == ["run"]
    assert before == api.queue.tables.rows
    api.queue.end("run-qstamp-1")
    _, answer = api.call("POST", "/plan", json.dumps(a_request("urgent", 9)))
    assert (answer["wouldStart"], answer["slots"], answer["reason"]) == (True, {"default": 1}, None)
    assert api.queue.repository.record("urgent") is None
