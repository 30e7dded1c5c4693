"""Map the queue's errors to HTTP. No other module knows both the errors and HTTP.

The class of an error has the same name as its code in `api_contract.error_codes`.
"""

from api_contract.error_codes import Error, ErrorCode, Refusal
from job_queue.domain.errors import QueueError

_CODES = {code.value: code for code in ErrorCode}


def code_of(kind: type[QueueError]) -> ErrorCode:
    """Return the code of a class of errors, or of its nearest base class that has a code."""
    return next((_CODES[it.__name__] for it in kind.__mro__ if it.__name__ in _CODES), ErrorCode.INTERNAL_ERROR)


def refusal(error: QueueError) -> tuple[int, Refusal]:
    """Return the HTTP status and the body for an error."""
    code = code_of(type(error))
    errors = (Error(code.value, issue.message, issue.field or None, issue.remedy) for issue in error.issues)
    return code.status, Refusal(tuple(errors))
