"""Transfers between S3 and a member's folders, as SageMaker does them: channels, checkpoints, results.

Error messages become a part of the reason of an attempt's end, which other users can read. So error messages contain
no text of a request and no file name.
"""

import os
import re
import stat
import tarfile
import tempfile
from pathlib import PurePosixPath
from typing import Any, Callable, Dict, Optional, Tuple

from .files import MOST_FILES, Bounds, Directory, LimitExceeded, OpenFile, Parts, Source, Target, signature, walk
from .pace import Pace
from .s3 import PART, S3, S3Error, split

Json = Dict[str, Any]
Signature = Tuple[int, int, int]

MOST_OBJECTS = 2_000_000  # objects that are downloaded for one channel, or restored
LONGEST_KEY = 1_024  # bytes
_NOT_IN_KEYS = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")  # not allowed in XML, and so in S3's lists


def fetch_channel(s3: S3, source: Json, root: Directory, folder: Parts, bounds: Bounds, pace: Pace) -> None:
    """Download all objects of an S3DataSource (of the type S3Prefix) into a folder.

    Raise Unusable if there is no object or a key leads out of the folder. Raise LimitExceeded for too many bytes or
    objects.
    """
    bucket, prefix = split(source["S3Uri"])
    sizes: Dict[str, int] = {}
    for it in s3.objects(bucket, prefix):
        pace.moved()
        if not it.key.endswith("/"):
            sizes[it.key] = it.size
            bounds.add_bytes(it.size)
            if len(sizes) > MOST_OBJECTS:
                raise LimitExceeded(f"more than {MOST_OBJECTS} objects")
    if not sizes:
        raise Unusable("no object in S3 matches its S3Uri")
    below = prefix.rstrip("/") + "/"
    # s3://bucket/data may be one object, the folder data/, or all keys that begin with "data".
    base = below if prefix and all(key.startswith(below) for key in sizes) else prefix[: prefix.rfind("/") + 1]
    for key, size in sizes.items():
        _download(s3, bucket, key, root, (*folder, *inside(key[len(base) :])), size, pace)


def inside(relative: str) -> Parts:
    """Return the names of a relative path; raise Unusable if the path leads out of its folder."""
    path = PurePosixPath(relative)
    if not relative or path.is_absolute() or ".." in path.parts or "\0" in relative or not path.parts:
        raise Unusable("a key is no path below a folder")
    return path.parts


def _download(s3: S3, bucket: str, key: str, root: Directory, parts: Parts, size: int, pace: Pace) -> os.stat_result:
    target = Target.of(root, parts, pace.moved, size)
    try:
        s3.download(bucket, key, target)
        return target.finish()
    except BaseException:
        target.give_up()
        raise


class Unusable(S3Error):
    """A request whose data cannot be downloaded. The message contains no text of the request."""


class Checkpoints:
    """A member's checkpoint folder: downloaded from S3 once; then new and changed files are copied to S3.

    As in SageMaker's own training jobs, a file that is removed from the folder stays in S3.

    :param root: the member's tree.
    :param folder: the checkpoint folder, as a path below `root`.
    :param most: bytes that the folder may have when it is copied to S3.
    """

    def __init__(
        self, s3: S3, root: Directory, folder: Parts, address: str, most: int, kms_key: Optional[str] = None
    ) -> None:
        self._s3, self._root, self._folder, self._most, self._kms_key = s3, root, folder, most, kms_key
        self._bucket, prefix = split(address)
        self._prefix = prefix.rstrip("/") + "/" if prefix else ""
        self._sent: Dict[Parts, Signature] = {}

    def restore(self, bounds: Bounds, pace: Pace) -> None:
        """Download the files that earlier attempts have saved."""
        for it in self._s3.objects(self._bucket, self._prefix):
            pace.moved()
            if not it.key.endswith("/"):
                parts = inside(it.key[len(self._prefix) :])
                bounds.add_bytes(it.size)
                path = (*self._folder, *parts)
                self._sent[parts] = signature(
                    _download(self._s3, self._bucket, it.key, self._root, path, it.size, pace)
                )
                if len(self._sent) > MOST_OBJECTS:
                    raise LimitExceeded(f"more than {MOST_OBJECTS} objects")

    def sync(self, pace: Pace) -> int:
        """Copy changed files, the oldest first, so that a checkpoint is in S3 before the file that points to it.

        Return the number of files that cannot be saved because of their names. Links and special files are left out.
        Raise LimitExceeded if the folder has too many bytes or files: before any file is copied, or when a file grows.
        """
        bounds, aged, unnamed = Bounds(self._most), [], 0
        folder = self._root.below(self._folder)
        for entry in walk(folder, MOST_FILES):
            pace.check()
            if not stat.S_ISREG(entry.status.st_mode):
                continue
            bounds.add(entry.status)
            key = self._prefix + "/".join(entry.parts)
            if _NOT_IN_KEYS.search(key) or len(key.encode()) > LONGEST_KEY:
                unnamed += 1
            else:
                aged.append((signature(entry.status), entry.parts))
        for found, parts in sorted(aged):
            if self._sent.get(parts) == found:
                continue
            pace.check()
            try:
                file = folder.open_file(parts)
                bounds.add_bytes(max(0, file.status.st_size - found[1]))
                source = Source.of(file, pace.moved, PART)
                self._s3.put(self._bucket, self._prefix + "/".join(parts), source, kms_key=self._kms_key)
            except OSError as error:  # a temporary file, or a file that is being written
                if isinstance(error, LimitExceeded):
                    raise
                continue
            self._sent[parts] = file.signature
        return unnamed


def send_packed(
    s3: S3, folder: Directory, address: str, scratch: str, most: int, pace: Pace, kms_key: Optional[str] = None
) -> int:
    """Upload the content of a folder as one .tar.gz. Upload nothing if there is no file.

    Return the number of entries that are left out: special files, links that lead out of the folder, and files that
    disappear meanwhile. Raise LimitExceeded if the folder or the archive has too many bytes, or the folder too many
    files.

    :param scratch: a folder for the archive. The archive has no name there, so no process can replace it.
    :param most: bytes that the files may have, both as allocated and by apparent size, and bytes of the archive.
    """
    bounds, entries, left_out = Bounds(most), [], 0
    for entry in walk(folder, MOST_FILES):
        pace.check()
        mode = entry.status.st_mode
        if stat.S_ISREG(mode):
            bounds.add(entry.status)
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (stat.S_ISLNK(mode) and _link(folder, entry.parts) is not None):
            entries.append(entry)
        else:
            left_out += 1
    if not any(stat.S_ISREG(entry.status.st_mode) for entry in entries):
        return left_out
    bucket, key = split(address)
    with tempfile.TemporaryFile(dir=scratch) as packed:
        seen: Dict[Tuple[int, int], str] = {}
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
            for parts, status in sorted(entries):
                left_out += not _add_entry(archive, folder, parts, status, seen, pace)
                if os.fstat(packed.fileno()).st_size > most:
                    raise LimitExceeded(f"an archive of more than {most >> 20} MiB")
        packed.flush()
        s3.put(bucket, key, Source.of(OpenFile(os.dup(packed.fileno())), pace.moved, 0), kms_key=kms_key)
    return left_out


def _add_entry(
    archive: tarfile.TarFile,
    folder: Directory,
    parts: Parts,
    status: os.stat_result,
    seen: Dict[Tuple[int, int], str],
    pace: Pace,
) -> bool:
    """Add an entry to an archive. Return False, and add nothing, if the file or link has been removed or replaced."""
    info = tarfile.TarInfo("/".join(parts))
    info.mode, info.mtime = stat.S_IMODE(status.st_mode) & 0o777, int(status.st_mtime)
    if stat.S_ISDIR(status.st_mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(status.st_mode):
        target = _link(folder, parts)
        if target is None:
            return False
        info.type, info.linkname = tarfile.SYMTYPE, target
    else:
        try:
            file = folder.open_file(parts)
        except OSError:
            return False
        identity = file.status.st_dev, file.status.st_ino
        if identity in seen:
            info.type, info.linkname = tarfile.LNKTYPE, seen[identity]
        else:
            seen[identity] = info.name
            info.size = min(file.status.st_size, status.st_size)  # bytes added after the count are left out
            archive.addfile(info, _Content(file, info.size, pace.moved))
            return True
    archive.addfile(info)
    return True


def _link(folder: Directory, parts: Parts) -> Optional[str]:
    """Return the target of a symbolic link if it stays in the folder, else None."""
    try:
        parent = folder.below(parts[:-1])
        target = os.readlink(parts[-1], dir_fd=parent.fd)
    except OSError:
        return None
    depth = len(parts) - 1
    for name in target.split("/"):
        depth += -1 if name == ".." else name not in ("", ".")
        if depth < 0:
            return None
    return None if target.startswith("/") else target


class _Content:
    """A file's content for tarfile, with exactly the announced length: zeros replace missing bytes at the end."""

    def __init__(self, file: OpenFile, size: int, tick: Callable[[], None]) -> None:
        self._file, self._size, self._tick, self._at = file, size, tick, 0

    def read(self, count: int = -1) -> bytes:
        self._tick()
        count = min(count, self._size - self._at) if count >= 0 else self._size - self._at
        block = os.pread(self._file.fd, count, self._at)
        block += b"\0" * (count - len(block))
        self._at += count
        return block
