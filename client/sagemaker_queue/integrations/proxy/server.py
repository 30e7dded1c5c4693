"""The proxy's HTTP server, which accepts requests of programs on this machine and refuses requests of web pages."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from sagemaker_queue.integrations.proxy.messages import ProxyRefusal, Request, Response

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
MOST_BYTES = 4 * 1024 * 1024  # maximum size of a body: four times SageMaker's largest (a pipeline's definition)
_LONGEST_SILENCE_SECONDS = 120.0
# Headers that may occur only once: of a repeated header, one reader could use the first value, another the last.
_ONCE = (
    *("Host", "Authorization", "Content-Length", "Content-Type", "Content-Encoding"),
    *("X-Amz-Date", "X-Amz-Target", "X-Amz-Security-Token", "X-Amz-Content-SHA256"),
    "Smithy-Protocol",
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]+")  # some servers read a name with an underscore or a blank differently
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")

Answer = Callable[[Request], Response]


class Server(ThreadingMixIn, TCPServer):
    """A server on this machine's loopback address, with a thread for each connection. Port 0 is any free port."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = os.name != "nt"  # on Windows, two servers could listen on the same port

    def __init__(self, port: int) -> None:
        self.answer: Answer | None = None  # while None, connections are closed without an answer
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        """The server's host and port, such as ``127.0.0.1:8080``."""
        return f"{HOST}:{self.server_address[1]}"

    @property
    def names(self) -> tuple[str, str]:
        """The accepted values of the header Host.

        A web page whose own domain resolves to this machine (DNS rebinding) sends that domain, and is refused.
        """
        return self.address, f"localhost:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of a connection, except a broken connection, which the client notices itself."""
        failure = sys.exc_info()[1]
        if not isinstance(failure, OSError):
            logger.error("A connection failed: %s: %s", type(failure).__name__, failure)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise the body waits for the acknowledgement of the headers
    timeout = _LONGEST_SILENCE_SECONDS
    server: Server

    def _serve(self) -> None:
        try:
            self._check()
            body = self._body()
        except ProxyRefusal as refusal:  # the body is unread, so the connection cannot be used for another request
            self.close_connection = True
            self._send(refusal.response)
            return
        if body is not None and self.server.answer is not None:
            self._send(self.server.answer(Request(self.command, self.path, self.headers, body)))
        else:
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _serve  # noqa: N815  # http.server's names

    def _check(self) -> None:
        pairs = self.headers.items()
        if self.headers.defects or any(
            not _HEADER_NAME.fullmatch(name) or _CONTROL.search(value) for name, value in pairs
        ):
            raise ProxyRefusal(400, "ValidationException", "A header is not written as HTTP has it, on one line.")
        for name in _ONCE:
            if len(self.headers.get_all(name, [])) > 1:
                raise ProxyRefusal(400, "ValidationException", f"The header {name} is there more than once.")
        if self.headers.get("Host", "").lower() not in self.server.names or not self.path.startswith("/"):
            raise ProxyRefusal(
                403, "AccessDeniedException", f"The request names another host than {self.server.address}."
            )
        if "Origin" in self.headers:
            raise ProxyRefusal(403, "AccessDeniedException", "smq proxy answers programs, and no web pages.")

    def _body(self) -> bytes | None:
        """Return the body; None if bytes are missing.

        Raises ProxyRefusal for Transfer-Encoding or an invalid Content-Length.
        """
        if "Transfer-Encoding" in self.headers:
            raise ProxyRefusal(411, "ValidationException", "smq proxy takes a body by its Content-Length only.")
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit()):
            raise ProxyRefusal(400, "ValidationException", "Content-Length is not a number.")
        if len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            raise ProxyRefusal(413, "RequestEntityTooLargeException", f"A body has {MOST_BYTES} bytes at most.")
        body = self.rfile.read(int(length))
        return body if len(body) == int(length) else None

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def version_string(self) -> str:
        """Return the value of the header Server."""
        return "smq"

    def log_message(self, format: str, *args: object) -> None:
        """Suppress http.server's log line for each request."""
