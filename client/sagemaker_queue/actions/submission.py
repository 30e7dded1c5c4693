"""From a job that is described to one that is queued: looked at beforehand, its code brought to S3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sagemaker_queue.errors import Conflict, Forbidden, InvalidRequest, QueueError, TooLarge

if TYPE_CHECKING:
    import boto3

    from sagemaker_queue.client import QueueClient
    from sagemaker_queue.data_links import S3Address
    from sagemaker_queue.packaging.code import Code
    from sagemaker_queue.packaging.storage import Storage

_PATIENCE = 5.0  # seconds for what the queue is asked before an upload


def bring_code(
    queue: QueueClient,
    request: Mapping[str, Any],
    code: Code,
    storage: Storage,
    *,
    preflight: bool,
    before: Callable[[], None] = lambda: None,
) -> bool:
    """Upload the code of a request that nothing speaks against; gives False if it was there already.

    ``before`` is called before the upload, if there is one.
    """

    def ask_first() -> None:
        _ask_the_queue(queue, request)
        before()

    if preflight:
        check_storage(queue, request, to_come=code.address)
    return code.upload(storage, ask_first)


def check_storage(queue: QueueClient, request: Mapping[str, Any], to_come: S3Address | None = None) -> None:
    """Raise InvalidRequest if something that the request names in S3 is not there, but for what is yet to come."""
    from sagemaker_queue.preflight import check, refuse  # noqa: PLC0415  # boto3

    folder = str(to_come.folder) if to_come else None
    refuse(check(request, session_of(queue), to_come=folder, config=queue.config))


def storage_of(queue: QueueClient) -> Storage:
    """Return S3 with the credentials that the queue is asked with."""
    from sagemaker_queue.packaging.storage import Storage  # noqa: PLC0415  # boto3

    return Storage(session_of(queue), queue.config)


def session_of(queue: QueueClient) -> boto3.Session:
    """Return the session that the queue was given, or one of its profile."""
    from sagemaker_queue.packaging.storage import aws_session  # noqa: PLC0415  # boto3

    return queue.boto_session or aws_session(queue.config)


def _ask_the_queue(queue: QueueClient, request: Mapping[str, Any]) -> None:
    """Raise what the queue would refuse a request for; if it does not answer soon, it will when it gets the request."""
    try:
        queue.impatient(_PATIENCE).plan(request)
    except QueueError as error:
        if error.errors and isinstance(error, (InvalidRequest, Forbidden, Conflict, TooLarge)):
            raise
