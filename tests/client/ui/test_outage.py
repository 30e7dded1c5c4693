"""A queue that answers with errors for a while, as the page shows it in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import browsing, page_of, smq_ui
from tests.client.ui.sample_queue import sample_queue

pytestmark = pytest.mark.slow


def test_jobs_stay_and_the_outage_is_told_until_it_is_over(tmp_path: Path) -> None:
    with (
        sample_queue(3) as queue,
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        page.goto(f"{served.address}queue")
        row = page.locator(f'.ag-row[row-id="{queue.waiting[0]["job"]}"]')
        row.wait_for()
        queue.refuses = True
        outage = page.locator(".smq-outage")
        outage.get_by_text("No news since").get_by_text("The queue is being repaired.").wait_for()
        row.locator("input[type=checkbox]").first.check()
        page.get_by_role("button", name="Hold").click()
        page.locator(".q-notification").get_by_text("The queue is being repaired.").first.wait_for()
        row.wait_for()
        queue.refuses = False
        outage.wait_for(state="hidden")
