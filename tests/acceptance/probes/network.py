"""Probes of who reaches the API, and of the topic that alarms use."""

import json
import time
import urllib.error
import urllib.request
from functools import partial
from typing import Any

import boto3
from botocore.exceptions import ClientError

from sagemaker_queue import Forbidden, NotAuthenticated, QueueClient, QueueError
from tests.acceptance.probes.finding import Finding, Lab, Skipped, code

ROLE_SECONDS = 60  # IAM needs some seconds until a new role can be assumed
SILENT_KEY = "alias/aws/sns"


def invoke_rights(lab: Lab) -> Finding:
    """Does a caller of this account without execute-api:Invoke get 403?"""
    session = _without_rights(lab)
    client = QueueClient(boto_session=session, tries=1)
    try:
        client.whoami()
    except (Forbidden, NotAuthenticated) as refused:
        measured, holds = f"403 ({type(refused).__name__})", True
    except QueueError as error:
        raise Skipped(f"neither an answer nor 403: {error}") from error
    else:
        measured, holds = "200: the queue answered", False
    return Finding(
        measured,
        "403: the resource policy allows the account, and IAM decides who of it may call",
        "template.yaml, Sid AllowThisAccount: name roles and users as Principal in place of the account's root"
        if not holds
        else "none; users need execute-api:Invoke (examples/iam/user.json)",
        holds,
    )


def endpoint_policy(lab: Lab) -> Finding:
    """Does the VPC endpoint pass signed calls of this account, and no unsigned call?"""
    caller = lab.account.queue.whoami().owner
    address = f"{lab.account.queue.config.url}/whoami"
    headers = {"x-apigw-api-id": lab.account.queue.config.api_id} if lab.account.queue.config.api_id else {}
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(address, headers=headers), timeout=30) as answer:  # noqa: S310
            unsigned = int(answer.status)
    except urllib.error.HTTPError as error:
        unsigned = error.code
    except OSError as error:
        raise Skipped(f"no answer to an unsigned call of {address}: {error}") from error
    return Finding(
        f"signed: 200 as {caller}; unsigned: {unsigned}",
        "signed: 200; unsigned: 403 (policy of the endpoint: aws:PrincipalAccount)",
        "none" if unsigned == 403 else "template.yaml, QueueEndpoint: deny calls without aws:PrincipalAccount",  # noqa: PLR2004
        unsigned == 403,  # noqa: PLR2004
    )


def alarm_topic(lab: Lab) -> Finding:
    """Can CloudWatch use the key of the alarm topic?"""
    topic = lab.parameters().get("AlarmTopicArn", "")
    if not topic:
        raise Skipped("the stack has no AlarmTopicArn: nobody is told of alarms")
    key = lab.client("sns").get_topic_attributes(TopicArn=topic)["Attributes"].get("KmsMasterKeyId", "")
    assumed = "no key, or a key whose policy lets cloudwatch.amazonaws.com use it"
    if not key:
        return Finding("the topic has no key", assumed, "none", True)
    allowed = key != SILENT_KEY and "cloudwatch.amazonaws.com" in _key_policy(lab, key)
    setting = f"aws sns set-topic-attributes --topic-arn {topic} --attribute-name KmsMasterKeyId --attribute-value ''"
    return Finding(f"the topic's key is {key}", assumed, "none" if allowed else setting, allowed)


def _key_policy(lab: Lab, key: str) -> str:
    kms = lab.client("kms")
    try:
        key_id = kms.describe_key(KeyId=key)["KeyMetadata"]["KeyId"]
        return str(kms.get_key_policy(KeyId=key_id, PolicyName="default")["Policy"])
    except ClientError as error:
        raise Skipped(f"the policy of the key {key} cannot be read: {error}") from error


def _without_rights(lab: Lab) -> Any:
    """Make a role that allows nothing, and return a session of it."""
    iam, sts = lab.client("iam"), lab.client("sts")
    account = sts.get_caller_identity()["Account"]
    partition = sts.get_caller_identity()["Arn"].split(":")[1]
    name = lab.name("nothing")
    trusted = {
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:{partition}:iam::{account}:root"},
        "Action": "sts:AssumeRole",
    }
    document = json.dumps({"Version": "2012-10-17", "Statement": [trusted]})
    try:
        create = partial(iam.create_role, RoleName=name, AssumeRolePolicyDocument=document, MaxSessionDuration=3600)
        role = lab.make(f"role {name}", create, iam.delete_role, RoleName=name)["Role"]
    except ClientError as error:
        raise Skipped(f"needs iam:CreateRole: {error}") from error
    deadline = time.monotonic() + ROLE_SECONDS
    while True:
        try:
            given = sts.assume_role(RoleArn=role["Arn"], RoleSessionName="probe")["Credentials"]
            break
        except ClientError as error:
            if code(error) != "AccessDenied" or time.monotonic() > deadline:
                raise Skipped(f"the new role cannot be assumed: {error}") from error
            time.sleep(lab.account.settings.look_seconds)
    return boto3.Session(
        given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], region_name=lab.account.queue.region
    )
