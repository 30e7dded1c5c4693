"""What becomes of the real template with other parameters than the rest of the tests give, and when it fails."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_cloud.aws import deployment
from local_cloud.aws.ministack import Ministack
from local_cloud.aws.stack import ACCOUNT, PROJECT, REGION, VPC_ENDPOINT
from local_cloud.user_errors import LocalCloudError
from tests.local_cloud.emulator import client as client_of
from tests.waiting import until

ROLE = f"arn:aws:iam::{ACCOUNT}:role/training"
SERVICE = f"com.amazonaws.{REGION}.execute-api"
GIVEN = {"AllowedRoleArns": ROLE, "VpcEndpointIds": VPC_ENDPOINT}


class Account:
    """An AWS account in which nothing is yet."""

    def __init__(self, url: str) -> None:
        self._url = url

    def client(self, service: str) -> Any:
        return client_of(service, self._url)

    def deploy(self, parameters: Mapping[str, str], project: Path = PROJECT) -> dict[str, str]:
        """Deploy the template; the stack's outputs."""
        return deployment.deploy(self.client, project, parameters)

    def events(self) -> list[dict[str, Any]]:
        """The stack's."""
        pages = self.client("cloudformation").get_paginator("describe_stack_events")
        return [event for page in pages.paginate(StackName=deployment.STACK) for event in page["StackEvents"]]

    def status(self) -> str:
        """The stack's."""
        (stack,) = self.client("cloudformation").describe_stacks(StackName=deployment.STACK)["Stacks"]
        return str(stack["StackStatus"])

    def delete_stack(self) -> None:
        self.client("cloudformation").delete_stack(StackName=deployment.STACK)
        until(self._is_gone)

    def _is_gone(self) -> bool:
        try:
            return self.status() == "DELETE_COMPLETE"
        except ClientError:
            return True

    def tables(self) -> set[str]:
        return set(self.client("dynamodb").list_tables()["TableNames"])

    def role(self) -> dict[str, Any]:
        """The function's."""
        roles = self.client("iam").list_roles()["Roles"]
        (name,) = (one["RoleName"] for one in roles if "QueueRole" in one["RoleName"])
        found: dict[str, Any] = self.client("iam").get_role(RoleName=name)["Role"]
        return found


@pytest.fixture(scope="module")
def shared_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    server = Ministack(tmp_path_factory.mktemp("ministack"), auth=False, region=REGION)
    try:
        server.start({})
        yield Account(server.url)
    finally:
        server.close()


@pytest.fixture
def account(shared_account: Account) -> Iterator[Account]:
    yield shared_account
    shared_account.delete_stack()
    tables = shared_account.client("dynamodb")
    for name in shared_account.tables():
        tables.update_table(TableName=name, DeletionProtectionEnabled=False)
        tables.delete_table(TableName=name)


# --- a first deployment that fails


@pytest.mark.thorough
def test_a_first_deployment_that_failed_leaves_no_tables_and_can_be_repeated(account: Account, tmp_path: Path) -> None:
    """It fails after the tables, as nothing in the template does: tests/test_template.py. They are not protected."""
    project = tmp_path / "project"
    project.mkdir()
    for name in deployment.CODE:
        (project / name).symlink_to(PROJECT / name)
    template = (PROJECT / "template.yaml").read_text()
    (project / "template.yaml").write_text(template.replace("\nOutputs:\n", FAILING + "\nOutputs:\n"))
    with pytest.raises(LocalCloudError, match="Failing"):
        account.deploy({**GIVEN, "DeletionProtection": "false"}, project)
    made = {one["LogicalResourceId"] for one in account.events() if one["ResourceStatus"] == "CREATE_COMPLETE"}
    assert {"JobsTable", "LinesTable", "HistoryTable"} <= made
    assert not account.tables()
    assert account.status() == "ROLLBACK_COMPLETE"
    account.delete_stack()
    assert account.deploy(GIVEN)["FunctionName"]
    assert account.tables() == {"sagemaker-queue", "sagemaker-queue-lines", "sagemaker-queue-history"}


FAILING = """
  Failing:
    Type: AWS::IAM::Role
    DependsOn: HistoryTable
    Properties:
      AssumeRolePolicyDocument:
        Version: "2012-10-17"
        Statement:
          - {Effect: Allow, NotPrincipal: {Service: lambda.amazonaws.com}, Action: "sts:AssumeRole"}
"""


@pytest.mark.thorough
def test_the_tables_outlive_the_stack_and_nobody_deletes_them(account: Account) -> None:
    account.deploy(GIVEN)
    account.delete_stack()
    tables = account.client("dynamodb")
    for name in sorted(account.tables()):
        with pytest.raises(ClientError, match="protected"):
            tables.delete_table(TableName=name)
        tables.update_table(TableName=name, DeletionProtectionEnabled=False)
        tables.delete_table(TableName=name)
    assert not account.tables()


# --- parameters


def list_of(length: int, item: str) -> str:
    """As many of these as have room, the last one as long as is left."""
    count = length // (len(item) + 1)
    return ",".join([item] * count)[:length].ljust(length, "x")


@pytest.mark.thorough
def test_the_longest_lists_fit_where_they_go(account: Account) -> None:
    key = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    account.deploy(
        {
            "VpcEndpointIds": VPC_ENDPOINT,
            "AllowedRoleArns": list_of(2000, ROLE),
            "AdminArns": list_of(1000, f"arn:aws:iam::{ACCOUNT}:user/ada"),
            "TrainingPlanArns": list_of(500, f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-plan/w"),
            "CheckpointBuckets": list_of(400, "checkpoints-of-team"),
            "WorkBucket": "w" * 63,
            "VolumeKmsKeyArns": list_of(1500, key),
        }
    )
    name = account.role()["RoleName"]
    policy = account.client("iam").get_role_policy(RoleName=name, PolicyName="queue")["PolicyDocument"]
    assert 8000 < len(json.dumps(policy, separators=(",", ":"))) <= 10_240, "IAM's limit for the policies in a role"
    functions = account.client("lambda").list_functions()["Functions"]
    assert len(functions) == 2
    for function in functions:
        variables = function["Environment"]["Variables"]
        assert 3400 < len(json.dumps(variables, separators=(",", ":"))) <= 4096, "Lambda's limit"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("      MaxLength: 2000", "      MaxLength: 4000", "policy size of 10240 bytes exceeded"),
        ("LOG_LEVEL: INFO", f"LOG_LEVEL: {'I' * 4096}", "exceeded the 4KB limit"),
    ],
)
def test_the_local_cloud_has_the_limits_of_aws(
    account: Account, tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    project = changed_project(tmp_path, old.strip(), new.strip())
    with pytest.raises(LocalCloudError, match=complaint):
        account.deploy({**GIVEN, "AllowedRoleArns": list_of(4000 if "4000" in new else 100, ROLE), **KEYS}, project)


KEYS = {
    "TrainingPlanArns": list_of(500, f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-plan/w"),
    "CheckpointBuckets": list_of(400, "checkpoints-of-team"),
    "VolumeKmsKeyArns": list_of(1500, f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"),
}


def changed_project(folder: Path, old: str, new: str) -> Path:
    """Make a project whose template differs from the real one in its first text `old`."""
    project = folder / "project"
    project.mkdir()
    for name in deployment.CODE:
        (project / name).symlink_to(PROJECT / name)
    template = (PROJECT / "template.yaml").read_text()
    assert old in template
    (project / "template.yaml").write_text(template.replace(old, new, 1))
    return project


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"AllowedRoleArns": list_of(2001, ROLE)}, "AllowedRoleArns"),
        ({"MaxCapacity": "2.5"}, "must be a whole number from 0 to 100000"),
        ({"ReadConcurrency": "1e1"}, "must be a whole number from 0 to 1000"),
        ({"CreateRate": "0.001"}, "must be a number from 0.05 to 100"),
        ({"AdminArns": f"arn:aws:sts::{ACCOUNT}:assumed-role/ml-admin"}, "must be ARNs of callers"),
        ({"VpcEndpointIds": ""}, "Give VpcEndpointIds, or EndpointVpcId"),
        ({"EndpointVpcId": "vpc-0123456789abcdef0", "EndpointCidr": "10.0.0.0/16"}, "give EndpointSubnetIds"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_made(
    account: Account, changed: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ClientError, match=complaint):
        account.deploy({**GIVEN, **changed})
    assert not account.tables()


def test_the_role_has_the_given_guardrails(account: Account) -> None:
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "iam:*", "Resource": "*"}]}
    iam = account.client("iam")
    one, other = (
        iam.create_policy(PolicyName=name, PolicyDocument=json.dumps(document))["Policy"]["Arn"]
        for name in ("one", "other")
    )
    account.deploy({**GIVEN, "GuardrailPolicyArns": f"{one},{other}"})
    attached = iam.list_attached_role_policies(RoleName=account.role()["RoleName"])["AttachedPolicies"]
    assert {policy["PolicyArn"] for policy in attached} == {one, other}


@pytest.mark.thorough
def test_an_endpoint_is_made_and_the_api_reached_through_it(account: Account) -> None:
    ec2 = account.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    (service,) = ec2.describe_vpc_endpoint_services(ServiceNames=[SERVICE])["ServiceDetails"]
    zone = service["AvailabilityZones"][0]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.7.1.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
    made = {"EndpointVpcId": vpc, "EndpointSubnetIds": subnet, "EndpointCidr": "10.7.0.0/16"}
    outputs = account.deploy({"AllowedRoleArns": ROLE, **made})
    (endpoint,) = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    assert endpoint["VpcEndpointId"] == outputs["VpcEndpointId"]
    assert endpoint["VpcEndpointType"] == "Interface"
    assert endpoint["ServiceName"] == f"com.amazonaws.{REGION}.execute-api"
    assert endpoint["SubnetIds"] == [subnet]
    assert endpoint.get("PrivateDnsEnabled") is not True
    address = f"{outputs['ApiId']}-{outputs['VpcEndpointId']}.execute-api.{REGION}.amazonaws.com"
    assert outputs["EndpointUrl"] == f"https://{address}/prod"
    groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    (rule,) = (one for group in groups if group["GroupName"] != "default" for one in group["IpPermissions"])
    assert (rule["FromPort"], rule["ToPort"]) == (443, 443)
    assert [block["CidrIp"] for block in rule["IpRanges"]] == ["10.7.0.0/16"]


def test_a_subnet_in_a_zone_without_the_service_fails_the_deployment_and_leaves_nothing(account: Account) -> None:
    ec2 = account.client("ec2")
    (service,) = ec2.describe_vpc_endpoint_services(ServiceNames=[SERVICE])["ServiceDetails"]
    zones = {zone["ZoneName"] for zone in ec2.describe_availability_zones()["AvailabilityZones"]}
    (without,) = zones - set(service["AvailabilityZones"])
    vpc = ec2.create_vpc(CidrBlock="10.8.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.8.1.0/24", AvailabilityZone=without)["Subnet"]["SubnetId"]
    made = {"EndpointVpcId": vpc, "EndpointSubnetIds": subnet, "EndpointCidr": "10.8.0.0/16"}
    with pytest.raises(LocalCloudError, match="does not support the availability zone of the subnet"):
        account.deploy({"AllowedRoleArns": ROLE, **made})
    assert not account.tables()


def test_the_address_is_that_of_the_first_endpoint_that_is_given(account: Account) -> None:
    outputs = account.deploy({**GIVEN, "VpcEndpointIds": "vpce-0123456789abcdef0,vpce-0123456789abcdef1"})
    assert re.fullmatch(r"https://[a-z0-9]+-vpce-0123456789abcdef0\.execute-api\..*/prod", outputs["EndpointUrl"])
    assert "VpcEndpointId" not in outputs
