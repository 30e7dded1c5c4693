"""A request that SageMaker would refuse is refused at submission, naming the field: the service model's part."""

from collections.abc import Callable
from functools import partial
from typing import Any

import botocore.session
import pytest

from job_queue.validation import MOST_ISSUES, ValidationIssue, against_model, against_sagemaker
from job_queue.validation.service_model import _CHECKS, _matches
from tests.counting import counted
from tests.training_requests import Request, changed, every_shape, sdk_request, shape, without


def issues(request: object) -> list[ValidationIssue]:
    return against_model(request, shape())


# What is accepted


def test_the_sdks_request_fits() -> None:
    assert issues(sdk_request()) == []
    assert against_sagemaker(sdk_request()) == []


ACCEPTED: dict[str, Callable[[], Request]] = {
    "no optional parts": lambda: {
        key: value
        for key, value in sdk_request().items()
        if key in ("TrainingJobName", "RoleArn", "AlgorithmSpecification", "OutputDataConfig", "ResourceConfig")
    },
    "environment with lines": lambda: changed("Environment/NOTE", "two\nlines, übergroß"),
    "tag in another script": lambda: changed("Tags/0/Value", "équipe 研究"),
    "checkpoints elsewhere": lambda: changed("CheckpointConfig/LocalPath", "/opt/ml/checkpoints"),
    "a training plan": lambda: changed(
        "ResourceConfig/TrainingPlanArn", "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan-1"
    ),
    "a command": lambda: changed(
        "AlgorithmSpecification",
        {
            "TrainingImage": "image:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["python3"],
            "ContainerArguments": ["-c", "print(1)"],
        },
    ),
    "a marketplace algorithm": lambda: changed(
        "AlgorithmSpecification", {"AlgorithmName": "my-algorithm", "TrainingInputMode": "FastFile"}
    ),
    "a name of 63 characters": lambda: changed("TrainingJobName", "j" * 63),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    request = ACCEPTED[name]()
    assert issues(request) == []
    assert against_sagemaker(request) == []


# What is refused: (request, field, a part of the sentence)

REFUSED: dict[str, tuple[Callable[[], object], str, str]] = {
    "a list": (list, "", "The request must be an object with named fields, but it is a list."),
    "null": (lambda: None, "", "The request is null"),
    **{
        f"missing {name}": (partial(without, name), name, f"{name} is missing; SageMaker requires it.")
        for name in shape().required_members
    },
    "missing inside": (
        lambda: changed("InputDataConfig/0", {"DataSource": {}}),
        "InputDataConfig[0].ChannelName",
        "InputDataConfig[0].ChannelName is missing; SageMaker requires it.",
    ),
    "unknown": (
        lambda: changed("TrainingJobNam", "job1"),
        "TrainingJobNam",
        "TrainingJobNam is not a field of CreateTrainingJob; did you mean TrainingJobName",
    ),
    "unknown inside": (
        lambda: changed("ResourceConfig/instancecount", 1),
        "ResourceConfig.instancecount",
        "did you mean InstanceCount",
    ),
    "unknown and like nothing": (
        lambda: changed("VpcConfig/x", 1),
        "VpcConfig.x",
        "there are SecurityGroupIds, Subnets.",
    ),
    "unknown with a strange name": (lambda: changed("a.b\n", 1), "['a.b\\n']", "['a.b\\n'] is not a field"),
    "text for a number": (
        lambda: changed("ResourceConfig/InstanceCount", "1"),
        "ResourceConfig.InstanceCount",
        "must be a whole number, without quotes or a decimal point, but it is text.",
    ),
    "a decimal for a whole number": (
        lambda: changed("ResourceConfig/InstanceCount", 1.0),
        "ResourceConfig.InstanceCount",
        "but it is a number.",
    ),
    "true for a number": (
        lambda: changed("ResourceConfig/InstanceCount", True),
        "ResourceConfig.InstanceCount",
        "but it is true or false.",
    ),
    "a number for true": (
        lambda: changed("EnableNetworkIsolation", 1),
        "EnableNetworkIsolation",
        "must be true or false, without quotes, but it is a number.",
    ),
    "text for true": (lambda: changed("EnableNetworkIsolation", "true"), "EnableNetworkIsolation", "but it is text."),
    "a number for text": (lambda: changed("HyperParameters/lr", 0.1), "HyperParameters.lr", "must be text"),
    "null for text": (lambda: changed("RoleArn", None), "RoleArn", "RoleArn is null: it must be text"),
    "text for a list": (lambda: changed("Tags", "priority=1"), "Tags", "Tags must be a list, but it is text."),
    "a list for a map": (lambda: changed("Environment", []), "Environment", "must be an object with names and values"),
    "a list for an object": (lambda: changed("VpcConfig", []), "VpcConfig", "must be an object with named fields"),
    "too long": (
        lambda: changed("TrainingJobName", "j" * 64),
        "TrainingJobName",
        "TrainingJobName has too many characters: 64 of at most 63.",
    ),
    "too short": (lambda: changed("RoleArn", "role"), "RoleArn", "has too few characters: 4 of at least 20."),
    "too small": (
        lambda: changed("StoppingCondition/MaxRuntimeInSeconds", 0),
        "StoppingCondition.MaxRuntimeInSeconds",
        "is too small: it must be at least 1.",
    ),
    "too large": (
        lambda: changed("ResourceConfig/KeepAlivePeriodInSeconds", 21601),
        "ResourceConfig.KeepAlivePeriodInSeconds",
        "is too large: it must be at most 21600.",
    ),
    "beyond 32 bits": (
        lambda: changed("StoppingCondition/MaxRuntimeInSeconds", 2**31),
        "StoppingCondition.MaxRuntimeInSeconds",
        "it must be at most 2147483647.",
    ),
    "beyond print": (
        lambda: changed("StoppingCondition/MaxRuntimeInSeconds", 10**5000),
        "StoppingCondition.MaxRuntimeInSeconds",
        "is too large",
    ),
    "too many items": (
        lambda: changed("VpcConfig/SecurityGroupIds", ["sg-1"] * 6),
        "VpcConfig.SecurityGroupIds",
        "has too many items: 6 of at most 5.",
    ),
    "too few items": (lambda: changed("InputDataConfig", []), "InputDataConfig", "has too few items: 0 of at least 1."),
    "too many entries": (
        lambda: changed("HyperParameters", {f"p{n}": "1" for n in range(101)}),
        "HyperParameters",
        "has too many entries: 101 of at most 100.",
    ),
    "name pattern": (
        lambda: changed("TrainingJobName", "my_job"),
        "TrainingJobName",
        "TrainingJobName may hold only letters, digits and hyphens",
    ),
    "name that ends in a hyphen": (lambda: changed("TrainingJobName", "job-"), "TrainingJobName", "ends with a letter"),
    "name with a line end": (lambda: changed("TrainingJobName", "job\n"), "TrainingJobName", "may hold only letters"),
    "role pattern": (
        lambda: changed("RoleArn", "arn:aws:iam::1234:role/training"),
        "RoleArn",
        "RoleArn must be the ARN of an IAM role",
    ),
    "not an S3 address": (
        lambda: changed("CheckpointConfig/S3Uri", "/checkpoints"),
        "CheckpointConfig.S3Uri",
        "must be an S3 address, like s3://bucket/prefix.",
    ),
    "tag pattern": (lambda: changed("Tags/0/Value", "a;b"), "Tags[0].Value", "may hold only letters, digits, spaces"),
    "two lines": (
        lambda: changed("HyperParameters/note", "one\ntwo"),
        "HyperParameters.note",
        "HyperParameters.note must be on one line.",
    ),
    "a pattern without words": (
        lambda: changed("VpcConfig/Subnets/0", "subnet_1"),
        "VpcConfig.Subnets[0]",
        "must match SageMaker's pattern [-0-9a-zA-Z]+.",
    ),
    "digits of another script": (
        lambda: changed("RoleArn", "arn:aws:iam::١٢٣٤٥٦٧٨٩٠١٢:role/training"),
        "RoleArn",
        "must be the ARN of an IAM role",
    ),
    "a name in a map": (
        lambda: changed("Environment/9 LIVES", "cat"),
        "Environment['9 LIVES']",
        "The name '9 LIVES' in Environment may hold only letters, digits and underscores",
    ),
    "half a character": (lambda: changed("Environment/X", "\ud800"), "Environment.X", "holds half a character"),
    "an instance type with an error": (
        lambda: changed("ResourceConfig/InstanceType", "ml.p5.48xlrge"),
        "ResourceConfig.InstanceType",
        "is 'ml.p5.48xlrge', unknown to SageMaker; did you mean ml.p5.48xlarge",
    ),
    "only the family of an instance type": (
        lambda: changed("ResourceConfig/InstanceType", "p5"),
        "ResourceConfig.InstanceType",
        "is 'p5', unknown to SageMaker; did you mean ml.p5.",
    ),
    "a value in capitals": (
        lambda: changed("AlgorithmSpecification/TrainingInputMode", "FILE"),
        "AlgorithmSpecification.TrainingInputMode",
        "did you mean File",
    ),
    "a value like nothing": (
        lambda: changed("ResourceConfig/InstanceType", "?"),
        "ResourceConfig.InstanceType",
        "unknown to SageMaker; there are ml.m4.xlarge,",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_naming_the_field(name: str) -> None:
    make, field, part = REFUSED[name]
    found = issues(make())
    assert [issue.field for issue in found] == [field]
    assert part in found[0].message
    assert found[0].message[-1] in ".?"


def test_problems_come_in_the_requests_order() -> None:
    request = {"Tags": [{"Key": "a"}, {"Value": "b"}], "RoleArn": 1, "ResourceConfig": {"X": 1, "InstanceCount": -1}}
    assert [issue.field for issue in issues(request)] == [
        "TrainingJobName",
        "OutputDataConfig",
        "Tags[0].Value",
        "Tags[1].Key",
        "RoleArn",
        "ResourceConfig.X",
        "ResourceConfig.InstanceCount",
    ]


def test_only_the_first_issues_are_given() -> None:
    found = issues(changed("VpcConfig", {f"x{n}": 1 for n in range(1000)}))
    assert len(found) == MOST_ISSUES


def test_values_of_maps_are_not_repeated_in_messages() -> None:
    """They may be secrets, and messages are logged."""
    request = changed("Environment/TOKEN", "hunter2" * 100)
    request["HyperParameters"]["key"] = "hunter2\n"
    found = issues(request)
    assert len(found) == 2
    assert not any("hunter2" in issue.message for issue in found)


# The model, as it is today


def test_every_type_of_the_model_is_checked() -> None:
    """Fails when a new botocore brings a type that nobody has thought of."""
    assert {found.type_name for found in every_shape(shape())} <= set(_CHECKS)


HOSTILE = ("a", "-", "a-", "/", "s3://", "\n", "é", "arn:aws:sagemaker:", "a-a", "1", "a:1")


def test_no_pattern_backtracks_without_end() -> None:
    """One that does takes years: the time limit of every test ends it."""
    patterns = {
        (found.metadata["pattern"], found.metadata.get("max", 5000))
        for found in every_shape(shape())
        if "pattern" in found.metadata
    }
    prefixes = ("", "arn:aws:sagemaker:us-east-1:123456789012:hub-content/a/Model/", "arn:a:sagemaker:", "s3://")
    for pattern, longest in patterns:
        for prefix in prefixes:
            for piece in HOSTILE:
                _matches(pattern, (prefix + piece * longest)[: longest - 1] + "!")


# Hostile requests


def deep(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("where", ["Tags", "HyperParameters", "InputDataConfig", "RoleArn", "ResourceConfig", "Deep"])
@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"DataSource": inner}], ids=["lists", "objects"])
def test_deep_nesting_is_refused(where: str, wrap: Callable[[Any], Any]) -> None:
    request = {**sdk_request(), where: deep(2000, wrap)}
    assert issues(request)
    against_sagemaker(request)


def test_a_shape_that_holds_itself_is_followed_for_some_levels() -> None:
    model = botocore.session.Session().get_service_model("dynamodb")
    root = model.operation_model("PutItem").input_shape
    assert root is not None
    found = against_model({"TableName": "t", "Item": {"a": deep(2000, lambda inner: {"L": [inner]})}}, root)
    assert len(found) == 1
    assert "is nested too deeply" in found[0].message


LONG: dict[str, Callable[[str], Request]] = {
    "name": lambda text: changed("TrainingJobName", text),
    "role": lambda text: changed("RoleArn", text),
    "choice": lambda text: changed("ResourceConfig/InstanceType", text),
    "address": lambda text: changed("CheckpointConfig/S3Uri", text),
    "entry": lambda text: changed("HyperParameters", {text: text}),
    "tags": lambda text: changed("Tags", [{"Key": text, "Value": text}] * 2),
    "no maximum": lambda text: changed("ServerlessJobConfig/EvaluatorArn", text),
    "unknown": lambda text: {f"{n}{text}": text for n in range(20)},
}


@pytest.mark.parametrize("where", LONG)
def test_a_million_characters_take_no_time(where: str) -> None:
    """What looks at each of them again for each of them takes an hour."""
    for piece in ("a", "a-", "/", "é\n"):
        request = LONG[where](piece * (10**6 // len(piece)))
        found, calls = counted(partial(issues, request))
        against_sagemaker(request)
        assert calls < 50_000, piece
        assert all(len(issue.field) + len(issue.message) < 1000 for issue in found)


def test_a_million_items_take_no_time() -> None:
    request = changed("Tags", [{"Key": "k", "Value": "v"}] * 10**6)
    found, calls = counted(lambda: issues(request))
    assert calls < 50_000
    assert [issue.message for issue in found] == ["Tags has too many items: 1000000 of at most 50."]


def test_a_usual_request_takes_milliseconds() -> None:
    request = sdk_request()
    issues(request)  # warm: patterns compiled, shapes resolved
    found, calls = counted(lambda: issues(request))
    assert found == []
    assert calls < 5000
