"""A policy that takes the fleet: by somebody who is no admin, above the ceiling, or without a trace."""

import json
from typing import Any

import pytest

from job_queue.adapters.records.policy_history import VERSIONS_KEPT
from job_queue.adapters.settings import DeploymentSettings
from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.fleet.training_plans import KnownPlan, PlanPart
from tests.jobs import NOW, OWNER, P5
from tests.queue_harness import Harness
from tests.unit.queue_api import ADMIN, P4, STRANGER, Api, Governed, a_policy

pytestmark = pytest.mark.attack

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/"


def of(*pools: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"pools": list(pools), "projects": [{"name": "default"}], **changes}


def p5(capacity: int) -> dict[str, Any]:
    return {"name": "p5", "instance_type": P5, "capacity": capacity}


def put(api: Api, document: object, version: int, caller: str = ADMIN, **more: Any) -> tuple[int, Any]:
    return api.call("PUT", "/policy", json.dumps({"policy": document, "version": version, **more}), caller=caller)


# --- who -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", [OWNER, STRANGER, ADMIN])
def test_without_admins_nobody_applies_a_policy(caller: str) -> None:
    api = Api(settings=DeploymentSettings())
    for method, path, body in (
        ("PUT", "/policy", {"policy": of(p5(1)), "version": 0}),
        ("POST", "/policy/rollback", {"to": 0, "version": 0}),
    ):
        status, answer = api.call(method, path, json.dumps(body), caller=caller)
        assert (status, answer["code"]) == (403, "Forbidden")
        assert "AdminArns" in answer["remedy"]
    assert api.queue.repository.policy() is None
    assert api.call("GET", "/whoami", caller=caller)[1]["appliesPolicies"] is False


# --- how much ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pools", [(p5(3),), (p5(2), {"name": "p4", "instance_type": P4, "capacity": 1}), (p5(10**6),)])
def test_a_policy_above_the_ceiling_is_refused(pools: tuple[dict[str, Any], ...]) -> None:
    api = Api(queue=Harness(2, ceiling=2))
    status, answer = put(api, of(*pools), 0)
    assert (status, answer["code"], answer["field"]) == (400, "InvalidRequest", "policy")
    assert "may use 2" in answer["message"] and "MaxCapacity" in answer["message"]
    assert api.queue.repository.policy() is None
    assert put(api, of(p5(2)), 0)[0] == 200


def test_a_policy_of_before_is_planned_with_under_the_ceiling_and_tells_so() -> None:
    queue = Harness(2, ceiling=2)
    queue.repository.apply_policy(json.dumps(of(p5(10**6))), 0, ADMIN, NOW)
    api = Api(queue=queue)
    for number in range(5):
        api.add(f"job{number}")
    assert list(queue.states().values()).count("running") == 2
    assert api.call("GET", "/queue")[1]["pools"][0]["capacity"] == 2
    assert "MaxCapacity" in api.call("GET", "/policy")[1]["warnings"][0]


def test_the_first_pools_of_such_a_policy_have_theirs() -> None:
    queue = Harness(2, ceiling=5)
    pools = [{"name": name, "instance_type": P5, "capacity": 3} for name in ("a", "b", "c")]
    queue.repository.apply_policy(json.dumps(of(*pools)), 0, ADMIN, NOW)
    capacities = {pool["name"]: pool["capacity"] for pool in Api(queue=queue).call("GET", "/queue")[1]["pools"]}
    assert capacities == {"a": 3, "b": 2, "c": 0}


def test_plans_without_a_capacity_share_what_the_others_leave() -> None:
    queue = Harness(2, ceiling=5)
    plans = [{"name": name, "instance_type": P5, "training_plan": PLAN + name} for name in ("x", "y", "z")]
    queue.repository.apply_policy(json.dumps(of(p5(2), *plans)), 0, ADMIN, NOW)
    now = [PlanPart(2, int(NOW) - 100, int(NOW) + 10**6)]
    later = [PlanPart(9, int(NOW) + 10**5, int(NOW) + 10**6)]
    known = {PLAN + name: KnownPlan(PLAN + name, int(NOW), tuple(parts)) for name, parts in
             (("x", now), ("y", now), ("z", later))}  # fmt: skip
    applied = queue.policies.of(queue.repository.policy())
    snapshot = ClusterState(Metadata(training_plans=known), applied, {}, {}, ()).snapshot(NOW)
    sizes = {pool.name: snapshot.capacity(pool) for pool in snapshot.policy.pools}
    assert sizes == {"p5": 2, "x": 2, "y": 1, "z": 0}
    assert sum(sizes.values()) <= 5


# --- with a trace --------------------------------------------------------------------------------------


def test_every_change_is_kept_with_who_when_and_what() -> None:
    api = Governed()
    other = a_policy(settings={"window": 7})
    assert api.put(other, version=1)[0] == 200
    _, history = api.call("GET", "/policy/history", caller=STRANGER)
    assert [(it["version"], it["appliedBy"], it["restored"]) for it in history["versions"]] == [
        (2, ADMIN, None),
        (1, ADMIN, None),
    ]
    assert all(it["appliedAt"] for it in history["versions"])
    for version, document in ((1, a_policy()), (2, other)):
        _, answer = api.call("GET", "/policy", version=str(version))
        assert (answer["version"], answer["policy"]) == (version, document)
    assert api.call("GET", "/policy", version="0")[1]["policy"]["pools"][0]["name"] == "default"
    status, answer = api.call("GET", "/policy", version="3")
    assert (status, answer["code"], answer["field"]) == (404, "NotFound", "version")


def roll_back(api: Api, to: int, version: int, **more: Any) -> tuple[int, Any]:
    return api.call("POST", "/policy/rollback", json.dumps({"to": to, "version": version, **more}), caller=ADMIN)


def test_a_rollback_is_a_new_version_and_says_which_it_is() -> None:
    api = Governed()
    api.put(a_policy(settings={"window": 7}), version=1)
    status, answer = roll_back(api, 1, 2)
    assert (status, answer["version"], answer["policy"]) == (200, 3, a_policy())
    assert api.call("GET", "/policy/history")[1]["versions"][0]["restored"] == 1
    assert roll_back(api, 1, 2)[1]["code"] == "StalePolicy"
    assert roll_back(api, 9, 3)[1]["code"] == "NotFound"
    assert api.call("GET", "/policy")[1]["version"] == 3


def test_a_rollback_is_checked_against_the_jobs_and_the_rules_of_now() -> None:
    api = Governed()
    pools = [*a_policy()["pools"], {"name": "new", "instance_type": P5, "capacity": 1}]
    assert api.put(a_policy(pools=pools, projects=[{"name": "other", "pools": ["new"]}]), version=1)[0] == 200
    assert api.tagged("job1", project="other")[0] == 202
    status, answer = roll_back(api, 1, 2)
    assert (status, answer["code"]) == (409, "InUse")
    api.queue.policies.max_capacity = 2
    status, answer = roll_back(api, 1, 2, force=True)
    assert (status, answer["code"]) == (400, "InvalidRequest")
    api.queue.policies.max_capacity = 8
    assert roll_back(api, 1, 2, force=True)[0] == 200


def test_the_history_is_bounded_and_no_cycle_reads_it() -> None:
    api = Governed()
    for version in range(1, VERSIONS_KEPT + 5):
        assert api.put(a_policy(settings={"window": version}), version=version)[0] == 200
    lines = [key[1] for key in api.queue.tables.rows if key[0] == "sagemaker-queue-lines"]
    assert lines.count("policy-history") == lines.count("policy-documents") == VERSIONS_KEPT
    read: list[str] = []
    query = api.queue.tables.query

    def noted(table: str, line: str, *more: Any) -> Any:
        read.append(line)
        return query(table, line, *more)

    api.queue.tables.query = noted  # type: ignore[assignment,method-assign]
    api.queue.tick()
    assert read and not [line for line in read if line.startswith("policy")]
