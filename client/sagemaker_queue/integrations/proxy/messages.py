"""A request to SageMaker and the answer to it, as HTTP has them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message

CONTENT_TYPE = "application/x-amz-json-1.1"


@dataclass(frozen=True)
class Request:
    """What came in; ``path`` has the query, and header names are known in any case."""

    method: str
    path: str
    headers: Message
    body: bytes

    def header(self, name: str) -> str:
        """Return a header's value, the first one; empty if there is none."""
        return str(self.headers.get(name, ""))


@dataclass(frozen=True)
class Response:
    """What goes out; a length is added."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """A request that is answered with an error, of a code that SageMaker has for it."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    @property
    def response(self) -> Response:
        """The answer."""
        return error(self.status, self.code, str(self))


def error(status: int, code: str, message: str, request_id: str = "") -> Response:
    """Return an error as AWS's JSON protocol has it."""
    body = json.dumps({"__type": code, "message": message}).encode()
    return Response(status, body, {"x-amzn-ErrorType": code, **_headers(request_id)})


def success(body: bytes, request_id: str = "") -> Response:
    """Return an answer as AWS's JSON protocol has it."""
    return Response(200, body, _headers(request_id))


def _headers(request_id: str) -> dict[str, str]:
    return {"Content-Type": CONTENT_TYPE, "x-amzn-RequestId": request_id or str(uuid.uuid4())}
