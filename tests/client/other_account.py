"""Another AWS account of moto, and a profile with credentials for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import boto3
import pytest


def session_of_profile(account: str, profile: str, folder: Path, patch: pytest.MonkeyPatch) -> boto3.Session:
    """Write a credentials file with a profile whose credentials are of an account; call this inside ``mock_aws``."""
    create: Any = boto3.client
    role = f"arn:aws:iam::{account}:role/researcher"
    answer = create("sts", region_name="us-east-1").assume_role(RoleArn=role, RoleSessionName="ann")
    names = {
        "aws_access_key_id": "AccessKeyId",
        "aws_secret_access_key": "SecretAccessKey",
        "aws_session_token": "SessionToken",
    }
    lines = [f"{name} = {answer['Credentials'][member]}" for name, member in names.items()]
    file = folder / "credentials"
    file.write_text("\n".join([f"[{profile}]", *lines]) + "\n")
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    return boto3.Session(profile_name=profile)
