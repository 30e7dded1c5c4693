"""The code of a job in S3: uploaded once for the same content, with the program that runs it in the container."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sagemaker_queue.data_links import S3Address
from sagemaker_queue.packaging.packing import Archive, pack
from sagemaker_queue.packaging.storage import Storage

_RUN = Path(__file__).parent / "container" / "run.py"


@dataclass(frozen=True)
class Code:
    """A packed folder on this machine, and where it belongs."""

    archive: Archive
    file: Path
    address: S3Address  # the folder of an input channel

    @property
    def program(self) -> str:
        """The SHA-256 of the program."""
        return hashlib.sha256(_RUN.read_bytes()).hexdigest()

    def upload(self, storage: Storage, before: Callable[[], None] = lambda: None) -> bool:
        """Bring it to S3, and call ``before`` first; gives False if it was there already, and nobody has changed it."""
        parts = {self.address / "run.py": _RUN, self.address / "source.tar.gz": self.file}
        if all(storage.holds(file, address) for address, file in parts.items()):
            return False
        before()
        storage.make_ready(self.address.bucket)
        for address, file in parts.items():
            storage.put_whole(file, address)
        return True


@contextmanager
def packed_code(
    folder: Path, home: S3Address, *, leave_out: Sequence[str], limit: int, include_secrets: Sequence[str] = ()
) -> Iterator[Code]:
    """Pack the code of a folder, for a folder below ``home`` that is named after its content.

    Raises FolderError if that is not possible.
    """
    with tempfile.TemporaryDirectory(prefix="smq-") as temporary:
        file = Path(temporary) / "source.tar.gz"
        with file.open("wb") as target:
            archive = pack(folder, target, leave_out=leave_out, include_secrets=include_secrets, limit=limit)
        digest = hashlib.sha256(archive.digest.encode() + _RUN.read_bytes()).hexdigest()[:32]
        yield Code(archive, file, home / digest)
