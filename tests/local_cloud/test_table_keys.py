"""Tables under the key aws/dynamodb: a permissions boundary without KMS takes every read and write from its role."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_cloud.aws.deployment import CODE
from local_cloud.aws.stack import PROJECT, LocalCloud

pytestmark = pytest.mark.thorough

OWNED_BY_AWS = "SSESpecification: {SSEEnabled: false}"
IN_THE_ACCOUNT = "SSESpecification: {SSEEnabled: true}"
TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]}
EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
ALL_BUT_KMS = {"Effect": "Allow", "NotAction": "kms:*", "Resource": "*"}
NO_KMS = {"Effect": "Deny", "Action": "kms:*", "Resource": "*"}
TABLE = "sagemaker-queue"


def project(folder: Path, encryption: str) -> Path:
    """Return a copy of the queue whose tables have this encryption."""
    for code in CODE:
        shutil.copytree(PROJECT / code, folder / code, ignore=shutil.ignore_patterns("__pycache__"))
    template = (PROJECT / "template.yaml").read_text()
    assert template.count(OWNED_BY_AWS) == 3
    (folder / "template.yaml").write_text(template.replace(OWNED_BY_AWS, encryption))
    return folder


@pytest.fixture(scope="module", params=[OWNED_BY_AWS, IN_THE_ACCOUNT], ids=["AWS-owned", "aws/dynamodb"])
def encryption(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cloud(encryption: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    with LocalCloud(slots=1, project=project(tmp_path_factory.mktemp("project"), encryption)) as cloud:
        yield cloud


@contextmanager
def boundary(cloud: LocalCloud, role: str, statement: dict[str, Any]) -> Iterator[None]:
    """Give a role this permissions boundary inside."""
    iam = cloud.client("iam")
    policy = iam.create_policy(PolicyName="boundary", PolicyDocument=json.dumps({"Statement": [statement]}))["Policy"]
    iam.put_role_permissions_boundary(RoleName=role, PermissionsBoundary=policy["Arn"])
    try:
        yield
    finally:
        iam.delete_role_permissions_boundary(RoleName=role)
        iam.delete_policy(PolicyArn=policy["Arn"])


def test_the_tables_have_the_key_of_the_template(cloud: LocalCloud, encryption: str) -> None:
    described = cloud.client("dynamodb").describe_table(TableName=TABLE)["Table"].get("SSEDescription") or {}
    assert (described.get("Status") == "ENABLED") == (encryption == IN_THE_ACCOUNT)


def test_the_queue_needs_no_right_to_kms_for_its_tables_and_would_for_the_other_key(
    cloud: LocalCloud, encryption: str
) -> None:
    role = cloud._function["Role"].rpartition("/")[2]
    assert not is_denied(cloud)
    with boundary(cloud, role, EVERYTHING):
        assert not is_denied(cloud)
    with boundary(cloud, role, ALL_BUT_KMS):
        assert is_denied(cloud) == (encryption == IN_THE_ACCOUNT)
    assert not is_denied(cloud)


def is_denied(cloud: LocalCloud) -> bool:
    """Return whether DynamoDB denies the queue's function what a tick needs, as its log has it."""
    before = len(cloud.function_logs())
    cloud.tick()
    return "DynamoDB answered AccessDeniedException" in cloud.function_logs()[before:]


@pytest.mark.parametrize(
    ("policy", "limit", "may"),
    [
        pytest.param([EVERYTHING], EVERYTHING, True, id="everything"),
        pytest.param([ALL_BUT_KMS], EVERYTHING, True, id="the key's policy is enough"),
        pytest.param([EVERYTHING], ALL_BUT_KMS, False, id="not in the boundary"),
        pytest.param([EVERYTHING, NO_KMS], EVERYTHING, False, id="denied"),
    ],
)
def test_a_read_needs_the_key_within_the_boundary_and_no_deny(
    cloud: LocalCloud, encryption: str, policy: list[dict[str, Any]], limit: dict[str, Any], *, may: bool
) -> None:
    iam = cloud.client("iam")
    role = iam.create_role(RoleName="reader", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
    iam.put_role_policy(RoleName="reader", PolicyName="all", PolicyDocument=json.dumps({"Statement": policy}))
    keys = cloud.client("sts").assume_role(RoleArn=role, RoleSessionName="reader")["Credentials"]
    reader = cloud.client(
        "dynamodb",
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )
    read = {"TableName": TABLE, "Key": {"jobName": {"S": "none"}}}
    calls: tuple[Callable[[], object], ...] = (
        lambda: reader.get_item(**read),
        lambda: reader.batch_get_item(RequestItems={TABLE: {"Keys": [read["Key"]]}}),
        lambda: reader.transact_get_items(TransactItems=[{"Get": read}]),
        lambda: reader.scan(TableName=TABLE),
    )
    with boundary(cloud, "reader", limit):
        for call in calls:
            if may or encryption == OWNED_BY_AWS:
                call()
                continue
            with pytest.raises(ClientError, match="KMS key access denied") as refused:
                call()
            assert refused.value.response["Error"]["Code"] == "AccessDeniedException"
        assert reader.describe_table(TableName=TABLE)
    iam.delete_role_policy(RoleName="reader", PolicyName="all")
    iam.delete_role(RoleName="reader")
