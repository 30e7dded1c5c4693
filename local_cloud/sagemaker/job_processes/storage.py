"""Files between S3 and a job's folders: input channels, checkpoints, artifacts."""

import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

UNSETTLED = 0.05  # seconds: a file changed so lately may change again without a change of its time stamp

_Signature = tuple[int, int, int]


class TransferError(Exception):
    """A file could not be moved from or to S3; the message says which, and why."""


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of an `s3://bucket/key` address."""
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise TransferError(f"{uri} is not an address of the form s3://bucket/key")
    return bucket, key


class Storage:
    """What SageMaker does with S3 for a job. `client` is a boto3 S3 client, `scratch` a folder for passing files."""

    def __init__(self, client: Any, scratch: Path) -> None:
        self._client = client
        self._scratch = scratch

    def download(self, uri: str, target: Path) -> None:
        """One object to one file."""
        bucket, key = split_uri(uri)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            body = self._client.get_object(Bucket=bucket, Key=key)["Body"]
            with target.open("wb") as file:
                shutil.copyfileobj(body, file)
        except (BotoCoreError, ClientError) as error:
            raise TransferError(f"Data download failed: {uri}: {error}") from error

    def download_channel(self, source: dict[str, Any], target: Path, shard: int, shards: int) -> None:
        """One channel's S3DataSource into its folder, or the part of it that one instance is to get."""
        uri = source["S3Uri"]
        files = self._manifest(uri) if source["S3DataType"] == "ManifestFile" else self._prefix(uri)
        if not files:
            raise TransferError(f"Data download failed: no object in S3 matches {uri}")
        if source.get("S3DataDistributionType") == "ShardedByS3Key":
            files = files[shard::shards]
        target.mkdir(parents=True, exist_ok=True)
        for address, relative in files:
            self.download(address, target / relative)

    def download_folder(self, uri: str, target: Path) -> list[Path]:
        """Everything below `uri/`; gives the files written. An empty or missing prefix is no error."""
        bucket, prefix = split_uri(uri.rstrip("/") + "/")
        written = []
        for key in self._keys(bucket, prefix):
            path = target / key.removeprefix(prefix)
            self.download(f"s3://{bucket}/{key}", path)
            written.append(path)
        return written

    def put(self, path: Path, uri: str) -> None:
        """One file that may be changing: it is read in one go, so that its length cannot change under the upload."""
        bucket, key = split_uri(uri)
        try:
            self._client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
        except (BotoCoreError, ClientError) as error:
            raise TransferError(f"Upload failed: {uri}: {error}") from error

    def upload(self, path: Path, uri: str) -> None:
        """One finished file of any size."""
        bucket, key = split_uri(uri)
        try:
            self._client.upload_file(str(path), bucket, key, Config=TransferConfig(use_threads=False))
        except (BotoCoreError, ClientError, Boto3Error) as error:
            raise TransferError(f"Artifact upload failed: {uri}: {error}") from error

    def upload_packed(self, folders: Iterable[Path], uri: str) -> None:
        """What is in the folders as one .tar.gz; of files with the same name the first folder's counts."""
        with tempfile.NamedTemporaryFile(dir=self._scratch) as file:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
                for relative, path in _merged(folders).items():
                    archive.add(path, arcname=relative, recursive=False)
            file.flush()
            self.upload(Path(file.name), uri)

    def upload_folders(self, folders: Iterable[Path], uri: str) -> None:
        """What is in the folders, file by file, below `uri/`."""
        for relative, path in _merged(folders).items():
            if path.is_file():
                self.upload(path, f"{uri.rstrip('/')}/{relative}")

    def _prefix(self, uri: str) -> list[tuple[str, str]]:
        bucket, prefix = split_uri(uri)
        keys = self._keys(bucket, prefix)
        folder = prefix.rstrip("/") + "/"
        # s3://bucket/data may mean one object, the folder data/, or everything that begins with "data".
        base = folder if prefix and all(key.startswith(folder) for key in keys) else prefix.rpartition("/")[0] + "/"
        return [(f"s3://{bucket}/{key}", key.removeprefix(base.lstrip("/"))) for key in keys]

    def _manifest(self, uri: str) -> list[tuple[str, str]]:
        with tempfile.TemporaryDirectory(dir=self._scratch) as folder:
            self.download(uri, Path(folder) / "manifest")
            text = (Path(folder) / "manifest").read_text()
        try:
            first, *entries = json.loads(text)
            return [(first["prefix"] + entry, entry) for entry in entries]
        except (ValueError, LookupError, TypeError) as error:
            raise TransferError(f"Data download failed: {uri} is not a manifest: {error}") from error

    def _keys(self, bucket: str, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        try:
            keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        except (BotoCoreError, ClientError) as error:
            raise TransferError(f"Data download failed: s3://{bucket}/{prefix}: {error}") from error
        return [key for key in keys if not key.endswith("/")]


class CheckpointSync:
    """The instances' checkpoint folders and their one home in S3: restored once, then copied there on each change.

    As in SageMaker, a file that is deleted here stays in S3, and no instance sees what another has written before it
    is restored from there; of files with the same name the one copied last stays.
    """

    def __init__(
        self, storage: Storage, folders: Sequence[Path], uri: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._storage = storage
        self._folders = folders
        self._uri = uri.rstrip("/")
        self._clock = clock
        self._sent: dict[Path, _Signature] = {}

    def restore(self) -> None:
        """Bring back what earlier attempts left."""
        first, *others = self._folders
        for path in self._storage.download_folder(self._uri, first):
            self._sent[path] = _signature(path)
            for folder in others:
                copy = folder / path.relative_to(first)
                copy.parent.mkdir(parents=True, exist_ok=True)
                self._sent[copy] = _signature(shutil.copyfile(path, copy))

    def sync(self) -> None:
        """Copy what is new or changed. A file that changes meanwhile is copied again the next time."""
        for path, name in self._by_age():
            try:
                before = _signature(path)
                if self._sent.get(path) == before:
                    continue
                self._storage.put(path, f"{self._uri}/{name}")
                settled = abs(self._clock() - before[0] / 1e9) > UNSETTLED
                if settled and _signature(path) == before:
                    self._sent[path] = before
            except FileNotFoundError:  # a temporary file of the script
                continue

    def _by_age(self) -> list[tuple[Path, Path]]:
        """Each file with its path below its folder."""
        # Oldest first: a script writes a checkpoint before the file that points to it.
        aged = []
        for folder in self._folders:
            for path in folder.rglob("*"):
                try:
                    if path.is_file():
                        aged.append((path.stat().st_mtime_ns, path, path.relative_to(folder)))
                except FileNotFoundError:
                    continue
        return [(path, name) for _, path, name in sorted(aged)]


def _signature(path: Path) -> _Signature:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _merged(folders: Iterable[Path]) -> dict[Path, Path]:
    merged: dict[Path, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            merged.setdefault(path.relative_to(folder), path)
    return merged
