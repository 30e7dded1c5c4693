"""Download objects in S3 to files of one folder; no key can cause a write outside the folder.

Everyone with write access to a bucket can choose keys. A key that is ambiguous or leads out of the folder is refused.
The other objects are downloaded.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.packaging.storage import Progress, S3Storage, Stored

_LONGEST_NAME = 255  # bytes; the limit of most file systems
_DEVICE = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|clock\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])[ ]*(\..*)?", re.IGNORECASE
)
_NOT_ON_WINDOWS = frozenset('<>:"|?*')


class PathRefused(Exception):
    """A key does not name a file below the folder; the message is the reason."""


@dataclass(frozen=True)
class Downloaded:
    """The result of a download: the fetched objects and the refused objects."""

    fetched: tuple[Stored, ...]
    refused: tuple[tuple[Stored, str], ...]  # each with the reason


def path_parts(key: str, *, windows: bool = os.name == "nt") -> tuple[str, ...]:
    """Return the parts of the path that a key names. Raises PathRefused if the key is ambiguous or leads elsewhere.

    Names with another meaning on Windows, such as device names, are refused on Windows only.
    """
    parts = tuple(key.split("/"))
    if parts[-1] == "":
        raise PathRefused("its key ends with a slash, as the names of folders do")
    for name in parts:
        if name in ("", ".", ".."):
            raise PathRefused("its path is outside the folder")
        if "\\" in name:
            raise PathRefused("its name has a backslash, which some systems treat as a slash")
        if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
            raise PathRefused("its name has a control character")
        if len(name.encode()) > _LONGEST_NAME:
            raise PathRefused("one of its names is too long for a file")
        if windows and (_NOT_ON_WINDOWS & set(name) or name[-1] in ". " or _DEVICE.fullmatch(name)):
            raise PathRefused("Windows has no file of that name")
    return parts


class Folder:
    """The target folder of a download. Links in the folder are neither followed nor replaced."""

    def __init__(self, path: Path, storage: S3Storage) -> None:
        self._path = path
        self._storage = storage
        self._written: dict[tuple[int, int], str] = {}  # device and inode of a file -> key

    def fetch(self, stored: Stored, key: str, progress: Progress | None = None) -> None:
        """Download an object to the file that ``key`` names below the folder. Raises PathRefused."""
        parts = path_parts(key)
        parent = self._path
        _make_folder(parent)
        for name in parts[:-1]:
            parent /= name
            _make_folder(parent)
            if not stat.S_ISDIR(parent.lstat().st_mode):
                raise PathRefused(f"{parent} is a link or a file, not a folder")
        file = parent / parts[-1]
        self._check(file)
        self._written[_fetch_to(file, stored, self._storage, progress)] = key

    def _check(self, file: Path) -> None:
        try:
            status = file.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISREG(status.st_mode):
            raise PathRefused(f"{file} exists and is not a file")
        # On a file system that ignores case or normalises Unicode, two keys can name the same file.
        if other := self._written.get((status.st_dev, status.st_ino)):
            raise PathRefused(f"on this machine it would be the same file as {other}")


def fetch_all(
    found: Sequence[Stored], prefix: str, target: Path, storage: S3Storage, progress: Progress | None = None
) -> Downloaded:
    """Download objects, whose keys begin with ``prefix``, to files below ``target``; skip objects with refused keys."""
    folder = Folder(target, storage)
    fetched, refused = [], []
    for stored in found:
        try:
            folder.fetch(stored, stored.address.key[len(prefix) :], progress)
            fetched.append(stored)
        except PathRefused as error:
            refused.append((stored, str(error)))
    return Downloaded(tuple(fetched), tuple(refused))


def fetch_file(stored: Stored, file: Path, storage: S3Storage, progress: Progress | None = None) -> None:
    """Download an object to a file that the user has named; a link of that name is replaced, not followed."""
    try:
        _make_folder(file.parent)
    except PathRefused as error:
        raise StorageError(f"{stored.address} cannot be downloaded to {file}: {error}.") from error
    _fetch_to(file, stored, storage, progress)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise PathRefused(f"{folder} is a link or a file, not a folder") from error
    except OSError as error:
        raise StorageError(f"The folder {folder} cannot be created: {error.strerror or error}.") from error


def _fetch_to(file: Path, stored: Stored, storage: S3Storage, progress: Progress | None) -> tuple[int, int]:
    """Download an object to a temporary file beside the file, then rename it; return device and inode."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".smq-", dir=file.parent)
    except OSError as error:
        raise StorageError(f"{stored.address} cannot be downloaded to {file}: {error.strerror or error}.") from error
    try:
        with open(descriptor, "wb") as target:  # noqa: PTH123  # a descriptor, not a path
            storage.get(stored.address, target, progress)
            status = os.fstat(target.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)  # the mode of any new file; mkstemp gives 0o600
        Path(name).replace(file)
    except OSError as error:
        raise StorageError(f"{stored.address} cannot be downloaded to {file}: {error.strerror or error}.") from error
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()
    return status.st_dev, status.st_ino
