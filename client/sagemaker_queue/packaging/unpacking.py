"""Unpack SageMaker's archives of results to one folder, and write nothing outside it.

A job writes its archives, and anybody who may write to the bucket can replace them. Only plain files are unpacked: a
link, a device, a sparse file or a name that leads elsewhere is refused, and the other members are unpacked. An archive
beyond the bounds of ``Room`` is refused as a whole.
"""

from __future__ import annotations

import shutil
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from sagemaker_queue.errors import StorageError
from sagemaker_queue.packaging.archive_reader import Members, Room, TooMuch
from sagemaker_queue.packaging.download import Refused, path_parts

_EXECUTABLE = 0o111
_DEEPEST = 100  # folders of one path


@dataclass(frozen=True)
class Unpacked:
    """The result for the members of an archive."""

    files: int
    size: int  # bytes, of all of them
    refused: tuple[tuple[str, str], ...]  # name, and why


def unpack(archive: Path, folder: Path, room: Room | None = None) -> Unpacked:
    """Unpack a .tar.gz to a folder that does not exist or is empty.

    Raises StorageError if the archive cannot be read or written, and TooMuch beyond ``room``, which several archives
    may share; the folder is removed then.
    """
    files, size, refused = 0, 0, []
    try:
        for members, member in Members(archive, folder, room or Room()):
            if member.isdir():
                continue
            try:
                _unpack_one(members, member, folder)
                files, size = files + 1, size + member.size
            except Refused as error:
                refused.append((member.name, str(error)))
    except TooMuch:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise StorageError(f"{archive} cannot be unpacked, and stays as it is: {error}.") from error
    return Unpacked(files, size, tuple(refused))


def _unpack_one(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    if member.issparse() or member.type == tarfile.GNUTYPE_SPARSE:
        raise Refused("it is a sparse file, which could fill the disk")
    content = members.extractfile(member) if member.isreg() else None
    if content is None:
        raise Refused("it is a link or a device, no file")
    parts = path_parts(member.name[2:] if member.name.startswith("./") else member.name)
    if len(parts) > _DEEPEST:
        raise Refused(f"its path has more than {_DEEPEST} folders")
    file = folder.joinpath(*parts)
    try:
        # Nothing of the folder is a link: it was empty, and links are not unpacked.
        file.parent.mkdir(parents=True, exist_ok=True)
        with content, file.open("xb") as target:
            shutil.copyfileobj(content, target)
    except (FileExistsError, NotADirectoryError) as error:
        raise Refused("there is another file of that name") from error
    file.chmod(file.stat().st_mode | (member.mode & _EXECUTABLE & (file.stat().st_mode >> 2)))
