"""The page Queue in a real browser: jobs that finish while finished jobs are shown, and the key Enter in the filter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import browsing, load, page_of, smq_ui
from tests.client.ui.sample_queue import SampleQueue, sample_queue
from tests.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.slow, pytest.mark.thorough]


@pytest.fixture
def queue() -> Iterator[SampleQueue]:
    with sample_queue(3) as queue:
        yield queue


@pytest.fixture
def page(queue: SampleQueue, tmp_path: Path) -> Iterator[Page]:
    with (
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        load(page, f"{served.address}queue")
        page.get_by_text("active, 3 waiting").wait_for()
        yield page


def row(page: Page, job: str) -> Locator:
    return page.locator(f'.ag-row[row-id="{job}"]').first


def state(page: Page, job: str) -> Locator:
    return page.locator(f'.ag-row[row-id="{job}"] [col-id="state"]')


def readings(queue: SampleQueue) -> int:
    """Return how often the finished jobs were read."""
    return sum("state=finished" in path for path in queue.asked)


def views(queue: SampleQueue) -> int:
    return sum(path.endswith("/queue") for path in queue.asked)


def wait_views(queue: SampleQueue, more: int) -> None:
    """Wait until the page has asked for that many further views."""
    before = views(queue)
    until(lambda: views(queue) >= before + more)


def test_a_job_that_finishes_stays_in_the_table(
    page: Page, queue: SampleQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.get_by_text("include finished jobs").click()
    until(lambda: readings(queue) == 1)
    wait_views(queue, 3)
    assert readings(queue) == 1

    job = queue.waiting[-1]
    queue.finished.insert(0, {**job, "state": "stopped"})
    queue.waiting.pop()
    state(page, job["job"]).get_by_text("stopped").wait_for()
    wait_views(queue, 3)
    assert readings(queue) == 2

    late, answer = queue.waiting[-1], queue.answer

    def outdated_answer(method: str, path: str) -> tuple[int, Any]:
        """Return the third list of finished jobs without the job that finished last."""
        status, body = answer(method, path)
        outdated = "state=finished" in path and readings(queue) == 3
        return status, {"jobs": queue.finished[1:]} if outdated else body

    monkeypatch.setattr(queue, "answer", outdated_answer)
    queue.finished.insert(0, {**late, "state": "completed"})
    queue.waiting.pop()
    state(page, late["job"]).get_by_text("completed").wait_for()
    wait_views(queue, 3)
    assert readings(queue) == 4

    page.get_by_text("include finished jobs").click()
    state(page, late["job"]).wait_for(state="detached")
    queue.waiting.pop()
    wait_views(queue, 3)
    assert readings(queue) == 4


@pytest.mark.parametrize("words", ["eve NLP", "TRAIN-2", "train-2", "train"])
def test_enter_opens_the_only_job_that_the_filter_shows(page: Page, queue: SampleQueue, words: str) -> None:
    people = {"vision": "ada", "nlp": "eve", "speech": "ada"}
    for number, (job, (project, person)) in enumerate(zip(queue.waiting, people.items()), 1):
        owner = f"arn:aws:iam::123456789012:user/{person}"
        job.update(job="train" if number == 3 else f"train-{number}", project=project, owner=owner)
    queue.active.clear()
    row(page, "train-2").wait_for()
    page.get_by_label("filter").fill("train-")
    page.get_by_label("filter").press("Enter")  # two jobs are shown
    page.get_by_label("filter").fill(words)
    page.get_by_label("filter").press("Enter")
    page.get_by_role("heading", name="train" if words == "train" else "train-2", exact=True).wait_for()


def test_enter_opens_no_hidden_job(page: Page, queue: SampleQueue) -> None:
    mine, others = queue.waiting[:2]
    mine.update(job="train-mine", owner="arn:aws:iam::123456789012:user/ada")
    others.update(job="train-others", owner="arn:aws:iam::123456789012:user/eve")
    del queue.waiting[2:]
    row(page, "train-others").wait_for()
    page.get_by_text("only my jobs").click()
    row(page, "train-others").wait_for(state="detached")
    page.get_by_label("filter").fill("train-others")
    page.get_by_label("filter").press("Enter")
    page.get_by_label("filter").fill("train")
    page.get_by_label("filter").press("Enter")
    page.get_by_role("heading", name="train-mine", exact=True).wait_for()
