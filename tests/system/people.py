"""People of a local cloud: IAM users with a right to call the queue's API, and what they can do with it."""

import json
from collections.abc import Iterable
from typing import Any

import boto3

from local_cloud.aws.stack import ACCOUNT, REGION, LocalCloud
from sagemaker_queue import QueueClient


def arn(name: str) -> str:
    """The ARN of a user."""
    return f"arn:aws:iam::{ACCOUNT}:user/{name}"


def document(*statements: dict[str, Any]) -> str:
    """An IAM policy."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def grant(cloud: LocalCloud, name: str, *statements: dict[str, Any]) -> None:
    """Let a user do what the statements allow, and nothing else."""
    cloud.client("iam").put_user_policy(UserName=name, PolicyName="call", PolicyDocument=document(*statements))


def session_of(cloud: LocalCloud, name: str, actions: Iterable[str] = ("execute-api:Invoke",)) -> boto3.Session:
    """Make a user who may do this and nothing else."""
    iam = cloud.client("iam")
    iam.create_user(UserName=name)
    grant(cloud, name, {"Effect": "Allow", "Action": list(actions), "Resource": "*"})
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name=REGION)


def queue_of(cloud: LocalCloud, session: boto3.Session) -> QueueClient:
    """The queue as somebody sees it."""
    return QueueClient(url=cloud.queue_url, boto_session=session)
