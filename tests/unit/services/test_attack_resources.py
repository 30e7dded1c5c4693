"""Roles, buckets, training plans and projects of others, named in a request."""

import json
from typing import Any

import pytest

from job_queue.domain.access.patterns import matches_pattern
from tests.jobs import OWNER, P5, ROLE, a_request
from tests.unit.queue_api import ADMIN, P4, STRANGER, Api

pytestmark = pytest.mark.attack

ACCOUNT = "arn:aws:iam::123456789012"
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/winter"
OTHERS_PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
POLICY: dict[str, Any] = {
    "pools": [
        {"name": "p5", "instance_type": P5, "capacity": 2},
        {"name": "mine", "instance_type": P5, "capacity": 2, "training_plan": PLAN},
        {"name": "theirs", "instance_type": P4, "capacity": 2, "training_plan": OTHERS_PLAN},
    ],
    "projects": [
        {
            "name": "vision",
            "members": [OWNER],
            "roles": [f"{ACCOUNT}:role/train*"],
            "buckets": ["bucket", "team-*", "shared/vision"],
            "pools": ["p5", "mine"],
        },
        {"name": "nlp", "members": [STRANGER], "roles": [f"{ACCOUNT}:role/nlp/*"], "pools": ["theirs"]},
    ],
}


@pytest.fixture
def api() -> Api:
    api = Api(roles=(f"{ACCOUNT}:role/*",))
    body = json.dumps({"policy": POLICY, "version": 0})
    assert api.call("PUT", "/policy", body, caller=ADMIN)[0] == 200
    return api


def submit(api: Api, project: str | None = "vision", caller: str = OWNER, **changes: Any) -> tuple[int, Any]:
    tags = [{"Key": "project", "Value": project}] if project else []
    body = json.dumps(a_request("job1", Tags=tags, **changes))
    planned = api.call("POST", "/plan", body, caller=caller)
    status, answer = api.call("POST", "/add-job", body, caller=caller, preflight="false")
    assert (planned[0] == 200) is (status in {200, 202}), "the dry run says the same"
    if status not in {200, 202}:
        assert api.queue.repository.record("job1") is None
        assert not api.queue.training.requests
    return status, answer


def channel(address: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": address}
    return {"InputDataConfig": [{"ChannelName": "data", "DataSource": {"S3DataSource": source}}]}


def test_what_is_the_projects_own_is_taken(api: Api) -> None:
    request = {**channel("s3://team-a/data"), "CheckpointConfig": {"S3Uri": "s3://shared/vision/job1"}}
    assert submit(api, RoleArn=ROLE, **request)[0] == 202


@pytest.mark.parametrize(
    "role",
    [
        f"{ACCOUNT}:role/nlp/reader",
        f"{ACCOUNT}:role/other",
        f"{ACCOUNT}:role/train/of/others",
        f"{ACCOUNT}:role/Training",
    ],
)
def test_a_role_of_another_project(api: Api, role: str) -> None:
    status, answer = submit(api, RoleArn=role)
    assert (status, answer["code"], answer["field"]) == (403, "Forbidden", "RoleArn")
    assert role in answer["message"] and "role/train*" in answer["remedy"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"OutputDataConfig": {"S3OutputPath": "s3://others/out"}}, "OutputDataConfig.S3OutputPath"),
        ({"CheckpointConfig": {"S3Uri": "s3://others/job1"}}, "CheckpointConfig.S3Uri"),
        ({"CheckpointConfig": {"S3Uri": "s3://bucket2/job1"}}, "CheckpointConfig.S3Uri"),
        ({"CheckpointConfig": {"S3Uri": "s3://shared/visions/job1"}}, "CheckpointConfig.S3Uri"),
        ({"CheckpointConfig": {"S3Uri": "s3://shared/nlp/../vision/job1"}}, "CheckpointConfig.S3Uri"),
        ({"CheckpointConfig": {"S3Uri": "s3://shared//vision/job1"}}, "CheckpointConfig.S3Uri"),
        ({"CheckpointConfig": {"S3Uri": "https://others.s3.us-east-1.amazonaws.com/x"}}, "CheckpointConfig.S3Uri"),
        (channel("s3://others/data"), "InputDataConfig[0].DataSource.S3DataSource.S3Uri"),
        ({"TensorBoardOutputConfig": {"S3OutputPath": "s3://others/tb"}}, "TensorBoardOutputConfig.S3OutputPath"),
        ({"DebugHookConfig": {"S3OutputPath": "s3://others/hook"}}, "DebugHookConfig.S3OutputPath"),
        ({"ProfilerConfig": {"S3OutputPath": "s3://others/profile"}}, "ProfilerConfig.S3OutputPath"),
    ],
)
def test_a_bucket_of_others(api: Api, changes: dict[str, Any], field: str) -> None:
    status, answer = submit(api, **changes)
    assert (status, answer["code"], answer["field"]) == (403, "Forbidden", field)
    assert "shared/vision" in answer["remedy"]


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"InstanceType": P5, "InstanceCount": 1, "TrainingPlanArn": OTHERS_PLAN}, "ResourceConfig.TrainingPlanArn"),
        ({"InstanceType": P5, "InstanceCount": 1, "TrainingPlanArn": PLAN + "er"}, "ResourceConfig.TrainingPlanArn"),
        (
            {"InstancePreferences": [{"InstanceType": P5, "InstanceCount": 1, "TrainingPlanArns": [OTHERS_PLAN]}]},
            "ResourceConfig.InstancePreferences[0].TrainingPlanArns[0]",
        ),
    ],
)
def test_a_training_plan_of_others(api: Api, resources: dict[str, Any], field: str) -> None:
    status, answer = submit(api, ResourceConfig={**resources, "VolumeSizeInGB": 30})
    assert (status, answer["code"], answer["field"]) == (403, "Forbidden", field)
    assert "pool" in answer["remedy"]


@pytest.mark.parametrize(("interactive", "status"), [("false", 403), ("true", 202)])
def test_a_training_plan_of_a_pool_for_other_jobs_of_the_project(interactive: str, status: int) -> None:
    project = {"name": "default", "training_pools": ["p5"], "interactive_pools": ["mine"], "quota": {"mine": 1}}
    api = Api()
    policy = {"pools": POLICY["pools"], "projects": [project]}
    assert api.call("PUT", "/policy", json.dumps({"policy": policy, "version": 0}), caller=ADMIN)[0] == 200
    resources = {"InstanceType": P5, "InstanceCount": 1, "TrainingPlanArn": PLAN, "VolumeSizeInGB": 30}
    tags = [{"Key": "interactive", "Value": interactive}]
    body = json.dumps(a_request("job1", ResourceConfig=resources, Tags=tags))
    got, answer = api.call("POST", "/add-job", body, preflight="false")
    assert got == status, answer


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("s3://data/team-a", 403),
        ("s3://data", 403),
        ("s3://data/team-a/ckpt/own", 202),
        ("s3://runs/job1", 202),
        ("s3://runs", 403),
        ("s3://more/checkpoints/job1", 202),
        ("s3://more/checkpoints", 403),
    ],
)
def test_no_claim_includes_a_folder_for_all_jobs_of_a_project(address: str, status: int) -> None:
    api = Api()
    projects = [
        {"name": "default"},
        {"name": "vision", "buckets": ["data/team-*/ckpt", "runs/*", "more/checkpoints/*"]},
    ]
    policy = {"pools": POLICY["pools"], "projects": projects}
    assert api.call("PUT", "/policy", json.dumps({"policy": policy, "version": 0}), caller=ADMIN)[0] == 200
    tags = [{"Key": "project", "Value": "default"}]
    body = json.dumps(a_request("job1", CheckpointConfig={"S3Uri": address}, Tags=tags))
    got, answer = api.call("POST", "/add-job", body, preflight="false")
    assert got == status, answer


def test_a_training_plan_of_ones_own_pool_is_taken(api: Api) -> None:
    resources = {"InstanceType": P5, "InstanceCount": 1, "TrainingPlanArn": PLAN, "VolumeSizeInGB": 30}
    assert submit(api, ResourceConfig=resources)[0] == 202


def test_a_training_plan_where_there_is_no_policy() -> None:
    resources = {"InstanceType": P5, "InstanceCount": 1, "TrainingPlanArn": PLAN, "VolumeSizeInGB": 30}
    api = Api()
    status, answer = api.call("POST", "/add-job", json.dumps(a_request("job1", ResourceConfig=resources)))
    assert (status, answer["field"]) == (403, "ResourceConfig.TrainingPlanArn")


@pytest.mark.parametrize("project", ["nlp", None])
def test_a_project_of_others(api: Api, project: str | None) -> None:
    status, _ = submit(api, project, caller=OWNER if project else f"{ACCOUNT}:user/mallory")
    assert status == 403


def test_the_project_named_default_has_members_like_any_other() -> None:
    """A request without a project is for it: once, nobody looked whether the caller was a member."""
    api = Api()
    policy = {**POLICY, "projects": [{"name": "default", "members": [OWNER]}]}
    assert api.call("PUT", "/policy", json.dumps({"policy": policy, "version": 0}), caller=ADMIN)[0] == 200
    body = json.dumps({**a_request("job1"), "Tags": []})
    assert api.call("POST", "/add-job", body, caller=STRANGER)[0] == 403
    assert api.call("POST", "/add-job", body, caller=OWNER)[0] == 202


@pytest.mark.parametrize(
    ("pattern", "text", "meant"),
    [
        ("a*c", "abc", True),
        ("a*", "a", True),
        ("a*", "a/b", False),
        ("a*", "a:b", False),
        ("*", "", True),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("a?", "ab", False),
        ("a*", "A", False),
        ("a*\n", "ab", False),
        ("*a*b*", "xxaxxb", True),
    ],
)
def test_an_asterisk_stands_for_one_part_of_a_name(pattern: str, text: str, meant: bool) -> None:
    assert matches_pattern(pattern, text) is meant


def test_a_pattern_of_many_asterisks_takes_no_time() -> None:
    assert not matches_pattern("*a" * 30 + "b", "a" * 60)


@pytest.mark.parametrize(
    ("project", "told"),
    [
        ({"roles": ["training"]}, "is not the ARN of a role"),
        ({"roles": [f"{ACCOUNT}:user/ada"]}, "is not the ARN of a role"),
        ({"buckets": ["s3://bucket"]}, "begins with s3://"),
        ({"buckets": ["*"]}, "names no bucket"),
        ({"buckets": ["bucket/"]}, "names no bucket"),
        ({"admins": ["ada"]}, "among the admins of vision is not an ARN"),
        ({"members": [f"{ACCOUNT}:user/a?"]}, "only * does"),
        ({"members": [f"{ACCOUNT}:user/u{number}" for number in range(600)]}, "more than 500"),
    ],
)
def test_what_can_mean_nothing_is_refused_in_a_policy(project: dict[str, Any], told: str) -> None:
    policy = {**POLICY, "projects": [{"name": "vision", **project}]}
    status, answer = Api().call("PUT", "/policy", json.dumps({"policy": policy, "version": 0}), caller=ADMIN)
    assert (status, told in answer["message"]) == (400, True), answer
