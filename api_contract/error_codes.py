"""The answers that refuse a request, and all their codes."""

from enum import Enum
from typing import Annotated, Optional

from api_contract.shape import Answer, schema


class ErrorCode(str, Enum):
    """The reason why the queue refuses a request, for programs, with its HTTP status."""

    status: int
    meaning: str

    def __new__(cls, code: str, status: int, meaning: str) -> "ErrorCode":  # noqa: D102  (called by Enum only)
        member = str.__new__(cls, code)
        member._value_, member.status, member.meaning = code, status, meaning
        return member

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]

    INVALID_REQUEST = "InvalidRequest", 400, "The request is wrong; each error names the place."
    FORBIDDEN = "Forbidden", 403, "A rule of the queue forbids it."
    NOT_FOUND = "NotFound", 404, "The queue has no job, version or pool of this name; the message names it."
    NAME_TAKEN = "NameTaken", 409, "Another request has this TrainingJobName."
    CONFLICT = (
        "Conflict",
        409,
        "The state of the job does not allow this change, or the job would write to a folder of a live "
        "job of another owner.",
    )
    STALE_POLICY = "StalePolicy", 409, "Another policy was applied since the version that was read."
    IN_USE = (
        "InUse",
        409,
        "Live jobs use projects, pools, buckets, training plans or roles that the new policy drops or changes, or "
        "running non-preemptible jobs hold more than a quota that it lowers.",
    )
    TOO_MANY = (
        "TooMany",
        409,
        "The caller has too many waiting jobs, or jobs wait for too many combinations of instance types and pools; "
        "or too many live jobs write below an address.",
    )
    TOO_LARGE = "TooLarge", 413, "The request is larger than the queue can store."
    TAKES_TOO_LONG = "TakesTooLong", 422, "The answer takes too long to compute; request less."
    BUSY = (
        "Busy",
        429,
        "Too many dry runs, previews, requests for advice or for shells are in progress; send the same request again.",
    )
    INTERNAL_ERROR = "InternalError", 500, "The queue has failed. No data is lost."
    UNAVAILABLE = "Unavailable", 503, "An AWS service did not answer; send the same request again."


class Error(Answer, frozen=True):
    """One error in a request or its execution."""

    code: Annotated[str, schema(enum=[code.value for code in ErrorCode])]
    """A code for programs."""
    message: str
    """The error and its place: a sentence for people that can be understood by itself."""
    field: Annotated[Optional[str], schema(examples=["ResourceConfig.InstanceCount"])] = None
    """The path of the wrong field; null if no single field is wrong."""
    remedy: Optional[str] = None
    """The remedy; null if the message is enough."""


class Refusal(Answer, frozen=True):
    """The body of every unsuccessful answer of the queue. All errors in the body have the same code."""

    errors: Annotated[tuple[Error, ...], schema(minItems=1)]
    """All errors; if there are very many, the first ones."""


class GatewayRefusal(Answer, frozen=True):
    """An answer of API Gateway to a request that it did not pass to the queue.

    The request is not signed, the caller may not call the API, the address does not exist, or there are too many calls.
    """

    message: str
    """A sentence for people."""
