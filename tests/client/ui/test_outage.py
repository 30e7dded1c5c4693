"""A queue that answers with errors for a while, as the page shows it in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import browsing, open_fleet, page_of, smq_ui
from tests.client.ui.sample_queue import SampleQueue, sample_queue
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow


@contextmanager
def page_beside_a_queue(waiting: int, folder: Path) -> Iterator[tuple[SampleQueue, Page, str]]:
    """Yield a queue, a page that is still empty, and the address of the page's server."""
    with (
        sample_queue(waiting) as queue,
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, folder / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        yield queue, page, served.address


@pytest.mark.thorough
def test_jobs_stay_and_the_outage_is_told_until_it_is_over(tmp_path: Path) -> None:
    with page_beside_a_queue(3, tmp_path) as (queue, page, address):
        job = queue.waiting[0]
        job["owner"] = queue.answer("GET", "/prod/whoami")[1]["owner"]  # who may hold it
        open_fleet(page, address)
        page.get_by_role("link", name="Queue", exact=True).click()
        row = page.locator(f'.ag-row[row-id="{job["job"]}"]')
        state = row.locator('[col-id="state"]')
        state.wait_for()
        queue.refuses = True
        outage = page.locator(".smq-outage")
        outage.filter(has_text=re.compile("No news since .*The queue is being repaired")).wait_for()
        row.locator("input[type=checkbox]").first.check()
        page.get_by_role("button", name="Hold", exact=True).click()
        page.locator(".q-notification").filter(has_text="The queue is being repaired.").first.wait_for()
        state.wait_for()
        queue.refuses = False
        outage.wait_for(state="hidden")


@pytest.mark.thorough
def test_a_job_is_selected_while_the_browser_is_busy(tmp_path: Path) -> None:
    with page_beside_a_queue(3, tmp_path) as (queue, page, address):
        job = queue.waiting[0]
        job["owner"] = queue.answer("GET", "/prod/whoami")[1]["owner"]
        open_fleet(page, address)
        page.get_by_role("link", name="Queue", exact=True).click()
        box = page.locator(f'.ag-row[row-id="{job["job"]}"] input[type=checkbox]').first
        box.wait_for()
        answer, methods = queue.answer, list[str]()

        def noted(method: str, path: str) -> tuple[int, Any]:
            methods.append(method)
            return answer(method, path)

        queue.answer = noted  # type: ignore[method-assign]
        # The server asks which rows are selected, and the browser answers seconds later.
        busy = "setTimeout(() => { const end = Date.now() + 4000; while (Date.now() < end); })"
        box.evaluate(f"box => {{ box.click(); {busy} }}")
        page.get_by_role("button", name="Hold", exact=True).click()
        until(lambda: "PATCH" in methods)


@pytest.mark.thorough
def test_the_name_of_downloaded_usage_has_the_date_of_the_shown_sums(tmp_path: Path) -> None:
    with page_beside_a_queue(1, tmp_path) as (queue, page, address):
        open_fleet(page, address)
        page.get_by_role("link", name="Usage", exact=True).click()
        told = page.get_by_text(re.compile(r"Attempts that have ended since \d{4}-\d\d-01"))
        told.wait_for()
        since = re.findall(r"\d{4}-\d\d-01", told.inner_text())[0]
        queue.refuses = True
        page.locator(".smq-outage").filter(has_text="No news since").wait_for()  # it moves what is below it
        page.get_by_label("of", exact=True).click()
        page.get_by_role("option", name="90 days").click()
        page.get_by_text("The queue did not answer.").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        assert download.value.suggested_filename == f"usage-by-project-since-{since}.csv"


@pytest.mark.thorough
def test_a_late_answer_does_not_replace_the_usage_of_a_later_request(tmp_path: Path) -> None:
    with page_beside_a_queue(1, tmp_path) as (queue, page, address):
        open_fleet(page, address)
        answer, asked, release = queue.answer, list[str](), Event()

        def answer_the_first_request_last(method: str, path: str) -> tuple[int, Any]:
            # Other pages also read the history, but not from the first day of a month.
            place = "usage of the month" if re.search(r"/history\?.*since=\d{4}-\d\d-01T00", path) else path
            asked.append(place)
            if place == "usage of the month":
                assert release.wait(PATIENCE)
            return answer(method, path)

        queue.answer = answer_the_first_request_last  # type: ignore[method-assign]
        try:
            page.get_by_role("link", name="Usage", exact=True).click()
            until(lambda: "usage of the month" in asked)
            page.get_by_label("of", exact=True).click()
            page.get_by_role("option", name="90 days").click()
            told = page.get_by_text("Attempts that have ended since")
            told.wait_for()
            text = told.inner_text()
        finally:
            release.set()
        polls = asked.count("/prod/queue")
        until(lambda: asked.count("/prod/queue") > polls + 2)  # the first answer has arrived long before
        assert told.inner_text() == text
