"""The proxy's HTTP: requests of programs on this machine, and of none that a web page sends."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from sagemaker_queue.integrations.proxy.messages import Refusal, Request, Response

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
MOST_BYTES = 4 * 1024 * 1024  # of a body; SageMaker's largest, a pipeline's definition, has a quarter of that
_LONGEST_SILENCE_SECONDS = 120.0
# Whoever reads the first of two and whoever reads the last would not read the same request.
_ONCE = (
    *("Host", "Authorization", "Content-Length", "Content-Type", "Content-Encoding"),
    *("X-Amz-Date", "X-Amz-Target", "X-Amz-Security-Token", "X-Amz-Content-SHA256"),
    "Smithy-Protocol",
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]+")  # with an underscore or a blank, some servers read another name
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")

Answer = Callable[[Request], Response]


class Server(ThreadingMixIn, TCPServer):
    """Listens on this machine's own address, with a thread for each connection. Port 0 is any that is free."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = os.name != "nt"  # there, two could listen at once

    def __init__(self, port: int) -> None:
        self.answer: Answer | None = None  # those who come before it is there are told to come again
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{HOST}:{self.server_address[1]}"

    @property
    def names(self) -> tuple[str, str]:
        """What programs may call it. A web page that has its own name mean this machine calls it by that name."""
        return self.address, f"localhost:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is noticed by whoever has its other end."""
        failure = sys.exc_info()[1]
        if not isinstance(failure, OSError):
            logger.error("A connection failed: %s: %s", type(failure).__name__, failure)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits for the header's acknowledgement
    timeout = _LONGEST_SILENCE_SECONDS
    server: Server

    def _serve(self) -> None:
        try:
            self._check()
            body = self._body()
        except Refusal as refusal:  # with its body unread, so that nothing can follow on this connection
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
            raise Refusal(400, "ValidationException", "A header is not written as HTTP has it, on one line.")
        for name in _ONCE:
            if len(self.headers.get_all(name, [])) > 1:
                raise Refusal(400, "ValidationException", f"The header {name} is there more than once.")
        if self.headers.get("Host", "").lower() not in self.server.names or not self.path.startswith("/"):
            raise Refusal(
                403, "AccessDeniedException", f"This is not who was asked for: smq proxy at {self.server.address}."
            )
        if "Origin" in self.headers:
            raise Refusal(403, "AccessDeniedException", "smq proxy answers programs, and no web pages.")

    def _body(self) -> bytes | None:
        """Read the body; None if it ends too early."""
        if "Transfer-Encoding" in self.headers:
            raise Refusal(411, "ValidationException", "smq proxy takes a body by its Content-Length only.")
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit()):
            raise Refusal(400, "ValidationException", "Content-Length is not a number.")
        if len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            raise Refusal(413, "RequestEntityTooLargeException", f"A body has {MOST_BYTES} bytes at most.")
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
        """Return what the header Server says, if SageMaker did not."""
        return "smq"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""
