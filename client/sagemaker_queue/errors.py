"""Errors of this package; their messages are written for users.

QueueError              root of all errors of this package
├── ConfigError         the configuration is missing or wrong, such as the queue's address
│   └── NoAccountProfile    a job is in another account, and no AWS profile is set for that account
├── NotAuthenticated    no AWS credentials to sign the request with
├── InvalidRequest      a training job request or a policy is wrong; ``field`` names the member
├── TooLarge            the request is over the queue's size limit
├── TakesTooLong        the computation takes longer than a request may take; request less
├── Forbidden           the queue, or API Gateway, denies the request
├── NotFound            there is no such job, attempt, pool, study, version of the policy, or object in S3
├── Conflict            the request does not fit the present state of the queue
│   ├── NameTaken       another request already has that job name
│   ├── StalePolicy     another policy was applied since the version that was read
│   ├── InUse           a policy drops projects or pools of live jobs, or lowers a quota too far
│   └── TooMany         the queue has reached one of its limits
├── InvalidDocument     a file to read is missing or invalid
├── InvalidOption       an option, or a default of the profile, is wrong or missing
├── FolderError         the working folder cannot be packed, or is too large
├── StorageError        S3 refused, failed or could not be reached
└── Unavailable         no usable answer after all retries
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from api_contract.error_codes import Error

ErrorType = TypeVar("ErrorType", bound="QueueError")


class QueueError(Exception):
    """Root of the errors of this package; its message names the error and a remedy.

    ``field`` is the path of the invalid member, such as ``ResourceConfig.InstanceCount``; None if the error concerns no
    single member. ``errors`` are all errors in the queue's answer, or all issues of the client's own pre-flight; empty
    for other errors. ``retry_after`` is the number of seconds to wait before a retry; None if the answer has none.
    """

    def __init__(self, message: str = "", field: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.errors: tuple[Error, ...] = ()
        self.retry_after: float | None = None

    @classmethod
    def of(cls: type[ErrorType], errors: Sequence[Error]) -> ErrorType:
        """Combine ``errors`` (at least one): all messages, then each remedy once, and the field of the first error."""
        remedies = dict.fromkeys(error.remedy for error in errors if error.remedy)
        combined = cls((" " if len(errors) == 1 else "\n").join([*(error.message for error in errors), *remedies]))
        combined.field = errors[0].field
        combined.errors = tuple(errors)
        return combined


class ConfigError(QueueError):
    """The configuration is missing or wrong, such as the queue's address or a setting of the profile."""


class NoAccountProfile(ConfigError):
    """A job is in another account, and the setting ``account_profiles`` has no usable AWS profile of that account."""


class NotAuthenticated(QueueError):
    """There are no usable AWS credentials."""


class InvalidRequest(QueueError):
    """The request is wrong, for example a CreateTrainingJob request or a policy with faults."""


class TooLarge(QueueError):
    """The request is larger than the queue accepts."""


class TakesTooLong(QueueError):
    """The queue needs longer to compute the answer than a request may take."""


class Forbidden(QueueError):
    """The caller may not make this request."""


class NotFound(QueueError):
    """There is no such job, attempt, pool, study, version of the policy, or object in S3."""


class Conflict(QueueError):
    """The request does not fit the present state, for example because the job has finished."""


class NameTaken(Conflict):
    """A different request was already submitted under this job name."""


class StalePolicy(Conflict):
    """Another policy was applied since the version that was read."""


class InUse(Conflict):
    """A policy drops or changes what live jobs use (a pool, a bucket), or lowers a quota below running jobs."""


class TooMany(Conflict):
    """A limit is reached: waiting jobs of the caller, waiting queues, or live jobs that write below one address."""


class InvalidDocument(QueueError):
    """A file is missing, or does not contain valid YAML or JSON."""


class InvalidOption(QueueError):
    """An option, a keyword or a default of the profile is wrong or missing."""


class FolderError(QueueError):
    """A folder cannot be packed, or is too large."""


class StorageError(QueueError):
    """S3 refused, failed or could not be reached, or a file could not be written."""


class Unavailable(QueueError):
    """The queue could not be reached, is overloaded, or failed."""
