"""Turn an HTTP error answer of the queue or of API Gateway into an exception whose message has a remedy."""

from __future__ import annotations

from http import HTTPStatus

import requests

from api_contract.error_codes import Error, ErrorCode, Refusal
from api_contract.shape import UnreadableError
from sagemaker_queue import errors as kinds
from sagemaker_queue.errors import ConfigError, Forbidden, NotAuthenticated, NotFound, QueueError, TooLarge, Unavailable

_KINDS: dict[str, type[QueueError]] = {code.value: getattr(kinds, code.value, Unavailable) for code in ErrorCode}
"""The exception class for each error code of the queue: the class of the same name, else Unavailable."""


_GATEWAY_REFUSALS: dict[str, tuple[type[QueueError], str]] = {
    # API Gateway answers an unknown path as if the signature were missing.
    "MissingAuthenticationTokenException": (
        ConfigError,
        "Does the queue's address end with its stage, such as /prod, and is the queue as new as this client?",
    ),
    "ForbiddenException": (ConfigError, "A VPC endpoint's address needs the queue's api_id; is it set, and right?"),
    "AccessDeniedException": (Forbidden, "Your AWS identity needs execute-api:Invoke on the queue's API."),
    "ExpiredTokenException": (NotAuthenticated, "Log in to AWS again."),
    "UnrecognizedClientException": (NotAuthenticated, "Are these credentials for the account you mean?"),
    "InvalidSignatureException": (NotAuthenticated, "Are the clock, the region and the secret key right?"),
}

_TOO_OFTEN = "The queue limits the requests of all callers together. Try again later, or send fewer requests."
_BODY_LIMIT = "Put large hyperparameters or environment values in S3 and pass their address."


def refusal(response: requests.Response) -> QueueError:
    """Return the error for a response with an error status, with the queue's messages if the queue answered."""
    errors = _errors(response)
    if not errors:
        return _gateway_refusal(response)
    kind = _KINDS.get(errors[0].code) or _kind(response.status_code)
    error = kind.of(errors)
    if kind is Unavailable:
        error.args = (_answer_without_code(response, str(error), advises_retry=errors[0].remedy is None),)
    return error


def _gateway_refusal(response: requests.Response) -> QueueError:
    """Return the error for an answer of API Gateway, or of another server at the queue's address."""
    body = _body(response)
    text = str(body.get("message") or body.get("Message") or response.reason or f"status {response.status_code}")
    error_type = response.headers.get("x-amzn-ErrorType", "").partition(":")[0]
    if error_type in _GATEWAY_REFUSALS:
        kind, advice = _GATEWAY_REFUSALS[error_type]
        return kind(_sentences(f"API Gateway refused the request: {text}", advice))
    kind = _kind(response.status_code)
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
        return Unavailable(_sentences(_answer_without_code(response, text, advises_retry=False), _TOO_OFTEN))
    if kind is Unavailable:
        return Unavailable(_answer_without_code(response, text, advises_retry=True))
    if kind in (NotFound, QueueError):
        return ConfigError(
            f"There is no queue at {response.url} ({response.status_code} {text}); is the address right?"
        )
    return kind(_sentences(text, _BODY_LIMIT if kind is TooLarge else None))


def _kind(status: int) -> type[QueueError]:
    """Return the exception class for the HTTP status of an answer that has no known error code of the queue."""
    if status == HTTPStatus.UNAUTHORIZED:
        return NotAuthenticated
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Unavailable
    # Several error codes may have this status: use the one of their classes that is a base of all the others, if any.
    found = [_KINDS[code.value] for code in ErrorCode if code.status == status]
    return next((kind for kind in found if all(issubclass(it, kind) for it in found)), QueueError)


def _answer_without_code(response: requests.Response, text: str, *, advises_retry: bool) -> str:
    request_id = response.headers.get("x-amzn-RequestId")
    trace = f", request id {request_id}" if request_id else ""
    message = f"The queue could not answer (status {response.status_code}{trace}): {text}"
    return _sentences(message, "Try again later." if advises_retry else None)


def _sentences(text: str, advice: str | None) -> str:
    if not advice:
        return text
    return f"{text if text.endswith(('.', '!', '?')) else text + '.'} {advice}"


def _errors(response: requests.Response) -> tuple[Error, ...]:
    """Return the queue's own errors; empty if the answer is not the queue's."""
    try:
        return Refusal.from_json(_body(response)).errors
    except UnreadableError:
        return ()


def _body(response: requests.Response) -> dict[str, object]:
    try:
        body = response.json()
    except requests.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}
