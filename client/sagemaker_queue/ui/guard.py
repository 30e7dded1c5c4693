"""Access control of the pages: a single-use token is exchanged for a secret path and a cookie for that path.

Other users of the machine and pages of the web can also reach a port of this machine. Browsers send a cookie for
127.0.0.1 to every port of this machine. So the cookie is valid only for a secret path, which the browser does not
request from other servers. A request needs both the path and the cookie, so a leaked address gives no access.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from sagemaker_queue.errors import ConfigError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ENTER = "/enter"  # accepts the token, in the body of a POST
_THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "[::1]"})
_LARGEST_FORM = 1000  # bytes
_POLICY_VIOLATION = 1008  # a close code of WebSocket
# The pages' libraries need inline scripts and eval. default-src prevents requests to other servers.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "frame-ancestors 'self'; form-action 'self'; base-uri 'self'; object-src 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_PAGE = '<!doctype html><meta charset="utf-8"><title>SageMaker queue</title><body style="font-family: sans-serif">'
_FORM = (
    f"{_PAGE}<p>Enter the token that smq ui has printed. Each token works once.</p>"
    f'<form method="post" action=".{ENTER}"><input name="token" type="password" size="40" autofocus autocomplete="off">'
    " <button>Open</button></form>"
)


@dataclass
class ServerAccess:
    """The secrets of one run of the server.

    ``address`` is the URL at which a proxy serves the pages, such as https://hub.example/user/ann/proxy/8787; empty if
    there is no proxy. Raises ConfigError if ``address`` is not a valid URL.
    """

    address: str = ""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    folder: str = field(default_factory=lambda: f"/s-{secrets.token_urlsafe(24)}", repr=False)  # the secret path
    name: str = field(default_factory=lambda: f"smq-{secrets.token_hex(4)}")  # unique, as all ports share cookies
    entered: Callable[[], None] = field(default=lambda: None, repr=False)  # called when the token is used
    spent: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Parse the proxy's address into prefix, host and scheme. Raises ConfigError for an invalid address."""
        parts = _parts_of(self.address)
        if self.address and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query):
            raise ConfigError(f"{self.address!r} is not an address of a proxy, such as https://hub.example/proxy/8787.")
        self.prefix = parts.path.rstrip("/")
        self.host = parts.netloc.lower()
        self.is_secure = parts.scheme == "https"

    def spend(self, token: str) -> bool:
        """Return whether ``token`` is the server's unused token; if so, mark the token as used."""
        if self.spent or not secrets.compare_digest(token.encode(), self.token.encode()):
            return False
        self.spent = True
        self.entered()
        return True


class Guard:
    """A middleware that admits requests with the secret path, the cookie, and the server's own Host and Origin."""

    def __init__(self, app: App, access: ServerAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        pairs = [(key.decode("latin-1").lower(), value.decode("latin-1")) for key, value in scope["headers"]]
        headers = dict(pairs)
        doubled = any(len([1 for key, _ in pairs if key == name]) > 1 for name in ("host", "origin"))
        path = scope["path"]
        method = scope["type"] == "http" and scope["method"]
        below = _below(path, self._access.folder)
        if doubled or not self._is_own_host(headers.get("host", "")):
            await _refuse(
                scope, send, "This page is only available at 127.0.0.1, at localhost, or at the address of the proxy."
            )
        elif path == ENTER and method == "POST" and headers.get("origin") == "null":
            await self._enter(receive, send)  # the handover's file and the server's own form send the Origin null
        elif not self._is_own_origin(headers):
            await _refuse(scope, send, "This page does not accept requests from other web pages.")
        elif path == ENTER and method == "POST":
            await self._enter(receive, send)
        elif below and self._has_cookie(headers):
            await self._app(self._inner(scope, below), receive, _with_headers(send))
        elif path == "/" and method in ("GET", "HEAD"):
            await _answer(send, 200, _FORM)
        else:
            await _refuse(scope, send, "Start smq ui again, and enter the token that it prints.")

    def _is_own_host(self, host: str) -> bool:
        host = host.lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        return name in _THIS_MACHINE or (bool(self._access.host) and host == self._access.host)

    def _is_own_origin(self, headers: Mapping[str, str]) -> bool:
        origin = headers.get("origin")
        if origin is None:
            return True
        # A proxy may send this machine's name as Host, while the browser's Origin is the proxy's host.
        own = {headers["host"].lower(), *([self._access.host] if self._access.host else [])}
        return _parts_of(origin).netloc.lower() in own

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        # SimpleCookie would hide all cookies if it cannot parse one of them, such as a cookie of another server.
        expected = f"{self._access.name}={self._access.cookie}".encode()
        cookies = [cookie.strip().encode() for cookie in headers.get("cookie", "").split(";")]
        return any(secrets.compare_digest(cookie, expected) for cookie in cookies)

    async def _enter(self, receive: Receive, send: Send) -> None:
        form = parse_qs((await _body(receive)).decode("latin-1"))
        if self._access.spent:
            await _answer(send, 403, "The token has been used. Start smq ui again for another one.")
        elif not self._access.spend(form.get("token", [""])[0].strip()):
            await _answer(send, 403, "This is not the token that smq ui has printed.")
        else:
            # No redirect: browsers would not send the cookie after a redirect that began at a local file.
            onward = f'<meta http-equiv="refresh" content="0; url=.{self._access.folder}/">'
            await _answer(send, 200, f"{_PAGE}{onward}", {"Set-Cookie": self._set_cookie()})

    def _set_cookie(self) -> str:
        secure = "; Secure" if self._access.is_secure else ""
        path = f"{self._access.prefix}{self._access.folder}/"
        return f"{self._access.name}={self._access.cookie}; Path={path}; HttpOnly; SameSite=Strict{secure}"

    def _inner(self, scope: Scope, path: str) -> Scope:
        """Return the request for the application.

        The path is relative to the secret folder. X-Forwarded-Prefix is the proxy's prefix with the folder.
        """
        kept = [(key, value) for key, value in scope["headers"] if not _is_of_a_proxy(key)]
        place = f"{self._access.prefix}{self._access.folder}".encode("latin-1")
        return {**scope, "path": path, "raw_path": path.encode(), "headers": [*kept, (b"x-forwarded-prefix", place)]}


def _parts_of(url: str) -> SplitResult:
    """Return the parts of a URL; all parts are empty if the URL is invalid."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def _below(path: str, folder: str) -> str:
    """Return the path relative to the secret folder; empty if the path is outside the folder."""
    given, rest = path[: len(folder)], path[len(folder) :]
    return rest if secrets.compare_digest(given.encode(), folder.encode()) and rest.startswith("/") else ""


def _is_of_a_proxy(header: bytes) -> bool:
    name = header.lower()
    return name.startswith(b"x-forwarded") or name in (b"forwarded", b"x-proxycontextpath", b"x-script-name")


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sent


async def _body(receive: Receive) -> bytes:
    """Return the body of a form; empty if the body is too large."""
    body, more = b"", True
    while more and len(body) <= _LARGEST_FORM:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False) and message["type"] == "http.request"
    return body if len(body) <= _LARGEST_FORM else b""


async def _refuse(scope: Scope, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
    else:
        await _answer(send, 403, why)


async def _answer(send: Send, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
    kind = "html" if text.startswith("<!doctype") else "plain"
    given = {"Content-Type": f"text/{kind}; charset=utf-8", "Cache-Control": "no-store", **_HEADERS, **(headers or {})}
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
