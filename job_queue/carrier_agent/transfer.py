"""A member's files between S3 and its folders, as SageMaker moves them: channels, checkpoints, results."""

import os
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Optional, Tuple

from .s3 import S3, S3Error, split

Json = Dict[str, Any]
Signature = Tuple[int, int, int]


def fetch_channel(s3: S3, source: Json, target: Path) -> None:
    """Everything that an S3DataSource of the type S3Prefix names, into a folder. Raises S3Error if it is nothing."""
    bucket, prefix = split(source["S3Uri"])
    keys = [it.key for it in s3.objects(bucket, prefix) if not it.key.endswith("/")]
    if not keys:
        raise S3Error(f"no object in S3 matches {source['S3Uri']}")
    folder = prefix.rstrip("/") + "/"
    # s3://bucket/data may be one object, the folder data/, or everything that begins with "data".
    base = folder if prefix and all(key.startswith(folder) for key in keys) else prefix[: prefix.rfind("/") + 1]
    for key in keys:
        s3.download(bucket, key, inside(target, key[len(base) :]))


def inside(folder: Path, relative: str) -> Path:
    """A path below a folder; raises S3Error for one that leads out of it."""
    path = PurePosixPath(relative)
    if not relative or path.is_absolute() or ".." in path.parts or "\0" in relative:
        raise S3Error(f"{relative!r} is no path below a folder")
    return folder / path


class Checkpoints:
    """A folder and its home in S3: restored once, then what is new or changed is copied there.

    A file that is removed here stays there, as with SageMaker.
    """

    def __init__(self, s3: S3, folder: Path, address: str, kms_key: Optional[str] = None) -> None:
        self._s3, self._folder, self._kms_key = s3, folder, kms_key
        self._bucket, prefix = split(address)
        self._prefix = prefix.rstrip("/") + "/" if prefix else ""
        self._sent: Dict[Path, Signature] = {}

    def restore(self) -> None:
        """Bring back what earlier attempts left."""
        for it in self._s3.objects(self._bucket, self._prefix):
            if not it.key.endswith("/"):
                path = inside(self._folder, it.key[len(self._prefix) :])
                self._s3.download(self._bucket, it.key, path)
                self._sent[path] = _signature(path)

    def sync(self) -> None:
        """Copy what has changed, the oldest first: a checkpoint is written before the file that points to it."""
        aged: List[Tuple[Signature, Path]] = []
        for folder, _, files in os.walk(str(self._folder)):
            for name in files:
                path = Path(folder, name)
                try:
                    if path.is_file() and not path.is_symlink():
                        aged.append((_signature(path), path))
                except OSError:
                    continue
        for signature, path in sorted(aged):
            if self._sent.get(path) == signature:
                continue
            try:
                key = self._prefix + path.relative_to(self._folder).as_posix()
                self._s3.put(self._bucket, key, path, kms_key=self._kms_key)
            except FileNotFoundError:  # a temporary file
                continue
            self._sent[path] = signature


def send_packed(s3: S3, folder: Path, address: str, scratch: Path, kms_key: Optional[str] = None) -> None:
    """What is in a folder as one .tar.gz."""
    bucket, key = split(address)
    packed = scratch / "packed.tar.gz"
    try:
        with tarfile.open(str(packed), "w:gz", compresslevel=1) as archive:
            for path in sorted(folder.iterdir()):
                archive.add(str(path), arcname=path.name)
        s3.put(bucket, key, packed, kms_key=kms_key)
    finally:
        if packed.exists():
            packed.unlink()


def _signature(path: Path) -> Signature:
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
