"""Policies: who applies which, how jobs live with a new one, and what is shown of it."""

import json

from tests.jobs import P5
from tests.unit.queue_api import ADMIN, P4, Api, Governed, a_policy


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


def test_a_stale_version_changes_nothing() -> None:
    api = Governed()
    assert api.put(a_policy(), version=0)[1]["code"] == "StalePolicy"
    assert api.call("GET", "/policy")[1]["version"] == 1


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
