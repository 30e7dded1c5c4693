"""The page What if: invalid text, the progress of advice on settings, and its end with ``smq ui``."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from sagemaker_queue.ui.parts.advice_card import progress_of
from sagemaker_queue.workflows.advice_run import AdviceProgress
from sagemaker_queue.workflows.settings_advice import REQUIRED_PYTHON
from tests.browser import browsing, page_of, smq_ui
from tests.client.test_advice_run import a_long_history
from tests.client.ui.sample_queue import sample_queue
from tests.waiting import has_ended, processes, until


@pytest.mark.parametrize(
    ("progress", "text", "part"),
    [
        (0, "Reading the history: 0 attempts.", None),
        (12_345, "Reading the history: 12,345 attempts.", None),
        (
            AdviceProgress("order: shortest", 5, 20, 30.0),
            "5 of about 20 simulations, 30s of at most 5m00s. Now: order: shortest.",
            0.25,
        ),
        (
            AdviceProgress("the policy in force", 0, 20, 150.0),
            "0 of about 20 simulations, 2m30s of at most 5m00s. Now: the policy in force.",
            0.5,
        ),
    ],
)
def test_the_progress_as_text_and_as_a_part(progress: Any, text: str, part: float | None) -> None:
    run: Any = SimpleNamespace(progress=progress, minutes=5.0)
    assert progress_of(run) == (text, part)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_policy_with_an_invalid_date_is_named(tmp_path: Path) -> None:
    with (
        sample_queue(1) as queue,
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        page.goto(f"{served.address}what-if")
        page.get_by_text("The whole policy, as text").first.click()
        page.locator(".cm-content").first.fill("pools: 2026-02-30")
        page.get_by_role("button", name="Try this text").first.click()
        page.get_by_text("The text: line 1, column 8: this is not a valid number, date or Boolean").wait_for()


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < REQUIRED_PYTHON, reason="the simulator needs a newer Python")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_simulations_end_with_smq_ui(end: signal.Signals, tmp_path: Path) -> None:
    with (
        sample_queue(1) as queue,
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        queue.past = a_long_history()
        page.goto(f"{served.address}what-if")
        page.get_by_role("button", name="Simulate the history").click()
        page.get_by_text(re.compile(r"\d+ of about")).wait_for()
        ours = processes(lambda it: it.get("SAGEMAKER_QUEUE_URL") == queue.url)
        (server,) = (process for process in ours if process.ppid() == os.getpid())
        below = server.children(recursive=True)
        assert below
        for process in (server, *below) if end == signal.SIGINT else (server,):  # a terminal interrupts all of them
            with suppress(psutil.NoSuchProcess):  # the end of the server ended it
                process.send_signal(end)
        until(lambda: all(has_ended(process.pid) for process in (server, *below)))
        assert "Traceback" not in (tmp_path / "log").read_text()
