"""What the emulator replies, compared with the service model and with what AWS is known to say.

One table, with the source of each reply. Where AWS's words are not known, the row says so: then only code and status
count, and nobody may read the words.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.model import ListShape, Shape, StructureShape
from botocore.validate import ParamValidator

from local_cloud.sagemaker.account.options import Account, Rate, parse_plan
from local_cloud.sagemaker.validation import service_model
from tests.local_cloud.conftest import MakeEmulator
from tests.local_cloud.emulator import Emulator, request
from tests.waiting import until

API = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_"
GUIDE = "https://docs.aws.amazon.com/sagemaker/latest/dg/"
COMMON = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/CommonErrors.html"
GITHUB = "https://github.com/"
COMMON_CODES = {"ValidationException", "ThrottlingException", "AccessDeniedException"}
"""Errors of every operation, which the model does not list."""
UNKNOWN = ".*"
"""AWS's words are not known."""
TYPE = "ml.m5.large"
ARN = "arn:aws:sagemaker:us-east-1:000000000000:training-job/"
SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60},
}
LIMIT = (
    r"The account-level service limit '%s' is %s, with current utilization of %s and a request delta of %s\. Please "
    r"use AWS Service Quotas to request an increase for this quota\. If AWS Service Quotas is not available, contact "
    r"AWS support to request an increase for this quota\."
)
"""The sources that are older end with "Please contact AWS support to request an increase for this limit."."""


@dataclass(frozen=True)
class Refusal:
    """A call and the error that it gets. `before` prepares the emulator."""

    operation: str
    request: dict[str, Any]
    code: str
    message: str  # a regular expression for all of it
    source: str
    account: Account = field(default_factory=Account)
    before: Callable[[Emulator], object] = lambda emulator: None
    check_roles: bool = False


def training(**changes: Any) -> dict[str, Any]:
    return request("job", "sleep", "86400", **changes)


def config(**changes: Any) -> dict[str, Any]:
    return {"ResourceConfig": {"InstanceType": TYPE, "InstanceCount": 1, "VolumeSizeInGB": 1, **changes}}


def ended(emulator: Emulator) -> None:
    emulator.create("job", "true", **config(KeepAlivePeriodInSeconds=3600))
    emulator.ended("job")


def running(emulator: Emulator) -> None:
    emulator.create("job", "sleep", "86400")


def one_call(emulator: Emulator) -> None:
    emulator.create("other", "true")
    emulator.sagemaker.list_training_jobs()


NAMED = {"TrainingJobName": "job"}
USAGE = f"{TYPE} for training job usage"
SPOT_USAGE = f"{TYPE} for spot training job usage"
PLANS = Account(plans=(parse_plan("over=1,-7200,-3600"), parse_plan("p5=1,+0,+7200,ml.p5.48xlarge")))
PLAN = "arn:aws:sagemaker:us-east-1:000000000000:training-plan/"

REFUSALS = {
    "quota": Refusal(
        "CreateTrainingJob",
        training(),
        "ResourceLimitExceeded",
        LIMIT % (USAGE, "1 Instances", "1 Instances", "1 Instances"),
        GITHUB + "aws/amazon-sagemaker-examples/issues/1543",
        Account({USAGE: 1}),
        lambda emulator: emulator.create("other", "sleep", "86400"),
    ),
    "spot quota": Refusal(
        "CreateTrainingJob",
        training(**SPOT),
        "ResourceLimitExceeded",
        LIMIT % (SPOT_USAGE, "0 Instances", "0 Instances", "1 Instances"),
        API + "CreateTrainingJob.html#API_CreateTrainingJob_Errors",
        Account({SPOT_USAGE: 0}),
    ),
    "debugger rules": Refusal(
        "CreateTrainingJob",
        training(
            DebugRuleConfigurations=[{"RuleConfigurationName": f"r{n}", "RuleEvaluatorImage": "i"} for n in range(11)]
        ),
        "ResourceLimitExceeded",
        LIMIT % ("Number of instances across all processing jobs", "4 Instances", "0 Instances", "11 Instances"),
        GITHUB + "data-science-on-aws/data-science-on-aws/issues/140",
        Account({"Number of instances across all processing jobs": 4}),
    ),
    "longest run": Refusal(
        "CreateTrainingJob",
        training(StoppingCondition={"MaxRuntimeInSeconds": 864000}),
        "ResourceLimitExceeded",
        LIMIT % ("Longest run time for a training job", "432000 Seconds", "0 Seconds", "864000 Seconds"),
        GUIDE + "regions-quotas.html",
        Account({"Longest run time for a training job": 432000}),
    ),
    "throttled create": Refusal(
        "CreateTrainingJob",
        training(),
        "ThrottlingException",
        "Rate exceeded",
        GITHUB + "aws/sagemaker-python-sdk/issues/645",
        Account(create_rate=Rate(0.0001, 1)),
        one_call,
    ),
    "throttled list": Refusal(
        "ListTrainingJobs", {}, "ThrottlingException", "Rate exceeded", COMMON, Account(list_rate=Rate(0.0001, 1)),
        one_call,
    ),
    "name taken": Refusal(
        "CreateTrainingJob",
        training(),
        "ResourceInUse",
        "Training job names must be unique within an AWS account and region, and a training job with this name already "
        rf"exists \({ARN}job\)",
        GITHUB + "SuperCowPowers/workbench/issues/384",
        before=ended,
    ),
    "bad name": Refusal(
        "CreateTrainingJob",
        {**training(), "TrainingJobName": "no_good"},
        "ValidationException",
        "1 validation error detected: Value 'no_good' at 'trainingJobName' failed to satisfy constraint: Member must "
        "satisfy regular expression pattern: .*",
        GITHUB + "Kenza-AI/sagify/issues/57",
    ),
    "no data": Refusal(
        "CreateTrainingJob",
        training(
            InputDataConfig=[
                {
                    "ChannelName": "a",
                    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://training-data/none/"}},
                }
            ]
        ),
        "ValidationException",
        r'No S3 objects found under S3 URL "s3://training-data/none/" given in input data source\. Please ensure that '
        r"the bucket exists in the selected region \(us-east-1\), that objects exist under that S3 prefix, and that "
        r'the role "arn:aws:iam::000000000000:role/training" has "s3:ListBucket" permissions on bucket "training-data"'
        r"\.",
        GITHUB + "aws/amazon-sagemaker-examples/issues/2489",
    ),
    "no such role": Refusal(
        "CreateTrainingJob",
        training(RoleArn="arn:aws:iam::000000000000:role/none"),
        "ValidationException",
        r"Could not assume role arn:aws:iam::000000000000:role/none\. Please ensure that the role exists and allows "
        r"principal 'sagemaker\.amazonaws\.com' to assume the role\.",
        GITHUB + "awslabs/predictive-maintenance-using-machine-learning/issues/3",
        check_roles=True,
    ),
    "wait without spot": Refusal(
        "CreateTrainingJob",
        training(StoppingCondition={"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}),
        "ValidationException",
        r"Invalid MaxWaitTimeInSeconds\. It is only supported when EnableManagedSpotTraining is set to true",
        GITHUB + "Kenza-AI/sagify/issues/111",
    ),
    "warm pool with spot": Refusal(
        "CreateTrainingJob",
        training(**SPOT, **config(KeepAlivePeriodInSeconds=60)),
        "ValidationException",
        UNKNOWN,
        GUIDE + "train-warm-pools.html",
    ),
    "an expired plan": Refusal(
        "CreateTrainingJob",
        training(**config(TrainingPlanArn=f"{PLAN}over")),
        "ValidationException",
        UNKNOWN,
        GUIDE + "training-plan-utilization-for-training-jobs.html",
        PLANS,
    ),
    "another type than the plan's": Refusal(
        "CreateTrainingJob",
        training(**config(TrainingPlanArn=f"{PLAN}p5")),
        "ValidationException",
        UNKNOWN,
        API + "InstancePreference.html",
        PLANS,
    ),
    "no such plan": Refusal(
        "DescribeTrainingPlan", {"TrainingPlanName": "none"}, "ResourceNotFound", UNKNOWN,
        API + "DescribeTrainingPlan.html",
    ),
    "no such job": Refusal(
        "DescribeTrainingJob", NAMED, "ValidationException", r"Requested resource not found\.",
        GITHUB + "aws/amazon-sagemaker-examples/issues/2360",
    ),
    "stopping what is unknown": Refusal(
        "StopTrainingJob", NAMED, "ValidationException", UNKNOWN, GITHUB + "aws/aws-sdk/issues/165"
    ),
    "stopping what has ended": Refusal(
        "StopTrainingJob",
        NAMED,
        "ValidationException",
        r"The request was rejected because the training job is in status Completed\.",
        GITHUB + "awslabs/benchmark-ai/issues/928",
        before=ended,
    ),
    "deleting what runs": Refusal(
        "DeleteTrainingJob", NAMED, "ResourceInUse", UNKNOWN, API + "DeleteTrainingJob.html", before=running
    ),
    "deleting what is unknown": Refusal(
        "DeleteTrainingJob", NAMED, "ValidationException", UNKNOWN, API + "DeleteTrainingJob.html"
    ),
    "switching remote debug on before the container is there": Refusal(
        "UpdateTrainingJob",
        {**NAMED, "RemoteDebugConfig": {"EnableRemoteDebug": True}},
        "ValidationException",
        UNKNOWN,
        API + "UpdateTrainingJob.html",
        before=ended,
    ),
    "deleting what keeps a warm pool": Refusal(
        "DeleteTrainingJob", NAMED, "ResourceInUse", UNKNOWN, API + "DeleteTrainingJob.html", before=ended
    ),
    "updating a warm pool that is none": Refusal(
        "UpdateTrainingJob",
        {**NAMED, "ResourceConfig": {"KeepAlivePeriodInSeconds": 60}},
        "ValidationException",
        UNKNOWN,
        GUIDE + "train-warm-pools-how-to-use.html",
        before=running,
    ),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_as_on_aws(make_emulator: MakeEmulator, name: str) -> None:
    row = REFUSALS[name]
    assert row.source.startswith("https://")
    modelled = {shape.name for shape in service_model().operation_model(row.operation).error_shapes}
    assert row.code in modelled | COMMON_CODES
    emulator = make_emulator(account_options=row.account, check_roles=row.check_roles)
    row.before(emulator)
    status, answer = emulator.post(row.operation, row.request)
    assert status == 400  # every error of SageMaker's JSON protocol that is the caller's
    assert answer["__type"] == row.code
    assert re.fullmatch(row.message, answer["message"], re.DOTALL), answer["message"]


def training_now(emulator: Emulator) -> None:
    """A job of each kind."""
    emulator.create("preferred", "sleep", "86400", **PREFERRED)
    until(lambda: emulator.describe("preferred")["SecondaryStatus"] == "Training")
    emulator.create("failed", "false", **config(KeepAlivePeriodInSeconds=3600))
    emulator.ended("failed")
    emulator.create("reused", "true", **config(KeepAlivePeriodInSeconds=3600))
    emulator.ended("reused")


PREFERRED = {
    "ResourceConfig": {"InstancePreferences": [{"InstanceType": TYPE, "InstanceCount": 2}], "VolumeSizeInGB": 1}
}
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        f"a job: {name}": ("DescribeTrainingJob", {"TrainingJobName": name})
        for name in ("preferred", "failed", "reused", "past-000002")
    },
    "a list": ("ListTrainingJobs", {"MaxResults": 3}),
    "a plan": ("DescribeTrainingPlan", {"TrainingPlanName": "p5"}),
    "a plan that is over": ("DescribeTrainingPlan", {"TrainingPlanName": "over"}),
    "an update": (
        "UpdateTrainingJob",
        {"TrainingJobName": "reused", "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}},
    ),
    "a new job": ("CreateTrainingJob", {**request("created"), **config()}),
    "tags": ("ListTags", {"ResourceArn": f"{ARN}reused"}),
    "new tags": ("AddTags", {"ResourceArn": f"{ARN}reused", "Tags": [{"Key": "a", "Value": "b"}]}),
}


def test_answers_are_of_the_models_shape(make_emulator: MakeEmulator) -> None:
    """By botocore's own validator, which knows types, required and unknown members; enumerations besides."""
    emulator = make_emulator(account_options=Account(history=5, plans=PLANS.plans))
    training_now(emulator)
    for name, (operation, asked) in ANSWERS.items():
        status, answer = emulator.post(operation, asked)
        assert status == 200, (name, answer)
        shape = service_model().operation_model(operation).output_shape
        assert shape is not None
        # The model requires them; a job that has none yet is described without (API_DescribeTrainingJob).
        allowed = {"ModelArtifacts": {"S3ModelArtifacts": ""}} if operation == "DescribeTrainingJob" else {}
        report = ParamValidator().validate({**allowed, **answer}, shape)
        assert not report.has_errors(), (name, report.generate_report())
        assert list(_beyond(shape, answer)) == [], name


def _beyond(shape: Shape, value: Any) -> Iterator[str]:
    """Values that are not of their enumeration."""
    if isinstance(shape, StructureShape):
        for member, item in value.items():
            yield from _beyond(shape.members[member], item)
    elif isinstance(shape, ListShape):
        for item in value:
            yield from _beyond(shape.member, item)
    elif value not in (allowed := shape.metadata.get("enum", [value])):
        yield f"{shape.name}: {value!r} is none of {allowed}"
