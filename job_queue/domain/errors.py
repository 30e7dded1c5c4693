"""Errors that a caller is meant to see, and signals inside the queue.

QueueError                  root: what is wrong, where, and what to do; what HTTP makes of each is the api's matter
├── InvalidRequest          the request is wrong; names the fields
├── Forbidden               a rule forbids it
├── NotFound                no such job
├── NameTaken               another request has that name
├── Conflict                not in the state that the job is in
├── StalePolicy             somebody else applied a policy meanwhile
├── InUse                   a policy takes what live jobs need
├── TooMany                 the queue holds as much of a kind as it can
├── TooLarge                the request does not fit
├── TakesTooLong            the answer cannot be computed while a caller waits
├── Busy                    as many requests of the kind are in progress as may be at once
└── Unavailable             AWS did not do its part; the same request may be sent again

Signal                      root of what the queue tells itself; never leaves it
└── Refused                 a conditional write was refused
    └── LeaseLost           ... because the lease has moved on
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """One thing that is wrong with a request."""

    field: str
    """Where: `ResourceConfig.InstanceCount`, `Tags[2].Key`, `HyperParameters.lr`; empty for the whole request."""
    message: str
    """A sentence that says what is wrong and where, and needs nothing else to be understood."""
    remedy: str | None = None
    """What to do about it, where the message does not say so."""


class QueueError(Exception):
    """Something that the caller should read.

    :param field: the field at fault, if a single one is.
    :param remedy: what to do about it.
    """

    def __init__(self, message: str, *, field: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.issues: tuple[ValidationIssue, ...] = (ValidationIssue(field or "", message, remedy),)

    @classmethod
    def of(cls, issues: Sequence[ValidationIssue]) -> Self:
        """The error that several issues are, at least one."""
        error = cls(" ".join(issue.message for issue in issues))
        error.issues = tuple(issues)
        return error

    @property
    def message(self) -> str:
        """All that is wrong, in sentences."""
        return str(self)

    @property
    def field(self) -> str | None:
        """The field at fault, of several the first."""
        return self.issues[0].field or None


class InvalidRequest(QueueError):
    """The request cannot be accepted as it is."""


class Forbidden(QueueError):
    """The caller may not do this."""


class NotFound(QueueError):
    """There is no such job."""


class NameTaken(QueueError):
    """The job name belongs to another request."""


class Conflict(QueueError):
    """The job is not in a state in which this can be done."""


class StalePolicy(QueueError):
    """The policy is no longer the one that was read."""


class InUse(QueueError):
    """A policy takes what live jobs need: it drops a project or a pool, or lowers a quota below them."""


class TooMany(QueueError):
    """The queue holds as much of a kind as it can."""


class TooLarge(QueueError):
    """The request is larger than the queue can keep."""


class TakesTooLong(QueueError):
    """The answer cannot be computed in the time that a caller waits."""


class Busy(QueueError):
    """As many requests of this kind are in progress as may be at once; the same request may be sent again."""


class Unavailable(QueueError):
    """A service that the queue needs did not answer; nothing is lost, ask again."""


class Unwritable(Unavailable):
    """A row cannot be stored, now or later: it is larger than the database allows."""


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
