"""The page What if in a real browser: only the newest request shows its result, and errors remove earlier results."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import Served, browsing, page_of, smq_ui
from tests.client.ui.sample_queue import sample_queue
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


def open_texts(page: Page, served: Served) -> tuple[Locator, Locator]:
    """Open the page What if, and return the cards of both policies with their texts open."""
    page.goto(f"{served.address}what-if")
    page.get_by_text("The whole policy, as text").first.click()
    page.get_by_text("The whole policy, as text").last.click()
    cards = page.locator(".smq-card").filter(has=page.get_by_role("button", name="Try this text"))
    return cards.first, cards.last


@pytest.mark.thorough
@pytest.mark.slow
def test_a_late_answer_does_not_replace_a_newer_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        sample_queue(1) as queue,
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        answer, gates, asked = queue.answer, [Event(), Event()], list[int]()

        def answer_at_the_gate(method: str, path: str) -> tuple[int, Any]:
            status, body = answer(method, path)
            if path.endswith("/policy/preview"):
                number = len(asked)
                asked.append(number)
                assert gates[min(number, 1)].wait(PATIENCE)
                body = {**body, "starts": [{"job": f"answer-{number}", "slots": {"p5": 1}}]}
            return status, body

        monkeypatch.setattr(queue, "answer", answer_at_the_gate)
        first, second = open_texts(page, served)
        first.get_by_role("button", name="Try this text").click()
        until(lambda: asked)
        first.locator(".cm-content").fill("pools: 2026-02-30")
        first.get_by_role("button", name="Try this text").click()
        first.get_by_text("this is not a valid number").wait_for()
        first.locator(".cm-content").fill("pools: []")
        first.get_by_role("button", name="Try this text").click()
        first.get_by_text("Asking ...").wait_for()  # the second request of A waits for the answer to the first request
        gates[0].set()
        until(lambda: len(asked) == 2)
        second.get_by_role("button", name="Try this text").click()
        second.get_by_text("Asking ...").wait_for()  # the page of A has had the first answer before this
        assert page.get_by_text("answer-0").count() == 0
        first.get_by_text("Asking ...").wait_for()
        gates[1].set()
        first.get_by_text("1 job would start now: answer-").wait_for()
        second.get_by_text("1 job would start now: answer-").wait_for()
        assert page.get_by_text("answer-0").count() == 0


@pytest.mark.thorough
@pytest.mark.slow
def test_an_error_clears_the_figure_and_only_the_newest_try_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        sample_queue(1) as queue,
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        answer, gate, asked = queue.answer, Event(), list[str]()
        gate.set()

        def answer_at_the_gate(method: str, path: str) -> tuple[int, Any]:
            if path.endswith("/policy/preview"):
                asked.append(path)
                assert gate.wait(PATIENCE)
            return answer(method, path)

        monkeypatch.setattr(queue, "answer", answer_at_the_gate)
        first, second = open_texts(page, served)
        figure = page.get_by_label("Mean wait of each project")

        first.get_by_role("button", name="Try this text").click()
        figure.wait_for()
        queue.refuses = True
        first.get_by_role("button", name="Try this text").click()
        first.get_by_text("The queue is being repaired.").wait_for()
        figure.wait_for(state="detached")
        queue.refuses = False
        first.get_by_role("button", name="Try this text").click()
        figure.wait_for()
        text = first.locator(".cm-content")
        text.fill("pools: 2026-02-30")
        first.get_by_role("button", name="Try this text").click()
        first.get_by_text("this is not a valid number").wait_for()
        figure.wait_for(state="detached")

        text.fill("pools: []")
        gate.clear()
        asked.clear()
        first.get_by_role("button", name="Try this text").click()
        until(lambda: asked)
        for _ in range(3):
            first.get_by_role("button", name="Try this text").click()
        second.get_by_role("button", name="Try this text").click()
        second.get_by_text("Asking ...").wait_for()  # the page has had all clicks
        gate.set()
        for card in (first, second):
            card.get_by_text("1 job would start now").wait_for()
        assert len(asked) == 3  # the first and the newest try of A, and the try of B
