"""The tags that say how a job is scheduled: what is read, and what the policy allows whom."""

import re
from typing import Any

import pytest

from job_queue.domain.carriers.members import accepted_gpus
from job_queue.domain.errors import Forbidden, InvalidRequest, QueueError
from job_queue.domain.policy import default_policy
from job_queue.domain.policy_validation import parse_policy
from job_queue.domain.requests.scheduling_tags import MAX_RETRIES, SchedulingOptions, accepted_sizes, scheduling_options
from job_queue.domain.requests.training_request import TrainingRequest
from job_queue.scheduler import MAX_PRIORITY
from tests.jobs import OWNER, a_request
from tests.unit.queue_api import STRANGER, a_policy

POLICY = parse_policy(a_policy())


BY_KIND = a_policy()
BY_KIND["projects"][0] |= {"interactive_pools": ["p5"], "training_pools": ["p4"]}


def read(caller: str = OWNER, **tags: str) -> SchedulingOptions:
    listed = [{"Key": "team", "Value": "x"}, *({"Key": key, "Value": value} for key, value in tags.items())]
    return scheduling_options(TrainingRequest.read({"Tags": listed}), caller, POLICY)


def test_without_tags_there_are_defaults() -> None:
    assert scheduling_options(TrainingRequest(), OWNER, default_policy(2).policy) == SchedulingOptions("default")


@pytest.mark.parametrize("text", ["0", "-3", " 5 ", "+9", str(MAX_PRIORITY)])
def test_priorities_are_whole_numbers(text: str) -> None:
    assert read(project="vision", priority=text).priority == int(text)


@pytest.mark.parametrize("text", ["0", "3", " 3 ", str(MAX_RETRIES)])
def test_retries_are_a_few(text: str) -> None:
    assert read(project="vision", retries=text).retries == int(text)


def test_all_tags_are_read() -> None:
    tags = {"group": "layers 2-4", "max_parallel": " 4 ", "pools": "p4, p5", "preemptible": "False "}
    assert read(project="vision", **tags) == SchedulingOptions(
        "vision", "layers 2-4", max_parallel=4, preemptible=False, pools=("p4", "p5")
    )
    assert read(project="vision", group="").group is None
    assert read(project="nlp").project == "nlp"
    assert read(STRANGER, project="ops", priority="10").priority == 10


@pytest.mark.parametrize(("text", "expected"), [("true", True), (" Yes ", True), ("1", True), ("false", False)])
def test_an_interactive_job_is_not_preemptible(text: str, expected: bool) -> None:
    """Document 002: "Interactive workloads are never preempted"."""
    found = read(project="vision", interactive=text)
    assert (found.interactive, found.preemptible) == (expected, not expected)
    assert not read(project="vision", interactive="true", preemptible="false").preemptible


def test_a_job_that_is_never_preempted_is_not_preemptible() -> None:
    assert not read(project="vision", max_preemptions="0").preemptible
    assert not read(project="vision", max_preemptions="0", preemptible="true").preemptible
    assert read(project="vision", max_preemptions="1").preemptible


def test_a_project_has_pools_for_each_kind_of_job() -> None:
    """Document 002: "Project team-a can only run interactive Jobs on machines with a label of v-100 or a-100"."""

    def pools(**tags: str) -> tuple[str, ...]:
        listed = [{"Key": key, "Value": value} for key, value in {"project": "vision", **tags}.items()]
        return scheduling_options(TrainingRequest.read({"Tags": listed}), OWNER, parse_policy(BY_KIND)).pools

    assert pools(pools="p5", interactive="true") == ("p5",)
    assert pools(pools="p4") == ("p4",)
    with pytest.raises(InvalidRequest, match="Interactive jobs of the project vision cannot run in a pool 'p4'"):
        pools(pools="p4", interactive="true")
    with pytest.raises(InvalidRequest, match="Jobs of the project vision cannot run in a pool 'p5'"):
        pools(pools="p5")


@pytest.mark.parametrize(
    ("tags", "error", "field"),
    [
        *(({"project": "vision", "priority": text}, InvalidRequest, 2) for text in ["", "high", "1.5", "1e3", "--1"]),
        ({"project": "vision", "priority": str(MAX_PRIORITY + 1)}, InvalidRequest, 2),
        ({"project": "vision", "priority": "१"}, InvalidRequest, 2),
        ({"project": "vision", "priority": "99999999999"}, InvalidRequest, 2),
        *(({"project": "vision", "retries": text}, InvalidRequest, 2) for text in ["", "-1", "1.5", "many", "٣"]),
        ({"project": "vision", "retries": str(MAX_RETRIES + 1)}, InvalidRequest, 2),
        ({"project": "vision", "retries": "9" * 50}, InvalidRequest, 2),
        *(
            ({"project": "vision", "group": "g", "max_parallel": text}, InvalidRequest, 3)
            for text in ["", "0", "-1", "1.5", "all", "٣", "10001", "9" * 50]
        ),
        ({"project": "vision", "max_parallel": "4"}, InvalidRequest, 2),  # of no group
        ({"project": "vision", "max_parallel": "4", "group": ""}, InvalidRequest, 2),
        ({"project": "ops", "priority": "11"}, Forbidden, 2),
        ({"project": "ops", "priority": "+11"}, Forbidden, 2),
        ({"project": "ops", "priority": "0000000011"}, Forbidden, 2),
        ({"project": "nlp"}, Forbidden, 1),
        ({"project": "OPS"}, InvalidRequest, 1),
        ({"project": ""}, InvalidRequest, 1),
        ({"project": "research"}, InvalidRequest, 1),  # a department
        ({"project": "ops", "pools": "p5"}, InvalidRequest, 2),
        ({"project": "ops", "pools": ""}, InvalidRequest, 2),
        ({"project": "ops", "pools": "p4+p4 p4+p6"}, InvalidRequest, 2),
        ({"project": "vision", "preemptible": "maybe"}, InvalidRequest, 2),
        ({"project": "vision", "interactive": "maybe"}, InvalidRequest, 2),
        ({"project": "vision", "interactive": "true", "preemptible": "true"}, InvalidRequest, 3),
        ({"project": "vision", "interactive": "true", "gpus": "1"}, InvalidRequest, 2),
    ],
    ids=str,
)
def test_who_may_not_have_what_a_tag_says_is_told_which(
    tags: dict[str, str], error: type[QueueError], field: int
) -> None:
    with pytest.raises(error) as refused:
        read(STRANGER, **tags)
    assert refused.value.field == f"Tags[{field}].Value"


def test_an_interactive_job_on_a_part_of_an_instance_is_told_why_not_and_what_instead() -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(project="vision", interactive="true", gpus="0.5")
    (issue,) = refused.value.issues
    assert str(refused.value).endswith("where a shell would also open the other jobs.")
    assert issue.remedy and issue.remedy.startswith("Leave out the tag gpus, and name a small instance type")


def test_a_project_that_is_mistyped_is_answered_with_the_one_that_may_be_meant() -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(project="vison")
    assert str(refused.value).startswith("No project 'vison'.")
    (issue,) = refused.value.issues
    assert issue.remedy is not None
    assert issue.remedy.startswith("Did you mean vision? Projects: nlp, ops, vision.")


def on(count: int | None = 8, **more: object) -> dict[str, object]:
    return {"InstanceType": "ml.p5.48xlarge", **({} if count is None else {"InstanceCount": count}), **more}


def sizes(text: str, resources: dict[str, object]) -> tuple[int, ...]:
    request = {"ResourceConfig": resources, "Tags": [{"Key": "instances", "Value": text}]}
    return scheduling_options(TrainingRequest.read(request), OWNER, default_policy(8).policy).sizes


@pytest.mark.parametrize("text", ["8 4 2", "8,4,2", "8+4+2", " 8, 4 ,2 "])
def test_sizes_are_numbers_that_fall(text: str) -> None:
    assert (
        sizes(text, on())
        == accepted_sizes(TrainingRequest.read({"ResourceConfig": on(), "Tags": [tag(text)]}))
        == (8, 4, 2)
    )


def test_alternatives_of_one_number_may_have_sizes() -> None:
    preferences = [{"InstanceType": "ml.p5.48xlarge"}, {"InstanceType": "ml.p4d.24xlarge"}]
    assert sizes("4 2", {"InstancePreferences": preferences, "InstanceCount": 4}) == (4, 2)
    assert sizes("8", on()) == (8,)
    assert sizes("8 7 6 5 4 3 2 1", on()) == tuple(range(8, 0, -1))


@pytest.mark.parametrize(
    ("text", "resources", "words"),
    [
        ("", on(), "must name numbers of instances"),
        ("eight", on(), "must name numbers of instances"),
        ("8 -4", on(), "must name numbers of instances"),
        ("8 4.5", on(), "must name numbers of instances"),
        ("8 0", on(), "must name numbers of instances"),
        ("8 ٣", on(), "must name numbers of instances"),
        ("9" * 50, on(), "must name numbers of instances"),
        ("9 8 7 6 5 4 3 2 1", on(9), "names 9 numbers; it may name 8"),
        ("8 4 4", on(), "names 4 twice"),
        ("8 2 4", on(), "names 4 after 2"),
        ("8 4 2", on(4), "begins with 8, and the request's InstanceCount is 4"),
        (
            "8 4 2",
            {"InstanceGroups": [{"InstanceGroupName": "g", "InstanceType": "ml.p5.48xlarge", "InstanceCount": 8}]},
            "InstanceGroups",
        ),
        ("8 4", {"InstancePreferences": [{"InstanceType": "t", "InstanceCount": 8}]}, "InstancePreferences"),
        ("8 4", on(InstancePlacementConfig={"EnableMultipleJobs": True}), "InstancePlacementConfig"),
    ],
    ids=str,
)
def test_sizes_that_make_no_sense_are_refused(text: str, resources: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(words)) as refused:
        sizes(text, resources)
    assert refused.value.field == "Tags[0].Value"


def tag(text: str) -> dict[str, str]:
    return {"Key": "instances", "Value": text}


def test_projects_are_named_to_who_chose_none_of_them() -> None:
    with pytest.raises(InvalidRequest, match="No project 'sales'") as unknown:
        read(project="sales")
    assert unknown.value.issues[0].remedy == "Projects: nlp, ops, vision."
    with pytest.raises(InvalidRequest, match="names no project") as refused:
        read()
    assert refused.value.field == "Tags"


CHANNEL = {
    "ChannelName": "data",
    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/d/"}},
}


def of_a_part(**fields: Any) -> TrainingRequest:
    """Return a request for one GPU of a shared instance."""
    entry = {"ContainerEntrypoint": ["python3", "train.py"], "TrainingImage": "image:1", "TrainingInputMode": "File"}
    request = a_request(AlgorithmSpecification=entry, **fields)
    return TrainingRequest.read({**request, "Tags": [{"Key": "gpus", "Value": "1"}]})


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"CheckpointConfig": {"S3Uri": "s3://b/c/", "LocalPath": "/mnt/ckpt"}}, "CheckpointConfig.LocalPath"),
        ({"CheckpointConfig": {"S3Uri": "s3://b/c/", "LocalPath": "/opt/ml/../x"}}, "CheckpointConfig.LocalPath"),
        (
            {"OutputDataConfig": {"S3OutputPath": "s3://b/o/", "CompressionType": "NONE"}},
            "OutputDataConfig.CompressionType",
        ),
        ({"InputDataConfig": [{**CHANNEL, "RecordWrapperType": "RecordIO"}]}, "InputDataConfig[0].RecordWrapperType"),
        ({"InputDataConfig": [CHANNEL, {**CHANNEL, "ShuffleConfig": {"Seed": 1}}]}, "InputDataConfig[1].ShuffleConfig"),
        ({"InputDataConfig": [{**CHANNEL, "CompressionType": "Gzip"}]}, "InputDataConfig[0].CompressionType"),
        ({"RemoteDebugConfig": {"EnableRemoteDebug": True}}, "RemoteDebugConfig"),
        ({"EnableNetworkIsolation": True}, "EnableNetworkIsolation"),
    ],
)
def test_what_an_agent_would_not_do_is_refused_on_a_shared_instance(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match="shared instance") as refused:
        accepted_gpus(of_a_part(**fields))
    assert refused.value.field == field and refused.value.issues[0].remedy


@pytest.mark.parametrize(
    "fields",
    [
        {"CheckpointConfig": {"S3Uri": "s3://b/c/"}},
        {"CheckpointConfig": {"S3Uri": "s3://b/c/", "LocalPath": "/opt/ml/checkpoints"}},
        {"OutputDataConfig": {"S3OutputPath": "s3://b/o/", "CompressionType": "GZIP"}},
        {"InputDataConfig": [{**CHANNEL, "RecordWrapperType": "None", "CompressionType": "None"}]},
        {"RemoteDebugConfig": {"EnableRemoteDebug": False}},
    ],
)
def test_what_an_agent_does_is_accepted_on_a_shared_instance(fields: dict[str, Any]) -> None:
    assert accepted_gpus(of_a_part(**fields)) == 10
