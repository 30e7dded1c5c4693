"""Somebody else makes the bucket that was meant: nothing is brought there, nothing comes from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from sagemaker_queue import ConfigError, QueueConfig
from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.packaging.code import packed_code
from sagemaker_queue.jobs.packaging.copying import Copier
from sagemaker_queue.jobs.packaging.download import fetch_all
from sagemaker_queue.jobs.packaging.storage import S3Storage, Stored
from sagemaker_queue.jobs.preflight import check
from sagemaker_queue.queue.bucket_owners import BucketOwners
from sagemaker_queue.queue.data_links import S3Address

pytestmark = pytest.mark.attack

OURS, THEIRS = "123456789012", "999999999999"
OWNERS = {"ours": OURS, "stolen": THEIRS, f"sagemaker-us-east-1-{OURS}": OURS}
URL = "https://a.execute-api.us-east-1.amazonaws.com/prod"


class Amazon:
    """Compares the owner that a call expects with the bucket's, as S3 does, and then lets moto answer."""

    def __init__(self) -> None:
        self.unguarded: list[str] = []

    def __call__(self, request: Any, **_: Any) -> None:
        bucket = (
            request.url.split("/")[3].partition("?")[0] if "//s3." in request.url else request.url[8:].split(".")[0]
        )
        headers = {
            name.lower(): value.decode() if isinstance(value, bytes) else value
            for name, value in request.headers.items()
        }
        expected = headers.get("x-amz-expected-bucket-owner")
        copied = headers.get("x-amz-copy-source", "").lstrip("/").partition("/")[0]
        if copied and headers.get("x-amz-source-expected-bucket-owner") != OWNERS[copied]:
            self.refuse()
        if not expected:
            self.unguarded.append(f"{request.method} {request.url}")
        if expected and expected != OWNERS.get(bucket, expected):
            self.refuse()

    def refuse(self) -> None:
        """By an exception, so that moto does not get to see the request."""
        raise ClientError(
            {
                "Error": {"Code": "AccessDenied", "Message": "Access Denied"},
                "ResponseMetadata": {
                    "HTTPStatusCode": 403,
                    "HTTPHeaders": {},
                    "RequestId": "",
                    "HostId": "",
                    "RetryAttempts": 0,
                },
            },
            "AnyOperation",
        )


@pytest.fixture
def amazon() -> Iterator[Amazon]:
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        for bucket in ("ours", "stolen"):
            s3.create_bucket(Bucket=bucket)
            s3.put_object(Bucket=bucket, Key="data/x", Body=b"x")
        yield Amazon()


def storage(amazon: Amazon, **settings: str) -> S3Storage:
    session = boto3.Session(region_name="us-east-1")
    session.events.register_first("before-send.s3", amazon)
    return S3Storage(session, QueueConfig(URL, **settings))


def test_every_call_says_whose_the_bucket_must_be(amazon: Amazon, tmp_path: Path) -> None:
    s3 = storage(amazon)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("")
    ours = S3Address("ours")
    with packed_code(tmp_path / "code", ours / "code", leave_out=[], limit=100) as code:
        assert code.upload(s3) and not code.upload(s3)
    s3.ensure_bucket("ours")
    s3.put(tmp_path / "code/train.py", ours / "a")
    s3.copy(Stored(ours / "a", 0), ours / "b")
    assert s3.has(ours / "b") and len(list(s3.entries(ours))) == 4
    fetch_all(s3.stored(ours / "data"), "data/", tmp_path / "got", s3)
    assert (tmp_path / "got/x").read_text() == "x"
    s3.remove([ours / "a", ours / "b"])
    assert amazon.unguarded == []
    assert "expected" not in s3.url(ours / "data/x", 60)  # whoever gets it would have to send the header


def test_a_bucket_of_somebody_else_gets_and_gives_nothing(amazon: Amazon, tmp_path: Path) -> None:
    s3, stolen = storage(amazon), S3Address("stolen")
    (tmp_path / "x").write_text("secret")
    uses = (
        lambda: s3.put(tmp_path / "x", stolen / "x"),
        lambda: s3.put_in_one_piece(tmp_path / "x", stolen / "x"),
        lambda: s3.copy(Stored(S3Address("ours", "data/x"), 1), stolen / "x"),
        lambda: s3.copy(Stored(stolen / "data/x", 1), S3Address("ours", "x")),
        lambda: s3.stored(stolen / "data/x"),
        lambda: list(s3.objects(stolen)),
        lambda: list(s3.entries(stolen)),
        lambda: s3.has(stolen / "data/x"),
        lambda: s3.remove([stolen / "data/x"]),
    )
    for use in uses:
        with pytest.raises(StorageError, match="does not belong to the expected account.*bucket_owners"):
            use()
    names = [found["Key"] for found in boto3.client("s3").list_objects_v2(Bucket="stolen")["Contents"]]
    assert names == ["data/x"]


def test_buckets_of_others_are_named_in_the_profile(amazon: Amazon) -> None:
    address = S3Address("stolen", "data/x")
    assert storage(amazon, bucket_owners=f"stolen={THEIRS}").has(address)
    assert storage(amazon, bucket_owners="x=111122223333, stolen=any").has(address)
    assert storage(amazon, account=THEIRS).has(address)
    with pytest.raises(StorageError):
        storage(amazon, account=THEIRS).has(S3Address("ours", "data/x"))


def test_of_two_profiles_each_says_whom_its_own_bucket_must_belong_to(amazon: Amazon) -> None:
    """Document 004: a cluster of another account is the source of a copy inside S3."""
    theirs, ours = storage(amazon, account=THEIRS), storage(amazon, account=OURS)
    (stored,) = theirs.stored(S3Address("stolen", "data/x"))
    streamed: list[bool] = []
    Copier(theirs, ours, lambda: streamed.append(True)).copy(stored, S3Address("ours", "x"))
    assert ours.has(S3Address("ours", "x")) and not streamed
    with pytest.raises(StorageError, match="does not belong to the expected account"):
        Copier(ours, ours).copy(stored, S3Address("ours", "y"))
    assert not ours.has(S3Address("ours", "y"))
    assert amazon.unguarded == []


def test_preflight_asks_the_owners_buckets_only(amazon: Amazon) -> None:
    session = boto3.Session(region_name="us-east-1")
    session.events.register_first("before-send.s3", amazon)
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://stolen/nothing"}}
    request = {"InputDataConfig": [{"ChannelName": "a", "DataSource": source}]}
    assert check(request, session) == []  # what another account's bucket says proves nothing
    assert check(request, session, config=QueueConfig(URL, bucket_owners=f"stolen={THEIRS}"))
    assert amazon.unguarded == []


def test_sts_is_asked_once_and_not_again_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Session:
        def client(self, name: str, **_: Any) -> Any:
            asked.append(name)
            raise ClientError({"Error": {"Code": "ExpiredToken"}}, "GetCallerIdentity")

    owners = BucketOwners(Session())  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ClientError):
            owners.of("ours")
    assert asked == ["sts"]
    assert BucketOwners(Session(), QueueConfig(URL, account=OURS)).of("ours") == OURS  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"account": "12"}, {"bucket_owners": "x"}, {"bucket_owners": "x=12"}])
def test_what_is_no_account_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        QueueConfig(URL, **settings)
