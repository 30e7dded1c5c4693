"""AWS JSON 1.1 over HTTP: the protocol that boto3 uses for SageMaker.

A request is a POST with the operation in `X-Amz-Target`; an error is a 4xx or 5xx with `__type` and `message`.
"""

import json
import logging
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from local_cloud.aws.callers import foreign

_log = logging.getLogger(__name__)

Handle = Callable[[str, dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SignedCall:
    """A request as it was received, with all that is needed to check its signature."""

    headers: list[tuple[str, str]]
    body: bytes


Authorize = Callable[[SignedCall, str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Api:
    """The operations of a service.

    `authorize(call, operation, request)` is called before `handle(operation, request)` and may raise EmulatedError.
    """

    handle: Handle
    authorize: Authorize = lambda call, operation, request: None


class EmulatedError(Exception):
    """An error of SageMaker that becomes the answer. botocore shows `code` as `Error.Code`."""

    def __init__(self, code: str, message: str, status: int = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class ConnectionAbort(Exception):  # noqa: N818  a signal, not an error
    """A signal to close the connection without an answer. The caller cannot know whether the operation succeeded."""


class AwsJsonServer(ThreadingHTTPServer):
    """A server that passes every request to an API and answers with the result or EmulatedError.

    `choose(call)` returns the API that gets a call, or raises EmulatedError or ConnectionAbort. By default, the API of
    the constructor gets all calls.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: Api) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.choose: Callable[[SignedCall], Api] = lambda call: api
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """The address at which the server listens."""
        return f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection and register it, so that `stop` can close it."""
        connection, address = super().get_request()
        with self._lock:
            self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Close a connection and remove it from those that `stop` closes."""
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, but ignore a lost connection, such as that of a killed client."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Stop listening and close all connections, because clients keep connections open."""
        self.shutdown()
        self.server_close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            _drop(connection)


class _Handler(BaseHTTPRequestHandler):
    server: AwsJsonServer
    protocol_version = "HTTP/1.1"
    # Each answer is one write: several small writes would each wait for a delayed acknowledgement of the client.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        headers = [(name.lower(), value) for name, value in self.headers.items()]
        if reason := foreign(headers, self.server.server_port):
            self._send(HTTPStatus.FORBIDDEN, {"__type": "AccessDeniedException", "message": f"Forbidden: {reason}."})
            return
        try:
            status, answer = self._answer(operation, body)
        except ConnectionAbort:
            self.close_connection = True
            _drop(self.connection)
            return
        self._send(status, answer)

    def _answer(self, operation: str, body: bytes) -> tuple[int, dict[str, Any]]:
        try:
            request = _parse(body)
            call = SignedCall(self.headers.items(), body)
            api = self.server.choose(call)
            api.authorize(call, operation, request)
            return HTTPStatus.OK, api.handle(operation, request)
        except EmulatedError as error:
            return error.status, {"__type": error.code, "message": error.message}
        except ConnectionAbort:
            raise
        except Exception:
            _log.exception("%s failed inside the emulator", operation)
            message = "The emulator failed to process the request; its log tells why."
            return HTTPStatus.INTERNAL_SERVER_ERROR, {"__type": "InternalFailure", "message": message}

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        payload = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(payload)))
            self.send_header("x-amzn-RequestId", str(uuid.uuid4()))
            self.end_headers()
            self.wfile.write(payload)
            self.wfile.flush()
        except ConnectionError:  # the client has closed the connection before the answer
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug(format, *args)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        request = json.loads(body or b"{}")
    except ValueError:
        raise EmulatedError("SerializationException", "The request body is not valid JSON.") from None
    if not isinstance(request, dict):
        raise EmulatedError("SerializationException", "The request body must be a JSON object.")
    return request


def _drop(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # the connection is already closed
        return
