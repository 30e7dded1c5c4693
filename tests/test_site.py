"""The site of the documentation: its pages, its navigation, and the site in a browser."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import browsing, page_of
from tests.waiting import until
from tools.markdown import headings
from tools.site import COPIES, MKDOCS, build, for_mkdocs, navigation, paths

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[1]
SIZES: dict[str, Any] = {"wide": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(paths(navigation()["nav"]))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    decisions = {page for page in pages if re.match(r"developers/adr/\d", page)}
    assert len(listed) == len(set(listed)) > 90
    assert set(listed) == pages - decisions


def test_there_are_no_plugins_and_no_requests_to_other_servers() -> None:
    config = navigation()
    assert not {"plugins", "hooks", "extra_javascript", "extra_css"} & config.keys()
    assert "custom_dir" not in config["theme"] and config["theme"]["font"] is False


def test_headings_get_the_anchors_of_github() -> None:
    page = "# Shells & Jupyter\n\n## `smq policy diff`\n\n## A\n\n## A\n\n```\n# code\n```\n"
    shown = for_mkdocs(page, "a.md")
    assert "# Shells & Jupyter {#shells--jupyter}\n" in shown
    assert "## `smq policy diff` {#smq-policy-diff}\n" in shown
    assert "## A {#a}\n\n## A {#a-1}\n" in shown
    assert "\n# code\n" in shown


def test_lists_have_a_blank_line_and_levels_of_four_columns() -> None:
    page = "Text:\n- one\n  - two\n    more\n- three\n\n  ```\n  code\n  ```\n\n1. a\n   - b\n\nEnd\n"
    shown = "Text:\n\n- one\n    - two\n        more\n- three\n\n    ```\n    code\n    ```\n\n1. a\n    - b\n\nEnd\n"
    assert for_mkdocs(page, "a.md") == shown
    assert for_mkdocs("    - code\n      more\n", "a.md") == "    - code\n      more\n"


def test_alerts_become_admonitions() -> None:
    page = "> [!WARNING]\n> Do not.\n> Never.\n\n> quoted\n"
    assert for_mkdocs(page, "a.md") == "!!! warning\n\n    Do not.\n    Never.\n\n> quoted\n"


def test_addresses_in_html_fit_the_folder_of_the_page() -> None:
    page = '<img src="pictures/a.png"> <a href="https://aws.amazon.com">\n'
    assert for_mkdocs(page, "run/a.md") == page.replace("pictures", "../pictures")
    assert for_mkdocs(page, "run/README.md") == page


# --- the built site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not MKDOCS.exists():
        reason = "there is no MkDocs here: run make site"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    folder = tmp_path_factory.mktemp("site") / "site"
    assert build(ROOT, folder) == 0
    return folder


class Targets(HTMLParser):
    """The addresses and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "srcset") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.anchors.add(value)


@cache
def targets(path: Path) -> Targets:
    found = Targets()
    found.feed(path.read_text())
    return found


@pytest.mark.thorough
def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]
    assert len(pages) > 200
    wrong = []
    for page in pages:
        for link in targets(page).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert parts.scheme in ("http", "https"), link
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            path = path / "index.html" if path.is_dir() else path
            anchor = unquote(parts.fragment)
            if not path.exists() or (anchor and path.suffix == ".html" and anchor not in targets(path).anchors):
                wrong.append(f"{page.relative_to(site)}: {link}")
    assert not wrong


@pytest.mark.thorough
def test_every_page_is_there_as_markdown_and_in_llms_txt(site: Path) -> None:
    listing = (site / "llms.txt").read_text()
    listed = re.findall(r"^- \[(.+)\]\(([^)]+\.md)\): (\S.*)$", listing, re.MULTILINE)
    assert [path for _, path, _ in listed] == list(paths(navigation()["nav"]))
    for title, path, _ in listed:
        page = site / path
        shown = page.parent if page.name in ("README.md", "index.md") else page.with_suffix("")
        assert headings(page.read_text())[0].text == title
        assert (shown / "index.html").exists(), path
    assert listing.startswith("# sagemaker-queue\n\n> A priority queue")


@pytest.mark.thorough
def test_files_outside_of_the_documentation_are_pages(site: Path) -> None:
    file = "examples/checkpoints/plain.py"
    assert f'href="../../{COPIES}/{file}/"' in (site / "run/checkpoints/index.html").read_text()
    assert (ROOT / file).read_text().strip() in (site / f"{COPIES}/{file}.md").read_text()
    assert "SM_CHECKPOINT_DIR" in (site / f"{COPIES}/{file}/index.html").read_text()


@pytest.mark.thorough
def test_a_dead_link_ends_the_build(site: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    config = (ROOT / "mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text(config.partition("nav:\n- Home")[0] + "nav:\n- Home: index.md\n")
    (docs / "other.md").write_text("# Other\n")
    (docs / "index.md").write_text("# Home\n\n[other](other.md#other)\n")
    assert build(tmp_path, tmp_path / "build/site") == 0
    dead = ("none.md", "other.md#none", "#nowhere", "../none.py")
    (docs / "index.md").write_text("# Home\n\n" + "".join(f"[a]({link})\n" for link in dead))
    capfd.readouterr()
    assert build(tmp_path, tmp_path / "build/site") == 1
    warnings = [line for line in capfd.readouterr().err.splitlines() if line.startswith("WARNING")]
    assert [any(link in line for line in warnings) for link in dead] == [True] * 4


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(site: Path) -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.mark.thorough
def test_every_page_fits_into_the_window(browser: Browser, address: str) -> None:
    with page_of(browser) as tab:
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        too_wide = []
        for path in paths(navigation()["nav"]):
            tab.goto(address + re.sub(r"((^|/)(README|index))?\.md$", "/", path).lstrip("/"))
            for name, size in SIZES.items():
                tab.set_viewport_size(size)
                assert tab.locator("article h1").is_visible()
                if tab.evaluate("document.documentElement.scrollWidth") > size["width"]:
                    too_wide.append(f"{name}: {path}")
        assert not too_wide
        assert not [url for url in asked if not url.startswith((address, "data:"))]


SOUGHT = {
    "fair share": "background/who-runs-next/",
    "preemption": "background/preemption/",
    "checkpoint": "run/checkpoints/",
    "AccessDenied": "run/why-does-it-wait/",
    "HELD_BY_USER": "reference/reasons/",
    "NameTaken": "reference/errors/",
    "SAGEMAKER_QUEUE_URL": "reference/configuration/",
    "MASTER_ADDR": "reference/container/",
    "sbatch": "run/from-slurm/",
    "torchrun": "run/several-instances/",
    "spot": "operate/capacity/",
    "Jupyter": "run/shell-and-jupyter/",
}


def is_among_the_first(tab: Page, page: str) -> bool:
    """Return whether one of the first three results of a search is a page."""
    read = "links => links.slice(0, 3).map(link => link.getAttribute('href') || '')"
    return any(page in found for found in tab.locator(".md-search-result__item > a").evaluate_all(read))


@pytest.mark.thorough
@pytest.mark.parametrize("size", SIZES)
def test_search_leads_to_the_page(browser: Browser, address: str, size: str) -> None:
    with page_of(browser, viewport=SIZES[size]) as tab:
        for words, page in SOUGHT.items():
            tab.goto(f"{address}?q={words.replace(' ', '+')}")
            tab.locator(".md-search-result__link").first.wait_for(state="attached")
            # The results are added one by one, so the third one may be late.
            until(partial(is_among_the_first, tab, page))
        tab.goto(address)
        if size == "phone":
            tab.locator("label[for=__search].md-header__button").click()
        tab.locator(".md-search__input").press_sequentially("preemption")  # the search listens for keys
        tab.locator(".md-search-result__link", has_text="Preemption: which jobs are stopped").first.click()
        tab.wait_for_url("**/background/preemption/**")


@pytest.mark.thorough
def test_tabs_lead_to_sections_and_a_small_window_has_a_menu(browser: Browser, address: str) -> None:
    with page_of(browser, viewport=SIZES["wide"]) as tab:
        tab.goto(address)
        titles = [text.strip() for text in tab.locator(".md-tabs__link").all_inner_texts()]
        assert titles == [title for section in navigation()["nav"] for title in section]
        tab.locator(".md-tabs__link", has_text="Reference").click()
        tab.wait_for_url("**/reference/cli/")
    with page_of(browser, viewport=SIZES["phone"]) as tab:
        tab.goto(address)
        assert not tab.locator(".md-tabs").is_visible()
        tab.locator("label[for=__drawer].md-header__button").click()
        assert tab.locator(".md-nav--primary").get_by_text("Run jobs").first.is_visible()


@pytest.mark.thorough
def test_the_theme_is_that_of_the_system_and_can_be_chosen(browser: Browser, address: str) -> None:
    for wanted, scheme in (("light", "default"), ("dark", "slate")):
        with page_of(browser, viewport=SIZES["wide"], color_scheme=wanted) as tab:
            tab.goto(address)
            tab.locator(f"body[data-md-color-scheme={scheme}]").wait_for()
    with page_of(browser, viewport=SIZES["wide"], color_scheme="dark") as tab:
        tab.goto(address)
        tab.get_by_title("Use the light theme").click()
        tab.locator("body[data-md-color-scheme=default]").wait_for()
