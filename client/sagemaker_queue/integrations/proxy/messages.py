"""HTTP requests to SageMaker and their answers."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message

CONTENT_TYPE = "application/x-amz-json-1.1"


@dataclass(frozen=True)
class Request:
    """A request of a program. ``path`` includes the query, and header names are case-insensitive."""

    method: str
    path: str
    headers: Message
    body: bytes

    def header(self, name: str) -> str:
        """Return the first value of a header; empty if the header is missing."""
        return str(self.headers.get(name, ""))


@dataclass(frozen=True)
class Response:
    """An answer to a program. The server adds Content-Length."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class ProxyRefusal(Exception):
    """A request that the proxy refuses, with an error code of SageMaker's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    @property
    def response(self) -> Response:
        """The answer with this error."""
        return error(self.status, self.code, str(self))


def error(status: int, code: str, message: str, request_id: str = "") -> Response:
    """Return an error in AWS's JSON protocol."""
    body = json.dumps({"__type": code, "message": message}).encode()
    return Response(status, body, {"x-amzn-ErrorType": code, **_headers(request_id)})


def success(body: bytes, request_id: str = "") -> Response:
    """Return a successful answer in AWS's JSON protocol. A new request id is created if none is given."""
    return Response(200, body, _headers(request_id))


def _headers(request_id: str) -> dict[str, str]:
    return {"Content-Type": CONTENT_TYPE, "x-amzn-RequestId": request_id or str(uuid.uuid4())}
