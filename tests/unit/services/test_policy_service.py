"""Policies: who applies which, how jobs live with a new one, and what is shown of it."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.domain.cluster_state import ClusterState, Metadata
from job_queue.domain.job import Job
from job_queue.domain.policy import AppliedPolicy
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import GpuAllocation, JobState, Policy
from job_queue.services.policy_conflicts import conflicts
from tests.jobs import P5, a_job
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
    _, job = api.call("GET", f"/jobs/{waiting[0]}", advice="true")
    assert job["reason"]["code"] == "NO_SUCH_POOL"
    assert job["why"]["advice"] == [
        "The policy no longer has this project. Submit the job to another project, or ask an admin to add this project."
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


# --- document 002, "Limit Quota Over or Under Subscription": quotas and running non-preemptible jobs ----


def quotas(vision: int = 2, nlp: int = 1, research: int = 3, *, allow: bool = False, **changes: Any) -> dict[str, Any]:
    """The policy with other quotas of p5."""
    projects = a_policy()["projects"]
    projects[0]["quota"], projects[1]["quota"] = {"p5": vision}, {"p5": nlp}
    departments = [{"name": "research", "quota": {"p5": research}}]
    settings = {"allow_oversubscription": True} if allow else {}
    return a_policy(**{"projects": projects, "departments": departments, "settings": settings, **changes})


def with_labs(*projects: str) -> Governed:
    """A non-preemptible job of one instance runs in each of these projects, and a preemptible one in vision."""
    api = Governed()
    for number, project in enumerate(projects):
        assert api.tagged(f"lab{number}", project=project, preemptible="false")[0] == 202
    api.tagged("training", project="vision")
    assert list(api.queue.states().values()) == ["running"] * (len(projects) + 1)
    return api


def test_002_a_quota_is_not_lowered_below_running_non_preemptible_jobs() -> None:
    api = with_labs("vision", "vision")
    status, error = api.put(quotas(vision=1), version=1)
    assert (status, error["code"], error["field"]) == (409, "InUse", "policy")
    assert error["message"] == (
        "The quota of the project vision would fall from 2 to 1 p5, and its running non-preemptible jobs hold 2: "
        "lab0, lab1."
    )
    assert "--force" in error["remedy"] and "allow_oversubscription" in error["remedy"]
    assert api.call("GET", "/policy")[1]["version"] == 1


def test_002_a_quota_is_not_taken_away_by_leaving_the_pool_out() -> None:
    projects = quotas()["projects"]
    projects[0]["quota"] = {}
    status, error = with_labs("vision").put(a_policy(projects=projects), version=1)
    assert (status, "from 2 to 0 p5" in error["message"]) == (409, True)


def test_002_the_quota_of_a_department_counts_all_its_projects() -> None:
    api = with_labs("vision", "vision", "nlp")
    allowed_sums = quotas(vision=1, nlp=1, research=2)
    status, error = api.put(allowed_sums, version=1)
    assert status == 409
    assert [it["message"] for it in error["errors"]] == [
        "The quota of the department research would fall from 3 to 2 p5, and its running non-preemptible jobs hold 3: "
        "lab0, lab1, lab2.",
        "The quota of the project vision would fall from 2 to 1 p5, and its running non-preemptible jobs hold 2: "
        "lab0, lab1.",
    ]


@pytest.mark.parametrize(
    "document",
    [
        quotas(vision=1),  # what the one job holds
        quotas(nlp=0),  # nothing runs there
        quotas(vision=3, nlp=0),
        quotas(settings={"window": 7}),
    ],
    ids=["as much as they hold", "nothing runs there", "raised", "unchanged"],
)
def test_002_other_quotas_are_applied(document: dict[str, Any]) -> None:
    assert with_labs("vision").put(document, version=1)[0] == 200


def test_002_an_unchanged_quota_below_running_jobs_refuses_nothing() -> None:
    """Once a quota is below them by force, other parts of the policy may be changed."""
    api = with_labs("vision", "vision")
    assert api.put(quotas(vision=1), version=1, force=True)[0] == 200
    assert api.put(quotas(vision=1, nlp=0), version=2)[0] == 200
    assert api.put(quotas(vision=0), version=3)[0] == 409


def test_002_force_applies_it_and_the_jobs_run_on_while_no_other_starts() -> None:
    api = with_labs("vision", "vision")
    status, answer = api.put(quotas(vision=1), version=1, force=True)
    assert (status, len(answer["warnings"])) == (200, 1)
    api.tagged("lab2", project="vision", preemptible="false")
    assert api.queue.states() == {"lab0": "running", "lab1": "running", "training": "running", "lab2": "pending"}
    assert api.call("GET", "/jobs/lab2")[1]["reason"]["code"] == "OVER_QUOTA_NON_PREEMPTIBLE"
    api.queue.end("lab0-qstamp-1")
    assert api.queue.states()["lab2"] == "pending"
    api.queue.end("lab1-qstamp-1")
    assert api.queue.states()["lab2"] == "running"


def test_002_the_toggle_of_the_over_subscription_rules_switches_it_off() -> None:
    status, answer = with_labs("vision", "vision").put(quotas(vision=0, allow=True), version=1)
    assert (status, answer["warnings"]) == (200, [])


def test_002_a_job_that_has_reached_its_own_limit_on_preemptions_counts_as_non_preemptible() -> None:
    api = with_labs()
    for name, most in (("limited", "0"), ("later", "1")):
        api.tagged(name, project="vision", max_preemptions=most)
    status, error = api.put(quotas(vision=0), version=1)
    assert (status, error["message"]) == (
        409,
        "The quota of the project vision would fall from 2 to 0 p5, and its running non-preemptible jobs hold 1: "
        "limited.",
    )


def test_002_jobs_that_are_being_stopped_give_their_slots_back() -> None:
    api = with_labs("vision", "vision")
    assert api.call("DELETE", "/jobs/lab1")[0] in {200, 202}
    assert api.queue.states()["lab1"] == "stopping"
    assert api.put(quotas(vision=1), version=1)[0] == 200


def test_002_a_carrier_holds_its_instance_for_its_members_and_they_are_named() -> None:
    old, new = parse_policy(quotas()), parse_policy(quotas(vision=0))
    carrier = a_job(
        "carrier--1", project="vision", state=JobState.RUNNING, slots={"p5": 1}, carries=8, preemptible=False
    )
    allocation = GpuAllocation("carrier--1", (0,))
    member = a_job(
        "member", project="vision", state=JobState.RUNNING, allocation=allocation, gpus=10, preemptible=False
    )

    def told(*jobs: Job) -> list[str]:
        live = {job.name: job for job in jobs}
        return [it.message for it in conflicts(ClusterState(Metadata(), AppliedPolicy(old), live, {}, ()), new)]

    (message,) = told(carrier, member)
    assert message.endswith("from 2 to 0 p5, and its running non-preemptible jobs hold 1: member.")
    assert told(carrier) == [], "a carrier without members is as good as free"
    assert told(carrier, replace(member, state=JobState.STOPPING)) == []


def test_002_jobs_count_for_the_department_that_their_project_comes_to() -> None:
    api = with_labs("vision", "vision")
    moved = quotas(nlp=0, research=0)
    del moved["projects"][0]["department"]
    assert api.put(moved, version=1)[0] == 200


def test_002_going_back_to_a_version_is_refused_too() -> None:
    api = Governed()
    assert api.put(quotas(vision=1, nlp=0), version=1)[0] == 200
    assert api.put(quotas(), version=2)[0] == 200
    for name in ("lab0", "lab1"):
        api.tagged(name, project="vision", preemptible="false")
    for force, status in ((False, 409), (True, 200)):
        body = json.dumps({"to": 2, "version": 3, "force": force})
        assert api.call("POST", "/policy/rollback", body, caller=ADMIN)[0] == status


def test_002_a_dropped_project_is_named_once() -> None:
    api = with_labs("vision")
    _, error = api.put(a_policy(projects=a_policy()["projects"][1:]), version=1)
    assert [it["message"] for it in error["errors"]] == ["The project vision still has lab0, training."]


@settings(max_examples=40, deadline=None)
@given(
    held=st.lists(st.sampled_from(["vision", "nlp"]), max_size=3),
    vision=st.integers(0, 3),
    nlp=st.integers(0, 3),
    research=st.integers(0, 4),
    allow=st.booleans(),
)
def test_002_a_policy_is_refused_exactly_where_a_lowered_quota_is_below_them(
    held: list[str], vision: int, nlp: int, research: int, *, allow: bool
) -> None:
    api = Governed()
    for number, project in enumerate(held):
        api.tagged(f"lab{number}", project=project, preemptible="false")
    running = [project for number, project in enumerate(held) if api.queue.state(f"lab{number}") == "running"]
    holds = {"vision": running.count("vision"), "nlp": running.count("nlp"), "research": len(running)}
    old, new = {"vision": 2, "nlp": 1, "research": 3}, {"vision": vision, "nlp": nlp, "research": research}
    lowered = any(new[queue] < min(old[queue], holds[queue]) for queue in old)
    adds_up = vision + nlp <= research and research + 1 <= 4
    expected = 200 if allow else 400 if not adds_up else 409 if lowered else 200
    assert api.put(quotas(vision, nlp, research, allow=allow), version=1)[0] == expected


ROLE_OF_LAB, PLAN_ARN = "arn:aws:iam::222222222222:role/queue", "arn:aws:sagemaker:us-east-1:123456789012:training-plan"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"training_plan": f"{PLAN_ARN}/old"}, {"training_plan": f"{PLAN_ARN}/new"}, "training_plan of the pool p5"),
        ({"training_plan": f"{PLAN_ARN}/old"}, {}, "training_plan of the pool p5"),
        ({"role": ROLE_OF_LAB}, {"role": f"{ROLE_OF_LAB}-2"}, "role of the pool p5"),
        ({"role": ROLE_OF_LAB}, {"role": ROLE_OF_LAB, "capacity": 3}, None),
        ({}, {"training_plan": f"{PLAN_ARN}/new"}, None),
    ],
)
def test_the_plan_or_role_of_running_jobs_changes_by_force_only(
    before: dict[str, Any], after: dict[str, Any], words: str | None
) -> None:
    def policy(pool: dict[str, Any]) -> Policy:
        pools = [{"name": "p5", "instance_type": P5, "capacity": 2, **pool}]
        return parse_policy({"pools": pools, "projects": [{"name": "default"}]})

    runs = a_job("j", state=JobState.RUNNING, slots={"p5": 1})
    waits = a_job("w")
    found = []
    for active in ({"j": runs}, {}):
        cluster = ClusterState(Metadata(), AppliedPolicy(policy(before)), active, {"w": waits}, ())
        found.append([it.message for it in conflicts(cluster, policy(after))])
    assert found[1] == []
    assert [words in it for it in found[0]] == [True] if words else found[0] == []
