"""Files between S3 and a job's folders as SageMaker transfers them: input channels, checkpoints, artifacts.

The agent of a carrier (job_queue/carrier_agent) has separate code for the same transfers. If both shared code, tests
could not notice its errors.
"""

import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

from local_cloud.sagemaker.job_processes.failures import unable_to_download

UNSETTLED = 0.05  # seconds; two writes to a file within this time may leave the same time of modification

_OTHER_REGION_CODES = ("PermanentRedirect", "301")  # of an answer for a bucket in another region


class _FileState(NamedTuple):
    """The attributes of a file by which a change is noticed."""

    modified_ns: int
    size: int
    inode: int


class TransferError(Exception):
    """A failed download or upload. The message names the address and the cause."""


def stay_in_region(client: Any) -> None:
    """Make an S3 client refuse buckets of other regions, as SageMaker does, instead of following S3's redirection."""

    def mark_as_redirected(context: dict[str, Any], **_: Any) -> None:
        context.get("s3_redirect", {})["redirected"] = True  # botocore follows at most one redirection of a call

    client.meta.events.register("before-call.s3", mark_as_redirected)


def split_uri(uri: str) -> tuple[str, str]:
    """Return bucket and key of an `s3://bucket/key` address. Raise TransferError if the address has another form."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise TransferError(f"{uri} is not an address of the form s3://bucket/key")
    return bucket, key


class Storage:
    """The transfers between S3 and a job's folders. `client` is a boto3 client of S3.

    The folder `scratch` is for temporary files during a transfer. A failed transfer raises TransferError.
    """

    def __init__(self, client: Any, scratch: Path) -> None:
        self._client = client
        self._scratch = scratch

    def download(self, uri: str, target: Path) -> None:
        """Download one object to a file."""
        bucket, key = split_uri(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            body = self._client.get_object(Bucket=bucket, Key=key)["Body"]
            with target.open("wb") as file:
                shutil.copyfileobj(body, file)
        except (BotoCoreError, ClientError) as error:
            raise TransferError(unable_to_download(uri, error)) from error

    def download_channel(self, source: dict[str, Any], target: Path, shard: int, shards: int) -> None:
        """Download the S3DataSource of a channel into a folder. Raise TransferError if no object matches.

        With ShardedByS3Key, only the objects of the given shard are downloaded.
        """
        uri = source["S3Uri"]
        files = self._files_of_manifest(uri) if source["S3DataType"] == "ManifestFile" else self._files_below(uri)
        if not files:
            raise TransferError(f"Data download failed:no object in S3 matches {uri}")
        if source.get("S3DataDistributionType") == "ShardedByS3Key":
            files = files[shard::shards]
        target.mkdir(parents=True, exist_ok=True)
        for address, relative in files:
            self.download(address, target / relative)

    def download_folder(self, uri: str, target: Path) -> list[Path]:
        """Download all objects below `uri/`. Return the written files; empty if there are no objects."""
        bucket, prefix = split_uri(uri.rstrip("/") + "/")
        written = []
        for key in self._keys(bucket, prefix):
            path = target / key.removeprefix(prefix)
            self.download(f"s3://{bucket}/{key}", path)
            written.append(path)
        return written

    def upload_changing(self, path: Path, uri: str) -> None:
        """Upload a file that may be changing. The whole file is read first, so that its length stays the same.

        :raises FileNotFoundError: the file has been removed.
        """
        bucket, key = split_uri(uri)
        try:
            self._client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
        except (BotoCoreError, ClientError) as error:
            raise TransferError(_upload_error_text(uri, error)) from error

    def upload(self, path: Path, uri: str) -> None:
        """Upload a file of any size that does not change any more."""
        bucket, key = split_uri(uri)
        try:
            self._client.upload_file(str(path), bucket, key, Config=TransferConfig(use_threads=False))
        except (BotoCoreError, ClientError, Boto3Error) as error:
            raise TransferError(_upload_error_text(uri, error)) from error

    def upload_packed(self, folders: Iterable[Path], uri: str) -> None:
        """Upload the content of the folders as one .tar.gz.

        If files have the same name, the first folder's file is used.
        """
        with tempfile.NamedTemporaryFile(dir=self._scratch) as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
                for relative, path in _merged(folders).items():
                    archive.add(path, arcname=relative, recursive=False)
            file.flush()
            self.upload(Path(file.name), uri)

    def upload_folders(self, folders: Iterable[Path], uri: str) -> None:
        """Upload the files of the folders below `uri/`.

        If files have the same name, the first folder's file is used.
        """
        for relative, path in _merged(folders).items():
            if path.is_file():
                self.upload(path, f"{uri.rstrip('/')}/{relative}")

    def _files_below(self, uri: str) -> list[tuple[str, str]]:
        """Return the address and the path in the channel of each object that the prefix selects."""
        bucket, prefix = split_uri(uri)
        keys = self._keys(bucket, prefix)
        folder = prefix.rstrip("/") + "/"
        # s3://bucket/data may mean one object, the folder data/, or all objects whose key begins with "data".
        base = folder if prefix and all(key.startswith(folder) for key in keys) else prefix.rpartition("/")[0] + "/"
        return [(f"s3://{bucket}/{key}", key.removeprefix(base.lstrip("/"))) for key in keys]

    def _files_of_manifest(self, uri: str) -> list[tuple[str, str]]:
        """Return the address and the path in the channel of each object that a manifest names."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            self.download(uri, Path(folder) / "manifest")
            text = (Path(folder) / "manifest").read_text()
        try:
            first, *entries = json.loads(text)
            return [(first["prefix"] + entry, entry) for entry in entries]
        except (ValueError, LookupError, TypeError) as error:
            raise TransferError(f"Data download failed:{uri} is not a manifest: {error}") from error

    def _keys(self, bucket: str, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        try:
            keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        except (BotoCoreError, ClientError) as error:
            raise TransferError(unable_to_download(f"s3://{bucket}/{prefix}", error)) from error
        return [key for key in keys if not key.endswith("/")]


class CheckpointSync:
    """The copying of all instances' checkpoint folders to one prefix in S3, and their restoration at the start.

    As in SageMaker, a file that is deleted here stays in S3. An instance sees the checkpoints of another instance only
    after a restoration. If several instances have a file of the same name, the last copy replaces the earlier ones.
    """

    def __init__(
        self, storage: Storage, folders: Sequence[Path], uri: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._storage = storage
        self._folders = folders
        self._uri = uri.rstrip("/")
        self._clock = clock
        self._sent: dict[Path, _FileState] = {}

    def restore(self) -> None:
        """Download the checkpoints of earlier attempts into the folder of every instance."""
        first, *others = self._folders
        for path in self._storage.download_folder(self._uri, first):
            self._sent[path] = _state_of(path)
            for folder in others:
                copy = folder / path.relative_to(first)
                copy.parent.mkdir(parents=True, exist_ok=True)
                self._sent[copy] = _state_of(shutil.copyfile(path, copy))

    def sync(self) -> None:
        """Copy new and changed files. A file that changes during the copy is copied again the next time."""
        for path, name in self._by_age():
            try:
                before = _state_of(path)
                if self._sent.get(path) == before:
                    continue
                self._storage.upload_changing(path, f"{self._uri}/{name}")
                settled = abs(self._clock() - before.modified_ns / 1e9) > UNSETTLED
                if settled and _state_of(path) == before:
                    self._sent[path] = before
            except FileNotFoundError:  # the script has removed the file, as scripts do with temporary files
                continue

    def _by_age(self) -> list[tuple[Path, Path]]:
        """Return each file with its path relative to its folder, the oldest first.

        A script writes a checkpoint before the file that points to it, so both are uploaded in this order.
        """
        aged = []
        for folder in self._folders:
            for path in folder.rglob("*"):
                try:
                    if path.is_file():
                        aged.append((path.stat().st_mtime_ns, path, path.relative_to(folder)))
                except FileNotFoundError:
                    continue
        return [(path, name) for _, path, name in sorted(aged)]


def _upload_error_text(uri: str, error: Exception) -> str:
    """Return the reason of a failed upload. For a bucket in another region it is SageMaker's own text.

    Source: aws/amazon-sagemaker-examples issue 3881.
    """
    code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
    if code in _OTHER_REGION_CODES or any(f"({code})" in str(error) for code in _OTHER_REGION_CODES):
        reason = "BucketRegionError: bucket must be in the same region as the job"
        return f"Artifact upload failed:Unable to upload file to {uri} ({reason})"
    return f"Artifact upload failed:{uri}: {error}"


def _state_of(path: Path) -> _FileState:
    status = path.stat()
    return _FileState(status.st_mtime_ns, status.st_size, status.st_ino)


def _merged(folders: Iterable[Path]) -> dict[Path, Path]:
    merged: dict[Path, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            merged.setdefault(path.relative_to(folder), path)
    return merged
