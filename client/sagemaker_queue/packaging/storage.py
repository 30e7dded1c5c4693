"""S3 as ``smq`` uses it: code that is uploaded once, and data that people look at, bring there, fetch and remove."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError
from urllib3.exceptions import HTTPError

from sagemaker_queue.bucket_owners import BucketOwners
from sagemaker_queue.config.queue_config import QueueConfig
from sagemaker_queue.data_links import S3Address
from sagemaker_queue.errors import ConfigError, NotAuthenticated, StorageError
from sagemaker_queue.transport import region_of

OTHERS = "If a bucket of another account is meant, say so: smq config set bucket_owners NAME=ACCOUNT"
_WHY_FORBIDDEN = f" Either you may not do this, or the bucket does not belong to the expected account. {OTHERS}"
Progress = Callable[[int], None]
"""Called with the number of bytes that were moved since the last call."""

_FORBIDDEN = ("403", "AccessDenied", "Forbidden")
_MISSING = ("404", "NoSuchKey", "NoSuchBucket", "NotFound")
_PART, _MOST_PARTS = 8 << 20, 10_000  # of an upload: boto3's, and S3's
LARGEST_COPY = 5 << 30
"""Bytes that S3 takes or copies in one piece."""
_IN_MEMORY = 256 << 20  # bytes of parts that wait to be sent
_REMOVED_AT_ONCE = 1000  # S3's limit
_TRIES = 5  # to go on reading where a connection has ended


@dataclass(frozen=True)
class Stored:
    """An object in S3."""

    address: S3Address
    size: int
    etag: str = ""  # of S3; often the MD5 of the content
    modified: datetime | None = None


class StorageRefused(StorageError):
    """These credentials may not do this in S3, or find nothing there."""


def aws_session(config: QueueConfig) -> boto3.Session:
    """Return a session with the credentials of a profile, in its region. Raises ConfigError if there is none."""
    try:
        return boto3.Session(profile_name=config.aws_profile, region_name=config.region or region_of(config.url))
    except BotoCoreError as error:
        raise ConfigError(f"AWS profile {config.aws_profile!r} cannot be used: {error}.") from error


class Storage:
    """Raises StorageError, or NotAuthenticated, where something cannot be done."""

    def __init__(self, session: boto3.Session, config: QueueConfig | None = None) -> None:
        self._owners = BucketOwners(session, config)
        with _storage_errors("S3 cannot be used"):
            self._client: Any = self._owners.guarded(session.client("s3"))

    @classmethod
    def of(cls, config: QueueConfig) -> Storage:
        """S3 with the credentials of a profile, in its region."""
        return cls(aws_session(config), config)

    def default_bucket(self) -> str:
        """The bucket that the SageMaker SDK uses where none is named."""
        region = self._client.meta.region_name
        with _storage_errors("The account's number cannot be found for the name of the bucket"):
            return f"sagemaker-{region}-{self._owners.account()}"

    def make_ready(self, name: str) -> None:
        """Make a bucket if it is the default one and not there. Nobody else's bucket of its name is used."""
        region = self._client.meta.region_name
        default = re.fullmatch(rf"sagemaker-{re.escape(region)}-(\d{{12}})", name)
        with _storage_errors(f"The bucket {name} cannot be used"):
            if default and self._owners.of(name) not in (None, default[1]):
                raise StorageError(f"The bucket {name} is not of account {self._owners.of(name)}. {OTHERS}")
            try:
                if _found(lambda: self._client.head_bucket(Bucket=name)):
                    return
            except ClientError as error:
                if not default and error.response["Error"]["Code"] == "403":
                    return  # whoever may not list it may still bring things there
                raise
            if not default:
                raise StorageError(f"There is no bucket {name}: make it, or name another one.")
            location = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            self._client.create_bucket(Bucket=name, **location)

    def has(self, address: S3Address) -> bool:
        """Whether there is an object with exactly this key."""
        with _storage_errors(f"{address} cannot be looked at"):
            return _found(lambda: self._client.head_object(Bucket=address.bucket, Key=address.key))

    def is_file(self, address: S3Address) -> bool:
        """Whether it is known to be an object; where one may not look, it is taken for a folder."""
        try:
            return self.has(address)
        except StorageError:
            return False

    def objects(self, folder: S3Address) -> Iterator[Stored]:
        """Yield all that is below a folder."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=folder.bucket, Prefix=folder.folder.key)
        with _storage_errors(f"{folder} cannot be listed"):
            for page in pages:
                for entry in page.get("Contents", []):
                    yield _stored(folder.bucket, entry)

    def entries(self, folder: S3Address) -> Iterator[Stored | S3Address]:
        """Yield what is in a folder: the folders in it, and its files."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=folder.bucket, Prefix=folder.folder.key, Delimiter="/"
        )
        with _storage_errors(f"{folder} cannot be listed"):
            for page in pages:
                for prefix in page.get("CommonPrefixes", []):
                    yield S3Address(folder.bucket, prefix["Prefix"])
                for entry in page.get("Contents", []):
                    yield _stored(folder.bucket, entry)

    def stored(self, address: S3Address) -> list[Stored]:
        """The object of that key, or else all that is below it as a folder."""
        if address.key and not address.key.endswith("/"):
            with _storage_errors(f"{address} cannot be looked at"):
                try:
                    head = self._client.head_object(Bucket=address.bucket, Key=address.key)
                    return [Stored(address, head["ContentLength"], _etag(head), head["LastModified"])]
                except ClientError as error:
                    if error.response["Error"]["Code"] not in _MISSING:
                        raise
        return list(self.objects(address))

    def listed(self, address: S3Address) -> list[Stored]:
        """Return the object of that key and all that is below it as a folder, by the right to list alone."""
        found = list(self.objects(address))
        if address.key and not address.key.endswith("/"):
            with _storage_errors(f"{address} cannot be looked for"):
                page = self._client.list_objects_v2(Bucket=address.bucket, Prefix=address.key, MaxKeys=1)
            first = (_stored(address.bucket, entry) for entry in page.get("Contents", []))
            found += [stored for stored in first if stored.address == address]
        return found

    def put(self, file: Path, address: S3Address, progress: Progress | None = None) -> None:
        """Bring a file to S3."""
        with _storage_errors(f"{file} cannot be brought to {address}"):
            self._client.upload_file(str(file), address.bucket, address.key, Callback=progress)

    def holds(self, file: Path, address: S3Address) -> bool:
        """Whether an object is known to have the content of a file, by the checksum that S3 has made of it."""
        with _storage_errors(f"{address} cannot be looked at"):
            try:
                head = self._client.head_object(Bucket=address.bucket, Key=address.key, ChecksumMode="ENABLED")
            except ClientError as error:
                if error.response["Error"]["Code"] not in (*_MISSING, "403", "400"):
                    raise
                return False  # whoever may not look may still bring it there
            return bool(head.get("ChecksumSHA256") == _checksum(file))

    def put_whole(self, file: Path, address: S3Address) -> None:
        """Bring a file to S3 in one piece, so that S3 knows its checksum."""
        with _storage_errors(f"{file} cannot be brought to {address}"), file.open("rb") as content:
            self._client.put_object(
                Bucket=address.bucket,
                Key=address.key,
                Body=content,
                ChecksumSHA256=_checksum(file),
                ChecksumAlgorithm="SHA256",
            )

    def get(self, address: S3Address, file: BinaryIO, progress: Progress | None = None) -> None:
        """Fetch an object to an open file; ``download`` says which file may be one."""
        with _storage_errors(f"{address} cannot be fetched"):
            self._client.download_fileobj(address.bucket, address.key, file, Callback=progress)

    def properties(self, address: S3Address, part: int | None = None) -> Mapping[str, Any]:
        """Return what S3 says of an object, or of one part of it; nothing where one may not look."""
        try:
            with _storage_errors(f"{address} cannot be looked at"):
                more = {} if part is None else {"PartNumber": part}
                return cast(
                    "Mapping[str, Any]", self._client.head_object(Bucket=address.bucket, Key=address.key, **more)
                )
        except StorageRefused:
            return {}

    def copy(
        self,
        stored: Stored,
        address: S3Address,
        parts: int | None = None,
        *,
        source: Storage | None = None,
        target: Storage | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Copy an object inside S3 with these credentials; ``parts`` are the bytes of each, None is one piece.

        ``source`` and ``target`` are S3 of the profiles that know whom the two buckets must belong to (default: this
        one). Raises StorageRefused.
        """
        source, target = source or self, target or self
        owners = {stored.address.bucket: source.owner, address.bucket: target.owner}
        with _storage_errors(f"{stored.address} cannot be copied to {address}"), self._owners.expecting(owners):
            self._client.copy(
                {"Bucket": stored.address.bucket, "Key": stored.address.key},
                address.bucket,
                address.key,
                Callback=progress,
                SourceClient=source._client,
                Config=_transfer(stored.size, parts),
            )

    def owner(self, bucket: str) -> str | None:
        """Return the account that a bucket must belong to; None: any."""
        return self._owners.of(bucket)

    @contextmanager
    def reader(self, stored: Stored) -> Iterator[ObjectReader]:
        """Give an object as a file to read, which is not kept on this machine."""

        def open_at(position: int) -> Any:
            more = {"IfMatch": f'"{stored.etag}"'} if stored.etag else {}
            with _storage_errors(f"{stored.address} cannot be read"):
                try:
                    answer = self._client.get_object(
                        Bucket=stored.address.bucket, Key=stored.address.key, Range=f"bytes={position}-", **more
                    )
                except ClientError as error:
                    if error.response["Error"]["Code"] != "PreconditionFailed":
                        raise
                    raise StorageError(
                        f"{stored.address} has changed since it was listed: run the command again."
                    ) from error
            return answer["Body"]

        with closing(ObjectReader(open_at, stored.size)) as reader:
            yield reader

    def put_object(
        self,
        content: ObjectReader,
        address: S3Address,
        parts: int | None,
        properties: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> None:
        """Bring what a reader reads to S3, in parts of so many bytes, or in one piece."""
        with _storage_errors(f"{address} cannot be written"):
            self._client.upload_fileobj(
                content,
                address.bucket,
                address.key,
                ExtraArgs=dict(properties),
                Callback=progress,
                Config=_transfer(content.size, parts),
            )

    def remove(self, addresses: list[S3Address]) -> None:
        """Remove objects of one bucket."""
        for start in range(0, len(addresses), _REMOVED_AT_ONCE):
            batch = addresses[start : start + _REMOVED_AT_ONCE]
            with _storage_errors(
                f"{batch[0]} and others cannot be removed" if len(batch) > 1 else f"{batch[0]} cannot be removed"
            ):
                answer = self._client.delete_objects(
                    Bucket=batch[0].bucket,
                    Delete={"Objects": [{"Key": address.key} for address in batch], "Quiet": True},
                )
            for refused in answer.get("Errors", []):
                raise StorageError(f"s3://{batch[0].bucket}/{refused['Key']} cannot be removed: {refused['Message']}")

    def url(self, address: S3Address, seconds: int) -> str:
        """Return an address at which anybody can read the object for so long."""
        with _storage_errors(f"No URL can be made for {address}"):
            url: str = self._client.generate_presigned_url(
                "get_object", Params={"Bucket": address.bucket, "Key": address.key}, ExpiresIn=seconds
            )
            return url


def same_content(file: Path, stored: Stored) -> bool:
    """Whether an object is known to have the content of a file: its ETag is what boto3's upload of it would give.

    Where S3 encrypts with a key of KMS, or another program has uploaded it in other parts, nothing is known.
    """
    if file.stat().st_size != stored.size:
        return False
    digest, hyphen, count = stored.etag.partition("-")
    if not hyphen:
        return _md5(file, stored.size, max(stored.size, 1))[0].hex() == digest
    part = part_size(stored.size)
    if count != str(-(-stored.size // part)):
        return False
    return hashlib.md5(b"".join(_md5(file, stored.size, part)), usedforsecurity=False).hexdigest() == digest


def part_size(size: int) -> int:
    """Return the bytes of each part of an upload, as boto3 chooses them."""
    part = _PART
    while -(-size // part) > _MOST_PARTS:
        part *= 2
    return part


def _transfer(size: int, parts: int | None) -> TransferConfig:
    if parts is None:
        return TransferConfig(multipart_threshold=size + 1)
    config = TransferConfig(multipart_threshold=1, multipart_chunksize=parts)
    config.max_in_memory_upload_chunks = max(1, min(config.max_in_memory_upload_chunks, _IN_MEMORY // parts))
    return config


class ObjectReader:
    """An object as a file to read from any position; a connection that breaks is made again."""

    def __init__(self, open_at: Callable[[int], Any], size: int) -> None:
        self.size = size
        self._open_at = open_at
        self._position = 0
        self._body: Any = None

    def readable(self) -> bool:
        """Tell boto3 that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell boto3 that its size can be found, and that it can be read twice."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position; nothing is fetched before it is read."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if start + offset != self._position:
            self.close()
            self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, fewer only at the end."""
        left = self.size - self._position
        wanted = left if size is None or size < 0 else min(size, left)
        blocks = []
        while wanted > 0:
            block = self._read_some(wanted)
            wanted -= len(block)
            blocks.append(block)
        return b"".join(blocks)

    def close(self) -> None:
        """End the connection; reading makes another."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def _read_some(self, wanted: int) -> bytes:
        for left in reversed(range(_TRIES)):
            try:
                self._body = self._body or self._open_at(self._position)
                if block := self._body.read(wanted):
                    self._position += len(block)
                    return cast("bytes", block)
            except (BotoCoreError, HTTPError):  # the latter is urllib3's, by way of botocore of old
                if not left:
                    raise
            self.close()
        raise StorageError("The connection to S3 ended too early, several times.")


def _md5(file: Path, size: int, part: int) -> list[bytes]:
    """Return the MD5 of each part of a file; an empty one is a part."""
    digests = []
    with file.open("rb") as content:
        for _ in range(0, max(size, 1), part):
            digest, left = hashlib.md5(usedforsecurity=False), part
            while block := content.read(min(left, 1 << 20)):
                digest.update(block)
                left -= len(block)
            digests.append(digest.digest())
    return digests


def _stored(bucket: str, entry: Mapping[str, Any]) -> Stored:
    return Stored(S3Address(bucket, entry["Key"]), entry["Size"], _etag(entry), entry["LastModified"])


def _etag(entry: Mapping[str, Any]) -> str:
    return str(entry.get("ETag", "")).strip('"')


def _checksum(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return base64.b64encode(digest.digest()).decode()


def _found(look: Callable[[], object]) -> bool:
    try:
        look()
    except ClientError as error:
        if error.response["Error"]["Code"] in _MISSING:
            return False
        raise
    return True


@contextmanager
def _storage_errors(failure: str) -> Iterator[None]:
    try:
        yield
    except NoCredentialsError as error:
        raise NotAuthenticated("No AWS credentials were found for S3: log in to AWS, or set AWS_PROFILE.") from error
    except NoRegionError as error:
        raise ConfigError("The AWS region is not known: set AWS_DEFAULT_REGION, or region in the profile.") from error
    except ClientError as error:
        details = error.response["Error"]
        said = f"{failure}: {details.get('Message') or details['Code']} ({details['Code']})."
        if details["Code"] in _FORBIDDEN:  # S3 does not say which of both it is
            raise StorageRefused(said + _WHY_FORBIDDEN) from error
        raise (StorageRefused if details["Code"] in _MISSING else StorageError)(said) from error
    except (BotoCoreError, Boto3Error) as error:
        cause = error.__context__  # a transfer tells in its own words what S3 has said
        forbidden = isinstance(cause, ClientError) and cause.response["Error"]["Code"] in _FORBIDDEN
        if forbidden:
            raise StorageRefused(f"{failure}: {error}{_WHY_FORBIDDEN}") from error
        raise StorageError(f"{failure}: {error}") from error
    except OSError as error:
        raise StorageError(f"{failure}: {error.strerror or error}.") from error
