"""Who may see the page: whoever has the token of its address, from a page of its own.

Others can reach a port of this machine, too: other users of it, and pages of the web that are open in the browser.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "[::1]"})
_PREFIXES = ("x-forwarded-prefix", "x-forwarded-context", "x-proxycontextpath")  # of Jupyter's and other proxies
_POLICY_VIOLATION = 1008  # of WebSocket
# Scripts of the page's libraries are inline and evaluate text; whatever they do, nothing goes elsewhere.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "frame-ancestors 'self'; form-action 'self'; base-uri 'self'; object-src 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True)
class Access:
    """What it takes to get in.

    ``prefix`` is the path below which a proxy serves the page, where it does not tell that by a header.
    """

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    name: str = field(default_factory=lambda: f"smq-{secrets.token_hex(4)}")  # a browser has one jar for all ports
    prefix: str = ""


class Guard:
    """Lets through who has the token, once, or the cookie that it is exchanged for; Host and Origin must be right."""

    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request or a WebSocket, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        prefix = next((headers[name] for name in _PREFIXES if headers.get(name)), self._access.prefix).rstrip("/")
        refusal = _foreign(headers, behind_proxy=bool(prefix))
        if refusal is None and self._has_token(scope):
            await _answer(send, 303, "", {"Location": _without_token(scope), "Set-Cookie": self._set_cookie()})
        elif refusal is None and self._has_cookie(headers):
            await self._app(_prefixed(scope, prefix), receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            told = refusal or "Open the address that smq ui has printed, with its token; each start has another one."
            await _answer(send, 403, told, {})

    def _has_token(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] != "GET":
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        return secrets.compare_digest(given.encode(), self._access.token.encode())

    def _has_cookie(self, headers: Mapping[str, str]) -> bool:
        try:
            given = SimpleCookie(headers.get("cookie", "")).get(self._access.name)
        except CookieError:
            return False
        return given is not None and secrets.compare_digest(given.value.encode(), self._access.cookie.encode())

    def _set_cookie(self) -> str:
        return f"{self._access.name}={self._access.cookie}; Path=/; HttpOnly; SameSite=Strict"


def _foreign(headers: Mapping[str, str], *, behind_proxy: bool) -> str | None:
    """Return why a request is not one of this page; behind a proxy the names of hosts are its own."""
    host = headers.get("host", "")
    if not behind_proxy and host.rpartition(":")[0] not in _THIS_MACHINE and host not in _THIS_MACHINE:
        return "This page is served to 127.0.0.1 and localhost only."
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return "This page answers to itself only, and to no other page of the web."
    return None


def _without_token(scope: Scope) -> str:
    """The same place, said such that a proxy's prefix need not be known."""
    return f"./{scope['path'].rpartition('/')[2]}"


def _prefixed(scope: Scope, prefix: str) -> Scope:
    """Tell the application the prefix by the one header that it knows."""
    known = [(key, value) for key, value in scope["headers"] if key.lower() != b"x-forwarded-prefix"]
    return {**scope, "headers": [*known, (b"x-forwarded-prefix", prefix.encode("latin-1"))] if prefix else known}


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sent


async def _answer(send: Send, status: int, text: str, headers: Mapping[str, str]) -> None:
    given = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store", **_HEADERS, **headers}
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
