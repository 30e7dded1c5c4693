"""The token on its way to a real browser, watched by the other users of the machine."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pytest
import requests

from tests.browser import browsing, enter, page_of, printing_ui, smq_ui
from tests.client.ui.sample_queue import sample_queue
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.attack, pytest.mark.slow]


@pytest.fixture
def queue() -> Iterator[dict[str, str]]:
    with sample_queue(3) as served:
        yield {"SAGEMAKER_QUEUE_URL": served.url}


@pytest.fixture
def command_line(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """A browser that keeps its command line for others to read; and where."""
    seen, program = tmp_path / "command line", tmp_path / "browser"
    program.write_text(f'#!{sys.executable}\nimport sys\nopen({str(seen)!r}, "w").write(" ".join(sys.argv[1:]))\n')
    program.chmod(0o755)
    return {"BROWSER": f"{program} %s", "TMPDIR": str(tmp_path)}, seen


@pytest.mark.thorough
def test_a_browser_is_let_in_by_a_file_of_the_user_alone(
    queue: dict[str, str], command_line: tuple[dict[str, str], Path], tmp_path: Path
) -> None:
    variables, seen = command_line
    with printing_ui({**queue, **variables}, tmp_path / "log") as (base, token):
        address = until(lambda: seen.read_text() if seen.exists() else "")
        assert token not in address and address.startswith("file://")
        for process in psutil.process_iter(["cmdline"]):
            assert token not in " ".join(process.info["cmdline"] or [])
        file = Path(unquote(urlsplit(address).path))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert file.stat().st_uid == os.getuid()
        with browsing() as browser, page_of(browser) as page:
            page.goto(address)
            page.get_by_role("heading", name="Fleet").wait_for()
            assert token not in page.url and page.url.startswith(f"{base}s-")
            assert not file.exists() and not file.parent.exists(), "it has been used"
            page.reload()
            page.get_by_role("heading", name="Fleet").wait_for()
            page.get_by_role("link", name="Queue", exact=True).click()
            page.get_by_text("3 waiting").wait_for()
            page.reload()
            page.get_by_text("3 waiting").wait_for()
            again = requests.post(f"{base}enter", data={"token": token}, timeout=PATIENCE)
            assert (again.status_code, again.cookies.get_dict()) == (403, {})
            with page.context.new_page() as other:
                other.goto(page.url)
                other.get_by_text("3 waiting").wait_for()


@pytest.mark.thorough
def test_a_text_browser_is_not_opened(
    queue: dict[str, str], command_line: tuple[dict[str, str], Path], tmp_path: Path
) -> None:
    variables, seen = command_line
    program = (tmp_path / "browser").rename(tmp_path / "w3m")
    log = tmp_path / "log"
    with printing_ui({**queue, **variables, "BROWSER": str(program)}, log) as (base, _):
        assert log.read_text().startswith(f"The queue is at {base} Open it, and enter this token:")
        assert not seen.exists()


@pytest.mark.thorough
def test_the_file_goes_with_the_server(
    queue: dict[str, str], command_line: tuple[dict[str, str], Path], tmp_path: Path
) -> None:
    variables, seen = command_line
    with printing_ui({**queue, **variables}, tmp_path / "log"):
        file = Path(unquote(urlsplit(until(lambda: seen.read_text() if seen.exists() else "")).path))
        assert file.exists()
    assert not file.exists() and not file.parent.exists()


@pytest.mark.thorough
def test_without_a_browser_the_token_is_entered(queue: dict[str, str], tmp_path: Path) -> None:
    with (
        printing_ui(queue, tmp_path / "log", "--no-browser") as (base, token),
        browsing() as browser,
        page_of(browser) as page,
    ):
        page.goto(base)
        page.locator("input[name=token]").fill(f" {token}")
        page.get_by_role("button", name="Open").click()
        page.get_by_role("heading", name="Fleet").wait_for()
        page.reload()
        page.get_by_role("heading", name="Fleet").wait_for()


@pytest.mark.thorough
def test_other_servers_of_the_machine_get_no_cookie(queue: dict[str, str], tmp_path: Path) -> None:
    """A cookie for 127.0.0.1 goes to all its ports, but only for requests below the cookie's path."""
    cookies: list[str | None] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie"))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<p>mine</p><iframe src='/s-guess/'></iframe>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as listener, ExitStack() as ends:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        ends.callback(listener.shutdown)
        with (
            printing_ui(queue, tmp_path / "log", "--no-browser") as (base, token),
            browsing() as browser,
            page_of(browser) as page,
        ):
            page.goto(base)
            page.locator("input[name=token]").fill(token)
            page.get_by_role("button", name="Open").click()
            page.get_by_role("heading", name="Fleet").wait_for()
            assert page.context.cookies(), "it has one for the page"
            page.goto(f"http://127.0.0.1:{listener.server_address[1]}/")
            page.get_by_text("mine").first.wait_for()
            until(lambda: len(cookies) >= 2)
    assert set(cookies) == {None}


@pytest.mark.thorough
def test_a_pasted_address_lets_nobody_in(queue: dict[str, str], tmp_path: Path) -> None:
    with smq_ui(queue, tmp_path / "log") as served:
        assert requests.get(served.address, timeout=PATIENCE).status_code == 403
        with browsing() as browser, page_of(browser, served) as page:
            page.goto(served.address)
            page.get_by_role("heading", name="Fleet").wait_for()
        with pytest.raises(AssertionError, match="has been used"):
            enter(served.base, "anything")
