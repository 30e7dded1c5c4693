"""S3 as `smq` uses it: whose bucket is used, what is taken for a file, and what people are told."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.packaging.code import packed_code
from sagemaker_queue.jobs.packaging.download import fetch_file
from sagemaker_queue.jobs.packaging.storage import S3Storage, Stored
from sagemaker_queue.queue.data_links import S3Address

DEFAULT = "sagemaker-eu-west-1-123456789012"


@pytest.fixture(scope="module")
def session() -> boto3.Session:
    """Its clients take a second to make."""
    return boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="eu-west-1")


@pytest.fixture(scope="module")
def s3(session: boto3.Session) -> Any:
    return session.client("s3")


@pytest.fixture
def storage(session: boto3.Session) -> Iterator[S3Storage]:
    with mock_aws():
        yield S3Storage(session)


def names(s3: Any, bucket: str = DEFAULT) -> list[str]:
    return [found["Key"] for found in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]


def test_the_default_bucket_is_the_sdks_and_made_if_it_is_not_there(storage: S3Storage, s3: Any) -> None:
    assert storage.default_bucket() == DEFAULT
    storage.ensure_bucket(DEFAULT)
    storage.ensure_bucket(DEFAULT)
    assert [one["Name"] for one in s3.list_buckets()["Buckets"]] == [DEFAULT]
    with pytest.raises(StorageError, match="There is no bucket other: create it, or name another one"):
        storage.ensure_bucket("other")


def test_code_is_brought_there_once_and_again_if_part_of_it_is_gone(
    storage: S3Storage, s3: Any, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print()")
    with packed_code(tmp_path, S3Address(DEFAULT, "code"), leave_out=[], limit=100) as code:
        assert code.upload(storage)
        assert names(s3) == [f"{code.address.key}/{name}" for name in ("run.py", "source.tar.gz")]
        assert not code.upload(storage)
        for name in ("run.py", "source.tar.gz"):
            storage.remove([code.address / name])
            assert code.upload(storage)
            assert len(names(s3)) == 2


def test_a_file_is_no_folder_and_a_folder_not_what_begins_like_it(storage: S3Storage, s3: Any, tmp_path: Path) -> None:
    storage.ensure_bucket(DEFAULT)
    (tmp_path / "x").write_text("12345")
    for key in ("set/a", "set/deep/b", "set-other/c", "set"):
        storage.put(tmp_path / "x", S3Address(DEFAULT, key))
    place = S3Address(DEFAULT, "set")
    assert storage.is_file(place) and not storage.is_file(S3Address(DEFAULT, "set/deep"))
    assert not storage.is_file(S3Address("not-there", "x"))
    (stored,) = storage.stored(place)
    assert (stored.address, stored.size) == (place, 5)
    assert [one.address.key for one in storage.stored(place.folder)] == ["set/a", "set/deep/b"]
    assert [str(getattr(one, "address", one)) for one in storage.entries(place)] == [
        f"s3://{DEFAULT}/set/deep/",
        f"s3://{DEFAULT}/set/a",
    ]
    storage.remove([one.address for one in storage.stored(place.folder)])
    assert names(s3) == ["set", "set-other/c"]


def test_more_than_a_thousand_objects_are_removed(storage: S3Storage, s3: Any) -> None:
    storage.ensure_bucket(DEFAULT)
    for number in (0, 999, 1000, 1004):  # whether the others are there is all the same to S3
        s3.put_object(Bucket=DEFAULT, Key=f"many/{number}", Body=b"")
    storage.remove([S3Address(DEFAULT, f"many/{number}") for number in range(1005)])
    assert names(s3) == []


def test_objects_on_several_pages_are_found(storage: S3Storage, s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    storage.ensure_bucket(DEFAULT)
    for number in range(5):
        s3.put_object(Bucket=DEFAULT, Key=f"many/{number}", Body=b"")
    assert len(list(storage.objects(S3Address(DEFAULT, "many")))) == 5
    assert len(list(storage.entries(S3Address(DEFAULT, "many")))) == 5


def test_what_goes_wrong_is_told_in_a_sentence(storage: S3Storage, tmp_path: Path) -> None:
    address = S3Address("not-there", "x")
    with pytest.raises(StorageError, match=r"s3://not-there/x cannot be downloaded: .*"):
        fetch_file(Stored(address, 1), tmp_path / "x", storage)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError, match=r"s3://not-there/x cannot be listed: .*NoSuchBucket"):
        list(storage.objects(address))
    with pytest.raises(StorageError, match="cannot be uploaded to"):
        storage.put(tmp_path / "nowhere", address)


def test_what_is_there_is_found_by_the_right_to_list_alone(storage: S3Storage, s3: Any) -> None:
    storage.ensure_bucket(DEFAULT)
    for key in ("a", "a-b/c", "a/b", "a/b/c", "ab"):
        s3.put_object(Bucket=DEFAULT, Key=key, Body=b"1")

    def listed(key: str) -> list[str]:
        return sorted(stored.address.key for stored in storage.listed(S3Address(DEFAULT, key)))

    assert listed("a") == ["a", "a/b", "a/b/c"]
    assert listed("a/") == ["a/b", "a/b/c"]
    assert listed("a/b/c") == ["a/b/c"] and listed("a/b/") == ["a/b/c"] and listed("x") == []
    assert len(listed("")) == 5
