"""Copies between two profiles' S3 (document 004): what stays the same, what is sent again, and what memory it takes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ReadTimeoutError
from moto import mock_aws

from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.packaging.copying import SOURCE_ETAG, Copier
from sagemaker_queue.jobs.packaging.storage import ObjectReader, S3Storage, StorageRefused, Stored
from sagemaker_queue.queue.data_links import S3Address

MEGA = 1 << 20
SOURCE, TARGET = S3Address("one", "set/x"), S3Address("two", "set/x")


class TwoAccounts:
    """S3 of two profiles, neither of which may copy inside S3 unless ``may_copy`` has it."""

    def __init__(self) -> None:
        self.may_copy: set[str] = set()
        self.asked: list[str] = []
        self.one, self.two = self._storage("one"), self._storage("two")
        self.s3 = boto3.client("s3", region_name="us-east-1")
        for bucket in ("one", "two"):
            self.s3.create_bucket(Bucket=bucket)

    def _storage(self, name: str) -> S3Storage:
        session = boto3.Session("AKIDEXAMPLE", "not-a-secret", region_name="us-east-1")

        def note(model: Any, **_: Any) -> None:
            self.asked.append(f"{name}: {model.name}")

        def refuse(model: Any, **_: Any) -> Any:
            if model.name in ("CopyObject", "UploadPartCopy") and name not in self.may_copy:
                body = {"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}
                return type("Answer", (), {"status_code": 403})(), {**body, "ResponseMetadata": {}}
            return None

        session.events.register("before-call.s3", note)
        session.events.register("before-call.s3", refuse)
        return S3Storage(session)

    def copier(self) -> Copier:
        self.asked.clear()
        return Copier(self.one, self.two)

    def copies(self, content: bytes, parts: int | None = None, **more: Any) -> Any:
        """Bring content to the source, copy it, and return what S3 says of the target."""
        if parts:
            config = TransferConfig(multipart_threshold=1, multipart_chunksize=parts)
            self.s3.upload_fileobj(io.BytesIO(content), "one", "set/x", ExtraArgs=more, Config=config)
        else:
            self.s3.put_object(Bucket="one", Key="set/x", Body=content, **more)
        (stored,) = self.one.stored(SOURCE)
        moved: list[int] = []
        self.copier().copy(stored, TARGET, moved.append)
        assert sum(moved) == len(content)
        answer = self.s3.get_object(Bucket="two", Key="set/x")
        assert answer["Body"].read() == content
        return answer

    def has_arrived(self) -> bool:
        (stored,), (there,) = self.one.stored(SOURCE), self.two.stored(TARGET)
        return self.copier().has_arrived(stored, there)


@pytest.fixture
def accounts() -> Iterator[TwoAccounts]:
    with mock_aws():
        yield TwoAccounts()


@pytest.mark.parametrize("content", [b"", b"small", bytes(range(250)) * 36_000], ids=["empty", "small", "large"])
def test_an_object_in_one_piece_stays_the_same_through_this_machine(accounts: TwoAccounts, content: bytes) -> None:
    answer = accounts.copies(content, ContentType="text/csv", Metadata={"made-by": "ann"})
    etag = accounts.s3.head_object(Bucket="one", Key="set/x")["ETag"]
    assert answer["ETag"] == etag
    assert answer["ContentType"] == "text/csv"
    assert answer["Metadata"] == {"made-by": "ann", SOURCE_ETAG: etag.strip('"')}
    assert [it for it in accounts.asked if "Copy" in it] == ["two: CopyObject", "one: CopyObject"]
    assert accounts.has_arrived()


def test_parts_stay_the_same(accounts: TwoAccounts) -> None:
    answer = accounts.copies(os.urandom(1000) * 14_000, parts=6 * MEGA)
    assert answer["ETag"] == accounts.s3.head_object(Bucket="one", Key="set/x")["ETag"]
    assert answer["ETag"].endswith('-3"')
    assert "two: UploadPart" in accounts.asked


@pytest.mark.parametrize(("identity", "other"), [("one", "two"), ("two", "one")])
@pytest.mark.parametrize("parts", [None, 6 * MEGA])
def test_s3_copies_by_itself_where_one_identity_may(
    accounts: TwoAccounts, identity: str, other: str, parts: int | None
) -> None:
    accounts.may_copy.add(identity)
    answer = accounts.copies(os.urandom(1000) * 14_000, parts)
    assert answer["ETag"] == accounts.s3.head_object(Bucket="one", Key="set/x")["ETag"]
    assert not {"one: GetObject", "two: PutObject", "two: UploadPart"} & set(accounts.asked)
    assert accounts.has_arrived()


def test_after_a_refusal_no_identity_is_asked_again(accounts: TwoAccounts) -> None:
    streams: list[str] = []
    copier = Copier(accounts.one, accounts.two, lambda: streams.append("now"))
    for name in ("a", "b", "c"):
        accounts.s3.put_object(Bucket="one", Key=name, Body=b"1")
        (stored,) = accounts.one.stored(S3Address("one", name))
        copier.copy(stored, S3Address("two", name))
    assert sum("CopyObject" in it for it in accounts.asked) == 2
    assert streams == ["now"]


def test_an_etag_that_differs_is_found_in_the_metadata(accounts: TwoAccounts) -> None:
    accounts.s3.put_object(Bucket="one", Key="set/x", Body=b"content")
    etag = accounts.s3.head_object(Bucket="one", Key="set/x")["ETag"].strip('"')
    (stored,) = accounts.one.stored(SOURCE)
    copier = accounts.copier()
    for metadata, arrived in (({SOURCE_ETAG: etag}, True), ({SOURCE_ETAG: "other"}, False), ({}, False)):
        accounts.s3.put_object(Bucket="two", Key="set/x", Body=b"CONTENT", Metadata=metadata)  # of the same size
        (there,) = accounts.two.stored(TARGET)
        assert copier.has_arrived(stored, there) == arrived
    assert not copier.has_arrived(stored, Stored(TARGET, 8, etag))
    assert not copier.has_arrived(Stored(SOURCE, 7), Stored(TARGET, 7))  # an S3 without ETags proves nothing


def test_a_large_object_is_never_whole_in_memory(accounts: TwoAccounts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagemaker_queue.jobs.packaging.copying._LARGEST_PART", 6 * MEGA)
    monkeypatch.setattr("sagemaker_queue.jobs.packaging.storage._IN_MEMORY", 6 * MEGA)
    most: list[int] = []
    read = ObjectReader.read

    def reads(self: ObjectReader, size: int = -1) -> bytes:
        block = read(self, size)
        most.append(len(block))
        return block

    monkeypatch.setattr(ObjectReader, "read", reads)
    answer = accounts.copies(os.urandom(1000) * 30_000)
    assert answer["ETag"].endswith('-4"')
    assert max(most) <= 8 * MEGA
    assert accounts.has_arrived()


def test_an_object_that_changes_meanwhile_is_not_mixed(accounts: TwoAccounts) -> None:
    accounts.s3.put_object(Bucket="one", Key="set/x", Body=b"before")
    (stored,) = accounts.one.stored(SOURCE)
    accounts.s3.put_object(Bucket="one", Key="set/x", Body=b"afters")
    with pytest.raises(StorageError, match="one/set/x has changed since it was listed: run the command again"):
        accounts.copier().copy(stored, TARGET)
    assert not accounts.two.has(TARGET)


def test_who_may_not_read_is_told_of_the_source(accounts: TwoAccounts) -> None:
    with pytest.raises(StorageRefused, match="one/set/none cannot be read"):
        accounts.copier().copy(Stored(S3Address("one", "set/none"), 3, "e"), TARGET)


class Breaking:
    """The body of an answer that ends too early, by an error or as if there were no more."""

    def __init__(self, content: bytes, error: Exception | None) -> None:
        self._content, self._error = content, error
        self.closed = False

    def read(self, size: int) -> bytes:
        block, self._content = self._content[:size], self._content[size:]
        if not block and self._error:
            raise self._error
        return block

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("error", [None, ReadTimeoutError(endpoint_url="s3")])
def test_a_connection_that_breaks_is_made_again(error: Exception | None) -> None:
    content, opened = os.urandom(100), []

    def open_at(position: int) -> Breaking:
        opened.append(position)
        return Breaking(content[position : position + 30], error)

    reader = ObjectReader(open_at, len(content))
    assert (reader.seek(0, os.SEEK_END), reader.seek(10)) == (100, 10)
    assert reader.read(60) == content[10:70]
    assert opened == [10, 40]
    assert reader.read() == content[70:] and reader.read(5) == b"" and reader.tell() == 100
    reader.seek(0)
    assert reader.read() == content


def test_a_connection_that_always_breaks_is_given_up() -> None:
    tries: list[int] = []

    def open_at(position: int) -> Breaking:
        tries.append(position)
        return Breaking(b"", None)

    with pytest.raises(StorageError, match="ended too early"):
        ObjectReader(open_at, 3).read()
    assert tries == [0] * 5
