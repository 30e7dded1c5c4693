"""Access to files that a member controls: without following links, without blocking, and within limits.

A path is a tuple of names below an open directory. Each name is opened relative to the directory before it with
O_NOFOLLOW. So a link that appears between two steps causes an error and is not followed. Only regular files are read.
Other files (FIFOs, devices, sockets) are rejected before they are opened. If such a file replaces a regular file after
this check, O_NONBLOCK keeps the opening from blocking.
"""

import errno
import os
import stat
from itertools import islice
from pathlib import PosixPath
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple
from uuid import uuid4

MOST_FILES = 200_000  # largest number of entries in a folder that is saved
MOST_ENTRIES = 2_000_000  # largest number of entries in a member's tree
DEEPEST = 64  # largest number of levels of folders
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

Parts = Tuple[str, ...]


class LimitExceeded(OSError):
    """A limit of bytes, files, depth or time that is exceeded. The message contains no text of a member."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EFBIG, reason, "limit")  # with a file name, `S3` does not treat it as a network error

    def __str__(self) -> str:
        return str(self.strerror)


class Directory:
    """An open directory. The descriptor is closed when the object is no longer referenced by any thread."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)

    @classmethod
    def at(cls, path: str) -> "Directory":
        """Open a directory by its path; raise OSError if the last name is a link. Earlier links are followed."""
        return cls(os.open(path, _DIRECTORY))

    def below(self, parts: Parts, *, make: bool = False) -> "Directory":
        """Open a directory below this one. With `make`, create the missing directories."""
        found = self
        for name in parts:
            _check(name)
            if make:
                try:
                    os.mkdir(name, 0o777, dir_fd=found.fd)
                except FileExistsError:
                    pass
            found = Directory(os.open(name, _DIRECTORY, dir_fd=found.fd))
        return found if parts else Directory(os.dup(self.fd))

    def open_file(self, parts: Parts) -> "OpenFile":
        """Open a regular file for reading; raise OSError for any other file."""
        folder = self.below(parts[:-1])
        _check(parts[-1])
        found = os.stat(parts[-1], dir_fd=folder.fd, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            opened = OpenFile(os.open(parts[-1], _READ, dir_fd=folder.fd))
            if stat.S_ISREG(opened.status.st_mode):
                return opened
        raise OSError(errno.EINVAL, "it is not a regular file", "file")

    def write(self, parts: Parts, content: bytes) -> None:
        """Create a file with this content; raise OSError if it exists already."""
        folder = self.below(parts[:-1], make=True)
        _check(parts[-1])
        with os.fdopen(os.open(parts[-1], _CREATE, 0o666, dir_fd=folder.fd), "wb") as file:
            file.write(content)


class OpenFile:
    """A file that is open for reading. The descriptor is closed when the object is no longer referenced."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.status = os.fstat(fd)

    def __del__(self) -> None:
        os.close(self.fd)

    def head(self, count: int) -> bytes:
        """Return the first `count` bytes."""
        return os.pread(self.fd, count, 0)

    @property
    def signature(self) -> Tuple[int, int, int]:
        """Values that differ after a change of the file."""
        return signature(self.status)


def signature(status: os.stat_result) -> Tuple[int, int, int]:
    """Return values of a file that differ after a change."""
    return status.st_mtime_ns, status.st_size, status.st_ino


class Entry(NamedTuple):
    """An entry below a directory. The status of a link is that of the link itself, not of the link's target."""

    parts: Parts
    status: os.stat_result


def walk(folder: Directory, most: int, deepest: int = DEEPEST) -> Iterator[Entry]:
    """Yield each entry below a folder, folders before their content; raise LimitExceeded beyond a limit.

    Entries that disappear during the walk, and the content of folders that cannot be opened, are left out.
    """
    count = 0
    waiting: List[Parts] = [()]
    while waiting:
        parts = waiting.pop()
        try:
            opened = folder.below(parts)
            listing = os.scandir(opened.fd)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            continue
        with listing:
            for it in listing:
                count += 1
                if count > most:
                    raise LimitExceeded(f"more than {most} files and folders")
                try:
                    status = os.stat(it.name, dir_fd=opened.fd, follow_symlinks=False)
                except OSError:
                    continue
                yield Entry((*parts, it.name), status)
                if stat.S_ISDIR(status.st_mode):
                    if len(parts) + 1 >= deepest:
                        raise LimitExceeded(f"folders deeper than {deepest} levels")
                    waiting.append((*parts, it.name))


class Bounds:
    """A limit of the bytes that a step may handle.

    The limit applies to the sum of the apparent sizes and to the sum of the allocated bytes. So a sparse file counts
    with its apparent size.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.allocated = self._apparent = 0

    def add(self, status: os.stat_result) -> None:
        """Count a file; raise LimitExceeded if the sum is too large."""
        self.add_bytes(status.st_size, status.st_blocks * 512)

    def add_bytes(self, apparent: int, allocated: int = 0) -> None:
        """Count bytes; raise LimitExceeded if the sum is too large."""
        self._apparent += apparent
        self.allocated += allocated
        if max(self._apparent, self.allocated) > self.most:
            raise LimitExceeded(f"more than its {self.most >> 20} MiB of the carrier's disk")


class Source(PosixPath):
    """An open file that can be used as a path, so that `S3.put` sends it without looking up its name again."""

    file: OpenFile
    tick: Callable[[], None]
    most: int

    @classmethod
    def of(cls, file: OpenFile, tick: Callable[[], None], spare: int) -> "Source":
        """Return a path for an open file.

        :param tick: called before each block.
        :param spare: bytes by which the file may have grown since it was opened.
        """
        source = cls(f"/proc/self/fd/{file.fd}")
        source.file, source.tick, source.most = file, tick, file.status.st_size + spare
        return source

    def stat(self, **options: Any) -> os.stat_result:
        """Return the status that the file had when it was opened."""
        return self.file.status

    def open(self, *arguments: Any, **options: Any) -> Any:
        """Return a new reader with its own position."""
        return _Reader(self)


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source, self._at = source, 0

    def fileno(self) -> int:
        return self._source.file.fd

    def seek(self, position: int) -> None:
        self._at = position

    def read(self, count: int) -> bytes:
        self._source.tick()
        if self._at + count > self._source.most + (1 << 20):
            raise OSError(errno.EAGAIN, "the file grew while it was read", "file")
        block = os.pread(self._source.file.fd, count, self._at)
        self._at += len(block)
        return block

    def close(self) -> None:
        """Leave the file open for another try."""

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Target(PosixPath):
    """A new file that can be used as a path, so that `S3.download` writes to it.

    `finish` gives the file its final name.
    """

    folder: Directory
    final: str
    hidden: str
    fd: int
    tick: Callable[[], None]
    most: int

    @classmethod
    def of(cls, root: Directory, parts: Parts, tick: Callable[[], None], most: int) -> "Target":
        """Create a file below a directory under a name that cannot be predicted.

        :param tick: called before each block.
        :param most: bytes that are accepted.
        """
        folder, hidden = root.below(parts[:-1], make=True), f".{uuid4().hex}"
        _check(parts[-1])
        fd = os.open(hidden, _CREATE, 0o666, dir_fd=folder.fd)
        target = cls(f"/proc/self/fd/{fd}")
        target.folder, target.final, target.hidden, target.fd = folder, parts[-1], hidden, fd
        target.tick, target.most = tick, most
        return target

    def with_name(self, name: str) -> "Target":
        """Return this file: `S3.download` requests a temporary name, and the file has a temporary name already."""
        return self

    def open(self, *arguments: Any, **options: Any) -> Any:
        """Return a writer, and empty the file."""
        os.ftruncate(self.fd, 0)
        return _Writer(self)

    def replace(self, target: Any) -> Any:
        """Do nothing: the file keeps its temporary name until `finish`."""
        return self

    def finish(self) -> os.stat_result:
        """Give the file its final name, replacing an existing file, and return its status."""
        os.rename(self.hidden, self.final, src_dir_fd=self.folder.fd, dst_dir_fd=self.folder.fd)
        status = os.fstat(self.fd)
        os.close(self.fd)
        return status

    def give_up(self) -> None:
        """Remove the file."""
        os.close(self.fd)
        try:
            os.unlink(self.hidden, dir_fd=self.folder.fd)
        except OSError:
            pass


class _Writer:
    def __init__(self, target: Target) -> None:
        self._target, self._at = target, 0

    def write(self, block: bytes) -> int:
        self._target.tick()
        if self._at + len(block) > self._target.most:
            raise LimitExceeded("an object is larger than its listing said")
        left = memoryview(block)
        while left:
            written = os.pwrite(self._target.fd, left, self._at)
            self._at += written
            left = left[written:]
        return len(block)

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the file open for another try."""


def remove(parent: Directory, name: str, check: Callable[[], None]) -> None:
    """Remove a file, or a folder and all its content, without following links and with few open directories.

    Inner folders are moved to the top level before they are emptied. So deep trees and long paths can be removed.
    Entries that cannot be removed stay.

    :param check: called for each entry; raises if the time is over.
    """
    try:
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent.fd, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent.fd)
            return
        root = _opened(parent, name)
        while _removed_some(root, root, check):
            pass
        os.rmdir(name, dir_fd=parent.fd)
    except OSError as error:
        if isinstance(error, LimitExceeded):
            raise


def _removed_some(root: Directory, folder: Directory, check: Callable[[], None]) -> bool:
    """Remove some entries of a folder, and return whether any entry left the folder.

    Files are removed. Folders are moved to the root; the folders of the root itself are emptied and removed.
    """
    with os.scandir(folder.fd) as listing:
        batch = list(islice(listing, 10_000))
    gone = 0
    for it in batch:
        check()
        try:
            if not it.is_dir(follow_symlinks=False):
                os.unlink(it.name, dir_fd=folder.fd)
            elif folder is not root:
                os.rename(it.name, f".{uuid4().hex}", src_dir_fd=folder.fd, dst_dir_fd=root.fd)
            else:
                inner = _opened(root, it.name)
                while _removed_some(root, inner, check):
                    pass
                os.rmdir(it.name, dir_fd=root.fd)
        except OSError as error:
            if isinstance(error, LimitExceeded):
                raise
            continue
        gone += 1
    return gone > 0


def _opened(parent: Directory, name: str) -> Directory:
    """Open a folder that is to be removed. If the folder's mode forbids opening, first give the owner all rights."""
    try:
        return parent.below((name,))
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=parent.fd)
        return parent.below((name,))


def _check(name: str) -> None:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise OSError(errno.EINVAL, "it is not the name of a file", "file")


def allocated(folder: Directory, most: int) -> int:
    """Return the bytes of disk that a folder takes; raise LimitExceeded for too many bytes, entries or levels."""
    bounds = Bounds(most)
    for entry in walk(folder, MOST_ENTRIES, DEEPEST * 4):
        bounds.add_bytes(0, entry.status.st_blocks * 512)
    return bounds.allocated
