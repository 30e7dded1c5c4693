"""The page below a path of another server, as JupyterHub and SageMaker Studio have it, in a real browser."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, WSMsgType, web

from local_cloud.ports import free_ports
from tests.browser import browsing, page_of, printing_ui
from tests.client.ui.sample_queue import sample_queue

pytestmark = pytest.mark.slow
PREFIX = "/user/ann/proxy/8787"
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-encoding", "content-length", "keep-alive", "upgrade"}


def application(target: str) -> web.Application:
    """Passes on what is below the prefix without it, and says so in a header, as jupyter-server-proxy does."""

    async def passed_on(request: web.Request) -> web.StreamResponse:
        if not request.path.startswith(PREFIX):
            raise web.HTTPNotFound
        address = f"http://{target}{request.path_qs[len(PREFIX) :]}"
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        headers["X-Forwarded-Prefix"] = PREFIX
        async with ClientSession(auto_decompress=True) as session:
            if request.headers.get("Upgrade", "").lower() == "websocket":
                socket_headers = {name: value for name, value in headers.items() if not name.lower().startswith("sec-")}
                browser = web.WebSocketResponse()
                await browser.prepare(request)
                async with session.ws_connect(address, headers=socket_headers) as page:

                    async def back() -> None:
                        async for message in page:
                            if message.type is WSMsgType.TEXT:
                                await browser.send_str(message.data)
                        await browser.close()

                    other = asyncio.ensure_future(back())
                    try:
                        async for message in browser:
                            if message.type is WSMsgType.TEXT:
                                await page.send_str(message.data)
                    finally:
                        other.cancel()
                        await asyncio.wait([other])
                return browser
            answer = await session.request(
                request.method, address, headers=headers, data=await request.read(), allow_redirects=False
            )
            kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP]
            response = web.Response(status=answer.status, body=await answer.read())
            for name, value in kept:
                response.headers.add(name, value) if name.lower() == "set-cookie" else response.headers.update(
                    {name: value}
                )
            return response

    made = web.Application()
    made.router.add_route("*", "/{path:.*}", passed_on)
    return made


@contextmanager
def proxy(target: str, port: int) -> Iterator[str]:
    """A server on this machine that has the page below the prefix; gives its address."""
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(application(target), shutdown_timeout=1)

    async def begin() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(begin(), loop).result()
        yield f"http://localhost:{port}{PREFIX}/"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.thorough
def test_it_is_there_with_all_that_it_loads(tmp_path: Path) -> None:
    own = free_ports(2)
    port = own + 1
    outside = f"http://localhost:{port}{PREFIX}/"
    options = ("--port", str(own), "--address", outside.rstrip("/"))
    with (
        sample_queue(3) as queue,
        printing_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log", *options) as (told, token),
        proxy(f"127.0.0.1:{own}", port),
        browsing() as browser,
        page_of(browser) as page,
    ):
        assert told == outside
        elsewhere: list[str] = []
        page.on("request", lambda request: None if request.url.startswith(outside) else elsewhere.append(request.url))
        page.goto(outside)
        page.locator("input[name=token]").fill(token)
        page.get_by_role("button", name="Open").click()
        page.get_by_role("heading", name="Fleet").wait_for()
        inside = page.url
        assert re.fullmatch(re.escape(outside) + r"s-[\w-]+/", inside)
        page.get_by_role("link", name="Queue", exact=True).click()
        page.get_by_text("3 waiting").wait_for()
        assert page.url == f"{inside}queue"
        page.locator(f'.ag-row[row-id="{queue.waiting[0]["job"]}"] a').click()
        page.get_by_text("1st in the queue").filter(visible=True).first.wait_for()
        page.reload()
        page.get_by_text("1st in the queue").filter(visible=True).first.wait_for()
        assert not [url for url in elsewhere if not url.startswith(("data:", "blob:"))], elsewhere
        (cookie,) = page.context.cookies()
        assert cookie["path"] == urlsplit(inside).path
