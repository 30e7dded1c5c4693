"""The policy: what may be applied, what it makes of a request, and how jobs live with a new one."""

import copy
import json
from typing import Any

import pytest

from job_queue.domain.errors import Forbidden, InvalidRequest, QueueError
from job_queue.domain.job import epoch
from job_queue.domain.policy import MOST_COMBINATIONS, alternatives, placed
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import JobState
from tests.jobs import OWNER, P5, a_job, a_request
from tests.unit.test_api import Api

P4 = "ml.p4d.24xlarge"
ADMIN = "arn:aws:iam::123456789012:role/ops"


def a_policy(**changes: Any) -> dict[str, Any]:
    """Two pools, a department of two projects and one of its own."""
    return {
        "pools": [
            {"name": "p5", "instance_type": P5, "capacity": 4},
            {"name": "p4", "instance_type": P4, "capacity": 4},
        ],
        "departments": [{"name": "research", "quota": {"p5": 3}}],
        "projects": [
            {"name": "vision", "department": "research", "quota": {"p5": 2}, "pools": ["p5", "p4"]},
            {"name": "nlp", "department": "research", "quota": {"p5": 1}, "members": ["arn:aws:iam::*:user/ada"]},
            {"name": "ops", "quota": {"p5": 1}, "priority_ceiling": 10, "pools": ["p4"]},
        ],
        **changes,
    }


def refusal(document: object) -> str:
    with pytest.raises(InvalidRequest) as error:
        parse_policy(document)
    assert (error.value.field or "").partition(".")[0] == "policy"
    return error.value.message


# --- the document ------------------------------------------------------------------------------------


def test_a_good_policy_is_read() -> None:
    policy = parse_policy(a_policy())
    assert [project.name for project in policy.projects] == ["vision", "nlp", "ops"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pools": []}, "no pools"),
        ({"projects": []}, "no projects"),
        (
            {"departments": [{"name": "research", "quota": {"p5": 2}}]},
            "project quotas of research add up to 3 p5, its quota is 2",
        ),
        ({"departments": [{"name": "research", "quota": {"p5": 4}}]}, "quotas of the pool p5 add up to 5, it has 4"),
        ({"projects": [{"name": "a", "quota": {"p6": 1}}]}, "quota of a names the pool p6, which does not exist"),
        ({"projects": [{"name": "a", "pools": ["p6"]}]}, "pools of a names the pool p6"),
        ({"projects": [{"name": "a", "quota": {"p5": 2}, "limit": {"p5": 1}}]}, "its limit only 1"),
        ({"projects": [{"name": "a"}, {"name": "a"}]}, "used twice"),
        ({"projects": [{"name": "a", "department": "x"}]}, "unknown department 'x'"),
        ({"projects": [{"name": "a", "colour": "red"}]}, "unknown field 'colour'"),
        ({"projects": [{"name": "a", "quota": {"p5": -1}}]}, "negative"),
        (
            {"pools": [{"name": "a", "capacity": 1}, {"name": "b", "capacity": 1}], "projects": [{"name": "x"}]},
            "no instance_type",
        ),
        ({"settings": {"window": 0}}, "window"),
        ({"settings": {"aging": 0}}, "aging"),
    ],
)
def test_faults_are_named_in_the_language_of_the_policy(changes: dict[str, Any], words: str) -> None:
    assert words in refusal(a_policy(**changes))


@pytest.mark.parametrize("document", [None, [], "text", 7, {}])
def test_what_is_no_policy_is_refused(document: object) -> None:
    assert refusal(document)


def test_all_issues_are_in_one_message() -> None:
    message = refusal(a_policy(projects=[{"name": "a", "quota": {"p6": 1}, "pools": ["p7"]}]))
    assert "p6" in message
    assert "p7" in message


def test_oversubscription_may_be_allowed() -> None:
    generous = a_policy(
        departments=[{"name": "research", "quota": {"p5": 9}}], settings={"allow_oversubscription": True}
    )
    assert parse_policy(generous).departments[0].quota == {"p5": 9}


# --- what a demand asks for --------------------------------------------------------------------------


def test_a_demand_is_served_by_the_pools_of_its_type() -> None:
    policy = parse_policy(a_policy())
    assert alternatives(a_job(project="vision", demand=({P5: 2},)), policy) == ({"p5": 2},)
    assert alternatives(a_job(project="vision", demand=({P5: 2}, {P4: 4})), policy) == ({"p5": 2}, {"p4": 4})
    assert alternatives(a_job(project="vision", demand=({P5: 1, P4: 2},)), policy) == ({"p5": 1, "p4": 2},)


def test_a_type_that_no_allowed_pool_has_is_no_pool() -> None:
    policy = parse_policy(a_policy())
    assert alternatives(a_job(project="ops", demand=({P5: 1},)), policy) == ({P5: 1},)
    assert alternatives(a_job(project="vision", demand=({"ml.g5.xlarge": 1},)), policy) == ({"ml.g5.xlarge": 1},)


def test_the_tag_pools_names_alternatives_in_its_order() -> None:
    policy = parse_policy(a_policy())
    job = a_job(project="vision", demand=({P5: 2},), pools=("p4", "p5"))
    assert alternatives(job, policy) == ({"p4": 2}, {"p5": 2})


def test_several_pools_of_a_type_are_tried_in_the_projects_order() -> None:
    pools = [{"name": f"p{n}", "instance_type": P5, "capacity": 9} for n in range(6)]
    policy = parse_policy({"pools": pools, "projects": [{"name": "a", "pools": ["p3", "p1"]}, {"name": "b"}]})
    assert alternatives(a_job(project="a", demand=({P5: 1},)), policy) == ({"p3": 1}, {"p1": 1})
    mixed = a_job(project="b", demand=({P5: 1, "ml.x": 1},))
    assert len(alternatives(mixed, policy)) <= MOST_COMBINATIONS


def test_a_project_that_is_gone_allows_nothing() -> None:
    assert alternatives(a_job(project="gone", demand=({P5: 1},)), parse_policy(a_policy())) == ({P5: 1},)


def test_sagemaker_gets_a_plain_request_for_the_chosen_alternative() -> None:
    policy = parse_policy(a_policy())
    request = a_request()
    request["ResourceConfig"] = {
        "InstancePreferences": [{"InstanceType": P5, "InstanceCount": 1}, {"InstanceType": P4, "InstanceCount": 2}],
        "VolumeSizeInGB": 30,
    }
    job = a_job(project="vision", demand=({P5: 1}, {P4: 2}), slots={"p4": 2}, state=JobState.STARTING)
    sent = placed(request, job, policy)["ResourceConfig"]
    assert sent == {"InstanceType": P4, "InstanceCount": 2, "VolumeSizeInGB": 30}


def test_a_pools_training_plan_and_spot_go_into_the_request() -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
    pools = [
        {"name": "plan", "instance_type": P5, "capacity": 1, "training_plan": plan},
        {"name": "spot", "instance_type": P5, "capacity": 1, "spot": True},
    ]
    policy = parse_policy({"pools": pools, "projects": [{"name": "default"}]})
    planned = placed(a_request(), a_job(slots={"plan": 1}), policy)
    assert planned["ResourceConfig"]["TrainingPlanArn"] == plan
    assert "EnableManagedSpotTraining" not in planned
    spot = placed(a_request(), a_job(slots={"spot": 1}), policy)
    assert spot["EnableManagedSpotTraining"] is True
    assert spot["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400, "MaxWaitTimeInSeconds": 86400}
    assert "TrainingPlanArn" not in spot["ResourceConfig"]


# --- applying it -------------------------------------------------------------------------------------


class Governed(Api):
    """An API with a policy applied."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        status, answer = self.put(a_policy(**changes), version=0)
        assert (status, answer["version"]) == (200, 1)

    def put(self, document: object, version: object, caller: str = ADMIN, **more: Any) -> tuple[int, Any]:
        body = json.dumps({"policy": document, "version": version, **more})
        return self.call("PUT", "/policy", body, caller=caller)

    def tagged(self, name: str, caller: str = OWNER, **tags: str) -> tuple[int, Any]:
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        return self.call("POST", "/add-job", json.dumps(a_request(name, Tags=listed)), caller=caller, preflight="false")


def test_without_a_policy_the_default_is_shown() -> None:
    _, answer = Api(slots=3).call("GET", "/policy")
    assert answer["version"] == 0
    assert answer["policy"]["pools"] == [{"name": "default", "capacity": 3}]


def test_a_policy_is_applied_with_its_version_and_by_whom() -> None:
    api = Governed()
    _, answer = api.call("GET", "/policy")
    assert (answer["version"], answer["policy"], answer["appliedBy"]) == (1, a_policy(), ADMIN)


def test_a_stored_policy_of_a_time_when_a_pool_could_have_two_markets_is_still_read() -> None:
    api = Api()
    arn = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/winter"
    pool = {"name": "p5", "instance_type": P5, "capacity": 1, "spot": True, "training_plan": arn}
    api.queue.repository.apply_policy(json.dumps({"pools": [pool], "projects": [{"name": "default"}]}), 0, ADMIN, 0)
    api.add("job1")
    request = api.queue.training.requests["job1-qstamp-1"]
    assert request["ResourceConfig"]["TrainingPlanArn"] == arn
    assert "EnableManagedSpotTraining" not in request
    status, answer = api.call("GET", "/policy")
    assert (status, "spot" in answer["policy"]["pools"][0]) == (200, False)


def test_a_stale_version_a_faulty_policy_and_a_stranger_change_nothing() -> None:
    api = Governed()
    assert api.put(a_policy(), version=0)[1]["code"] == "StalePolicy"
    assert api.put(a_policy(pools=[]), version=1)[0] == 400
    assert api.put(a_policy(), version=1, caller=OWNER)[0] == 403
    assert api.put(a_policy(), version="1")[0] == 400
    assert api.call("PUT", "/policy", "{", caller=ADMIN)[0] == 400
    assert api.call("GET", "/policy")[1]["version"] == 1


def test_tags_are_held_against_the_policy() -> None:
    api = Governed()
    assert api.tagged("a", project="vision", priority="5")[0] == 202
    assert api.queue.job("a").project == "vision"
    status, error = api.tagged("b", project="sales")
    assert (status, error["field"]) == (400, "Tags[0].Value")
    assert "nlp, ops, vision" in error["message"]
    assert api.tagged("c", caller="arn:aws:iam::123456789012:user/eve", project="nlp")[0] == 403
    status, error = api.tagged("d", project="ops", priority="11")
    assert (status, error["field"]) == (403, "Tags[1].Value")
    assert api.tagged("e", project="vision", pools="p4,p9")[0] == 400
    assert api.tagged("f", project="vision", preemptible="maybe")[0] == 400
    assert api.tagged("g")[0] == 400  # several projects: say which
    assert api.tagged("h", project="vision", pools="p4 p5", preemptible="false")[0] == 202
    job = api.queue.job("h")
    assert (job.pools, job.preemptible) == (("p4", "p5"), False)


def test_a_new_policy_takes_effect_in_the_next_cycle() -> None:
    api = Governed()
    pools = a_policy()["pools"]
    for number in range(6):
        api.tagged(f"job{number}", project="vision")
    assert list(api.queue.states().values()).count("running") == 4
    pools[0]["capacity"] = 5
    assert api.put(a_policy(pools=pools), version=1)[0] == 200
    assert list(api.queue.states().values()).count("running") == 5


def test_jobs_above_a_new_capacity_run_on_and_are_not_replaced() -> None:
    api = Governed()
    for number in range(6):
        api.tagged(f"job{number}", project="vision")
    small = [{"name": "p5", "instance_type": P5, "capacity": 2}, {"name": "p4", "instance_type": P4, "capacity": 1}]
    departments = [{"name": "research", "quota": {"p5": 1}}]
    projects = [{"name": "vision", "department": "research", "quota": {"p5": 1}}]
    assert api.put({"pools": small, "departments": departments, "projects": projects}, version=1)[0] == 200
    running = [name for name, state in api.queue.states().items() if state == "running"]
    assert len(running) == 4
    for name in running[:2]:
        api.queue.end(f"{name}-qstamp-1")
    assert api.queue.training.in_use() == 2
    api.queue.end(f"{running[2]}-qstamp-1")
    assert api.queue.training.in_use() == 2


def test_dropping_what_live_jobs_need_takes_force_and_then_they_wait_with_a_reason() -> None:
    api = Governed()
    for number in range(5):
        api.tagged(f"job{number}", project="vision")
    without = a_policy(projects=[{"name": "nlp", "department": "research", "quota": {"p5": 1}}])
    status, error = api.put(without, version=1)
    assert (status, error["code"]) == (409, "InUse")
    assert "vision" in error["message"]
    status, answer = api.put(without, version=1, force=True)
    assert status == 200
    assert answer["warnings"]
    waiting = [name for name, state in api.queue.states().items() if state == "pending"]
    assert waiting
    _, job = api.call("GET", f"/jobs/{waiting[0]}")
    assert job["reason"]["code"] == "NO_SUCH_POOL"
    assert job["why"]["advice"] == [
        "The policy has no such project any more: submit it to another, or have the project put back."
    ]


def test_the_queue_shows_projects_with_what_they_have_and_use() -> None:
    api = Governed()
    api.tagged("a", project="vision")
    _, status = api.call("GET", "/queue")
    projects = {project["name"]: project for project in status["projects"]}
    assert status["policyVersion"] == 1
    assert projects["vision"]["used"] == {"p5": 1}
    assert projects["vision"]["quota"] == {"p5": 2}
    assert projects["vision"]["department"] == "research"
    assert [department["used"] for department in status["departments"]] == [{"p5": 1}]
    assert [pool["instanceType"] for pool in status["pools"]] == [P5, P4]


# --- changing jobs -----------------------------------------------------------------------------------


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
    _, job = api.call("GET", "/jobs/wait")
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
        ("{}", 400, None),
        ("nonsense", 400, None),
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
    assert api.call("PATCH", "/jobs/run", '{"priority": 3}', caller="arn:aws:iam::123456789012:user/eve")[0] == 403


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


# --- the dry run -------------------------------------------------------------------------------------


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


def test_a_plan_of_a_bad_request_is_refused_as_its_submission_would_be() -> None:
    api = Api()
    assert api.call("POST", "/plan", "{")[0] == 400
    assert issubclass(Forbidden, QueueError)
    assert api.call("POST", "/plan", json.dumps(a_request(RoleArn="arn:aws:iam::123456789012:role/x")))[0] == 403
