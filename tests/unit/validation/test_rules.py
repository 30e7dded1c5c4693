"""A request that SageMaker would refuse is refused at submission, naming the field: what the model cannot say."""

from typing import Any

import pytest

from job_queue.validation import ValidationIssue, against_model, against_sagemaker
from tests.training_requests import Request, sdk_request, shape

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan-1"
GROUPS = [
    {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 2, "InstanceGroupName": "gpu"},
    {"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "InstanceGroupName": "cpu"},
]
PREFERENCES = [{"InstanceType": "ml.p5.48xlarge"}, {"InstanceType": "ml.p4d.24xlarge"}]
SPOT = {"EnableManagedSpotTraining": True, "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}}
S3 = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/p"}}
EFS = {
    "FileSystemDataSource": {
        "FileSystemId": "fs-0123abcd",
        "FileSystemAccessMode": "ro",
        "FileSystemType": "EFS",
        "DirectoryPath": "/d",
    }
}
RULE = {"RuleConfigurationName": "rule", "RuleEvaluatorImage": "image:1"}


def with_(**fields: Any) -> Request:
    return {**sdk_request(), **fields}


def resources(**fields: Any) -> Request:
    return with_(ResourceConfig=fields)


def algorithm(**fields: Any) -> Request:
    return with_(AlgorithmSpecification={"TrainingInputMode": "File", **fields})


def channels(*sources: dict[str, Any], **fields: Any) -> Request:
    """Channels c0, c1, ... of those sources."""
    return with_(InputDataConfig=[{"ChannelName": f"c{n}", "DataSource": s} for n, s in enumerate(sources)], **fields)


def s3(**fields: Any) -> dict[str, Any]:
    return {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/p", **fields}}


def tags(*keys: str) -> Request:
    return with_(Tags=[{"Key": key, "Value": ""} for key in keys])


def found(request: Request) -> list[ValidationIssue]:
    """What the rules find in a request with which the model is content."""
    assert against_model(request, shape()) == []
    return against_sagemaker(request)


ALLOWED = {
    "the SDK's request": sdk_request(),
    "one type": resources(InstanceType="ml.p5.48xlarge", InstanceCount=2),
    "a type with a volume": resources(InstanceType="ml.c5.xlarge", InstanceCount=1, VolumeSizeInGB=30),
    "a type that SageMaker judges": resources(InstanceType="ml.trn1.32xlarge", InstanceCount=1),
    "an encrypted volume": resources(
        InstanceType="ml.c5.xlarge", InstanceCount=1, VolumeSizeInGB=30, VolumeKmsKeyId="k"
    ),
    "no groups": resources(InstanceType="ml.p5.48xlarge", InstanceCount=1, InstanceGroups=[]),
    "groups": resources(InstanceGroups=GROUPS, VolumeSizeInGB=30),
    "groups, none kept warm": resources(InstanceGroups=GROUPS, VolumeSizeInGB=30, KeepAlivePeriodInSeconds=0),
    "one count for all preferences": resources(InstancePreferences=PREFERENCES, InstanceCount=2),
    "a count for each preference": resources(InstancePreferences=[{**p, "InstanceCount": 2} for p in PREFERENCES]),
    "a plan for one preference": resources(
        InstancePreferences=[{**PREFERENCES[0], "TrainingPlanArns": [PLAN]}, PREFERENCES[1]], InstanceCount=1
    ),
    "an hour of warmth": resources(InstanceType="ml.p5.48xlarge", InstanceCount=1, KeepAlivePeriodInSeconds=3600),
    "spot": with_(**SPOT),
    "28 days": with_(StoppingCondition={"MaxRuntimeInSeconds": 28 * 86400}),
    "46 tags": tags(*(f"k{n}" for n in range(46))),
    "keys that differ in case": tags("team", "Team"),
    "a key that holds aws": tags("my-aws:key"),
    "several channels": channels(S3, EFS),
    "channels for groups": channels(
        s3(InstanceGroupNames=["gpu"]),
        s3(InstanceGroupNames=["cpu", "gpu"]),
        EFS,
        ResourceConfig={"InstanceGroups": GROUPS, "VolumeSizeInGB": 30},
    ),
    "an augmented manifest by pipe": channels(
        s3(S3DataType="AugmentedManifestFile"),
        AlgorithmSpecification={"TrainingInputMode": "Pipe", "TrainingImage": "image:1"},
    ),
    "an interval of profiling": with_(ProfilerConfig={"ProfilingIntervalInMilliseconds": 500}),
    "rules with two names": with_(DebugRuleConfigurations=[RULE, {**RULE, "RuleConfigurationName": "other"}]),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed(name: str) -> None:
    assert found(ALLOWED[name]) == []


# (request, field, a part of the sentence)
CONFIG = "ResourceConfig"
REFUSED: dict[str, tuple[Request, str, str]] = {
    "nothing to run": (
        algorithm(),
        "AlgorithmSpecification.TrainingImage",
        "AlgorithmSpecification.TrainingImage is missing: name the container's image",
    ),
    "two things to run": (
        algorithm(TrainingImage="image:1", AlgorithmName="a"),
        "AlgorithmSpecification.AlgorithmName",
        "and TrainingImage exclude each other",
    ),
    "no instances": (resources(VolumeSizeInGB=30), f"{CONFIG}.InstanceType", "is missing: say it here, or in"),
    "a type and groups": (
        resources(InstanceType="ml.p5.48xlarge", InstanceCount=1, InstanceGroups=GROUPS, VolumeSizeInGB=30),
        f"{CONFIG}.InstanceGroups",
        "and InstanceType exclude each other",
    ),
    "a type and preferences": (
        resources(InstanceType="ml.p5.48xlarge", InstanceCount=1, InstancePreferences=PREFERENCES),
        f"{CONFIG}.InstancePreferences",
        "and InstanceType exclude each other",
    ),
    "a type without a count": (
        resources(InstanceType="ml.p5.48xlarge"),
        f"{CONFIG}.InstanceCount",
        "must say how many instances to use, at least 1.",
    ),
    "no instance": (resources(InstanceType="ml.p5.48xlarge", InstanceCount=0), f"{CONFIG}.InstanceCount", "at least 1"),
    "groups and a count": (
        resources(InstanceGroups=GROUPS, InstanceCount=3, VolumeSizeInGB=30),
        f"{CONFIG}.InstanceCount",
        "each group has its own InstanceCount",
    ),
    "an empty group": (
        resources(InstanceGroups=[{**GROUPS[0], "InstanceCount": 0}]),
        f"{CONFIG}.InstanceGroups[0].InstanceCount",
        "at least 1",
    ),
    "groups of one name": (
        resources(InstanceGroups=[GROUPS[0], GROUPS[0]]),
        f"{CONFIG}.InstanceGroups[1].InstanceGroupName",
        "is 'gpu', as in ResourceConfig.InstanceGroups[0]; use it once.",
    ),
    "a preference twice": (
        resources(InstancePreferences=[PREFERENCES[0], PREFERENCES[0]], InstanceCount=1),
        f"{CONFIG}.InstancePreferences[1].InstanceType",
        "use it once",
    ),
    "preferences, one with a count": (
        resources(InstancePreferences=[{**PREFERENCES[0], "InstanceCount": 1}, PREFERENCES[1]]),
        f"{CONFIG}.InstancePreferences[1].InstanceCount",
        "must say how many",
    ),
    "preferences without a count": (resources(InstancePreferences=PREFERENCES), f"{CONFIG}.InstanceCount", "how many"),
    "counts twice over": (
        resources(InstancePreferences=[{**PREFERENCES[0], "InstanceCount": 1}], InstanceCount=1),
        f"{CONFIG}.InstanceCount",
        "say it once for the job or on every preference",
    ),
    "plans twice over": (
        resources(
            InstancePreferences=[{**PREFERENCES[0], "TrainingPlanArns": [PLAN]}], InstanceCount=1, TrainingPlanArn=PLAN
        ),
        f"{CONFIG}.InstancePreferences[0].TrainingPlanArns",
        "exclude each other",
    ),
    "preferences on spot": (
        with_(ResourceConfig={"InstancePreferences": PREFERENCES, "InstanceCount": 1}, **SPOT),
        "EnableManagedSpotTraining",
        "and InstancePreferences exclude each other",
    ),
    "preferences and a placement": (
        resources(InstancePreferences=PREFERENCES, InstanceCount=1, InstancePlacementConfig={}),
        f"{CONFIG}.InstancePlacementConfig",
        "and InstancePreferences exclude each other",
    ),
    "a placement of nothing": (
        resources(
            InstanceType="ml.p6e-gb200.36xlarge",
            InstanceCount=1,
            InstancePlacementConfig={"PlacementSpecifications": [{"InstanceCount": 0}]},
        ),
        f"{CONFIG}.InstancePlacementConfig.PlacementSpecifications[0].InstanceCount",
        "at least 1",
    ),
    "an answer as a request": (
        resources(InstanceType="ml.p5.48xlarge", InstanceCount=1, SelectedInstanceCount=1),
        f"{CONFIG}.SelectedInstanceCount",
        "leave it out",
    ),
    "no volume": (
        resources(InstanceType="ml.m7i-flex.large", InstanceCount=1),
        f"{CONFIG}.VolumeSizeInGB",
        "must say how many GB of storage to use: ml.m7i-flex.large has no disk of its own.",
    ),
    "a volume of nothing for a group": (
        resources(InstanceGroups=GROUPS, VolumeSizeInGB=0),
        f"{CONFIG}.VolumeSizeInGB",
        "ml.c5.xlarge has no disk",
    ),
    "a key for a disk": (
        resources(InstanceType="ml.g5.xlarge", InstanceCount=1, VolumeKmsKeyId="k"),
        f"{CONFIG}.VolumeKmsKeyId",
        "is not possible with ml.g5.xlarge",
    ),
    "warm too long": (
        resources(InstanceType="ml.p5.48xlarge", InstanceCount=1, KeepAlivePeriodInSeconds=3601),
        f"{CONFIG}.KeepAlivePeriodInSeconds",
        "at most 3600 seconds",
    ),
    "warm spot": (
        with_(
            ResourceConfig={"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "KeepAlivePeriodInSeconds": 60},
            **SPOT,
        ),
        f"{CONFIG}.KeepAlivePeriodInSeconds",
        "spot has no warm pools",
    ),
    "warm groups": (
        resources(InstanceGroups=GROUPS, VolumeSizeInGB=30, KeepAlivePeriodInSeconds=60),
        f"{CONFIG}.KeepAlivePeriodInSeconds",
        "and InstanceGroups exclude each other",
    ),
    "waiting without spot": (
        with_(StoppingCondition=SPOT["StoppingCondition"]),
        "StoppingCondition.MaxWaitTimeInSeconds",
        "is only for spot training",
    ),
    "spot without waiting": (
        with_(EnableManagedSpotTraining=True),
        "StoppingCondition.MaxWaitTimeInSeconds",
        "is missing: spot training needs it",
    ),
    "a wait shorter than the run": (
        with_(
            EnableManagedSpotTraining=True, StoppingCondition={"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 59}
        ),
        "StoppingCondition.MaxWaitTimeInSeconds",
        "is too small",
    ),
    "a wait shorter than the usual run": (
        with_(EnableManagedSpotTraining=True, StoppingCondition={"MaxWaitTimeInSeconds": 86399}),
        "StoppingCondition.MaxWaitTimeInSeconds",
        "is too small",
    ),
    "a month": (
        with_(StoppingCondition={"MaxRuntimeInSeconds": 28 * 86400 + 1}),
        "StoppingCondition.MaxRuntimeInSeconds",
        "at most 2419200 seconds, 28 days",
    ),
    "channels of one name": (
        with_(InputDataConfig=[{"ChannelName": "training", "DataSource": S3}] * 2),
        "InputDataConfig[1].ChannelName",
        "is 'training', as in InputDataConfig[0]; use it once.",
    ),
    "a channel without a source": (channels({}), "InputDataConfig[0].DataSource", "must name one source"),
    "a channel with two sources": (channels(S3 | EFS), "InputDataConfig[0].DataSource", "must name one source"),
    "an augmented manifest by file": (
        channels(s3(S3DataType="AugmentedManifestFile")),
        "InputDataConfig[0].InputMode",
        "must be Pipe",
    ),
    "a channel for no group": (
        channels(s3(InstanceGroupNames=["gpu"])),
        "InputDataConfig[0].DataSource.S3DataSource.InstanceGroupNames",
        "names a group that ResourceConfig.InstanceGroups does not have",
    ),
    "a channel for all groups among others": (
        channels(S3, s3(InstanceGroupNames=["gpu"]), ResourceConfig={"InstanceGroups": GROUPS, "VolumeSizeInGB": 30}),
        "InputDataConfig[0].DataSource.S3DataSource.InstanceGroupNames",
        "when one channel names its instance groups, all must",
    ),
    "47 tags": (tags(*(f"k{n}" for n in range(47))), "Tags", "Tags has 47 tags; it may have 46, as the queue adds 4."),
    "a tag twice": (tags("a", "b", "a"), "Tags[2].Key", "is 'a', as in Tags[0]; use it once."),
    "a tag of AWS": (tags("AWS:createdBy"), "Tags[0].Key", "begins with aws:, which is reserved"),
    "an odd interval": (
        with_(ProfilerConfig={"ProfilingIntervalInMilliseconds": 300}),
        "ProfilerConfig.ProfilingIntervalInMilliseconds",
        "must be one of 100, 200, 500, 1000, 5000, 60000.",
    ),
    "rules of one name": (
        with_(ProfilerRuleConfigurations=[RULE, RULE]),
        "ProfilerRuleConfigurations[1].RuleConfigurationName",
        "use it once",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_naming_the_field(name: str) -> None:
    request, field, part = REFUSED[name]
    problems = found(request)
    assert [problem.field for problem in problems] == [field]
    assert problems[0].message.startswith(field)
    assert part in problems[0].message
    assert problems[0].message.endswith(".")


def test_a_serverless_job_brings_neither_image_nor_instances() -> None:
    request = sdk_request()
    del request["AlgorithmSpecification"], request["ResourceConfig"]
    assert [problem.field for problem in found(request)] == [
        "AlgorithmSpecification.TrainingImage",
        "ResourceConfig.InstanceType",
    ]
    request["ServerlessJobConfig"] = {
        "BaseModelArn": "arn:aws:sagemaker:us-east-1:aws:hub-content/Public/Model/m",
        "JobType": "FineTuning",
    }
    assert found(request) == []
