"""What can go wrong between a user and the queue, as a person should read it.

QueueError              anything this package raises on purpose
├── ConfigError         where the queue is was not said, or not rightly
├── NotAuthenticated    no AWS credentials to sign the request with
├── InvalidRequest      the training job request is wrong; ``field`` names where
├── TooLarge            the request is over the queue's size limit
├── TakesTooLong        the answer cannot be computed while a caller waits; ask for less
├── Forbidden           the queue, or API Gateway before it, says no
├── NotFound            the queue knows no job of that name
├── Conflict            what is asked for does not go with how things are by now
│   ├── NameTaken       another request already has that job name
│   ├── StalePolicy     another policy was applied since the version that was read
│   ├── InUse           a policy takes what live jobs use
│   └── TooMany         the queue holds as much of a kind as it can
├── InvalidDocument     a file that was to be read is missing, or is not what it must be
├── InvalidOption       an option, or a default of the profile, is wrong or missing
├── FolderError         the working folder cannot be packed, or is too large
├── StorageError        S3 refused, failed or could not be reached
└── Unavailable         no usable answer, however often it was asked
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from api_contract.error_codes import Error

ErrorType = TypeVar("ErrorType", bound="QueueError")


class QueueError(Exception):
    """Root of the errors of this package; its text says what was wrong and what to do.

    ``field`` is the path of the member at fault, such as ``ResourceConfig.InstanceCount``, or None where no single one
    is. ``errors`` are what the queue has against the request, one by one; empty where the queue was not asked.
    ``retry_after`` are the seconds for which the answer asks not to come again; None if it does not say.
    """

    def __init__(self, message: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.errors: tuple[Error, ...] = ()
        self.retry_after: float | None = None

    @classmethod
    def of(cls: type[ErrorType], errors: Sequence[Error]) -> ErrorType:
        """Return the error that says all of these, of which there is at least one, and each remedy once."""
        remedies = dict.fromkeys(error.remedy for error in errors if error.remedy)
        made = cls((" " if len(errors) == 1 else "\n").join([*(error.message for error in errors), *remedies]))
        made.field = errors[0].field
        made.errors = tuple(errors)
        return made


class ConfigError(QueueError):
    """The queue's address is missing or wrong."""


class NotAuthenticated(QueueError):
    """There are no usable AWS credentials."""


class InvalidRequest(QueueError):
    """The request cannot become a training job."""


class TooLarge(QueueError):
    """The request is larger than the queue accepts."""


class TakesTooLong(QueueError):
    """The queue cannot compute the answer while a caller waits."""


class Forbidden(QueueError):
    """The caller may not do this."""


class NotFound(QueueError):
    """There is no such job."""


class Conflict(QueueError):
    """What is asked for does not go with how things are by now: a job has finished, for one; or see the subclasses."""


class NameTaken(Conflict):
    """A different request was already submitted under this job name."""


class StalePolicy(Conflict):
    """Somebody else has applied a policy since the version that was read."""


class InUse(Conflict):
    """A policy drops projects or pools that live jobs use, or lowers a quota below running non-preemptible jobs."""


class TooMany(Conflict):
    """Jobs wait for so many combinations of instance types and pools that the queue cannot keep one more apart."""


class InvalidDocument(QueueError):
    """A file is missing, or does not hold YAML or JSON as it must."""


class InvalidOption(QueueError):
    """What was asked for cannot be made into a job."""


class FolderError(QueueError):
    """A folder cannot be packed as it is."""


class StorageError(QueueError):
    """A file could not be brought to S3 or from there."""


class Unavailable(QueueError):
    """The queue could not be reached, is overloaded, or failed."""
