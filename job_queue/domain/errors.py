"""Errors for callers, and signals inside the queue.

QueueError                  root: message, field and remedy; the api maps each class to HTTP
├── InvalidRequest          the request is wrong; names the fields
├── Forbidden               the caller does not have the right
├── NotFound                there is no such job
├── NameTaken               the job name belongs to another request
├── Conflict                the job's state does not allow the command
├── StalePolicy             the policy was changed after it was read
├── InUse                   a policy removes or changes resources of live jobs
├── TooMany                 a limit is reached, such as an owner's limit on waiting jobs
├── TooLarge                the request is larger than the queue can store
├── TakesTooLong            the answer cannot be computed in the time that a caller waits
├── Busy                    too many requests of this kind are in progress
└── Unavailable             a service of AWS did not answer; the same request may be sent again
    ├── SiteSilent          the region or account of a call did not respond
    └── Unwritable          a row is larger than the database allows

Signal                      root of signals inside the queue; never reaches a caller
└── Refused                 a conditional write was refused
    └── LeaseLost           a conditional write was refused, because another holder has the lease
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ValidationIssue:
    """One fault of a request."""

    field: str
    """The path of the fault, such as `ResourceConfig.InstanceCount` or `Tags[2].Key`; empty for the whole request."""
    message: str
    """A complete sentence that names the fault and its path."""
    remedy: str | None = None
    """Advice, if the message has none."""


class QueueError(Exception):
    """The root of the errors that are meant for the caller.

    :param field: the faulty field, if there is exactly one.
    :param remedy: advice to the caller.
    """

    def __init__(self, message: str, *, field: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.issues: tuple[ValidationIssue, ...] = (ValidationIssue(field or "", message, remedy),)

    @classmethod
    def of(cls, issues: Sequence[ValidationIssue]) -> Self:
        """Return one error for one or several issues."""
        error = cls(" ".join(issue.message for issue in issues))
        error.issues = tuple(issues)
        return error

    @property
    def message(self) -> str:
        """The messages of all issues, joined by spaces."""
        return str(self)

    @property
    def field(self) -> str | None:
        """The field of the first issue; None if the first issue is about the whole request."""
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
    """An error because the policy was changed after the caller read it."""


class InUse(QueueError):
    """An error because a policy removes or changes resources of live jobs; see `services.policy_conflicts`."""


class TooMany(QueueError):
    """An error because a limit on live jobs is reached: waiting jobs, waiting queues, or places in S3."""


class TooLarge(QueueError):
    """An error because the request is larger than the queue can store."""


class TakesTooLong(QueueError):
    """An error because the answer cannot be computed in the time that a caller waits."""


class Busy(QueueError):
    """An error because too many requests of this kind are in progress. The same request may be sent again."""


class Unavailable(QueueError):
    """An error because a service that the queue needs did not answer. Nothing is lost; the caller may try again."""


class SiteSilent(Unavailable):
    """An error because the region or account of a call did not respond."""


class Unwritable(Unavailable):
    """An error because a row can never be stored: the row is larger than the database allows."""


class Signal(Exception):
    """The root of signals inside the queue, which never reach a caller."""


class Refused(Signal):
    """A signal that a conditional write was refused.

    `items` maps the index of each refused write in its transaction to the stored row. The row is empty if none exists.
    """

    def __init__(self, items: Mapping[int, Mapping[str, Any]]) -> None:
        super().__init__(f"refused: {sorted(items)}")
        self.items = items


class LeaseLost(Refused):
    """A signal that another holder has the lease."""
