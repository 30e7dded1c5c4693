"""The members of a .tar.gz that another person may have made, read with bounds for disk, memory and time.

Python's ``tarfile`` reads headers of any length to memory, adds up global headers, and takes the size of a sparse file
as the header has it. The bounds here hold for every read, so they do not depend on how ``tarfile`` parses a header.
"""

from __future__ import annotations

import gzip
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sagemaker_queue.errors import StorageError
from sagemaker_queue.formatting import file_size

LARGEST_HEADER = 1 << 20  # bytes of all headers of one member
LARGEST_GLOBAL_HEADERS = 1 << 16  # characters of those that apply to all members, together
ALWAYS_ALLOWED = 10 * 10**9  # bytes that an archive of any size may unpack to
GROWTH = 10  # times its own size that a larger archive may unpack to
MOST_FILES = 100_000
KEPT_FREE = 1 << 28  # bytes of the disk
_BLOCK = 1 << 20  # bytes that are unzipped at once
_BETWEEN_LOOKS = 1 << 26  # bytes between two looks at the disk


class TooMuch(StorageError):
    """An archive is beyond a bound, and nothing of it stays on the disk."""


@dataclass
class Room:
    """The bounds that several archives share: how large they may become, and how many members they may have.

    The size counts every unzipped byte, headers and refused members included. None allows ten times the archive's own
    size, and 10 GB in any case.
    """

    largest: int | None = None  # bytes
    most_files: int = MOST_FILES
    used: int = field(default=0, init=False)  # bytes
    files: int = field(default=0, init=False)


class Members:
    """Iterates over an archive's members. Raises TooMuch beyond ``room``, and tarfile's and gzip's errors.

    ``folder`` says which disk the content goes to; it need not exist.
    """

    def __init__(self, archive: Path, folder: Path, room: Room) -> None:
        self._stream = _Stream(archive, folder, room)
        self._archive = archive
        self._room = room

    def __iter__(self) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        """Yield each member with its archive. Read the content before the next member."""
        with self._stream:
            self._stream.begin_header()
            try:
                tar = tarfile.open(fileobj=self._stream, mode="r:", errorlevel=1)  # type: ignore[call-overload]  # noqa: SIM115
                while True:
                    self._stream.begin_header()
                    member = tar.next()
                    if member is None:
                        return
                    self._check(tar, member)
                    tar.members.clear()  # else all headers stay in memory
                    self._stream.begin_content()
                    yield tar, member
            except RecursionError as error:
                raise TooMuch(f"{self._archive} is refused: a header of it belongs to headers without end.") from error
            except ValueError as error:  # a number of a header is none
                raise tarfile.ReadError(f"a header cannot be read: {error}") from error

    def _check(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._room.files += 1
        if self._room.files > self._room.most_files:
            raise TooMuch(
                f"{self._archive} is refused: it has more than {self._room.most_files:,} files and folders. If you "
                "trust the job that made it, raise the bound: --max-files, in Python max_files."
            )
        if sum(len(name) + len(value) for name, value in tar.pax_headers.items()) > LARGEST_GLOBAL_HEADERS:
            raise TooMuch(f"{self._archive} is refused: its global headers are larger than those of honest archives.")
        if not member.issparse():
            self._stream.announce(member.size)


class _Stream:
    """Unzips an archive forwards, as a file for ``tarfile``, and refuses what is beyond the bounds."""

    def __init__(self, archive: Path, folder: Path, room: Room) -> None:
        self._archive = archive
        self._folder = folder
        self._room = room
        grown = GROWTH * archive.stat().st_size
        self._largest = room.largest if room.largest is not None else max(ALWAYS_ALLOWED, grown)
        self._file = gzip.open(archive, "rb")  # noqa: SIM115  # closed by __exit__
        self._position = 0
        self._header_left: int | None = None  # bytes; None: content is read
        self._next_look = 0

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def begin_header(self) -> None:
        """Bound what is read from now on as headers of one member."""
        self._header_left = LARGEST_HEADER

    def begin_content(self) -> None:
        """Read content from now on, which only the whole bounds."""
        self._header_left = None

    def announce(self, size: int) -> None:
        """Raise TooMuch if so many more bytes are beyond the bounds."""
        if self._room.used + size > self._largest:
            raise TooMuch(
                f"{self._archive} is refused: it unpacks to more than {file_size(self._largest)}. If you trust the job "
                "that made it, raise the bound: --max-size GB, in Python max_size."
            )
        if size > _BLOCK or self._room.used + size > self._next_look:
            free = _free(self._folder)
            if size + KEPT_FREE > free:
                raise TooMuch(
                    f"{self._archive} is not unpacked: the disk has {file_size(max(free, 0))} free, of which "
                    f"{file_size(KEPT_FREE)} are left, and more is needed. Name a folder on another disk."
                )
            self._next_look = self._room.used + _BETWEEN_LOOKS

    def read(self, size: int) -> bytes:
        """Return so many bytes, or what there is up to the end."""
        if self._header_left is not None:
            if size > self._header_left:
                raise TooMuch(f"{self._archive} is refused: a header of it is larger than {file_size(LARGEST_HEADER)}.")
            self._header_left -= size
        parts = []
        while size > 0:
            part = self._file.read(min(size, _BLOCK))
            if not part:
                break
            self.announce(len(part))
            self._room.used += len(part)
            self._position += len(part)
            size -= len(part)
            parts.append(part)
        return b"".join(parts)

    def seek(self, position: int, _: int = 0) -> int:
        """Skip to a place ahead."""
        if position < self._position:
            raise tarfile.ReadError("a header leads backwards")
        header, self._header_left = self._header_left, None
        while self._position < position and self.read(min(position - self._position, _BLOCK)):
            continue
        self._header_left = header
        return self._position

    def tell(self) -> int:
        """Return the place."""
        return self._position

    def seekable(self) -> bool:
        """Return that it can skip."""
        return True


def _free(folder: Path) -> int:
    """Return the bytes that are free on the disk where a folder is or will be."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free


def check_disk(folder: Path, size: int) -> None:
    """Raise StorageError if so many bytes do not fit to the disk of a folder, which need not exist."""
    if size + KEPT_FREE > (free := _free(folder)):
        raise StorageError(
            f"{file_size(size)} do not fit: the disk has {file_size(free)} free, of which {file_size(KEPT_FREE)} are "
            "left. Name a folder on another disk."
        )
