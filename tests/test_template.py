"""template.yaml, as SAM's own transform expands it: what is made, and what it may do."""

import copy
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ministack.core.iam_evaluator import EvalContext, evaluate, parse_policy_document
from openapi_spec_validator import validate
from packaging.requirements import Requirement

from api_contract.models import JobSummary
from api_contract.routes import PLAN_JOB, PREVIEW_POLICY
from job_queue.adapters.cloudwatch_metrics import NAMESPACE, SERVICE, Metric
from job_queue.adapters.eventbridge import WAKE_UP
from job_queue.adapters.items import job_from, job_item
from job_queue.adapters.records.heavy_requests import HEAVY, PERMIT_SECONDS
from job_queue.adapters.settings import DeploymentSettings
from job_queue.api.queue_position import QueuePosition
from job_queue.api.responses import summary
from job_queue.domain.expectations.published_plan import PublishedPlan
from job_queue.domain.names import QUEUE_NAME
from job_queue.scheduler import JobState
from job_queue.services.dry_run import ADVICE_SECONDS
from job_queue.services.preview import TIME_LIMIT_SECONDS as PREVIEW_SECONDS
from tests.documents import read_openapi, read_template
from tests.filled_template import Filling, size
from tests.jobs import a_job

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
TEMPLATE: Json = read_template()
OPENAPI: Json = read_openapi()
GIVEN = "vpce-0123456789abcdef0"
METHODS = {"get", "put", "post", "patch", "delete", "options", "head", "x-amazon-apigateway-any-method"}


@pytest.fixture(scope="module")
def resources() -> Json:
    """Logical ID -> resource, all of them plain CloudFormation."""
    from samtranslator.translator.transform import transform  # takes a second: not each worker need do it

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        template = copy.deepcopy(TEMPLATE)
        for name in ("QueueFunction", "ReadFunction"):
            template["Resources"][name]["Properties"]["CodeUri"] = "s3://bucket/key"
        expanded: Json = transform(template, {"VpcEndpointIds": GIVEN}, SimpleNamespace(load=lambda: {}))["Resources"]
    assert not [name for name, one in expanded.items() if one["Type"].startswith("AWS::Serverless")]
    return expanded


def of_type(resources: Json, kind: str) -> Json:
    return {name: one["Properties"] for name, one in resources.items() if one["Type"] == kind}


def statements(resources: Json) -> Json:
    """Sid -> statement of the two roles."""
    return {one["Sid"]: one for one in every_statement(resources)}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def every_statement(resources: Json) -> Iterator[Json]:
    for one in of_type(resources, "AWS::IAM::Role").values():
        for policy in one["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                yield statement["Fn::If"][1] if "Fn::If" in statement else statement


def granting(resources: Json, action: str) -> list[Json]:
    return [one for one in every_statement(resources) if action in as_list(one["Action"])]


# --- how it is deployed


def test_parameters_and_their_defaults() -> None:
    defaults = {name: parameter.get("Default") for name, parameter in TEMPLATE["Parameters"].items()}
    assert defaults == {
        "MaxCapacity": "2",
        "FinishedJobDays": "30",
        "AttemptHistoryDays": "400",
        "HistoryDays": "30",
        "UsageDays": "400",
        "CreateRate": "1",
        "CreateBurst": "5",
        "CheckpointBuckets": "",
        "WorkBucket": "",
        "IdleMinutes": "30",
        "FailureLogs": "true",
        "VpcEndpointIds": "",
        "EndpointVpcId": "",
        "EndpointSubnetIds": "",
        "EndpointCidr": "",
        "EndpointVpnCidr": "",
        "EndpointPrivateDns": "false",
        "AllowedRoleArns": None,
        "AdminArns": "",
        "TrainingPlanArns": "",
        "PermissionsBoundaryArn": "",
        "GuardrailPolicyArns": "",
        "VolumeKmsKeyArns": "",
        "OtherRegions": "",
        "SatelliteAccounts": "",
        "SatelliteRoleArns": "",
        "SatelliteExternalId": "",
        "DeletionProtection": "true",
        "ReservedConcurrency": "0",
        "ReadConcurrency": "10",
        "ReadRate": "20",
        "DryRunRate": "2",
        "PreviewRate": "1",
        "Runtime": "python3.12",
        "Architecture": "arm64",
        "AccessLogs": "false",
        "AlarmTopicArn": "",
        "Notices": "false",
        "NoticeEmail": "",
        "NoticeAfterMinutes": "10",
    }
    assert all(parameter["Description"] for parameter in TEMPLATE["Parameters"].values())
    groups = TEMPLATE["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(defaults)


@pytest.mark.parametrize(
    ("parameter", "value", "allowed"),
    [
        ("VpcEndpointIds", "vpce-0123456789abcdef0", True),
        ("VpcEndpointIds", "vpc-0123456789abcdef0", False),
        ("VpcEndpointIds", "vpce-0123456789abcdef0,vpce-0123456789abcdef1", True),
        ("VpcEndpointIds", "vpce-0123456789abcdef0, vpce-0123456789abcdef1", False),
        ("EndpointVpcId", "vpc-0123456789abcdef0", True),
        ("EndpointVpcId", "vpce-0123456789abcdef0", False),
        ("EndpointSubnetIds", "subnet-0123456789abcdef0,subnet-0123456789abcdef1", True),
        ("EndpointSubnetIds", "vpc-0123456789abcdef0", False),
        ("EndpointCidr", "10.0.0.0/16", True),
        ("EndpointCidr", "10.0.0.1", False),
        ("EndpointVpnCidr", "172.16.0.0/12", True),
        ("EndpointVpnCidr", "10.0.0.0/16,10.1.0.0/16", False),
        ("CheckpointBuckets", "", True),
        ("CheckpointBuckets", "one,other.bucket", True),
        ("CheckpointBuckets", "s3://one", False),
        ("CheckpointBuckets", "one/prefix", False),
        ("PermissionsBoundaryArn", "arn:aws:iam::111122223333:policy/boundaries/ml", True),
        ("PermissionsBoundaryArn", "arn:aws:iam::111122223333:role/ml", False),
        ("GuardrailPolicyArns", "arn:aws:iam::111122223333:policy/one,arn:aws:iam::aws:policy/AWSDenyAll", True),
        ("GuardrailPolicyArns", "arn:aws:iam::111122223333:role/ml", False),
        ("VolumeKmsKeyArns", "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab", True),
        ("VolumeKmsKeyArns", "arn:aws:kms:eu-west-1:111122223333:alias/mine", False),
        ("AllowedRoleArns", "arn:aws:iam::111122223333:role/training", True),
        ("AllowedRoleArns", "arn:aws-cn:iam::111122223333:role/teams/vision-*", True),
        ("AllowedRoleArns", "*", False),
        ("AllowedRoleArns", "arn:aws:iam::*:role/training", False),
        ("AllowedRoleArns", "arn:aws:iam::111122223333:user/eve", False),
        ("AllowedRoleArns", "arn:aws:iam::111122223333:role/a,arn:aws:iam::111122223333:role/b", True),
        ("AllowedRoleArns", "arn:aws:iam::111122223333:role/a, arn:aws:iam::111122223333:role/b", False),
        ("AllowedRoleArns", "", False),
        ("AdminArns", "", True),
        ("AdminArns", "arn:aws:sts::111122223333:assumed-role/ml-admin/*", True),
        ("AdminArns", "arn:aws:iam::111122223333:user/ada", True),
        ("AdminArns", "arn:aws:iam::111122223333:role/ml-admin,arn:aws:iam::111122223333:user/ada", True),
        ("AdminArns", "*", False),
        ("AdminArns", "arn:aws:sts::111122223333:assumed-role/ml-*", False),
        ("TrainingPlanArns", "", True),
        ("TrainingPlanArns", "arn:aws:sagemaker:us-east-1:111122223333:training-plan/winter-*", True),
        ("TrainingPlanArns", "arn:aws:sagemaker:us-east-1:111122223333:training-job/x", False),
        ("OtherRegions", "", True),
        ("OtherRegions", "us-east-2,us-gov-west-1,ap-southeast-1", True),
        ("OtherRegions", "us-east-2, eu-west-1", False),
        ("OtherRegions", "*", False),
        ("SatelliteAccounts", "", True),
        ("SatelliteAccounts", "222222222222,333333333333", True),
        ("SatelliteAccounts", "22222222222", False),
        ("SatelliteAccounts", "*", False),
        ("SatelliteRoleArns", "", True),
        ("SatelliteRoleArns", "arn:aws:iam::222222222222:role/sagemaker-queue-satellite-us-east-2", True),
        ("SatelliteRoleArns", "arn:aws:iam::222222222222:role/sagemaker-queue-*", False),
        ("SatelliteRoleArns", "arn:aws:iam::*:role/sagemaker-queue-satellite-us-east-2", False),
        ("SatelliteExternalId", "", True),
        ("SatelliteExternalId", "3f0c9f3e-6a38-4ad6-9d2e-4f3f8f2b1c55", True),
        ("SatelliteExternalId", "short", False),
        ("SatelliteExternalId", "1234567890123456 8", False),
        ("AlarmTopicArn", "", True),
        ("AlarmTopicArn", "arn:aws:sns:eu-west-1:111122223333:ml-operations", True),
        ("AlarmTopicArn", "ops@example.org", False),
    ],
)
def test_parameters_are_checked(parameter: str, value: str, allowed: bool) -> None:
    assert bool(re.fullmatch(TEMPLATE["Parameters"][parameter]["AllowedPattern"], value)) is allowed


WHOLE_NUMBERS = {
    "MaxCapacity": range(100_001),
    "FinishedJobDays": range(1, 3651),
    "AttemptHistoryDays": range(1, 3651),
    "HistoryDays": range(1, 3651),
    "UsageDays": range(1, 3651),
    "CreateBurst": range(1, 101),
    "IdleMinutes": range(1441),
    "ReservedConcurrency": range(1001),
    "ReadConcurrency": range(1001),
    "ReadRate": range(1, 51),
    "DryRunRate": range(1, 51),
    "PreviewRate": range(1, 51),
    "NoticeAfterMinutes": range(10_081),
}


def default_of(name: str) -> int:
    return int(TEMPLATE["Parameters"][name]["Default"])


def test_no_parameter_is_of_the_type_that_takes_any_number() -> None:
    assert {one["Type"] for one in TEMPLATE["Parameters"].values()} == {"String"}


@pytest.mark.parametrize("right", ["0.05", "0.1", "0.25", "1", "1.0", "2.5", "99.99", "100"])
def test_a_rate_may_have_two_decimals(right: str) -> None:
    assert re.fullmatch(TEMPLATE["Parameters"]["CreateRate"]["AllowedPattern"], right)
    assert 0.05 <= float(right) <= 100


@pytest.mark.parametrize(
    "wrong", ["0", "0.04", "0.0", "100.01", "101", "1000", "1.234", "1.", ".5", "-1", "1e1", "nan", ""]
)
def test_a_rate_is_not_anything_else(wrong: str) -> None:
    assert not re.fullmatch(TEMPLATE["Parameters"]["CreateRate"]["AllowedPattern"], wrong)


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_whole_numbers_in_range_are_allowed_and_nothing_else(name: str) -> None:
    parameter, allowed = TEMPLATE["Parameters"][name], WHOLE_NUMBERS[name]
    is_allowed = re.compile(parameter["AllowedPattern"]).fullmatch
    assert [number for number in range(2 * allowed.stop + 100) if is_allowed(str(number))] == list(allowed)
    for wrong in ("", "2.5", "2.0", "-1", "+2", "1e1", "02", "0x2", " 2", "2\n", "two", "٣", f"{allowed.stop - 1}0"):
        assert not is_allowed(wrong), wrong
    assert default_of(name) in allowed
    first, last = allowed.start, allowed.stop - 1
    assert parameter["ConstraintDescription"] == f"must be a whole number from {first} to {last}"


def test_the_application_can_be_published() -> None:
    """The limits are those of the AWS Serverless Application Repository."""
    application = TEMPLATE["Metadata"]["AWS::ServerlessRepo::Application"]
    assert re.fullmatch(r"[a-zA-Z0-9-]{1,140}", application["Name"])
    assert re.fullmatch(r"[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*", application["Author"])
    assert len(application["Description"]) <= 256 and len(application["Labels"]) <= 10
    for key in ("LicenseUrl", "ReadmeUrl"):
        assert (ROOT / application[key]).is_file(), key


def test_outputs() -> None:
    outputs = {
        "EndpointUrl",
        "ApiUrl",
        "ApiId",
        "PolicyAdministrators",
        "FunctionName",
        "ReadFunctionName",
        "RoleArn",
        "VpcEndpointId",
        "NoticeTopicArn",
    }
    assert set(TEMPLATE["Outputs"]) == outputs


LONGEST_STACK_NAME = 128


def list_of(length: int, item: str, most: int | None = None) -> str:
    """Return as many items as fit, or as `most` says; the last one is as long as is left."""
    count = min(length // (len(item) + 1), most or length)
    return ",".join([item] * count).ljust(length, "x")[:length]


def maxima(partition: str, region: str) -> dict[str, str]:
    """Give each parameter its longest value; the items of lists are short, as each item has characters around it."""
    account = "111122223333"
    iam, key = f"arn:{partition}:iam::{account}", "1234abcd-12ab-34cd-56ef-1234567890ab"
    values = {
        "CheckpointBuckets": list_of(400, "a" * 19, 20),
        "WorkBucket": "w" * 63,
        "AllowedRoleArns": list_of(2000, f"{iam}:role/a"),
        "AdminArns": list_of(1000, f"{iam}:user/a"),
        "TrainingPlanArns": list_of(500, f"arn:{partition}:sagemaker:{region}:{account}:training-plan/a"),
        "VolumeKmsKeyArns": list_of(1500, f"arn:{partition}:kms:{region}:{account}:key/{key}"),
        "OtherRegions": ",".join([region] * (101 // (len(region) + 1))),
        "SatelliteAccounts": ",".join([account] * 20),
        "SatelliteRoleArns": list_of(1500, f"{iam}:role/a"),
        "SatelliteExternalId": "e" * 40,
        "CreateRate": "99.99",
        **{name: str(numbers.stop - 1) for name, numbers in WHOLE_NUMBERS.items()},
    }
    for name, value in values.items():
        parameter = TEMPLATE["Parameters"][name]
        assert re.fullmatch(parameter["AllowedPattern"], value), name
        assert len(value) == parameter.get("MaxLength", len(value)) or name == "OtherRegions", name
    return values


@pytest.mark.parametrize(
    ("partition", "region"),
    [
        ("aws", "us-east-1"),
        ("aws", "ap-southeast-1"),
        ("aws-us-gov", "us-gov-west-1"),
        ("aws-cn", "cn-northwest-1"),
    ],
)
def test_at_the_maximum_of_all_parameters_policies_and_environment_are_within_the_limits(
    resources: Json, partition: str, region: str
) -> None:
    filling = Filling(TEMPLATE, maxima(partition, region), partition, region, "s" * LONGEST_STACK_NAME)
    for name in ("QueueRole", "ReadRole"):
        policies = filling.fill(resources[name]["Properties"]["Policies"])
        assert sum(size(one["PolicyDocument"]) for one in policies) <= 10_240, "IAM's limit for all policies in a role"
    elsewhere = filling.fill(resources["OtherSitesPolicy"]["Properties"]["PolicyDocument"])
    assert size(elsewhere) <= 6_144, "IAM's limit for a managed policy"
    variables = filling.fill(resources["QueueFunction"]["Properties"]["Environment"]["Variables"])
    assert size(variables) <= 4096, "Lambda's limit"
    assert len(variables["ALLOWED_ROLE_ARNS"]) == 2000
    assert variables["ORDER_KEY"]


def test_each_text_of_the_functions_environment_has_a_greatest_length(resources: Json) -> None:
    variables = resources["QueueFunction"]["Properties"]["Environment"]["Variables"]
    names = {value["Ref"] for value in variables.values() if isinstance(value, dict) and "Ref" in value}
    assert "AllowedRoleArns" in names
    unbounded = {name for name in names if not {"MaxLength", "AllowedValues"} & TEMPLATE["Parameters"][name].keys()}
    assert unbounded == {*WHOLE_NUMBERS, "CreateRate"} & names, "their patterns limit them"


@pytest.mark.parametrize(
    ("given", "days"),
    [
        ({}, ("30", "400")),
        ({"HistoryDays": "7", "UsageDays": "90"}, ("7", "90")),
        ({"FinishedJobDays": "7", "AttemptHistoryDays": "90"}, ("7", "90")),
        ({"FinishedJobDays": "7", "HistoryDays": "8", "AttemptHistoryDays": "90", "UsageDays": "91"}, ("7", "90")),
    ],
)
def test_an_earlier_name_of_a_parameter_counts_where_the_new_one_is_not_given(
    resources: Json, given: dict[str, str], days: tuple[str, str]
) -> None:
    filling = Filling(TEMPLATE, given, "aws", "us-east-1", "s")
    variables = filling.fill(resources["QueueFunction"]["Properties"]["Environment"]["Variables"])
    assert (variables["FINISHED_JOB_DAYS"], variables["ATTEMPT_HISTORY_DAYS"]) == days


def test_samconfig_names_settings_of_no_account() -> None:
    settings = tomllib.loads((ROOT / "samconfig.toml").read_text())["default"]
    assert settings["deploy"]["parameters"]["capabilities"] == "CAPABILITY_IAM"
    assert "parameter_overrides" not in settings["deploy"]["parameters"]


def test_the_build_has_what_the_local_cloud_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    offered = {Requirement(one).name for one in project["dependencies"] + project["optional-dependencies"]["local"]}
    lines = (ROOT / "job_queue/requirements.txt").read_text().splitlines()
    needed = {Requirement(line).name for line in lines if not line.startswith("#")}
    assert needed == {"aws-lambda-powertools", "boto3", "msgspec", "regex"}
    assert needed <= offered


def test_constraints_pin_exact_versions_and_no_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert not [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", pin)]


# --- the API


def test_the_api_is_private_and_has_one_stage(resources: Json) -> None:
    ((name, api),) = of_type(resources, "AWS::ApiGateway::RestApi").items()
    assert name == "TrainingJobQueueApi"
    assert api["Name"] == "training-job-queue"
    assert api["EndpointConfiguration"]["Types"] == ["PRIVATE"]
    assert api["EndpointConfiguration"]["VpcEndpointIds"] == ENDPOINTS
    (stage,) = of_type(resources, "AWS::ApiGateway::Stage").values()
    assert stage["StageName"] == "prod"
    (deployment,) = of_type(resources, "AWS::ApiGateway::Deployment").values()
    assert "StageName" not in deployment


ENDPOINTS: Json = {
    "Fn::If": [
        "WithMadeEndpoint",
        {
            "Fn::If": [
                "WithGivenEndpoints",
                {"Fn::Split": [",", {"Fn::Sub": "${QueueEndpoint},${VpcEndpointIds}"}]},
                [{"Ref": "QueueEndpoint"}],
            ]
        },
        {"Fn::Split": [",", {"Ref": "VpcEndpointIds"}]},
    ]
}
# In a policy of the API SAM itself puts values in the place of parameters.
ENDPOINTS_IN_POLICY: Json = json.loads(
    json.dumps(ENDPOINTS).replace("${VpcEndpointIds}", GIVEN).replace('{"Ref": "VpcEndpointIds"}', f'"{GIVEN}"')
)


def test_calls_come_through_the_made_and_the_given_endpoints_only(resources: Json) -> None:
    policy = resources["TrainingJobQueueApi"]["Properties"]["Body"]["x-amazon-apigateway-policy"]
    allow, deny = policy["Statement"]
    given = {"aws:SourceVpce": ENDPOINTS_IN_POLICY}
    assert (allow["Effect"], allow["Condition"]) == ("Allow", {"StringEquals": given})
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"StringNotEquals": given})
    assert deny["Principal"] == "*"
    assert deny["Resource"] == "execute-api:/*"
    assert allow["Principal"] != "*", "IAM decides which of the account's callers may call"
    assert {allow["Action"], deny["Action"]} == {"execute-api:Invoke"}


def test_a_made_endpoint_is_for_this_account_over_https_and_leaves_other_apis_alone(resources: Json) -> None:
    made = {name: one for name, one in resources.items() if one["Type"].startswith("AWS::EC2::")}
    assert {name: one["Condition"] for name, one in made.items()} == {
        "QueueEndpoint": "WithMadeEndpoint",
        "QueueEndpointSecurityGroup": "WithMadeEndpoint",
        "QueueEndpointVpnIngress": "WithVpn",
    }
    endpoint = made["QueueEndpoint"]["Properties"]
    assert endpoint["PrivateDnsEnabled"] == {"Ref": "EndpointPrivateDns"}
    (statement,) = endpoint["PolicyDocument"]["Statement"]
    assert statement["Condition"] == {"StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}}
    group = made["QueueEndpointSecurityGroup"]["Properties"]
    (first,) = group["SecurityGroupIngress"]
    for rule, block in ((first, "EndpointCidr"), (made["QueueEndpointVpnIngress"]["Properties"], "EndpointVpnCidr")):
        assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 443, 443)
        assert rule["CidrIp"] == {"Ref": block}
    (out,) = group["SecurityGroupEgress"]
    assert out["CidrIp"] == "127.0.0.1/32"


def test_every_method_asks_for_a_signature_and_calls_the_function_as_the_api(resources: Json) -> None:
    body = resources["TrainingJobQueueApi"]["Properties"]["Body"]
    schemes = body["components"]["securitySchemes"]
    assert [one["x-amazon-apigateway-authtype"] for one in schemes.values()] == ["awsSigv4"]
    methods = {
        (name.upper(), path): method
        for path, offered in body["paths"].items()
        for name, method in offered.items()
        if name in METHODS
    }
    assert methods
    for (name, path), method in methods.items():
        assert method["security"] == [{name: [] for name in schemes}]
        integration = method["x-amazon-apigateway-integration"]
        assert integration["type"] == "aws_proxy"
        reads = name == "GET" or name in CHANGES_NOTHING.get(path, ())
        assert ("ReadFunction" if reads else "QueueFunction") in json.dumps(integration["uri"])
        assert "credentials" not in integration


def routes(document: Json) -> set[tuple[str, str]]:
    return {(name, path) for path, methods in document["paths"].items() for name in methods if name in METHODS}


def test_the_routes_are_those_of_the_openapi_file(resources: Json) -> None:
    deployed = routes(resources["TrainingJobQueueApi"]["Properties"]["Body"])
    assert deployed == routes(OPENAPI)
    assert deployed == {
        ("post", "/add-job"),
        ("get", "/jobs"),
        ("get", "/whoami"),
        ("get", "/jobs/{name}"),
        ("delete", "/jobs/{name}"),
        ("patch", "/jobs/{name}"),
        ("post", "/plan"),
        ("get", "/queue"),
        ("get", "/policy"),
        ("put", "/policy"),
        ("get", "/policy/history"),
        ("get", "/history"),
        ("post", "/policy/rollback"),
        ("post", "/drain"),
        ("post", "/undrain"),
        ("post", "/policy/preview"),
    }


def test_the_openapi_file_is_valid_and_tells_of_errors() -> None:
    validate(OPENAPI)
    for path in OPENAPI["paths"].values():
        for name, method in path.items():
            if name in METHODS:
                assert {"403", "500", "503"} <= set(method["responses"])


def test_calls_are_throttled_and_metrics_of_each_method_are_not_paid_for(resources: Json) -> None:
    settings, *_ = of_type(resources, "AWS::ApiGateway::Stage")["TrainingJobQueueApiprodStage"]["MethodSettings"]
    assert (settings["HttpMethod"], settings["ResourcePath"]) == ("*", "/*")
    assert settings["ThrottlingRateLimit"] <= settings["ThrottlingBurstLimit"] <= 1000
    assert settings["MetricsEnabled"] is False


CHANGES_NOTHING = {PLAN_JOB.path: {"POST"}, PREVIEW_POLICY.path: {"POST"}}
"""Besides whatever is a GET."""


@pytest.mark.attack
def test_what_changes_nothing_has_a_share_of_its_own_and_takes_none_of_what_changes_something(resources: Json) -> None:
    every, *own = of_type(resources, "AWS::ApiGateway::Stage")["TrainingJobQueueApiprodStage"]["MethodSettings"]
    shares = {(one["HttpMethod"], one["ResourcePath"][1:].replace("~1", "/")): one for one in own}
    reads = {
        (method.upper(), path)
        for path, methods in OPENAPI["paths"].items()
        for method in methods
        if method in METHODS and (method == "get" or method.upper() in CHANGES_NOTHING.get(path, ()))
    }
    assert shares.keys() == reads
    for (method, path), share in shares.items():
        planning = "PreviewRate" if path == PREVIEW_POLICY.path else "DryRunRate"
        rate = {"Ref": planning if method == "POST" else "ReadRate"}
        assert share["ThrottlingRateLimit"] == share["ThrottlingBurstLimit"] == rate
    for name in ("ReadRate", "DryRunRate", "PreviewRate"):
        assert default_of(name) in WHOLE_NUMBERS[name]
        assert WHOLE_NUMBERS[name].stop - 1 <= every["ThrottlingRateLimit"]
    # Of the ten executions that a new account has, dry runs take no more than they need for their longest advice.
    assert default_of("DryRunRate") * ADVICE_SECONDS <= 10
    assert default_of("PreviewRate") * PREVIEW_SECONDS <= 10  # nor do previews


# --- the function and what calls it


def test_the_functions(resources: Json) -> None:
    functions = of_type(resources, "AWS::Lambda::Function")
    assert functions.keys() == {"QueueFunction", "ReadFunction"}
    for function in functions.values():
        assert function["Handler"] == "job_queue.lambda_function.lambda_handler"
        assert function["MemorySize"] == 1024
        assert function["Runtime"] == {"Ref": "Runtime"}
        assert function["Architectures"] == [{"Ref": "Architecture"}]
    queue, read = functions["QueueFunction"], functions["ReadFunction"]
    assert queue["TracingConfig"] == {"Mode": "Active"}
    assert queue["Code"] == read["Code"]
    assert queue["Environment"] == read["Environment"]
    assert queue["Timeout"] == PERMIT_SECONDS == 45
    assert read["Timeout"] == 29


def test_a_look_at_the_queue_leaves_no_trace_in_x_ray(resources: Json) -> None:
    """A recorded trace costs 0.0005 cents, more than API Gateway and Lambda together."""
    (stage,) = of_type(resources, "AWS::ApiGateway::Stage").values()
    assert stage["TracingEnabled"] is False
    assert resources["ReadFunction"]["Properties"]["TracingConfig"] == {"Mode": "PassThrough"}
    (policy,) = resources["ReadRole"]["Properties"]["Policies"]
    assert "xray" not in json.dumps(policy)


def test_the_makefile_builds_each_function() -> None:
    targets = re.findall(r"^(build-.*):$", (ROOT / "job_queue/Makefile").read_text(), re.MULTILINE)
    functions = [name for name, one in TEMPLATE["Resources"].items() if one["Type"] == "AWS::Serverless::Function"]
    assert targets == [" ".join(f"build-{name}" for name in functions)]


@pytest.mark.attack
def test_requests_that_change_nothing_have_concurrency_of_their_own(resources: Json) -> None:
    for name, parameter in (("QueueFunction", "ReservedConcurrency"), ("ReadFunction", "ReadConcurrency")):
        reserved = [f"With{parameter}", {"Ref": parameter}, {"Ref": "AWS::NoValue"}]
        assert resources[name]["Properties"]["ReservedConcurrentExecutions"] == {"Fn::If": reserved}
    assert default_of("ReadConcurrency") == 10
    called = [one["FunctionName"]["Ref"] for one in of_type(resources, "AWS::Lambda::Permission").values()]
    assert called.count("ReadFunction") == 9, "and no event and no schedule calls it"


@pytest.mark.attack
def test_the_function_that_reads_may_write_the_slots_of_heavy_requests_and_nothing_else(resources: Json) -> None:
    (policy,) = resources["ReadRole"]["Properties"]["Policies"]
    granted = {one["Sid"]: one for one in policy["PolicyDocument"]["Statement"]}
    assert granted.keys() == {
        "ReadTheQueue",
        "ReadFinishedJobs",
        "ReadTheHistory",
        "TakeSlots",
        "WriteReadLogs",
    }
    actions = {action for one in granted.values() for action in as_list(one["Action"])}
    writes = {action for action in actions if not action.startswith(("logs:", "xray:"))}
    assert writes == {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:DeleteItem"} | {
        "dynamodb:ConditionCheckItem"
    }
    slots = granted["TakeSlots"]
    assert arn_ends(slots) == ["table/sagemaker-queue-lines"]
    assert slots["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": HEAVY}}


def test_the_environment_is_what_the_function_reads(resources: Json) -> None:
    variables = dict(resources["QueueFunction"]["Properties"]["Environment"]["Variables"])
    powertools = {"LOG_LEVEL", "POWERTOOLS_SERVICE_NAME"}
    assert powertools <= set(variables)
    settings = {name.upper() for name in DeploymentSettings.__dataclass_fields__}
    assert set(variables) - powertools == settings


def test_every_source_may_invoke_the_function_and_nothing_else_may(resources: Json) -> None:
    permissions = of_type(resources, "AWS::Lambda::Permission").values()
    assert len(permissions) == len(routes(OPENAPI)) + 3
    rules = of_type(resources, "AWS::Events::Rule")
    allowed: list[Any] = []
    for one in permissions:
        assert set(one) == {"Action", "FunctionName", "Principal", "SourceArn"}
        assert one["Action"] == "lambda:InvokeFunction"
        if one["Principal"] == "events.amazonaws.com":
            allowed.append(one["SourceArn"]["Fn::GetAtt"][0])
        else:
            assert one["Principal"] == "apigateway.amazonaws.com"
            text, names = one["SourceArn"]["Fn::Sub"]
            assert text.startswith("arn:aws:execute-api:${AWS::Region}:${AWS::AccountId}:${__ApiId__}/")
            assert names["__ApiId__"] == {"Ref": "TrainingJobQueueApi"}
    assert sorted([*allowed, "NoticeRule", "MemberReportRule"]) == sorted(rules), "which have other targets"
    assert list(of_type(resources, "AWS::Lambda::EventSourceMapping")) == ["ReportMapping"]
    ways_around = {
        "AWS::Lambda::Url",
        "AWS::Events::EventBusPolicy",
        "AWS::Lambda::Alias",
    }
    found = {name: one["Condition"] for name, one in resources.items() if one["Type"] in ways_around}
    assert found == {"SatelliteEvents": "WithSatelliteAccounts"}


def test_training_job_events_reach_the_function(resources: Json) -> None:
    rule = rule_for(resources, "aws.sagemaker")
    assert rule["EventPattern"] == {
        "source": ["aws.sagemaker"],
        "account": {
            "Fn::If": [
                "WithSatelliteAccounts",
                {"Fn::Split": [",", {"Fn::Sub": "${AWS::AccountId},${SatelliteAccounts}"}]},
                [{"Ref": "AWS::AccountId"}],
            ]
        },
        "detail-type": ["SageMaker Training Job State Change"],
        "detail": {"TrainingJobStatus": ["Completed", "Failed", "Stopped", "InProgress"]},
    }
    (target,) = rule["Targets"]
    assert target["RetryPolicy"]["MaximumRetryAttempts"] > 0
    assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}}


def test_reports_of_members_reach_the_function_by_a_queue(resources: Json) -> None:
    parts = ("OrderKey", "ReportQueue", "ReportQueuePolicy", "ReportMapping", "MemberReportRule")
    assert {resources[name]["Condition"] for name in parts} == {"WithWorkBucket"}
    rule = rule_for(resources, "aws.s3")
    assert rule["EventPattern"]["account"] == [{"Ref": "AWS::AccountId"}]
    assert rule["EventPattern"]["detail"] == {
        "bucket": {"name": [{"Ref": "WorkBucket"}]},
        "object": {"key": [{"wildcard": "carriers/*/out/*/ended.json"}, {"wildcard": "carriers/*/out/agent.json"}]},
    }
    (target,) = rule["Targets"]
    assert target["Arn"] == {"Fn::GetAtt": ["ReportQueue", "Arn"]}
    assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}}
    queue = resources["ReportQueue"]["Properties"]
    assert queue["SqsManagedSseEnabled"] is True
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    timeout = resources["QueueFunction"]["Properties"]["Timeout"]
    assert queue["VisibilityTimeout"] >= 6 * timeout, "as AWS recommends"


def test_only_the_rule_writes_into_the_queue_of_reports(resources: Json) -> None:
    policy = resources["ReportQueuePolicy"]["Properties"]
    assert policy["Queues"] == [{"Ref": "ReportQueue"}]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Action"] == "sqs:SendMessage"
    assert statement["Resource"] == {"Fn::GetAtt": ["ReportQueue", "Arn"]}
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": ["MemberReportRule", "Arn"]}}}


def test_reports_occupy_two_invocations_at_most(resources: Json) -> None:
    (mapping,) = of_type(resources, "AWS::Lambda::EventSourceMapping").values()
    assert mapping == {
        "EventSourceArn": {"Fn::GetAtt": ["ReportQueue", "Arn"]},
        "FunctionName": {"Ref": "QueueFunction"},
        "BatchSize": 10,
        "ScalingConfig": {"MaximumConcurrency": 2},
    }
    (receive,) = granting(resources, "sqs:ReceiveMessage")
    assert sorted(receive["Action"]) == ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"]
    assert receive["Resource"] == {"Fn::GetAtt": ["ReportQueue", "Arn"]}


@pytest.mark.attack
def test_only_the_functions_role_signs_orders(resources: Json) -> None:
    (key,) = of_type(resources, "AWS::KMS::Key").values()
    assert (key["KeySpec"], key["KeyUsage"]) == ("RSA_2048", "SIGN_VERIFY")
    administer, sign = key["KeyPolicy"]["Statement"]
    assert sign["Principal"] == {"AWS": {"Fn::GetAtt": ["QueueRole", "Arn"]}}
    assert sorted(sign["Action"]) == ["kms:GetPublicKey", "kms:Sign"]
    account = {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}}
    assert administer["Principal"] == account
    may_sign = {"kms:Sign", "kms:CreateGrant", "kms:ReplicateKey"}
    assert not may_sign & set(administer["Action"])
    assert not [action for action in administer["Action"] if "*" in action]
    assert not granting(resources, "kms:Sign"), "the key's own policy is enough"


def test_the_queue_writes_assignments_and_the_agent_and_reads_mailboxes(resources: Json) -> None:
    (put,), (get,) = granting(resources, "s3:PutObject"), granting(resources, "s3:GetObject")
    assert [it["Fn::Sub"].partition("${WorkBucket}")[2] for it in put["Resource"]] == [
        "/carriers/*/in/*",
        "/carrier-agents/*",
    ]
    assert get["Resource"]["Fn::Sub"].endswith("${WorkBucket}/carriers/*")
    (delete,) = granting(resources, "s3:DeleteObject")
    assert delete["Resource"]["Fn::Sub"].endswith("${WorkBucket}/carriers/*/in/*")


def rule_for(resources: Json, source: str) -> Json:
    rules = (one for one in of_type(resources, "AWS::Events::Rule").values() if "EventPattern" in one)
    found: list[Json] = [
        one for one in rules if one["EventPattern"]["source"] == [source] and "detail-type" in one["EventPattern"]
    ]
    assert len(found) == 1
    return found[0]


def test_one_invocation_may_wake_another(resources: Json) -> None:
    assert rule_for(resources, QUEUE_NAME)["EventPattern"] == {
        "source": [QUEUE_NAME],
        "account": [{"Ref": "AWS::AccountId"}],
        "detail-type": [WAKE_UP],
    }


def test_a_cycle_is_run_every_minute(resources: Json) -> None:
    (rule,) = (one for one in of_type(resources, "AWS::Events::Rule").values() if "EventPattern" not in one)
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert rule.get("State", "ENABLED") == "ENABLED"
    (target,) = rule["Targets"]
    assert "Input" not in target, "the function knows the schedule by the event's own source"


def test_what_cannot_be_handled_is_kept(resources: Json) -> None:
    (config,) = of_type(resources, "AWS::Lambda::EventInvokeConfig").values()
    queue_arn = {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    assert config["DestinationConfig"]["OnFailure"]["Destination"] == queue_arn
    queue = resources["DeadLetterQueue"]["Properties"]
    assert queue["SqsManagedSseEnabled"] is True
    of_reports, policy = (one for _, one in sorted(of_type(resources, "AWS::SQS::QueuePolicy").items(), reverse=True))
    assert of_reports is resources["ReportQueuePolicy"]["Properties"]
    statement, reports = policy["PolicyDocument"]["Statement"]
    assert reports["Fn::If"][1]["Condition"]["ArnEquals"]["aws:SourceArn"] == {
        "Fn::GetAtt": ["MemberReportRule", "Arn"]
    }
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    rule = statement["Condition"]["ArnEquals"]["aws:SourceArn"]["Fn::GetAtt"][0]
    assert "EventPattern" in resources[rule]["Properties"]


def test_alarms(resources: Json) -> None:
    alarms = of_type(resources, "AWS::CloudWatch::Alarm")
    assert {name: (one["Namespace"], one["MetricName"]) for name, one in alarms.items()} == {
        "DeadLetterAlarm": ("AWS/SQS", "ApproximateNumberOfMessagesVisible"),
        "ErrorAlarm": ("AWS/Lambda", "Errors"),
        "ThrottleAlarm": ("AWS/Lambda", "Throttles"),
        "ReadErrorAlarm": ("AWS/Lambda", "Errors"),
        "ReadThrottleAlarm": ("AWS/Lambda", "Throttles"),
        "OldWakeUpAlarm": ("AWS/Lambda", "AsyncEventAge"),
        "RefusalAlarm": (NAMESPACE, "LastingRefusals"),
        "ForgedAttemptAlarm": (NAMESPACE, "ForgedAttempts"),
        "UnstoppableAttemptAlarm": (NAMESPACE, "UnstoppableAttempts"),
        "UnrecordedJobAlarm": (NAMESPACE, "UnrecordedJobs"),
        "NoCycleAlarm": (NAMESPACE, "CycleTime"),
        "ReconciliationAlarm": (NAMESPACE, Metric.RECONCILIATION_AGE.value[0]),
        "SilentSiteAlarm": (NAMESPACE, "SilentSites"),
        "ApiErrorAlarm": ("AWS/ApiGateway", "5XXError"),
    }
    assert {name for name in alarms if "Condition" in resources[name]} == {"SilentSiteAlarm"}
    assert resources["SilentSiteAlarm"]["Condition"] == "WithOtherSites"
    for name, alarm in alarms.items():
        # No data means that nothing went wrong, except where it means that nothing goes at all.
        signs_of_life = ("NoCycleAlarm", "ReconciliationAlarm")
        assert alarm["TreatMissingData"] == ("breaching" if name in signs_of_life else "notBreaching"), name
        below = alarm["ComparisonOperator"] == "LessThanThreshold"
        assert below is (name == "NoCycleAlarm"), name
        assert alarm["AlarmDescription"].endswith(".")


def test_alarms_tell_the_topic_if_there_is_one(resources: Json) -> None:
    topic = {"Fn::If": ["WithAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    for alarm in of_type(resources, "AWS::CloudWatch::Alarm").values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == topic


def test_a_queue_without_a_cycle_for_five_minutes_raises_an_alarm(resources: Json) -> None:
    alarm = resources["NoCycleAlarm"]["Properties"]
    assert alarm["Statistic"] == "SampleCount"
    assert alarm["Threshold"] == 1
    assert alarm["Period"] * alarm["EvaluationPeriods"] == 300
    assert alarm["Dimensions"] == [{"Name": "service", "Value": SERVICE}]


def test_a_quarter_of_an_hour_without_a_successful_comparison_raises_an_alarm(resources: Json) -> None:
    alarm = resources["ReconciliationAlarm"]["Properties"]
    assert alarm["Period"] * alarm["EvaluationPeriods"] == 15 * 60
    assert (alarm["Statistic"], alarm["Threshold"]) == ("Minimum", alarm["Period"] / 60)
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    assert alarm["Dimensions"] == [{"Name": "service", "Value": SERVICE}]


def test_alarms_and_dashboard_name_what_there_is(resources: Json) -> None:
    variables = resources["QueueFunction"]["Properties"]["Environment"]["Variables"]
    assert variables["POWERTOOLS_SERVICE_NAME"] == SERVICE
    api, stage = resources["TrainingJobQueueApi"]["Properties"]["Name"], "prod"
    alarm = resources["ApiErrorAlarm"]["Properties"]
    assert {one["Name"]: one["Value"] for one in alarm["Dimensions"]} == {"ApiName": api, "Stage": stage}


def dashboard(resources: Json) -> Json:
    body, names = resources["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    condition, more, none = names["MoreAlarms"]["Fn::If"]
    assert (condition, none) == ("WithOtherSites", "")
    without: Json = json.loads(body.replace("${MoreAlarms}", none))
    parsed: Json = json.loads(body.replace("${MoreAlarms}", more["Fn::Sub"]))
    assert len(text_of(without)) < len(text_of(parsed)), "both are JSON"
    return parsed


def test_the_dashboard_shows_every_alarm_and_every_metric(resources: Json) -> None:
    alarms, *graphs = dashboard(resources)["widgets"]
    shown = {name.removeprefix("${").removesuffix(".Arn}") for name in alarms["properties"]["alarms"]}
    assert shown == set(of_type(resources, "AWS::CloudWatch::Alarm"))
    text = json.dumps(graphs)
    for metric in Metric:
        if metric is not Metric.ACTIVE_JOBS:  # instances in use tell more
            assert metric.value[0] in text, metric
    expressions = re.findall(r"SEARCH\('\{([^}]*)\}", text)
    assert set(expressions) == {f"{NAMESPACE},project,service", f"{NAMESPACE},pool,service"}


def test_the_dashboards_widgets_do_not_overlap(resources: Json) -> None:
    taken: set[tuple[int, int]] = set()
    for widget in dashboard(resources)["widgets"]:
        columns = range(widget["x"], widget["x"] + widget["width"])
        cells = {(x, y) for x in columns for y in range(widget["y"], widget["y"] + widget["height"])}
        assert max(columns) < 24 and not cells & taken, widget["properties"]["title"]
        taken |= cells


def test_logs_do_not_stay_for_ever(resources: Json) -> None:
    groups = of_type(resources, "AWS::Logs::LogGroup")
    assert set(groups) == {"QueueLogGroup", "ReadLogGroup", "ApiLogGroup"}
    assert all(0 < group["RetentionInDays"] <= 365 for group in groups.values())
    assert resources["QueueFunction"]["Properties"]["LoggingConfig"]["LogGroup"] == {"Ref": "QueueLogGroup"}
    assert resources["ReadFunction"]["Properties"]["LoggingConfig"]["LogGroup"] == {"Ref": "ReadLogGroup"}


# --- the tables


@pytest.mark.parametrize(
    ("table", "name", "keys"),
    [
        ("JobsTable", "sagemaker-queue", ["jobName"]),
        ("LinesTable", "sagemaker-queue-lines", ["line", "position"]),
        ("HistoryTable", "sagemaker-queue-history", ["line", "position"]),
    ],
)
def test_tables_are_encrypted_recoverable_and_outlive_the_stack(
    resources: Json, table: str, name: str, keys: list[str]
) -> None:
    resource = resources[table]
    properties = resource["Properties"]
    assert properties["TableName"] == name
    assert [key["AttributeName"] for key in properties["KeySchema"]] == keys
    assert [key["KeyType"] for key in properties["KeySchema"]] == ["HASH", "RANGE"][: len(keys)]
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    # The key that AWS owns. With the key aws/dynamodb a permissions boundary without KMS would deny every read.
    assert properties["SSESpecification"] == {"SSEEnabled": False}
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires", "Enabled": True}
    assert properties["DeletionProtectionEnabled"] == {"Ref": "DeletionProtection"}
    assert resource["DeletionPolicy"] == "RetainExceptOnCreate"
    assert resource["UpdateReplacePolicy"] == "Retain"


def test_a_first_deployment_makes_the_tables_when_all_else_is_there(resources: Json) -> None:
    """What fails before leaves none behind: a rollback could not delete them, as they are protected."""
    after, begin = {"JobsTable"}, {"LinesTable", "HistoryTable"}
    assert as_list(resources["LinesTable"]["DependsOn"]) == ["JobsTable"]
    assert as_list(resources["HistoryTable"]["DependsOn"]) == ["LinesTable"]
    before = as_list(resources["JobsTable"]["DependsOn"])
    reached = set(before)
    while before:
        name = before.pop()
        further = {other for other in resources if f'"{other}"' in text_of(resources[name])} - reached
        reached |= further
        before += further
    assert not reached & (after | begin), "what is made before them does not need them"
    alone = {
        name for name, one in resources.items() if one["Type"] in ("AWS::CloudWatch::Alarm", "AWS::Lambda::Permission")
    }
    optional = {name for name, one in resources.items() if "Condition" in one}
    assert set(resources) - reached - after - begin - alone - optional == {"DeadLetterQueuePolicy"}


def text_of(resource: Json) -> str:
    """A resource, with each name that it refers to in quotes of its own."""
    return re.sub(r"\$\{([A-Za-z0-9]+)(\.[A-Za-z]+)?\}", r'"\1"', json.dumps(resource))


def test_the_index_of_finished_jobs_has_what_a_list_shows(resources: Json) -> None:
    (index,) = resources["JobsTable"]["Properties"]["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "finished"
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["finished", "stateSince"]
    projection = index["Projection"]
    assert projection["ProjectionType"] == "INCLUDE"
    assert len(projection["NonKeyAttributes"]) <= 20, "DynamoDB's limit"
    assert "jobDetails" not in projection["NonKeyAttributes"]
    seen = {"jobName", "finished", "stateSince", *projection["NonKeyAttributes"]}
    job = a_job(
        state=JobState.FAILED,
        attempt=3,
        launched="job1-qstamp-3",
        priority=7,
        project="vision",
        cancelled=True,
        reason="Out of memory",
    )
    item = {attribute: content for attribute, content in job_item(job).items() if attribute in seen}
    listed, whole = (
        summary(JobSummary, it, QueuePosition(PublishedPlan()), lambda job: True) for it in (job_from(item), job)
    )
    assert listed == whole


def test_an_index_is_never_changed_in_place(resources: Json) -> None:
    """Pin what CloudFormation cannot change: docs/developers/adr/0094-an-index-is-replaced-in-three-versions.md."""
    (index,) = resources["JobsTable"]["Properties"]["GlobalSecondaryIndexes"]
    attributes = sorted(index["Projection"]["NonKeyAttributes"])
    assert (index["IndexName"], attributes) == (
        "finished",
        [
            "attempt", "cancelRequested", "demand", "entryTime", "group", "instances", "jobState", "owner", "priority",
            "project", "reason", "started", "submission", "trainingJobName", "version", "waitingLine",
        ],
    ), "a changed index needs a new name, and three versions"  # fmt: skip


# --- what the function may do


def test_each_function_has_a_role_without_managed_policies_but_those_given(resources: Json) -> None:
    roles = of_type(resources, "AWS::IAM::Role")
    assert roles.keys() == {"QueueRole", "ReadRole"}
    nothing = {"Ref": "AWS::NoValue"}
    guardrails = {"Fn::Split": [",", {"Ref": "GuardrailPolicyArns"}]}
    for role in roles.values():
        assert role["ManagedPolicyArns"] == {"Fn::If": ["WithGuardrails", guardrails, nothing]}
        assert role["PermissionsBoundary"] == {"Fn::If": ["WithBoundary", {"Ref": "PermissionsBoundaryArn"}, nothing]}
        (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
        assert trust["Principal"] == {"Service": "lambda.amazonaws.com"}
    assert resources["QueueFunction"]["Properties"]["Role"] == {"Fn::GetAtt": ["QueueRole", "Arn"]}
    assert resources["ReadFunction"]["Properties"]["Role"] == {"Fn::GetAtt": ["ReadRole", "Arn"]}
    assert not of_type(resources, "AWS::IAM::Policy")
    (elsewhere,) = of_type(resources, "AWS::IAM::ManagedPolicy").values()
    assert elsewhere["Roles"] == [{"Ref": "QueueRole"}]
    assert resources["OtherSitesPolicy"]["Condition"] == "WithRightsElsewhere"


def test_every_action_is_named(resources: Json) -> None:
    actions = [action for one in every_statement(resources) for action in as_list(one["Action"])]
    assert sorted(set(actions)) == [
        "cloudwatch:GetMetricData",
        "dynamodb:ConditionCheckItem",
        "dynamodb:DeleteItem",
        "dynamodb:GetItem",
        "dynamodb:PutItem",
        "dynamodb:Query",
        "dynamodb:UpdateItem",
        "events:PutEvents",
        "iam:PassRole",
        "kms:CreateGrant",
        "logs:CreateLogStream",
        "logs:FilterLogEvents",
        "logs:PutLogEvents",
        "s3:DeleteObject",
        "s3:GetObject",
        "s3:ListBucket",
        "s3:PutObject",
        "sagemaker:AddTags",
        "sagemaker:CreateTrainingJob",
        "sagemaker:DescribeTrainingJob",
        "sagemaker:DescribeTrainingPlan",
        "sagemaker:ListTags",
        "sagemaker:ListTrainingJobs",
        "sagemaker:StopTrainingJob",
        "sagemaker:UpdateTrainingJob",
        "sqs:DeleteMessage",
        "sqs:GetQueueAttributes",
        "sqs:ReceiveMessage",
        "sqs:SendMessage",
        "xray:PutTelemetryRecords",
        "xray:PutTraceSegments",
    ]
    assert all(one["Effect"] == "Allow" and "NotAction" not in one for one in every_statement(resources))


def test_only_what_knows_no_resources_is_allowed_on_all(resources: Json) -> None:
    on_all = {
        action for one in every_statement(resources) if one["Resource"] == "*" for action in as_list(one["Action"])
    }
    assert on_all == {
        "cloudwatch:GetMetricData",
        "sagemaker:ListTrainingJobs",
        "xray:PutTelemetryRecords",
        "xray:PutTraceSegments",
    }


def test_only_allowed_roles_are_passed_and_only_to_sagemaker(resources: Json) -> None:
    (statement,) = granting(resources, "iam:PassRole")
    assert statement["Resource"] == {"Fn::Split": [",", {"Ref": "AllowedRoleArns"}]}
    assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}


def arn_ends(statement: Json) -> list[str]:
    return [one["Fn::Sub"].rpartition(":")[2] for one in as_list(statement["Resource"])]


def test_only_tagged_attempts_are_launched(resources: Json) -> None:
    launch, on_plans = granting(resources, "sagemaker:CreateTrainingJob")
    tag = {"aws:RequestTag/queue-name": QUEUE_NAME}
    assert arn_ends(launch) == ["training-job/*-qstamp-*"]
    assert launch["Condition"] == {"StringEquals": tag}
    condition, named, any_of_the_account = on_plans["Resource"]["Fn::If"]
    assert condition == "WithTrainingPlans"
    assert named["Fn::Split"][1]["Fn::Sub"].startswith("${TrainingPlanArns},arn:")
    on_any = arn_ends({"Resource": any_of_the_account})
    assert on_any == ["training-plan/*", "reserved-capacity/*"], "no right to a training job by itself"
    (tagging,) = granting(resources, "sagemaker:AddTags")
    assert arn_ends(tagging) == ["training-job/*-qstamp-*"]
    assert tagging["Condition"] == {"StringEquals": {**tag, "sagemaker:TaggingAction": "CreateTrainingJob"}}


@pytest.mark.parametrize("action", ["sagemaker:StopTrainingJob", "sagemaker:UpdateTrainingJob"])
def test_only_own_attempts_are_stopped_or_changed(resources: Json, action: str) -> None:
    (statement,) = granting(resources, action)
    assert arn_ends(statement) == ["training-job/*-qstamp-*"]
    assert statement["Condition"] == {"StringEquals": {"aws:ResourceTag/queue-name": QUEUE_NAME}}


def test_only_events_of_the_queue_are_put_and_only_on_the_default_bus(resources: Json) -> None:
    (statement,) = granting(resources, "events:PutEvents")
    assert arn_ends(statement) == ["event-bus/default"]
    assert statement["Condition"] == {"ForAllValues:StringEquals": {"events:source": QUEUE_NAME}}
    assert resources["JobsTable"]["Properties"]["TableName"] == QUEUE_NAME


def test_grants_are_made_for_given_keys_and_for_sagemaker_alone(resources: Json) -> None:
    (statement,) = granting(resources, "kms:CreateGrant")
    assert statement["Resource"] == {"Fn::Split": [",", {"Ref": "VolumeKmsKeyArns"}]}
    assert statement["Condition"] == {
        "Bool": {"kms:GrantIsForAWSResource": "true"},
        "StringEquals": {"kms:ViaService": {"Fn::Sub": "sagemaker.${AWS::Region}.${AWS::URLSuffix}"}},
    }


def test_checkpoints_are_listed_in_the_given_buckets_alone(resources: Json) -> None:
    statement, mailboxes = granting(resources, "s3:ListBucket")
    assert mailboxes == statements(resources)["SeeThatObjectsAreMissing"]
    assert mailboxes["Resource"]["Fn::Sub"].endswith(":s3:::${WorkBucket}")
    assert "Condition" not in mailboxes, "reads state no prefix, so a condition on it would not let them see this"
    arns = json.dumps(statement["Resource"])
    assert arns.count('{"Ref": "CheckpointBuckets"}') == 3, "one spelling for each partition"
    assert re.findall(r"(arn:[a-z-]+):s3:::\$", arns) == ["arn:aws-cn", "arn:aws-us-gov", "arn:aws"]
    assert '"*"' not in arns


def test_no_training_job_is_deleted(resources: Json) -> None:
    assert not granting(resources, "sagemaker:DeleteTrainingJob")


def test_the_tables_are_those_of_the_queue(resources: Json) -> None:
    keep = statements(resources)["KeepTheQueue"]
    assert arn_ends(keep) == ["table/sagemaker-queue", "table/sagemaker-queue-lines"]
    history = statements(resources)["KeepTheHistory"]
    assert arn_ends(history) == ["table/sagemaker-queue-history"]
    assert as_list(history["Action"]) == ["dynamodb:PutItem", "dynamodb:Query"]
    added = statements(resources)["AddUtilizationToTheHistory"]
    assert (added["Action"], arn_ends(added)) == ("dynamodb:UpdateItem", ["table/sagemaker-queue-history"])
    index = statements(resources)["ReadFinishedJobs"]
    assert index["Action"] == "dynamodb:Query"
    assert arn_ends(index) == ["table/sagemaker-queue/index/finished"]


# --- what the tools for checking templates are told to let pass


def test_each_exception_has_its_reason() -> None:
    for name, resource in TEMPLATE["Resources"].items():
        for exception in resource.get("Metadata", {}).get("checkov", {}).get("skip", []):
            assert re.fullmatch(r"CKV_AWS_\d+", exception["id"]), name
            assert len(exception["comment"]) > 40, (name, exception["id"])


# --- whom it tells what becomes of jobs


def test_a_topic_is_made_only_if_asked_for_and_takes_notices_of_the_queue_alone(resources: Json) -> None:
    assert TEMPLATE["Conditions"]["WithNotices"] == {"Fn::Equals": [{"Ref": "Notices"}, "true"]}
    made = {name: resources[name] for name in ("NoticeTopic", "NoticeTopicPolicy", "NoticeRule")}
    assert {one["Condition"] for one in made.values()} == {"WithNotices"}
    assert resources["NoticeSubscription"]["Condition"] == "WithNoticeEmail"
    rule = made["NoticeRule"]["Properties"]
    assert rule["EventPattern"] == {
        "source": ["sagemaker-queue"],
        "account": [{"Ref": "AWS::AccountId"}],
        "detail": {"notice": [{"exists": True}]},
    }
    (target,) = rule["Targets"]
    assert (target["Arn"], target["InputPath"]) == ({"Ref": "NoticeTopic"}, "$.detail.notice")
    (statement,) = made["NoticeTopicPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert (statement["Principal"], statement["Action"]) == ({"Service": "events.amazonaws.com"}, "sns:Publish")
    assert "Condition" not in statement, "with one, EventBridge could not publish"


# --- the rights of the person who deploys

ANY_ACCOUNT, ANY_REGION = "111122223333", "us-east-1"
STACK_ARNS = {
    "AWS::ApiGateway::": "arn:aws:apigateway:us-east-1::/restapis/a1b2c3d4e5",
    "AWS::CloudWatch::Alarm": f"arn:aws:cloudwatch:{ANY_REGION}:{ANY_ACCOUNT}:alarm:training-job-queue-ErrorAlarm-1A2B",
    "AWS::CloudWatch::Dashboard": f"arn:aws:cloudwatch::{ANY_ACCOUNT}:dashboard/training-job-queue",
    "AWS::DynamoDB::Table": f"arn:aws:dynamodb:{ANY_REGION}:{ANY_ACCOUNT}:table/sagemaker-queue-lines",
    "AWS::EC2::": f"arn:aws:ec2:{ANY_REGION}:{ANY_ACCOUNT}:vpc-endpoint/vpce-0123456789abcdef0",
    "AWS::Events::EventBusPolicy": f"arn:aws:events:{ANY_REGION}:{ANY_ACCOUNT}:event-bus/default",
    "AWS::Events::Rule": f"arn:aws:events:{ANY_REGION}:{ANY_ACCOUNT}:rule/training-job-queue-QueueFunctionTick-1A2B",
    "AWS::IAM::ManagedPolicy": f"arn:aws:iam::{ANY_ACCOUNT}:policy/training-job-queue-OtherSitesPolicy-1A2B",
    "AWS::IAM::Role": f"arn:aws:iam::{ANY_ACCOUNT}:role/training-job-queue-QueueRole-1A2B",
    "AWS::KMS::Key": f"arn:aws:kms:{ANY_REGION}:{ANY_ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    "AWS::Lambda::EventSourceMapping": f"arn:aws:lambda:{ANY_REGION}:{ANY_ACCOUNT}:event-source-mapping:1234abcd",
    "AWS::Lambda::": f"arn:aws:lambda:{ANY_REGION}:{ANY_ACCOUNT}:function:training-job-queue-QueueFunction-1A2B",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{ANY_REGION}:{ANY_ACCOUNT}:log-group:/aws/lambda/training-job-queue-read",
    "AWS::SNS::": f"arn:aws:sns:{ANY_REGION}:{ANY_ACCOUNT}:training-job-queue-NoticeTopic-1A2B",
    "AWS::SQS::": f"arn:aws:sqs:{ANY_REGION}:{ANY_ACCOUNT}:training-job-queue-DeadLetterQueue-1A2B",
}
UNUSED = {  # permissions that AWS names for features that the template does not use
    "AWS::ApiGateway::RestApi": r"s3:.*|iam:PassRole",  # no definition in S3, and no role of the API
    "AWS::DynamoDB::Table": r"kinesis:.*|kms:.*|iam:.*|logs:.*|s3:.*",  # no replicas, streams, imports and own keys
    "AWS::EC2::VPCEndpoint": r"vpc-lattice:.*|vpce:AllowMultiRegion",
    "AWS::Events::Rule": r"iam:PassRole",  # targets have policies of their own
    "AWS::IAM::ManagedPolicy": r"iam:(Attach|Detach)(Group|User)Policy",  # it is attached to a role only
    "AWS::KMS::Key": r"kms:(Enable|Disable)KeyRotation",  # asymmetric keys are not rotated
    "AWS::Lambda::EventSourceMapping": r"kms:.*",
    # no file systems, layers, own keys and signed code; SAM's bucket is in another statement
    "AWS::Lambda::Function": r"elasticfilesystem:.*|s3files:.*|kms:.*|s3:.*"
    r"|lambda:(PassCapacity|Get(CodeSigning|Layer)).*",
    "AWS::Logs::LogGroup": r"s3:.*|firehose:.*|logs:CreateLogDelivery"  # no delivery to other services
    r"|logs:((Put|Delete|Associate|Disassociate)\w*(DataProtection|Index|Resource|KmsKey|DeletionProtection|Bearer)\w*)",
    "AWS::SNS::": r"iam:.*|sns:PutDataProtectionPolicy",
}


def named_permissions(kind: str) -> set[str]:
    """Return the permissions that AWS names for resources of a type, without those for features that are not used."""
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # takes half a second: not each worker need do it

    handlers = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema["handlers"]
    named = {
        it for name in ("create", "read", "update", "delete") for it in handlers.get(name, {}).get("permissions", [])
    }
    unused = [pattern for prefix, pattern in UNUSED.items() if kind.startswith(prefix)]
    return {one for one in named if not any(re.fullmatch(pattern, one) for pattern in unused)}


def test_a_deployer_has_the_permissions_that_aws_names_for_each_resource(resources: Json) -> None:
    policy = parse_policy_document((ROOT / "examples/iam/deployer.json").read_text())
    kinds = {one["Type"] for one in resources.values()}
    assert len(kinds) > 15
    missing = []
    for kind in sorted(kinds):
        arn = next(arn for prefix, arn in STACK_ARNS.items() if kind.startswith(prefix))
        for action in sorted(named_permissions(kind)):
            passed, of_role = action == "iam:PassRole", action in ("iam:AttachRolePolicy", "iam:DetachRolePolicy")
            request = EvalContext(
                principal_arn=f"arn:aws:iam::{ANY_ACCOUNT}:user/dana",
                principal_type="User",
                principal_account=ANY_ACCOUNT,
                action=action,
                resource_arn=STACK_ARNS["AWS::IAM::Role"] if passed or of_role else arn,
                region="us-east-1",
                principal_keys={"aws:calledvia": ["cloudformation.amazonaws.com"]},
                service_context={"iam:passedtoservice": "lambda.amazonaws.com"} if passed else {},
            )
            if evaluate(request, [policy]).decision != "Allow":
                missing.append(f"{kind}: {action}")
    assert not missing


def test_the_policies_of_a_deployer_fit_into_managed_policies() -> None:
    for name in ("deployer", "setup", "cloudshell"):
        document = json.loads((ROOT / f"examples/iam/{name}.json").read_text())
        assert len(json.dumps(document, separators=(",", ":"))) <= 6144
