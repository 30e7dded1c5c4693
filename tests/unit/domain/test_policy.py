"""The policy: what it may say, and what it makes of a request."""

from typing import Any

import pytest

from job_queue.domain.errors import InvalidRequest
from job_queue.domain.policy import MOST_COMBINATIONS, alternatives, placed
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import JobState
from tests.jobs import P5, a_job, a_request
from tests.unit.queue_api import P4, a_policy


def refusal(document: object) -> str:
    with pytest.raises(InvalidRequest) as error:
        parse_policy(document)
    assert error.value.field == "policy"
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
