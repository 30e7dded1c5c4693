"""Check the profile's execution role and bucket, which jobs need besides the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from api_contract.models import Identity
from sagemaker_queue.queue.bucket_owners import BucketOwners
from sagemaker_queue.queue.config.job_defaults import JobDefaults
from sagemaker_queue.queue.config.queue_config import QueueConfig
from sagemaker_queue.workflows.doctor.findings import FAILED, OK, Finding, failed, ok, skipped, warned
from sagemaker_queue.workflows.doctor.network import SECONDS

ROLE, BUCKET = "role", "bucket"
_PROBE = "sagemaker-queue/doctor"  # the key of an object that does not exist
_WRONG_DIGEST = "AAAAAAAAAAAAAAAAAAAAAA=="  # an MD5 that differs from the MD5 of the sent content
_ONE_QUESTION = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})


def check_role(defaults: JobDefaults, identity: Identity | None, session: boto3.Session | None) -> Finding:
    """Check that the queue may pass the execution role to SageMaker and, if IAM answers, that the role exists."""
    role = defaults.role
    if not role:
        return skipped(ROLE, "The profile names no role; each job has to: smq config set role ARN")
    if identity is None:
        return skipped(ROLE, f"Whether the queue passes {role} on is not known.")
    if not any(fnmatchcase(role, pattern) for pattern in identity.allowed_role_arns):
        allowed = ", ".join(identity.allowed_role_arns) or "none"
        return failed(
            ROLE,
            f"The queue does not pass {role} on to SageMaker.",
            f"Use one that it does ({allowed}), or ask its operator to add it (the stack's parameter AllowedRoleArns).",
        )
    if session and _is_missing(session, role):
        return failed(ROLE, f"There is no role {role}.", "Correct it: smq config set role ARN")
    return ok(ROLE, f"The queue passes {role} on.")


def _is_missing(session: boto3.Session, role: str) -> bool:
    """Return whether IAM says that the role does not exist.

    Return False without an answer: most users have no access to IAM, and many networks cannot reach IAM.
    """
    try:
        session.client("iam", region_name=session.region_name or "us-east-1", config=_ONE_QUESTION).get_role(
            RoleName=role.rpartition("/")[2]
        )
    except ClientError as error:
        return bool(error.response["Error"]["Code"] == "NoSuchEntity")
    except BotoCoreError:
        return False
    return False


def check_bucket(
    defaults: JobDefaults, session: boto3.Session | None, region: str | None, config: QueueConfig | None = None
) -> Finding:
    """Check that the bucket of jobs exists, is in the queue's region, and can be listed, read and written.

    The bucket is that of the profile, else the default bucket of the SageMaker SDK.
    """
    if session is None:
        return skipped(BUCKET, f"Whether {defaults.bucket or 'the bucket'} can be reached is not known.")
    owners = BucketOwners(session, config)
    try:
        bucket = defaults.bucket or f"sagemaker-{region}-{owners.account()}"
        owners.of(bucket)
    except (BotoCoreError, ClientError) as error:
        return _without_account(defaults.bucket, error)
    try:
        s3 = owners.guarded(session.client("s3", region_name=region, config=_ONE_QUESTION))
        finding = _judged(bucket, _head(s3, bucket), region)
        missing = _missing_rights(s3, bucket) if finding.status == OK else []
    except (BotoCoreError, ClientError) as error:
        return failed(
            BUCKET,
            f"S3 does not answer from here ({type(error).__name__}).",
            "smq submit uploads code to it: in a VPC without a way out it needs a gateway endpoint for S3.",
        )
    if missing:
        return failed(
            BUCKET, f"You may not use the bucket {bucket}.", f"Your role needs {' and '.join(missing)} on it."
        )
    if not defaults.bucket and finding.status == FAILED:
        return _without_bucket(finding, bucket)
    return finding


def _without_account(bucket: str | None, error: Exception) -> Finding:
    if bucket is None:
        return skipped(BUCKET, "The profile names no bucket, and without AWS's answer (STS) the default is not known.")
    return failed(
        BUCKET,
        f"AWS (STS) does not answer from here ({type(error).__name__}), so the account that must own the bucket "
        f"{bucket} is not known.",
        "smq submit needs the account. Without a way to STS: smq config set account NUMBER",
    )


def _head(s3: Any, bucket: str) -> Mapping[str, Any]:
    try:
        answer: Any = s3.head_bucket(Bucket=bucket)
    except ClientError as error:
        answer = error.response
    return cast("Mapping[str, Any]", answer["ResponseMetadata"])


def _missing_rights(s3: Any, bucket: str) -> list[str]:
    """Return the missing rights to read and write objects, such as ``s3:PutObject``. Nothing is stored.

    The write request has an incorrect digest: S3 checks the caller's rights first, and then refuses the content.
    """
    missing = []
    requests: tuple[tuple[str, Callable[[], object]], ...] = (
        ("s3:GetObject", lambda: s3.get_object(Bucket=bucket, Key=_PROBE)),
        ("s3:PutObject", lambda: s3.put_object(Bucket=bucket, Key=_PROBE, Body=b"", ContentMD5=_WRONG_DIGEST)),
    )
    for right, request in requests:
        try:
            request()
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 403:
                missing.append(right)
    return missing


def _without_bucket(finding: Finding, bucket: str) -> Finding:
    """Return the finding for the default bucket, which `smq submit` creates if it is missing."""
    default = f"The profile names no bucket, so smq submit uploads to {bucket}."
    if finding.message == _absent(bucket):
        return warned(
            BUCKET,
            f"{default} It does not exist yet: smq submit creates it if you have the right s3:CreateBucket.",
            "If your team has a bucket: smq config set bucket NAME",
        )
    return failed(
        BUCKET,
        f"{default} {finding.message}",
        f"If your team has another one: smq config set bucket NAME. {finding.remedy}",
    )


def _absent(bucket: str) -> str:
    return f"There is no bucket {bucket}."


def _judged(bucket: str, answer: Mapping[str, Any], region: str | None) -> Finding:
    status = answer["HTTPStatusCode"]
    home = answer.get("HTTPHeaders", {}).get("x-amz-bucket-region")
    if status == 404:
        return failed(BUCKET, _absent(bucket), "Create it, or correct it: smq config set bucket NAME")
    if home and region and home != region:
        remedy = f"Use a bucket in {region}: smq config set bucket NAME"
        return failed(BUCKET, f"The bucket {bucket} is in {home}, and jobs run in {region}.", remedy)
    if status == 403:
        needed = (
            "Your role needs s3:ListBucket, s3:GetObject and s3:PutObject on it; if it belongs to another account, say"
            " so: smq config set bucket_owners NAME=ACCOUNT"
        )
        return failed(BUCKET, f"You may not use the bucket {bucket}.", needed)
    if status != 200:
        return failed(BUCKET, f"S3 answers {status} for the bucket {bucket}.", "Try again later.")
    return ok(BUCKET, f"You may list, read and write the bucket {bucket}.")
