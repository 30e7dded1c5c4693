"""Copy objects from one profile's S3 to another profile's S3: inside S3 if possible, else through this machine.

The two profiles may belong to two accounts. S3 copies an object itself if one of the two identities may read the source
and write the target. Otherwise the source's identity reads the object, and the target's identity writes it. Parts of
the object are then in this machine's memory, never on its disk.
"""

from __future__ import annotations

from collections.abc import Callable

from sagemaker_queue.jobs.packaging.storage import (
    LARGEST_COPY,
    Progress,
    S3Storage,
    StorageRefused,
    Stored,
    part_size,
)
from sagemaker_queue.queue.data_links import S3Address

SOURCE_ETAG = "smq-source-etag"  # metadata key of an object that was copied through this machine
_LARGEST_PART = 64 << 20  # bytes of a part that is copied through this machine; several parts are in memory at a time
_KEPT = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType")


class Copier:
    """A copier of objects from one profile's S3 to another profile's S3.

    ``before_streaming`` is called once, before the first object is copied through this machine.
    """

    def __init__(
        self, source: S3Storage, target: S3Storage, before_streaming: Callable[[], None] = lambda: None
    ) -> None:
        self._source = source
        self._target = target
        self._before_streaming = before_streaming
        # The storages whose credentials S3 has not refused yet.
        self._copying = [target] if source is target else [target, source]

    def has_arrived(self, stored: Stored, existing: Stored) -> bool:
        """Return whether the object ``existing`` at the target is known to have the content of the source's object."""
        if stored.size != existing.size or not stored.etag:
            return False
        if stored.etag == existing.etag:
            return True
        # The same content has another ETag if S3 encrypts with a KMS key, or if the part size differs.
        metadata = self._target.properties(existing.address).get("Metadata", {})
        return bool(metadata.get(SOURCE_ETAG) == stored.etag)

    def copy(self, stored: Stored, address: S3Address, progress: Progress | None = None) -> None:
        """Copy an object of the source to an address of the target. Raises StorageError."""
        part_bytes = self._part_bytes_of(stored)
        while self._copying:
            try:
                self._copying[0].copy(
                    stored, address, part_bytes, source=self._source, target=self._target, progress=progress
                )
            except StorageRefused:
                del self._copying[0]
                if not self._copying:
                    self._before_streaming()
            else:
                return
        self._stream(stored, address, part_bytes, progress)

    def _part_bytes_of(self, stored: Stored) -> int | None:
        """Return the part size in bytes for a copy; None: copy in one piece.

        If the part size of the source is known, the copy gets the same part size, and so the same ETag.
        """
        _, _, count = stored.etag.partition("-")
        if not count and stored.size <= LARGEST_COPY:
            return None
        first = self._source.properties(stored.address, part=1).get("ContentLength", 0) if count else 0
        is_known = first and str(-(-stored.size // first)) == count
        return int(first) if is_known else part_size(stored.size)

    def _stream(self, stored: Stored, address: S3Address, part_bytes: int | None, progress: Progress | None) -> None:
        """Copy an object and its properties through this machine, and store the source's ETag as metadata."""
        properties = self._source.properties(stored.address)
        if (part_bytes or stored.size) > _LARGEST_PART:
            part_bytes = part_size(stored.size)
        kept = {name: properties[name] for name in _KEPT if properties.get(name)}
        metadata = {**properties.get("Metadata", {}), SOURCE_ETAG: stored.etag}
        with self._source.reader(stored) as content:
            self._target.put_object(content, address, part_bytes, {**kept, "Metadata": metadata}, progress)
