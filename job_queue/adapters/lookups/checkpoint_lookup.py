"""The look-up of the time of the newest object under an address in S3."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from job_queue.domain.errors import Unavailable

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import ListObjectsV2RequestTypeDef

PAGES = 5  # pages of 1,000 objects each
SECONDS = 3.0  # after this time no further page is requested, because a caller may be waiting


class NewestObject:
    """The look-up of the newest object under an address.

    S3 lists objects by key and not by age, so the newest object may be on the last page. With very many objects,
    only the first pages are read, and the result is the newest object on these pages.

    :param client: a boto3 client of S3 with short timeouts.
    :param buckets: names, or patterns of names, of the buckets that may be listed.
    :param clock: returns seconds, to limit the duration of the look-up.
    """

    def __init__(self, client: "S3Client", buckets: Sequence[str], clock: Callable[[], float]) -> None:
        self._client = client
        self._buckets = buckets
        self._clock = clock

    def may_list(self, address: str) -> bool:
        """Return whether the bucket of an address may be listed."""
        bucket, _ = _parts(address)
        return any(fnmatchcase(bucket, pattern) for pattern in self._buckets)

    def __call__(self, address: str) -> float | None:
        """Return the time (epoch seconds) of the newest object; None if there is none, or the bucket may not be listed.

        :param address: `s3://bucket/prefix`.
        :raises Unavailable: S3 gave no usable answer.
        """
        return self._newest(address)[0]

    def written_since(self, address: str, since: float) -> bool | None:
        """Return whether an object was written since a time; None: not known.

        The answer is not known if the bucket may not be listed. It is also not known if only some of the objects were
        read and all of these are older.

        :param address: `s3://bucket/prefix`.
        :param since: epoch seconds.
        :raises Unavailable: S3 gave no usable answer.
        """
        newest, complete = self._newest(address)
        if newest is not None and newest >= since:
            return True
        return False if complete else None

    def _newest(self, address: str) -> tuple[float | None, bool]:
        """Return the time of the newest object that was read, and whether all objects were read."""
        if not self.may_list(address):
            return None, False
        bucket, prefix = _parts(address)
        request: ListObjectsV2RequestTypeDef = {"Bucket": bucket, "Prefix": f"{prefix.rstrip('/')}/" if prefix else ""}
        newest, began = None, self._clock()
        for _ in range(PAGES):
            try:
                page = self._client.list_objects_v2(**request)
            except (ClientError, BotoCoreError) as error:
                raise Unavailable(f"S3 did not list {address}: {error}") from error
            written = [found["LastModified"].timestamp() for found in page.get("Contents", ())]
            newest = max([*written, *([] if newest is None else [newest])], default=None)
            if not page.get("IsTruncated"):
                return newest, True
            if self._clock() - began > SECONDS:
                break
            request["ContinuationToken"] = page["NextContinuationToken"]
        return newest, False


def _parts(address: str) -> tuple[str, str]:
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    return bucket, prefix
