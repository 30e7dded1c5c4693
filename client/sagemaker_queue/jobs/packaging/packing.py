"""Pack a job's folder as a reproducible .tar.gz: the same content always gives the same digest."""

from __future__ import annotations

import gzip
import hashlib
import os
import posixpath
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, cast

from sagemaker_queue.errors import FolderError
from sagemaker_queue.jobs.formatting import amount, file_size
from sagemaker_queue.jobs.packaging.ignoring import code_files

DEFAULT_LIMIT = 100_000_000  # bytes
_SHOWN = 5  # number of files that the error about a too large folder lists
_TIME = 315_532_800  # 1980: earlier times cannot be in a zip file, such as a wheel that the job builds from its code


@dataclass(frozen=True)
class Archive:
    """A packed folder."""

    digest: str  # SHA-256 of the unzipped archive: names, content, links and executable bits
    files: int
    size: int  # bytes of all files
    unzipped: int  # bytes of the unzipped archive
    # each path in the archive, with the file's size in bytes (None for a folder or a link)
    names: tuple[tuple[str, int | None], ...] = ()
    kept_back: tuple[str, ...] = ()  # paths that are not packed, because they may contain secrets
    links: Mapping[str, str] = field(default_factory=dict)  # each link, and the path in the folder to which it leads

    def has(self, *names: str) -> bool:
        """Return whether the archive contains all these files, or links to them."""
        return {self._with_links_resolved(name) for name in names} <= {
            name for name, size in self.names if size is not None
        }

    def _with_links_resolved(self, name: str) -> str:
        """Follow the links in a path, and return the resulting path, which has no links."""
        parts = name.split("/")
        for length in range(1, len(parts) + 1):
            if (target := self.links.get("/".join(parts[:length]))) is not None:
                return self._with_links_resolved(posixpath.normpath(posixpath.join(target, *parts[length:])))
        return name

    @property
    def source(self) -> str:
        """Digest and unzipped size, by which the container verifies the archive."""
        return f"{self.digest} {self.unzipped}"

    def __str__(self) -> str:
        return f"{amount(self.files, 'file')}, {file_size(self.size)}"


def pack(
    folder: Path,
    target: BinaryIO,
    *,
    leave_out: Sequence[str] = (),
    include_secrets: Sequence[str] = (),
    limit: int = DEFAULT_LIMIT,
) -> Archive:
    """Write the code of a folder to ``target`` as .tar.gz, independent of times, owners and umask.

    ``leave_out`` are paths in the folder that are not code, such as data links. ``include_secrets`` are patterns of
    files that are packed although they contain secrets. ``limit`` bounds the size of all files, in bytes.
    Raises FolderError if the folder is missing, unreadable or too large, or if a link leads out of the folder.
    """
    if not folder.is_dir():
        raise FolderError(f"{folder} is not a folder.")
    root = folder.resolve()
    kept_back: list[str] = []
    paths = list(code_files(root, leave_out, include_secrets=include_secrets, kept_back=kept_back))
    sizes = {path: path.lstat().st_size for path in paths if path.is_file() and not path.is_symlink()}
    if sum(sizes.values()) > limit:
        raise _too_large(root, sizes, limit)
    digest = hashlib.sha256()
    # The digest is of the uncompressed bytes, because the compressed bytes depend on the version of zlib.
    with gzip.GzipFile(filename="", mode="wb", fileobj=target, mtime=0) as compressed:
        hashed = _Hashed(compressed, digest)
        with tarfile.open(fileobj=cast(IO[bytes], hashed), mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path in paths:
                _add(archive, root, path)
    return Archive(
        digest.hexdigest(),
        len(sizes),
        sum(sizes.values()),
        hashed.size,
        tuple((path.relative_to(root).as_posix(), sizes.get(path)) for path in paths),
        tuple(kept_back),
        dict(_links(root, paths)),
    )


class _Hashed:
    """A writable file that adds its bytes to a digest."""

    def __init__(self, file: gzip.GzipFile, digest: hashlib._Hash) -> None:
        self._file = file
        self._digest = digest
        self.size = 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self.size += len(data)
        return self._file.write(data)


def _add(archive: tarfile.TarFile, root: Path, path: Path) -> None:
    entry = tarfile.TarInfo(path.relative_to(root).as_posix())
    entry.mtime = _TIME
    try:
        if path.is_symlink():
            entry.type, entry.linkname = tarfile.SYMTYPE, _inner_target(root, path)
            archive.addfile(entry)
        elif path.is_dir():
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        else:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
                archive.addfile(entry, file)
    except OSError as error:
        raise FolderError(f"{path} cannot be packed: {error.strerror or error}.") from error


def _links(root: Path, paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yield each link to a file or folder below the root, and its target after all links are followed."""
    for path in paths:
        real = Path(os.path.realpath(path))
        if path.is_symlink() and real.exists() and real.is_relative_to(root):
            yield path.relative_to(root).as_posix(), real.relative_to(root).as_posix()


def _inner_target(root: Path, link: Path) -> str:
    target = link.readlink()
    inside = not target.is_absolute() and Path(os.path.normpath(link.parent / target)).is_relative_to(root)
    if not inside:
        name = link.relative_to(root)
        raise FolderError(
            f"{name} is a link to {target}, outside {root}: it cannot be packed. If it is data, say where it is in S3"
            f" (--data {name}=s3://...); if the job does not need it, add it to .smqignore."
        )
    if ".." in target.as_posix().lstrip("./").split("/"):
        # A part of the target may itself be a link, so follow all links to find where the target is.
        real = (link.parent / target).resolve()
        if not real.is_relative_to(root):
            raise FolderError(f"{link.relative_to(root)} is a link to {target}, outside {root}: it cannot be packed.")
        return os.path.relpath(real, link.parent)
    return target.as_posix()


def _too_large(root: Path, sizes: dict[Path, int], limit: int) -> FolderError:
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:_SHOWN]
    lines = "".join(f"\n  {file_size(sizes[path]):>10}  {path.relative_to(root)}" for path in largest)
    return FolderError(
        f"The code in {root} takes {file_size(sum(sizes.values()))} in {len(sizes)} files; at most {file_size(limit)}"
        f" are packed. The largest files:{lines}\nAdd what the job does not need to .smqignore (it is written as"
        " .gitignore is), give data by --data PATH=s3://..., or raise the limit by --max-code."
    )
