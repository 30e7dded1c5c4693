"""Drains on the page Fleet in a real browser, as people without rights to them see them; and the jobs that are left."""

from __future__ import annotations

from pathlib import Path

import pytest

from api_contract.models import JobSummary, PoolDrain, PoolStatus
from sagemaker_queue.ui.parts.drain_buttons import drain_remarks, jobs_in
from tests.browser import browsing, page_of, smq_ui
from tests.client.ui.sample_queue import sample_queue

DRAIN = {
    "at": "2026-11-22T18:00:00Z",
    "inForce": True,
    "by": "arn:aws:iam::123456789012:user/lea",
    "reason": "<b>new</b> disks",
    "stops": "none",
}


def a_job(name: str, **more: object) -> JobSummary:
    return JobSummary.from_json({"job": name, "state": "running", **more})


def test_jobs_that_are_left_hold_instances_of_the_pool_or_share_one() -> None:
    jobs = [
        a_job("whole", slots={"p5": 2}),
        a_job("elsewhere", slots={"p4": 1}),
        a_job("smq-carrier", slots={"p5": 1}, carries=8),
        a_job("part", gpus=0.5, carrier="smq-carrier"),
        a_job("part-elsewhere", gpus=0.5, carrier="other-carrier"),
        a_job("leaves", slots={"p5": 1}, state="stopping"),
        a_job("waits", state="pending"),
        a_job("over", state="completed"),
    ]
    left = jobs_in(PoolStatus("p5"), jobs)
    assert [job.job for job in left] == ["whole", "part", "leaves"]
    drain = PoolDrain.from_json(DRAIN)
    assert drain_remarks(drain, left) == [
        "drained since 2026-11-22 18:00:00 UTC by lea: <b>new</b> disks",
        "jobs that it stops: no jobs",
        "3 jobs left, 1 being stopped",
    ]
    assert drain_remarks(drain, [])[-1] == "no job is left"


@pytest.mark.thorough
@pytest.mark.slow
def test_only_admins_have_buttons(tmp_path: Path) -> None:
    with (
        sample_queue(3) as queue,
        smq_ui({"SAGEMAKER_QUEUE_URL": queue.url}, tmp_path / "log") as served,
        browsing() as browser,
        page_of(browser, served) as page,
    ):
        queue.drains["p5"] = DRAIN
        page.goto(served.address)
        page.get_by_text("drained since 2026-11-22 18:00:00 UTC by lea: <b>new</b> disks").wait_for()
        page.get_by_text("jobs that it stops: no jobs").wait_for()
        assert page.get_by_role("button", name="drain").count() == 0
        assert page.locator(".smq-card b").count() == 0, "the reason is text, and no HTML"
