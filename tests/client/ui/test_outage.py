"""A queue that answers with errors for a while, as the page shows it in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser import browsing, page_of, smq_ui
from tests.client.ui.sample_queue import sample_queue

pytestmark = pytest.mark.slow


@pytest.mark.thorough
def test_jobs_stay_and_the_outage_is_told_until_it_is_over(tmp_path: Path) -> None:
    with (
        sample_queue(3) as queue,
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        job = queue.waiting[0]
        job["owner"] = queue.answer("GET", "/prod/whoami")[1]["owner"]  # who may hold it
        page.goto(served.address)
        page.get_by_role("heading", name="Fleet").wait_for()
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
