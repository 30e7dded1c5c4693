"""Who gets to the page, and who does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sagemaker_queue.ui.guard import Access, Guard

ACCESS = Access(token="right", cookie="biscuit", name="smq-1")
HOST = "127.0.0.1:8787"
COOKIE = {"cookie": "other=1; smq-1=biscuit"}


def ask(
    path: str = "/queue",
    query: str = "",
    access: Access = ACCESS,
    kind: str = "http",
    headers: dict[str, str] | None = None,
) -> tuple[list[Any], list[Any]]:
    """What is sent to the browser, and the scopes that reach the application."""
    sent: list[Any] = []
    reached: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    named = {"host": HOST, **(headers or {})}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    scope = {"type": kind, "method": "GET", "path": path, "query_string": query.encode(), "headers": raw}
    asyncio.run(Guard(application, access)(scope, receive, send))
    return sent, reached


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address() -> None:
    sent, reached = ask(path="/queue", query="token=right")
    headers = dict(sent[0]["headers"])
    assert (sent[0]["status"], headers[b"location"], reached) == (303, b"./queue", [])
    assert headers[b"set-cookie"] == b"smq-1=biscuit; Path=/; HttpOnly; SameSite=Strict"


def test_with_the_cookie_the_page_is_there_and_asks_nobody_else_for_anything() -> None:
    sent, reached = ask(headers=COOKIE)
    assert sent[0]["status"] == 200 and len(reached) == 1
    assert b"default-src 'self'" in dict(sent[0]["headers"])[b"content-security-policy"]
    assert ask(kind="websocket", headers=COOKIE)[1]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cookie": "smq-1=wrong"},
        {"cookie": "smq-2=biscuit"},
        {**COOKIE, "origin": "https://evil.example"},
        {**COOKIE, "origin": "null"},
        {**COOKIE, "origin": "http://127.0.0.1:9999"},
        {**COOKIE, "host": "evil.example"},
        {**COOKIE, "host": "127.0.0.1.evil.example:8787"},
    ],
)
def test_everybody_else_is_refused(headers: dict[str, str]) -> None:
    sent, reached = ask(headers=headers)
    assert (sent[0]["status"], reached) == (403, [])
    sent, reached = ask(kind="websocket", headers=headers)
    assert (sent, reached) == ([{"type": "websocket.close", "code": 1008}], [])


def test_a_wrong_token_is_none() -> None:
    for query in ("token=wrong", "token=", "token=right2", "tokens=right"):
        assert ask(query=query)[0][0]["status"] == 403
    assert not ask(kind="websocket", query="token=right")[1]


@pytest.mark.parametrize("header", ["x-forwarded-prefix", "x-forwarded-context", "x-proxycontextpath"])
def test_a_proxy_has_its_own_host_and_says_where_the_page_is(header: str) -> None:
    proxied = {"host": "hub.example", "origin": "https://hub.example", header: "/user/ann/proxy/8787/"}
    _, (scope,) = ask(headers={**COOKIE, **proxied})
    assert (b"x-forwarded-prefix", b"/user/ann/proxy/8787") in scope["headers"]
    assert not ask(headers=proxied)[1]
    assert not ask(headers={**COOKIE, **proxied, "origin": "https://evil.example"})[1]


def test_a_proxy_that_says_nothing_is_told_by_the_option() -> None:
    access = Access(token="right", cookie="biscuit", name="smq-1", prefix="/proxy/8787/")
    _, (scope,) = ask(access=access, headers={**COOKIE, "host": "hub.example"})
    assert (b"x-forwarded-prefix", b"/proxy/8787") in scope["headers"]


def test_secrets_are_new_each_time_and_not_shown() -> None:
    first, second = Access(), Access()
    assert first.token != second.token and first.cookie != second.cookie and first.name != second.name
    assert first.token not in repr(first) and first.cookie not in repr(first)
