"""Who a caller is, as API Gateway of the local cloud tells the function: users, roles, sessions that nobody named."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from local_cloud.aws.stack import ACCOUNT, REGION, LocalCloud
from sagemaker_queue import Forbidden, QueueClient
from tests.system.conftest import FOREVER, System

ADMIN_ROLE = f"arn:aws:iam::{ACCOUNT}:role/operators/ml-admin"
TESTS = f"arn:aws:iam::{ACCOUNT}:root"  # as whom the tests tidy up


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=2, parameters={"AdminArns": f"{ADMIN_ROLE},{TESTS}"}) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def roles(shared_system: System) -> dict[str, str]:
    """Roles that may call the API: their ARNs by name."""
    iam = shared_system.cloud.client("iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
    call = {"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": "*"}
    arns = {}
    for path, name in (("/", "Research"), ("/", "Search"), ("/operators/", "ml-admin")):
        made = iam.create_role(Path=path, RoleName=name, AssumeRolePolicyDocument=document(trust))
        iam.put_role_policy(RoleName=name, PolicyName="call", PolicyDocument=document(call))
        arns[name] = made["Role"]["Arn"]
    return arns


def document(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def queue_of(system: System, role: str, session: str) -> QueueClient:
    """The queue, as somebody sees it who has assumed a role."""
    answer = system.cloud.client("sts").assume_role(RoleArn=role, RoleSessionName=session)["Credentials"]
    credentials = boto3.Session(
        answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"], region_name=REGION
    )
    return QueueClient(url=system.cloud.queue_url, boto_session=credentials)


@pytest.mark.thorough
def test_a_run_cancels_what_the_run_before_it_submitted(system: System, roles: dict[str, str]) -> None:
    first = queue_of(system, roles["Research"], "botocore-session-1791092141")
    assert first.submit(system.request("mine", FOREVER)).owner == roles["Research"]
    with pytest.raises(Forbidden, match=roles["Research"]):
        queue_of(system, roles["Search"], "botocore-session-1791092141").cancel("mine")
    queue_of(system, roles["Research"], "botocore-session-1791099999").cancel("mine")
    system.wait_state("mine", "stopped")


def test_named_sessions_of_a_role_are_people_of_their_own(system: System, roles: dict[str, str]) -> None:
    ann = queue_of(system, roles["Research"], "ann@example.org")
    ann.submit(system.request("anns", FOREVER))
    for session in ("bob@example.org", "botocore-session-1791092141"):
        with pytest.raises(Forbidden, match="ann@example.org"):
            queue_of(system, roles["Research"], session).cancel("anns")
    ann.cancel("anns")


def test_a_roles_arn_makes_all_its_sessions_administrators(system: System, roles: dict[str, str]) -> None:
    assert roles["ml-admin"] == ADMIN_ROLE
    system.run("theirs")
    policy = system.queue.policy()
    with pytest.raises(Forbidden):
        queue_of(system, roles["Research"], "ann").apply_policy(policy.policy, version=policy.version)
    admin = queue_of(system, roles["ml-admin"], "botocore-session-1791092141")
    assert admin.apply_policy(policy.policy, version=policy.version).version == policy.version + 1
    admin.cancel("theirs")
    system.wait_state("theirs", "stopped")
