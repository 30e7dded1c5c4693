"""Pack a job's code, and upload the code and the program that runs the code to S3; upload the same content once."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sagemaker_queue.jobs.packaging.packing import Archive, pack
from sagemaker_queue.jobs.packaging.storage import S3Storage
from sagemaker_queue.queue.data_links import S3Address

_RUN = Path(__file__).parent / "container" / "run.py"


@dataclass(frozen=True)
class Code:
    """A packed folder on this machine, and its address in S3."""

    archive: Archive
    file: Path
    address: S3Address  # the folder in S3 that becomes an input channel

    @property
    def program(self) -> str:
        """SHA-256 of run.py, the program that runs the code."""
        return hashlib.sha256(_RUN.read_bytes()).hexdigest()

    def upload(self, storage: S3Storage, before: Callable[[], None] = lambda: None) -> bool:
        """Upload the code to S3, calling ``before`` first; return False if S3 already has exactly this content."""
        parts = {self.address / "run.py": _RUN, self.address / "source.tar.gz": self.file}
        if all(storage.has_content_of(file, address) for address, file in parts.items()):
            return False
        before()
        storage.ensure_bucket(self.address.bucket)
        for address, file in parts.items():
            storage.put_in_one_piece(file, address)
        return True


@contextmanager
def packed_code(
    folder: Path, home: S3Address, *, leave_out: Sequence[str], limit: int, include_secrets: Sequence[str] = ()
) -> Iterator[Code]:
    """Pack the code of a folder, and yield it with an address below ``home`` that contains the code's digest.

    Raises FolderError if the folder cannot be packed.
    """
    with tempfile.TemporaryDirectory(prefix="smq-") as temporary:
        file = Path(temporary) / "source.tar.gz"
        with file.open("wb") as target:
            archive = pack(folder, target, leave_out=leave_out, include_secrets=include_secrets, limit=limit)
        digest = hashlib.sha256(archive.digest.encode() + _RUN.read_bytes()).hexdigest()[:32]
        yield Code(archive, file, home / digest)
