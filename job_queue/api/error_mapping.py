"""The mapping of the queue's errors to HTTP. No other module knows both."""

from collections.abc import Mapping

from api_contract.error_codes import Error, ErrorCode, Refusal
from job_queue.domain.errors import (
    Busy,
    Conflict,
    Forbidden,
    InUse,
    InvalidRequest,
    NameTaken,
    NotFound,
    QueueError,
    StalePolicy,
    TakesTooLong,
    TooLarge,
    TooMany,
    Unavailable,
    Unwritable,
)

CODES: Mapping[type[QueueError], ErrorCode] = {
    QueueError: ErrorCode.INTERNAL_ERROR,
    InvalidRequest: ErrorCode.INVALID_REQUEST,
    Forbidden: ErrorCode.FORBIDDEN,
    NotFound: ErrorCode.NOT_FOUND,
    NameTaken: ErrorCode.NAME_TAKEN,
    Conflict: ErrorCode.CONFLICT,
    StalePolicy: ErrorCode.STALE_POLICY,
    InUse: ErrorCode.IN_USE,
    TooMany: ErrorCode.TOO_MANY,
    TooLarge: ErrorCode.TOO_LARGE,
    TakesTooLong: ErrorCode.TAKES_TOO_LONG,
    Busy: ErrorCode.BUSY,
    Unavailable: ErrorCode.UNAVAILABLE,
    Unwritable: ErrorCode.UNAVAILABLE,
}


def refusal(error: QueueError) -> tuple[int, Refusal]:
    """Return the HTTP status and the body for an error."""
    code = CODES[type(error)]
    errors = (Error(code.value, issue.message, issue.field or None, issue.remedy) for issue in error.issues)
    return code.status, Refusal(tuple(errors))
