"""Read the members of a .tar.gz from an untrusted source, with bounds for disk, memory and time.

Python's ``tarfile`` reads headers of any length into memory, accumulates global headers, and trusts the size that the
header of a sparse file states. The bounds in this module apply to every read, and so do not depend on the parser of
``tarfile``.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.formatting import file_size

LARGEST_HEADER = 1 << 20  # bytes of all headers of one member
LARGEST_GLOBAL_HEADERS = 1 << 16  # characters of all global headers together, which apply to all members
ALWAYS_ALLOWED = 10 * 10**9  # bytes that even a small archive may unpack to
GROWTH = 10  # large archives may unpack to this many times their own size
MOST_FILES = 100_000
KEPT_FREE = 1 << 28  # bytes of the disk that unpacking leaves free
_BLOCK = 1 << 20  # bytes that are unzipped at once
_CHECK_INTERVAL = 1 << 26  # bytes between two checks of the free space


class ArchiveTooLarge(StorageError):
    """An archive exceeds a bound. ``unpack`` removes the files that were already unpacked; the archive itself stays."""


@dataclass
class ArchiveBounds:
    """The bounds that several archives share: their unpacked size and their number of members.

    The size counts every unzipped byte, including headers and refused members. ``largest=None`` allows ten times the
        # bytes that the present headers may still have; None while content is read
        self._header_left: int | None = None
    """

    largest: int | None = None  # bytes
    most_files: int = MOST_FILES
    packed: int = field(default=0, init=False)  # bytes of the archives that were opened so far
    used: int = field(default=0, init=False)  # bytes
    files: int = field(default=0, init=False)


class Members:
    """An iterator over an archive's members.

    ``folder`` names the disk whose free space is checked; the folder need not exist. Raises ArchiveTooLarge if the
    archive exceeds ``bounds``, and the errors of tarfile and gzip.
    """

    def __init__(self, archive: Path, folder: Path, bounds: ArchiveBounds) -> None:
        self._stream = _Stream(archive, folder, bounds)
        self._archive = archive
        self._bounds = bounds

    def __iter__(self) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        """Yield each member with its archive. The caller must read the content before the next member."""
        with self._stream:
            self._stream.begin_header()
            try:
                tar = tarfile.open(fileobj=self._stream, mode="r:", errorlevel=1)  # type: ignore[call-overload]  # noqa: SIM115
                if tar.firstmember is None:  # before Python 3.11, `next` fails in an archive without members
                    return
                while True:
                    self._stream.begin_header()
                    member = tar.next()
                    if member is None:
                        return
                    self._check(tar, member)
                    tar.members.clear()  # otherwise all headers stay in memory
                    self._stream.begin_content()
                    yield tar, member
            except RecursionError as error:
                raise ArchiveTooLarge(
                    f"{self._archive} is refused: a header of it belongs to headers without end."
                ) from error
            except ValueError as error:  # a number field of a header is not a number
                raise tarfile.ReadError(f"a header cannot be read: {error}") from error

    def _check(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._bounds.files += 1
        if self._bounds.files > self._bounds.most_files:
            raise ArchiveTooLarge(
                f"{self._archive} is refused: it has more than {self._bounds.most_files:,} files and folders. If you "
                "trust the job that made it, raise the bound: --max-files, in Python max_files."
            )
        if sum(len(name) + len(value) for name, value in tar.pax_headers.items()) > LARGEST_GLOBAL_HEADERS:
            raise ArchiveTooLarge(
                f"{self._archive} is refused: its global headers are larger than those of honest archives."
            )
        if not member.issparse():
            self._stream.announce(member.size)


class _Stream:
    """A forward-only file for ``tarfile`` that unzips an archive and enforces the bounds."""

    def __init__(self, archive: Path, folder: Path, bounds: ArchiveBounds) -> None:
        self._archive = archive
        self._folder = folder
        self._bounds = bounds
        bounds.packed += archive.stat().st_size
        self._largest = bounds.largest if bounds.largest is not None else max(ALWAYS_ALLOWED, GROWTH * bounds.packed)
        self._file = gzip.open(archive, "rb")  # noqa: SIM115  # closed by __exit__
        self._position = 0
        # bytes that the present headers may still have; None while content is read
        self._header_left: int | None = None
        self._next_check = 0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def begin_header(self) -> None:
        """Apply the bound of one member's headers to the following reads."""
        self._header_left = LARGEST_HEADER

    def begin_content(self) -> None:
        """Apply only the bounds of the whole archive to the following reads."""
        self._header_left = None

    def announce(self, size: int) -> None:
        """Raise ArchiveTooLarge if ``size`` more bytes would exceed the bounds, or do not fit on the disk."""
        if self._bounds.used + size > self._largest:
            raise ArchiveTooLarge(
                f"{self._archive} is refused: it unpacks to more than {file_size(self._largest)}. If you trust the job "
                "that made it, raise the bound: --max-size GB, in Python max_size."
            )
        if size > _BLOCK or self._bounds.used + size > self._next_check:
            free = _free(self._folder)
            if size + KEPT_FREE > free:
                raise ArchiveTooLarge(
                    f"{self._archive} is not unpacked: the disk has {file_size(max(free, 0))} free, of which "
                    f"{file_size(KEPT_FREE)} are left, and more is needed. Name a folder on another disk."
                )
            self._next_check = self._bounds.used + _CHECK_INTERVAL

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or fewer at the end."""
        if self._header_left is not None:
            if size > self._header_left:
                raise ArchiveTooLarge(
                    f"{self._archive} is refused: a header of it is larger than {file_size(LARGEST_HEADER)}."
                )
            self._header_left -= size
        parts = []
        while size > 0:
            part = self._file.read(min(size, _BLOCK))
            if not part:
                break
            self.announce(len(part))
            self._bounds.used += len(part)
            self._position += len(part)
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def seek(self, position: int, _: int = 0) -> int:
        """Skip forward to a position. Raises ReadError for a position before the current position."""
        if position < self._position:
            raise tarfile.ReadError("a header leads backwards")
        header, self._header_left = self._header_left, None
        while self._position < position and self.read(min(position - self._position, _BLOCK)):
            continue
        self._header_left = header
        return self._position

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def seekable(self) -> bool:
        """Return True: ``tarfile`` calls this method before skipping."""
        return True


def _free(folder: Path) -> int:
    """Return the free bytes of the disk on which a folder is or will be."""
    existing_folder = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(existing_folder).free


def check_disk(folder: Path, size: int) -> None:
    """Raise StorageError if ``size`` bytes do not fit on the disk of a folder, which need not exist."""
    if size + KEPT_FREE > (free := _free(folder)):
        raise StorageError(
            f"{file_size(size)} do not fit: the disk has {file_size(free)} free, of which {file_size(KEPT_FREE)} are "
            "left. Name a folder on another disk."
        )
