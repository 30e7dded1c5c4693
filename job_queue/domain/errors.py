"""Errors for callers, and signals inside the queue.

QueueError                  root: message, field and remedy; the api maps each class to HTTP
├── InvalidRequest          the request is wrong; names the fields
├── Forbidden               a rule forbids it
├── NotFound                no such job
├── NameTaken               another request has that name
├── Conflict                the job's state does not allow it
├── StalePolicy             the policy was changed meanwhile
├── InUse                   a policy removes resources that live jobs need
├── TooMany                 the queue holds as much of a kind as it can
├── TooLarge                the request does not fit
├── TakesTooLong            the answer cannot be computed while a caller waits
├── Busy                    as many requests of the kind are in progress as may be at once
└── Unavailable             AWS did not do its part; the same request may be sent again

Signal                      root of signals inside the queue; never leaves it
└── Refused                 a conditional write was refused
        └── LeaseLost           ... because another holder has the lease
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """One fault of a request."""

    field: str
    """The place: `ResourceConfig.InstanceCount`, `Tags[2].Key`, `HyperParameters.lr`; empty for the whole request."""
    message: str
    """A complete sentence with the fault and its place."""
    remedy: str | None = None
    """Advice, if the message has none."""


class QueueError(Exception):
    """An error that the caller should read.

    :param field: the faulty field, if it is a single one.
    :param remedy: advice to the caller.
    """

    def __init__(self, message: str, *, field: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.issues: tuple[ValidationIssue, ...] = (ValidationIssue(field or "", message, remedy),)

    @classmethod
    def of(cls, issues: Sequence[ValidationIssue]) -> Self:
        """Return one error for several issues, at least one."""
        error = cls(" ".join(issue.message for issue in issues))
        error.issues = tuple(issues)
        return error

    @property
    def message(self) -> str:
        """The messages of all issues, in sentences."""
        return str(self)

    @property
    def field(self) -> str | None:
        """The faulty field; the first one if there are several."""
        return self.issues[0].field or None


class InvalidRequest(QueueError):
    """An error because the request is not valid."""


class Forbidden(QueueError):
    """An error because the caller does not have the right."""


class NotFound(QueueError):
    """An error because there is no such job."""


class NameTaken(QueueError):
    """An error because the job name belongs to another request."""


class Conflict(QueueError):
    """An error because the job's state does not allow the command."""


class StalePolicy(QueueError):
    """An error because the policy is no longer the one that was read."""


class InUse(QueueError):
    """An error because a policy drops a project or a pool of live jobs, or lowers a quota below them."""


class TooMany(QueueError):
    """An error because the queue holds the maximum number of a kind."""


class TooLarge(QueueError):
    """An error because the request is larger than the queue can store."""


class TakesTooLong(QueueError):
    """An error because the answer cannot be computed in the time that a caller waits."""


class Busy(QueueError):
    """An error because too many requests of this kind are in progress. The same request may be sent again."""


class Unavailable(QueueError):
    """An error because a service that the queue needs did not answer. Nothing is lost; the caller may try again."""


class Unwritable(Unavailable):
    """An error because a row can never be stored: it is larger than the database allows."""


class Signal(Exception):
    """The root of signals inside the queue."""


class Refused(Signal):
    """A signal that a conditional write was refused.

    `items` maps the index of each refused write in its transaction to the stored row (empty if there is none).
    """

    def __init__(self, items: Mapping[int, Mapping[str, Any]]) -> None:
        super().__init__(f"refused: {sorted(items)}")
        self.items = items


class LeaseLost(Refused):
    """A signal that another holder has the lease."""
