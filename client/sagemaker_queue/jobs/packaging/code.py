"""Pack a job's code, and upload the code and its start program ``run.py`` to S3; skip content that S3 has."""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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

    def upload(
        self, storage: S3Storage, *, further_buckets: Iterable[str] = (), before: Callable[[], None] = lambda: None
    ) -> bool:
        """Upload the code to S3; return False if S3 already has exactly this content in each bucket.

        ``further_buckets`` get the code under the same key. ``before`` is called before an upload.
        """
        addresses = [*(replace(self.address, bucket=bucket) for bucket in further_buckets), self.address]
        missing = [address for address in addresses if not self._is_in(address, storage)]
        if missing:
            before()
        for address in missing:
            storage.ensure_bucket(address.bucket)
            for part, file in self._parts(address).items():
                storage.put_in_one_piece(file, part)
        return bool(missing)

    def _parts(self, address: S3Address) -> dict[S3Address, Path]:
        return {address / "run.py": _RUN, address / "source.tar.gz": self.file}

    def _is_in(self, address: S3Address, storage: S3Storage) -> bool:
        return all(storage.has_content_of(file, part) for part, file in self._parts(address).items())


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
