"""Access to S3 for ``smq``: upload code once, and list, upload, download, copy and remove data."""

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

from sagemaker_queue.errors import ConfigError, NotAuthenticated, StorageError
from sagemaker_queue.queue.bucket_owners import BucketOwners
from sagemaker_queue.queue.config.queue_config import QueueConfig
from sagemaker_queue.queue.data_links import S3Address
from sagemaker_queue.queue.transport import session_of_profile

OTHER_ACCOUNT_HINT = "If a bucket of another account is meant, say so: smq config set bucket_owners NAME=ACCOUNT"
_WHY_FORBIDDEN = (
    f" Either you may not do this, or the bucket does not belong to the expected account. {OTHER_ACCOUNT_HINT}"
)
Progress = Callable[[int], None]
"""A callback that receives the number of bytes transferred since its last call."""

_FORBIDDEN = ("403", "AccessDenied", "Forbidden")
_MISSING = ("404", "NoSuchKey", "NoSuchBucket", "NotFound")
_PART, _MOST_PARTS = 8 << 20, 10_000  # boto3's default part size in bytes, and S3's limit on the parts of one upload
LARGEST_COPY = 5 << 30
"""The largest object, in bytes, that S3 uploads or copies in one piece."""
_IN_MEMORY = 256 << 20  # maximum bytes of an upload's parts that wait in memory to be sent
_REMOVED_AT_ONCE = 1000  # S3's limit for one DeleteObjects call
_TRIES = 5  # a read fails after this many connections in a row have broken


@dataclass(frozen=True)
class Stored:
    """An object in S3."""

    address: S3Address
    size: int
    etag: str = ""  # S3's ETag; often the MD5 of the content
    modified: datetime | None = None


class StorageRefused(StorageError):
    """These credentials lack the permission in S3, or the object does not exist."""


def aws_session(config: QueueConfig | None) -> boto3.Session:
    """Return the session of the AWS profile in ``config``; if ``config`` is None, one with boto3's defaults.

    Raises ConfigError if the AWS profile cannot be used.
    """
    if config is not None:
        return session_of_profile(config)
    try:
        return boto3.Session()
    except BotoCoreError as error:
        raise ConfigError(f"The AWS profile cannot be used: {error}.") from error


class S3Storage:
    """S3 with the credentials and bucket owners of one profile. Methods raise StorageError or NotAuthenticated."""

    def __init__(self, session: boto3.Session, config: QueueConfig | None = None) -> None:
        self._owners = BucketOwners(session, config)
        with _storage_errors("S3 cannot be used"):
            self._client: Any = self._owners.guarded(session.client("s3"))

    @classmethod
    def of(cls, config: QueueConfig | None, session: boto3.Session | None = None) -> S3Storage:
        """Return S3 with the credentials of a session (default: the profile's, in its region)."""
        return cls(session or aws_session(config), config)

    def default_bucket(self) -> str:
        """Return the name of the bucket that the SageMaker SDK uses by default in this account and region."""
        region = self._client.meta.region_name
        with _storage_errors("The account's number cannot be found for the name of the bucket"):
            return f"sagemaker-{region}-{self._owners.account()}"

    def ensure_bucket(self, name: str) -> None:
        """Create the bucket if it is the default bucket and is missing.

        Raises StorageError if any other bucket is missing, or if the default bucket belongs to another account.
        """
        region = self._client.meta.region_name
        default = re.fullmatch(rf"sagemaker-{re.escape(region)}-(\d{{12}})", name)
        with _storage_errors(f"The bucket {name} cannot be used"):
            if default and self._owners.of(name) not in (None, default[1]):
                raise StorageError(f"The bucket {name} is not of account {self._owners.of(name)}. {OTHER_ACCOUNT_HINT}")
            try:
                if _exists(lambda: self._client.head_bucket(Bucket=name)):
                    return
            except ClientError as error:
                if not default and error.response["Error"]["Code"] == "403":
                    return  # these credentials may not list the bucket, but may be allowed to write to the bucket
                raise
            if not default:
                raise StorageError(f"There is no bucket {name}: create it, or name another one.")
            location = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            self._client.create_bucket(Bucket=name, **location)

    def has(self, address: S3Address) -> bool:
        """Return whether there is an object with exactly this key."""
        with _storage_errors(f"{address} cannot be read"):
            return _exists(lambda: self._client.head_object(Bucket=address.bucket, Key=address.key))

    def is_file(self, address: S3Address) -> bool:
        """Return whether there is an object with exactly this key; False also after an error, such as denied access."""
        try:
            return self.has(address)
        except StorageError:
            return False

    def objects(self, folder: S3Address) -> Iterator[Stored]:
        """Yield all objects below a folder."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=folder.bucket, Prefix=folder.folder.key)
        with _storage_errors(f"{folder} cannot be listed"):
            for page in pages:
                for entry in page.get("Contents", []):
                    yield _stored(folder.bucket, entry)

    def entries(self, folder: S3Address) -> Iterator[Stored | S3Address]:
        """Yield the direct content of a folder: an address for each folder in it, and its objects."""
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
        """Return the object with this key; if there is none, return all objects below the key as a folder."""
        if address.key and not address.key.endswith("/"):
            with _storage_errors(f"{address} cannot be read"):
                try:
                    head = self._client.head_object(Bucket=address.bucket, Key=address.key)
                    return [Stored(address, head["ContentLength"], _etag(head), head["LastModified"])]
                except ClientError as error:
                    if error.response["Error"]["Code"] not in _MISSING:
                        raise
        return list(self.objects(address))

    def listed(self, address: S3Address) -> list[Stored]:
        """Return the object with this key and all objects below the key as a folder; needs only s3:ListBucket."""
        found = list(self.objects(address))
        if address.key and not address.key.endswith("/"):
            with _storage_errors(f"{address} cannot be looked for"):
                page = self._client.list_objects_v2(Bucket=address.bucket, Prefix=address.key, MaxKeys=1)
            first = (_stored(address.bucket, entry) for entry in page.get("Contents", []))
            found += [stored for stored in first if stored.address == address]
        return found

    def put(self, file: Path, address: S3Address, progress: Progress | None = None) -> None:
        """Upload a file to S3."""
        with _storage_errors(f"{file} cannot be uploaded to {address}"):
            self._client.upload_file(str(file), address.bucket, address.key, Callback=progress)

    def has_content_of(self, file: Path, address: S3Address) -> bool:
        """Return whether an object has the content of a file, by the SHA-256 that S3 stores; False if unknown."""
        with _storage_errors(f"{address} cannot be read"):
            try:
                head = self._client.head_object(Bucket=address.bucket, Key=address.key, ChecksumMode="ENABLED")
            except ClientError as error:
                if error.response["Error"]["Code"] not in (*_MISSING, "403", "400"):
                    raise
                return False  # these credentials may not read the object, but may be allowed to upload
            return bool(head.get("ChecksumSHA256") == _checksum(file))

    def put_in_one_piece(self, file: Path, address: S3Address) -> None:
        """Upload a file to S3 in one piece, so that S3 knows the checksum of the whole file."""
        with _storage_errors(f"{file} cannot be uploaded to {address}"), file.open("rb") as content:
            self._client.put_object(
                Bucket=address.bucket,
                Key=address.key,
                Body=content,
                ChecksumSHA256=_checksum(file),
                ChecksumAlgorithm="SHA256",
            )

    def get(self, address: S3Address, file: BinaryIO, progress: Progress | None = None) -> None:
        """Download an object to an open file; the module ``download`` decides which files are allowed."""
        with _storage_errors(f"{address} cannot be downloaded"):
            self._client.download_fileobj(address.bucket, address.key, file, Callback=progress)

    def read_small(self, address: S3Address, most: int) -> bytes:
        """Return the content of an object. Raises StorageError if the object has more than ``most`` bytes."""
        with _storage_errors(f"{address} cannot be read"):
            try:
                answer = self._client.get_object(Bucket=address.bucket, Key=address.key)
                with closing(answer["Body"]) as body:
                    content = cast("bytes", body.read(most + 1))
            except HTTPError as error:  # old versions of botocore let urllib3's error through
                raise StorageError(f"{address} cannot be read: the connection to S3 ended too early.") from error
        if len(content) > most:
            raise StorageError(f"{address} has more than {most:,} bytes.")
        return content

    def properties(self, address: S3Address, part: int | None = None) -> Mapping[str, Any]:
        """Return HeadObject's answer for an object or a part of it; empty if S3 refuses or has no such object."""
        try:
            with _storage_errors(f"{address} cannot be read"):
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
        part_bytes: int | None = None,
        *,
        source: S3Storage | None = None,
        target: S3Storage | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Copy an object inside S3 with these credentials. ``part_bytes`` is the size of a part; None: one piece.

        The profiles of ``source`` and ``target`` (default: this profile) name the accounts that the buckets must belong
        to. Raises StorageRefused if the credentials lack a permission.
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
                Config=_transfer(stored.size, part_bytes),
            )

    def owner(self, bucket: str) -> str | None:
        """Return the account that a bucket must belong to; None: any account."""
        return self._owners.of(bucket)

    @contextmanager
    def reader(self, stored: Stored) -> Iterator[ObjectReader]:
        """Open an object as a file to read; its content is streamed and not stored on this machine."""

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
        part_bytes: int | None,
        properties: Mapping[str, Any],
        progress: Progress | None = None,
    ) -> None:
        """Upload the content of a reader to S3, in parts of ``part_bytes`` bytes; None: in one piece."""
        with _storage_errors(f"{address} cannot be written"):
            self._client.upload_fileobj(
                content,
                address.bucket,
                address.key,
                ExtraArgs=dict(properties),
                Callback=progress,
                Config=_transfer(content.size, part_bytes),
            )

    def remove(self, addresses: list[S3Address]) -> None:
        """Remove objects, all of one bucket."""
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
        """Return a presigned URL, which gives read access to the object for ``seconds`` without credentials."""
        with _storage_errors(f"No URL can be created for {address}"):
            url: str = self._client.generate_presigned_url(
                "get_object", Params={"Bucket": address.bucket, "Key": address.key}, ExpiresIn=seconds
            )
            return url


def same_content(file: Path, stored: Stored) -> bool:
    """Return whether an object has the ETag that the file would get if boto3 uploaded it.

    An ETag proves nothing if S3 encrypts the object with a KMS key, or if another program uploaded the object with
    another part size. The result is then False.
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
    """Return the size in bytes of each part of an upload, as boto3 chooses it."""
    part = _PART
    while -(-size // part) > _MOST_PARTS:
        part *= 2
    return part


def _transfer(size: int, part_bytes: int | None) -> TransferConfig:
    if part_bytes is None:
        return TransferConfig(multipart_threshold=size + 1)
    config = TransferConfig(multipart_threshold=1, multipart_chunksize=part_bytes)
    config.max_in_memory_upload_chunks = max(1, min(config.max_in_memory_upload_chunks, _IN_MEMORY // part_bytes))
    return config


class ObjectReader:
    """An object in S3 as a seekable file. If the connection breaks, ``read`` reconnects and continues."""

    def __init__(self, open_at: Callable[[int], Any], size: int) -> None:
        self.size = size
        self._open_at = open_at
        self._position = 0
        self._body: Any = None

    def readable(self) -> bool:
        """Return True: boto3 calls this method of a file to upload."""
        return True

    def seekable(self) -> bool:
        """Return True: boto3 can find the size by seeking, and read the content a second time."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position; nothing is downloaded until the next read."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if start + offset != self._position:
            self.close()
            self._position = start + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, or fewer at the end of the object."""
        left = self.size - self._position
        wanted = left if size is None or size < 0 else min(size, left)
        blocks = []
        while wanted > 0:
            block = self._read_some(wanted)
            wanted -= len(block)
            blocks.append(block)
        return b"".join(blocks)

    def close(self) -> None:
        """Close the connection; the next read opens a new connection."""
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
            except (BotoCoreError, HTTPError):  # old versions of botocore let urllib3's HTTPError through
                if not left:
                    raise
            self.close()
        raise StorageError("The connection to S3 ended too early, several times.")


def _md5(file: Path, size: int, part: int) -> list[bytes]:
    """Return the MD5 of each part of a file; an empty file has one part."""
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


def _exists(request: Callable[[], object]) -> bool:
    try:
        request()
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
        message = f"{failure}: {details.get('Message') or details['Code']} ({details['Code']})."
        if details["Code"] in _FORBIDDEN:  # S3 answers the same for a missing permission and a foreign bucket
            raise StorageRefused(message + _WHY_FORBIDDEN) from error
        raise (StorageRefused if details["Code"] in _MISSING else StorageError)(message) from error
    except (BotoCoreError, Boto3Error) as error:
        # A transfer's error quotes only the text of S3's error, and has S3's error as its context.
        cause = error.__context__
        forbidden = isinstance(cause, ClientError) and cause.response["Error"]["Code"] in _FORBIDDEN
        if forbidden:
            raise StorageRefused(f"{failure}: {error}{_WHY_FORBIDDEN}") from error
        raise StorageError(f"{failure}: {error}") from error
    except OSError as error:
        raise StorageError(f"{failure}: {error.strerror or error}.") from error
