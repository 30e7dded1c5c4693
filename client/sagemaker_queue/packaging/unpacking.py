"""SageMaker's archives of results as files of one folder: whatever is in them, nothing is written outside it.

A job writes its archives, and anybody who may write to the bucket can replace them. Only plain files are unpacked: what
is a link or a device, or is named otherwise than a file below the folder, is refused, and the others are unpacked.
"""

from __future__ import annotations

import shutil
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from sagemaker_queue.errors import StorageError
from sagemaker_queue.packaging.download import Refused, path_parts

_EXECUTABLE = 0o111


@dataclass(frozen=True)
class Unpacked:
    """What became of the members of an archive."""

    files: int
    size: int  # bytes, of all of them
    refused: tuple[tuple[str, str], ...]  # name, and why


def unpack(archive: Path, folder: Path) -> Unpacked:
    """Unpack a .tar.gz to a folder that has nothing in it yet. Raises StorageError if it cannot be read or written."""
    files, size, refused = 0, 0, []
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                if member.isdir():
                    continue
                try:
                    _unpack_one(members, member, folder)
                    files, size = files + 1, size + member.size
                except Refused as error:
                    refused.append((member.name, str(error)))
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise StorageError(f"{archive} cannot be unpacked, and stays as it is: {error}.") from error
    return Unpacked(files, size, tuple(refused))


def _unpack_one(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    content = members.extractfile(member) if member.isreg() else None
    if content is None:
        raise Refused("it is a link or a device, no file")
    file = folder.joinpath(*path_parts(member.name[2:] if member.name.startswith("./") else member.name))
    try:
        # Nothing of the folder is a link: it was empty, and links are not unpacked.
        file.parent.mkdir(parents=True, exist_ok=True)
        with content, file.open("xb") as target:
            shutil.copyfileobj(content, target)
    except (FileExistsError, NotADirectoryError) as error:
        raise Refused("there is another file of that name") from error
    file.chmod(file.stat().st_mode | (member.mode & _EXECUTABLE & (file.stat().st_mode >> 2)))
