"""A thousand jobs that wait, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import browsing, open_fleet, page_of, smq_ui
from tests.client.ui.sample_queue import sample_queue
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


def test_a_thousand_jobs_are_there_and_found(tmp_path: Path) -> None:
    with (
        sample_queue(1000) as queue,
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        open_fleet(page, served.address)
        page.get_by_role("link", name="Queue", exact=True).click()
        page.get_by_text("active, 1000 waiting").wait_for()
        last = queue.waiting[-1]["job"]
        page.get_by_label("filter").fill(last)
        page.locator(f'.ag-row[row-id="{last}"]').first.wait_for()
        page.get_by_label("filter").fill("")
        # No more rows are drawn than can be seen, or a thousand would make the browser slow.
        until(lambda: 0 < page.locator(".ag-pinned-left-cols-container .ag-row").count() < 100)
        first, second = (page.locator(f'.ag-row[row-id="{job["job"]}"]').first for job in queue.waiting[:2])
        first.wait_for()
        page.get_by_role("columnheader", name="Position").click()
        page.get_by_role("columnheader", name="Position").click()  # the last first
        page.locator(f'.ag-row[row-id="{last}"]').first.wait_for()
        queue.waiting.pop()  # news come while it is sorted
        until(lambda: page.locator(f'.ag-row[row-id="{last}"]').count() == 0)
        second.wait_for(state="detached")
