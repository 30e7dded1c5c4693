"""Mailboxes of carriers: what programs that nobody trusts may have written into them."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from job_queue.adapters.carriers.mailbox import LARGEST, Mailboxes

ATTEMPT = "m-qstamp-1"
ENDED, ASSIGNED = f"carriers/c-qstamp-1/out/{ATTEMPT}/ended.json", f"carriers/c-qstamp-1/in/{ATTEMPT}/assign.json"
ADDRESS = f"c-qstamp-1/{ATTEMPT}"


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="work")
        yield client


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "7",
        "{",
        "[" * 100_000,
        '{"status": ["Completed"], "reason": {"a": 1}, "tags": 5, "at": "now", "started": []}',
        '{"status": {}, "tags": [1, null, {"Key": 1}, {"Value": []}]}',
        '{"at": NaN, "started": Infinity, "status": "Failed", "reason": "\\ud800 word"}',
        '{"at": -1, "started": 1e300, "status": "Failed"}',
        json.dumps({"at": 10**400, "status": "Failed", "reason": "x" * 100_000}),
        json.dumps({"status": "Completed", "reason": "y" * LARGEST}),
    ],
)
@pytest.mark.parametrize("key", [ENDED, ASSIGNED])
def test_whatever_a_message_says_can_be_stored(s3: Any, key: str, content: str) -> None:
    s3.put_object(Bucket="work", Key=key, Body=content.encode())
    found = Mailboxes(s3, "work").describe(ADDRESS)
    assert found is not None
    assert found.status == ("InProgress" if key is ASSIGNED else "Failed"), (
        "only what says so is an end of another kind"
    )
    assert len((found.failure or "").encode()) <= 4096
    written = s3.head_object(Bucket="work", Key=key)["LastModified"].timestamp()
    assert (found.ended_at is None) if key is ASSIGNED else found.ended_at == written
    assert found.began is None
    assert all(isinstance(text, str) for tag in found.tags.items() for text in tag)


def test_what_an_agent_says_is_read(s3: Any) -> None:
    s3.put_object(Bucket="work", Key=ASSIGNED, Body=b'{"request": {"Tags": [{"Key": "a", "Value": "b"}]}}')
    found = Mailboxes(s3, "work").describe(ADDRESS)
    assert found is not None and found.tags == {"a": "b"}
    now = s3.head_object(Bucket="work", Key=ASSIGNED)["LastModified"].timestamp()
    report = {"status": "Completed", "at": now - 5, "started": now - 9, "tags": [{"Key": "a", "Value": "b"}]}
    s3.put_object(Bucket="work", Key=ENDED, Body=json.dumps(report).encode())
    found = Mailboxes(s3, "work").describe(ADDRESS)
    assert found is not None
    assert (found.status, found.ended_at, found.began, found.tags) == ("Completed", now - 5, now - 9, {"a": "b"})
