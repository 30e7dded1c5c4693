"""From an HTTP answer that is no success to the error that says what to do about it."""

from http import HTTPStatus

import requests

from sagemaker_queue.errors import (
    ConfigError,
    Conflict,
    Forbidden,
    InUse,
    InvalidRequest,
    NameTaken,
    NotAuthenticated,
    NotFound,
    QueueError,
    StalePolicy,
    TooLarge,
    TooMany,
    Unavailable,
)

_BY_STATUS: dict[int, type[QueueError]] = {
    400: InvalidRequest,
    401: NotAuthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    429: Unavailable,
}

_CONFLICTS: dict[str, type[Conflict]] = {
    "InUse": InUse,
    "NameTaken": NameTaken,
    "StalePolicy": StalePolicy,
    "TooMany": TooMany,
}

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

_ADVICE: dict[type[QueueError], str] = {
    StalePolicy: "Compare yours with the one that is applied now (smq policy diff), then apply it again.",
    InUse: "Let these jobs end or cancel them first; or apply it by force: they then wait, and say why.",
    TooLarge: "Put large hyperparameters or environment values in S3 and pass their address.",
}


def refusal(response: requests.Response) -> QueueError:
    """Return the error for a response that is no success; the queue's own sentence is kept."""
    body = _body(response)
    said = str(body.get("message") or body.get("Message") or response.reason or f"status {response.status_code}")
    if "code" not in body:
        return _gateway_refusal(response, said)
    kind = _kind(response.status_code)
    if kind is Conflict:
        kind = _CONFLICTS.get(str(body["code"]), Conflict)
    if kind is InvalidRequest:
        field = str(body["field"]) if body.get("field") else None
        return InvalidRequest(said if not field or field in said else f"{field}: {said}", field)
    if kind is Unavailable:
        return _unavailable(response, said)
    return kind(_sentences(said, _ADVICE.get(kind)))


def _gateway_refusal(response: requests.Response, said: str) -> QueueError:
    """An answer of API Gateway, or of something else at that address: the queue was not asked."""
    error_type = response.headers.get("x-amzn-ErrorType", "").partition(":")[0]
    if error_type in _GATEWAY_REFUSALS:
        kind, advice = _GATEWAY_REFUSALS[error_type]
        return kind(_sentences(f"API Gateway refused the request: {said}", advice))
    kind = _kind(response.status_code)
    if kind is Unavailable:
        return _unavailable(response, said)
    if kind in (NotFound, QueueError):
        return ConfigError(
            f"There is no queue at {response.url} ({response.status_code} {said}); is the address right?"
        )
    return kind(_sentences(said, _ADVICE.get(kind)))


def _kind(status: int) -> type[QueueError]:
    return Unavailable if status >= HTTPStatus.INTERNAL_SERVER_ERROR else _BY_STATUS.get(status, QueueError)


def _unavailable(response: requests.Response, said: str) -> Unavailable:
    request_id = response.headers.get("x-amzn-RequestId")
    trace = f", request id {request_id}" if request_id else ""
    return Unavailable(
        _sentences(f"The queue could not answer (status {response.status_code}{trace}): {said}", "Try again later.")
    )


def _sentences(said: str, advice: str | None) -> str:
    if not advice:
        return said
    return f"{said if said.endswith(('.', '!', '?')) else said + '.'} {advice}"


def _body(response: requests.Response) -> dict[str, object]:
    try:
        body = response.json()
    except requests.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}
