"""Requests that reach the pages, and those that do not."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from sagemaker_queue.errors import ConfigError
from sagemaker_queue.ui.guard import Guard, ServerAccess

HOST = "127.0.0.1:8787"
COOKIE = {"cookie": "other=1; smq-1=biscuit"}
INSIDE = "/s-secret/queue"
PROXY = "https://hub.example/user/ann/proxy/8787/"


def known(**more: Any) -> ServerAccess:
    return ServerAccess(**{"token": "right", "cookie": "biscuit", "folder": "/s-secret", "name": "smq-1", **more})


def ask(
    path: str = INSIDE,
    access: ServerAccess | None = None,
    kind: str = "http",
    headers: dict[str, str] | None = None,
    *,
    method: str = "GET",
    body: bytes = b"",
    more: list[tuple[str, str]] | None = None,
) -> tuple[list[Any], list[Any]]:
    """Return the messages that are sent to the browser, and the scopes that reach the application."""
    sent: list[Any] = []
    reached: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    path, _, query = path.partition("?")
    named = {"host": HOST, **(headers or {})}
    raw = [(name.encode(), value.encode()) for name, value in [*named.items(), *(more or [])]]
    scope = {"type": kind, "method": method, "path": path, "query_string": query.encode(), "headers": raw}
    asyncio.run(Guard(application, access or known())(scope, receive, send))
    return sent, reached


def enter(access: ServerAccess, token: str = "right", **headers: str) -> tuple[int, dict[bytes, bytes], str]:
    sent, reached = ask("/enter", access, method="POST", body=f"token={token}".encode(), headers=headers)
    assert not reached
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"].decode()


@pytest.mark.parametrize("origin", ["null", "http://127.0.0.1:8787"])
def test_the_token_buys_a_path_and_a_cookie_for_that_path(origin: str) -> None:
    status, headers, body = enter(known(), origin=origin)
    assert (status, b"location" in headers) == (200, False)
    assert 'url=./s-secret/"' in body
    assert headers[b"set-cookie"] == b"smq-1=biscuit; Path=/s-secret/; HttpOnly; SameSite=Strict"


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:9999", "file://", ""])
def test_another_page_cannot_enter_with_the_token(origin: str) -> None:
    """Found by an attack: a page of another origin could spend the token."""
    access = known()
    assert enter(access, origin=origin)[0] == 403
    assert enter(access, origin="null")[0] == 200


def test_with_both_the_page_is_there_and_asks_no_other_server_for_anything() -> None:
    sent, (scope,) = ask(headers=COOKIE)
    assert (sent[0]["status"], scope["path"], scope["raw_path"]) == (200, "/queue", b"/queue")
    assert (b"x-forwarded-prefix", b"/s-secret") in scope["headers"]
    assert b"default-src 'self'" in dict(sent[0]["headers"])[b"content-security-policy"]
    _, (socket,) = ask("/s-secret/_nicegui_ws/socket.io/", kind="websocket", headers=COOKIE)
    assert socket["path"] == "/_nicegui_ws/socket.io/"


def test_without_them_a_form_takes_the_token() -> None:
    sent, reached = ask("/")
    assert (sent[0]["status"], reached) == (200, [])
    body = sent[1]["body"].decode()
    assert 'method="post" action="./enter"' in body and "right" not in body and "s-secret" not in body


@pytest.mark.attack
@pytest.mark.parametrize("other", ["user=John Smith", "flag", 'a="b', "=", "", "smq-1=wrong"])
def test_other_cookies_of_this_machine_do_not_matter(other: str) -> None:
    for cookies in (f"{other}; smq-1=biscuit", f"smq-1=biscuit; {other}", f"{other};smq-1=biscuit"):
        assert ask(headers={"cookie": cookies})[1]
    assert not ask(headers={"cookie": f"{other}; smq-1=bisc"})[1]


class TestOthers:
    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"cookie": "smq-1=wrong"},
            {"cookie": "smq-2=biscuit"},
            {**COOKIE, "origin": "https://evil.example"},
            {**COOKIE, "origin": "null"},
            {**COOKIE, "origin": "http://127.0.0.1:9999"},
            {**COOKIE, "origin": "http://["},
            {**COOKIE, "host": "evil.example"},
            {**COOKIE, "host": "evil.example:8787"},
            {**COOKIE, "host": "127.0.0.1.evil.example:8787"},
            {**COOKIE, "host": ""},
        ],
    )
    def test_are_refused(self, headers: dict[str, str]) -> None:
        sent, reached = ask(headers=headers)
        assert (sent[0]["status"], reached) == (403, [])
        sent, reached = ask(kind="websocket", headers=headers)
        assert (sent, reached) == ([{"type": "websocket.close", "code": 1008}], [])

    @pytest.mark.parametrize("path", ["/queue", "/s-wrong/queue", "/s-secret", "/s-secretqueue", "//s-secret/queue"])
    def test_who_lack_the_path_are_refused_with_the_cookie(self, path: str) -> None:
        assert not ask(path, headers=COOKIE)[1]
        assert not ask(path, kind="websocket", headers=COOKIE)[1]

    def test_two_hosts_or_origins_are_none(self) -> None:
        assert not ask(headers=COOKIE, more=[("host", "evil.example")])[1]
        own = {**COOKIE, "origin": f"http://{HOST}"}
        assert not ask(headers=own, more=[("origin", "https://evil.example")])[1]

    @pytest.mark.parametrize("token", ["wrong", "", "right2", "right%00", "x" * 2000])
    def test_a_wrong_token_is_none_and_does_not_spend_the_right_one(self, token: str) -> None:
        access = known()
        assert enter(access, token)[0] == 403
        assert enter(access)[0] == 200

    def test_the_token_is_good_once(self) -> None:
        spent: list[int] = []
        access = known(entered=lambda: spent.append(1))
        assert enter(access)[0] == 200
        status, headers, body = enter(access)
        assert (status, b"set-cookie" in headers, "s-secret" in body) == (403, False, False)
        assert spent == [1]

    def test_the_token_is_none_in_an_address(self) -> None:
        """Addresses are in command lines and histories."""
        access = known()
        for path in ("/?token=right", "/enter?token=right", "/s-secret/?token=right"):
            sent, reached = ask(path, access)
            assert b"set-cookie" not in dict(sent[0]["headers"]) and not reached
        assert not access.spent

    def test_the_token_is_not_taken_by_another_name_of_this_machine(self) -> None:
        access = known()
        assert enter(access, host="evil.example")[0] == 403
        assert not access.spent

    @pytest.mark.parametrize(
        "header",
        [
            *("x-forwarded-prefix", "x-forwarded-context", "x-proxycontextpath", "x-forwarded-host"),
            *("x-forwarded-for", "x-forwarded-proto", "forwarded", "x-original-host", "x-script-name"),
        ],
    )
    def test_a_header_of_a_proxy_that_was_not_configured_opens_nothing(self, header: str) -> None:
        said = {header: "/x" if "host" not in header else "127.0.0.1"}
        rebound = {"host": "evil.example", "origin": "http://evil.example", **said}
        for path in ("/", INSIDE):
            sent, reached = ask(path, headers={**COOKIE, **rebound})
            assert (sent[0]["status"], reached) == (403, [])
            assert not ask(path, kind="websocket", headers={**COOKIE, **rebound})[1]
        assert enter(known(), **rebound)[0] == 403

    def test_such_a_header_does_not_reach_the_application(self) -> None:
        """It would choose where the page's scripts come from."""
        _, (scope,) = ask(headers={**COOKIE, "x-forwarded-prefix": "//evil.example", "x-forwarded-host": "x"})
        assert [value for name, value in scope["headers"] if name.startswith(b"x-forwarded")] == [b"/s-secret"]

    def test_a_proxy_that_is_configured_opens_its_own_name_only(self) -> None:
        for headers in (
            {"host": "evil.example"},
            {"host": "evil.example", "x-forwarded-host": "hub.example"},
            {"host": "hub.example", "origin": "https://evil.example"},
            {"host": "hub.example.evil.example"},
            {"host": "hub.example:1"},
        ):
            assert not ask(access=known(address=PROXY), headers={**COOKIE, **headers})[1], headers


def test_a_proxy_that_is_configured_has_its_own_host_and_place() -> None:
    for host in ("hub.example", HOST):
        headers = {**COOKIE, "host": host, "origin": "https://hub.example", "x-forwarded-prefix": "/elsewhere"}
        _, (scope,) = ask(access=known(address=PROXY), headers=headers)
        assert (b"x-forwarded-prefix", b"/user/ann/proxy/8787/s-secret") in scope["headers"]
    _, headers_of, _ = enter(known(address=PROXY), host="hub.example")
    assert headers_of[b"set-cookie"].decode() == (
        "smq-1=biscuit; Path=/user/ann/proxy/8787/s-secret/; HttpOnly; SameSite=Strict; Secure"
    )


@pytest.mark.parametrize(
    "address", ["hub.example/proxy", "/proxy/8787", "ftp://hub.example", "https://", "https://h/?x", "https://["]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(address))):
        ServerAccess(address=address)


def test_secrets_are_new_each_time_and_not_shown() -> None:
    first, second = ServerAccess(), ServerAccess()
    for name in ("token", "cookie", "folder", "name"):
        assert getattr(first, name) != getattr(second, name)
    assert not any(secret in repr(first) for secret in (first.token, first.cookie, first.folder))
