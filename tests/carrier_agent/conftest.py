"""A carrier as SageMaker would start it: the archive's own entry point, a real process, a real S3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from local_cloud.aws.ministack import Ministack
from tests.carrier_agent.carrier import BUCKET, Carrier

KEYS: dict[str, Any] = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}


@pytest.fixture(scope="session")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3."""
    server = Ministack(tmp_path_factory.mktemp("ministack"), auth=False, region="us-east-1")
    try:
        server.start({})
        boto3.client("s3", endpoint_url=server.url, **KEYS).create_bucket(Bucket=BUCKET)
        yield server.url
    finally:
        server.close()


@pytest.fixture
def carrier(s3_url: str, tmp_path: Path) -> Iterator[Carrier]:
    """A carrier with eight GPUs, whose agent runs."""
    made = Carrier(boto3.client("s3", endpoint_url=s3_url, **KEYS), s3_url, tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.clear()
