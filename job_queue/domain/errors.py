"""Errors that a caller is meant to see, and signals inside the queue.

QueueError                  root: a sentence, and the HTTP status that api.py gives it
├── InvalidRequest          400  the request is wrong; names the field
├── Forbidden               403  a rule forbids it
├── NotFound                404  no such job
├── NameTaken               409  another request has that name
├── Conflict                409  not in the state that the job is in
├── StalePolicy             409  somebody else applied a policy meanwhile
├── InUse                   409  live jobs need what a policy would drop
├── TooMany                 409  the queue holds as much of a kind as it can
├── TooLarge                413  the request does not fit
└── Unavailable             503  AWS did not do its part; the same request may be sent again

Signal                      root of what the queue tells itself; never leaves it
├── Refused                 a conditional write was refused
│   └── LeaseLost           ... because the lease has moved on
└── OutOfTime               too little of the invocation is left to go on safely
"""

from collections.abc import Mapping
from typing import Any


class QueueError(Exception):
    """Something that the caller should read: `message` says what was wrong, where, and what to do."""

    status = 500
    code = "InternalError"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidRequest(QueueError):
    """The request cannot be accepted as it is."""

    status = 400
    code = "InvalidRequest"


class Forbidden(QueueError):
    """The caller may not do this."""

    status = 403
    code = "Forbidden"


class NotFound(QueueError):
    """There is no such job."""

    status = 404
    code = "NotFound"


class NameTaken(QueueError):
    """The job name belongs to another request."""

    status = 409
    code = "NameTaken"


class Conflict(QueueError):
    """The job is not in a state in which this can be done."""

    status = 409
    code = "Conflict"


class StalePolicy(QueueError):
    """The policy is no longer the one that was read."""

    status = 409
    code = "StalePolicy"


class InUse(QueueError):
    """A policy would drop what live jobs need."""

    status = 409
    code = "InUse"


class TooMany(QueueError):
    """The queue holds as much of a kind as it can."""

    status = 409
    code = "TooMany"


class TooLarge(QueueError):
    """The request is larger than the queue can keep."""

    status = 413
    code = "TooLarge"


class Unavailable(QueueError):
    """A service that the queue needs did not answer; nothing is lost, ask again."""

    status = 503
    code = "Unavailable"


class Signal(Exception):
    """Root of the queue's signals to itself."""


class Refused(Signal):
    """A conditional write was refused.

    `items` maps the place of each refused write in its transaction to the row that stood there
    (empty where none did).
    """

    def __init__(self, items: Mapping[int, Mapping[str, Any]]) -> None:
        super().__init__(f"refused: {sorted(items)}")
        self.items = items


class LeaseLost(Refused):
    """The lease's token is no longer ours."""


class OutOfTime(Signal):
    """Too little of the invocation is left."""
