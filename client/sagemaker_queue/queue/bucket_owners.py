"""Send the expected owner of the bucket with each S3 call, so that S3 refuses an attacker's bucket.

Bucket names are global. If a user's bucket was deleted or does not exist yet, an attacker could create a bucket of that
name. The attacker would receive the user's code and data, and choose the input of jobs. So each call names the expected
owner (ExpectedBucketOwner). The owner is the bucket's account in the profile's ``bucket_owners``. The default is the
profile's ``account``, or without that setting the account that STS returns for the credentials.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from sagemaker_queue.queue.config.queue_config import QueueConfig

_SHORT = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})


class BucketOwners:
    """The accounts that buckets must belong to, for one profile and its credentials."""

    def __init__(self, session: boto3.Session, config: QueueConfig | None = None) -> None:
        self._session = session
        self._owners: Mapping[str, str | None] = config.owners if config else {}
        self._account = config.account if config else None
        self._error: BotoCoreError | ClientError | None = None
        self._lock = threading.Lock()

    def account(self) -> str:
        """Return the profile's account, else the credentials' account. STS is called once; errors of STS are raised."""
        with self._lock:
            if self._error:  # do not wait for the timeout a second time
                raise self._error
            if not self._account:
                try:
                    sts: Any = self._session.client("sts", config=_SHORT)
                    self._account = str(sts.get_caller_identity()["Account"])
                except (BotoCoreError, ClientError) as error:
                    self._error = error
                    raise
            return self._account

    def of(self, bucket: str) -> str | None:
        """Return the account that a bucket must belong to; None: any account."""
        return self._owners[bucket] if bucket in self._owners else self.account()

    @contextmanager
    def expecting(self, owners: Mapping[str, Callable[[str], str | None]]) -> Iterator[None]:
        """Within the context, take expected owners also from ``owners``; the profile's ``bucket_owners`` comes first.

        ``owners`` maps a bucket to a function that returns the owner, as ``of`` does.
        """
        before = self._owners
        self._owners = {**{bucket: of(bucket) for bucket, of in owners.items()}, **before}
        try:
            yield
        finally:
            self._owners = before

    def guarded(self, client: Any) -> Any:
        """Register a handler on an S3 client that adds the expected owner to each call; return the client."""
        client.meta.events.register("provide-client-params.s3", self._add_owners)
        return client

    def _add_owners(self, params: dict[str, Any], model: Any, context: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        members = model.input_shape.members if model.input_shape else {}
        # A presigned URL with an expected owner would fail: users of the URL do not send the header with the owner.
        if context.get("is_presign_request") or "ExpectedBucketOwner" not in members or "Bucket" not in params:
            return params
        more = {"ExpectedBucketOwner": self.of(params["Bucket"])}
        source = params.get("CopySource")
        if source and "ExpectedSourceBucketOwner" in members:
            more["ExpectedSourceBucketOwner"] = self.of(
                source["Bucket"] if isinstance(source, Mapping) else str(source).lstrip("/").partition("/")[0]
            )
        return {**params, **{name: account for name, account in more.items() if account}}
