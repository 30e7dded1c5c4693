"""Unpack SageMaker's archives of results into one folder, and write nothing outside the folder.

Archives are untrusted: a job writes an archive, and everyone with write access to the bucket can replace it. Only plain
files are unpacked. A link, a device, a sparse file, or a file whose name leads out of the folder is refused, and the
other members are unpacked. An archive beyond the bounds of ``ArchiveBounds`` is refused as a whole.
"""

from __future__ import annotations

import shutil
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from sagemaker_queue.errors import StorageError
from sagemaker_queue.jobs.packaging.archive_reader import ArchiveBounds, ArchiveTooLarge, Members
from sagemaker_queue.jobs.packaging.download import PathRefused, path_parts

_EXECUTABLE = 0o111
_DEEPEST = 100  # maximum number of parts of one path


@dataclass(frozen=True)
class Unpacked:
    """The result of unpacking an archive."""

    files: int
    size: int  # bytes of all files
    refused: tuple[tuple[str, str], ...]  # name and reason


def unpack(archive: Path, folder: Path, bounds: ArchiveBounds | None = None) -> Unpacked:
    """Unpack a .tar.gz into a folder that does not exist or is empty.

    Raises StorageError if the archive cannot be read, or its files cannot be written. If the archive exceeds
    ``bounds``, the folder is removed and ArchiveTooLarge is raised. Several archives may share one ``bounds``.
    """
    files, size, refused = 0, 0, []
    try:
        for members, member in Members(archive, folder, bounds or ArchiveBounds()):
            if member.isdir():
                continue
            try:
                _unpack_one(members, member, folder)
                files, size = files + 1, size + member.size
            except PathRefused as error:
                refused.append((member.name, str(error)))
    except ArchiveTooLarge:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise StorageError(f"{archive} cannot be unpacked, and stays as it is: {error}.") from error
    return Unpacked(files, size, tuple(refused))


def _unpack_one(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    if member.issparse() or member.type == tarfile.GNUTYPE_SPARSE:
        raise PathRefused("sparse files are not unpacked, because they could fill the disk")
    content = members.extractfile(member) if member.isreg() else None
    if content is None:
        raise PathRefused("links and devices are not unpacked")
    parts = path_parts(member.name[2:] if member.name.startswith("./") else member.name)
    if len(parts) > _DEEPEST:
        raise PathRefused(f"its path has more than {_DEEPEST} folders")
    file = folder.joinpath(*parts)
    try:
        # The folder contains no links: it was empty, and links are not unpacked.
        file.parent.mkdir(parents=True, exist_ok=True)
        with content, file.open("xb") as target:
            shutil.copyfileobj(content, target)
    except (FileExistsError, NotADirectoryError) as error:
        raise PathRefused("there is another file of that name") from error
    file.chmod(file.stat().st_mode | (member.mode & _EXECUTABLE & (file.stat().st_mode >> 2)))
