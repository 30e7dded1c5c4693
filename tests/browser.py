"""A real Chromium, for what is looked at in a browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import requests

from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENT = PATIENCE * 1000.0  # milliseconds, as playwright counts
# Of Plotly, where a page is left while it still draws: the figure is gone, and there is nothing to size.
_HARMLESS = "Resize must be passed a displayed plot div element"
_TOLD = re.compile(r"(http://\S+/) .*enter this token:\n  (\S+)\n")
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """The path of a browser. Without one the test is skipped; not in CI, which has to have one."""
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    if found is None:
        reason = "there is no Chromium here (Debian: apt-get install chromium)"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    return found


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root, and in containers, it cannot make a sandbox; it visits nothing but our own page.
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"], timeout=PATIENT)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser: Browser, served: Served | None = None, **settings: object) -> Iterator[Page]:
    """A tab that has been let in, in which nothing may go wrong that the page's own scripts would complain about."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **settings})  # type: ignore[arg-type]
    if served:
        context.add_cookies([served.cookie])  # type: ignore[list-item]
    context.set_default_timeout(PATIENT)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: None if _HARMLESS in str(error) else wrong.append(str(error)))
    try:
        yield page
    finally:
        context.close()
    assert not wrong, wrong


def open_fleet(page: Page, address: str) -> None:
    """Load the page Fleet, and wait until it takes clicks."""
    load(page, address)
    page.get_by_role("heading", name="Fleet").wait_for()


def load(page: Page, address: str) -> None:
    """Load a page, and wait until it takes clicks."""
    page.goto(address)
    wait_connected(page)


def wait_connected(page: Page) -> None:
    """Wait until NiceGUI is connected: before that, it drops clicks and keys."""
    page.wait_for_function("window.did_handshake")


@dataclass(frozen=True)
class Served:
    """The pages, and the cookie of a browser that has been let in."""

    base: str  # the server's address, with a slash
    address: str  # of the pages, with a slash
    cookie: dict[str, str]


@contextmanager
def printing_ui(environment: Mapping[str, str], log: Path, *options: str) -> Iterator[tuple[str, str]]:
    """``smq ui`` in a process of its own; gives the address and the token that it prints."""
    command = [sys.executable, "-m", "sagemaker_queue", "ui", "--interval", "1", *options]
    if "--port" not in options:
        command += ["--port", "0"]
    with log.open("w") as out:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=out, stderr=subprocess.STDOUT)
    try:
        told = until(lambda: re.search(_TOLD, log.read_text()) or process.poll() is not None)
        assert isinstance(told, re.Match), log.read_text()
        yield told[1], told[2]
    finally:
        process.terminate()
        process.wait()


@contextmanager
def smq_ui(environment: Mapping[str, str], log: Path, *options: str) -> Iterator[Served]:
    """``smq ui`` in a process of its own, where the token has been exchanged for what a browser has."""
    with printing_ui(environment, log, "--no-browser", *options) as (base, token):
        yield enter(base, token)


def enter(base: str, token: str) -> Served:
    """Enter the token as the form does."""
    answer = requests.post(f"{base}enter", data={"token": token}, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    cookie = next(iter(answer.cookies))
    onward = re.search(r"url=\./(\S+/)", answer.text)
    assert onward and cookie.value
    place = {"domain": urlsplit(base).hostname or "", "path": cookie.path}
    return Served(
        base, f"{base}{onward[1]}", {"name": cookie.name, "value": cookie.value, "sameSite": "Strict", **place}
    )
