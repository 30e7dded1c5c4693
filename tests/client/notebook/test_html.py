"""What notebooks show of the queue's answers: others' words in it are words, whatever they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from api_contract.history import PastAttempt
from sagemaker_queue import JobDetail, JobSummary, PlanAnswer, QueueClient, QueueStatus, Submission
from sagemaker_queue.notebook import html
from tests.client.samples import ATTEMPT, DETAIL, FAILED, STATUS, job

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

SCRIPT = "<script>alert(1)</script>\x1b[2J"
REASON = {"code": SCRIPT, "message": SCRIPT}
WHY = {"ahead": [SCRIPT], "blockers": [SCRIPT], "advice": [SCRIPT]}
# Each text that somebody else may choose.
HOSTILE = job(SCRIPT, "pending", 1, owner=f"arn:aws:iam::1:user/{SCRIPT}", reason=REASON, group=SCRIPT, project=SCRIPT)
HOSTILE_DETAIL = {
    **HOSTILE,
    "pools": [SCRIPT],
    "expectedStart": {"message": SCRIPT},
    "why": WHY,
    "history": [{"state": SCRIPT, "cause": SCRIPT, "at": "2026-11-21T10:00:00Z"}],
    "attempts": [{"attempt": 1, "trainingJobName": SCRIPT, "outcome": SCRIPT}],
    "request": {"AlgorithmSpecification": {"TrainingImage": SCRIPT}, "Tags": [{"Key": SCRIPT, "Value": SCRIPT}]},
}
HOSTILE_FAILURE = {
    **{"failureClass": SCRIPT, "attempt": 1, "sentence": SCRIPT, "remedy": SCRIPT, "rank": SCRIPT},
    **{"lines": [SCRIPT], "rule": SCRIPT},
}
HOSTILE_STATUS = {
    "pools": [{"name": SCRIPT, "instanceType": SCRIPT}],
    "active": [HOSTILE],
    "projects": [{"name": SCRIPT, "quota": {SCRIPT: 1}}],
    "pauses": [{"pool": SCRIPT, "atFault": SCRIPT}],
    "external": [{"trainingJobName": SCRIPT, "slots": {SCRIPT: 1}}],
}
PAST = PastAttempt.from_json({**ATTEMPT, "job": SCRIPT, "project": SCRIPT, "outcome": SCRIPT, "slots": {SCRIPT: 1}})


def page(answer: Any) -> str:
    shown: str = answer._repr_html_()
    return shown


def words(shown: str) -> str:
    """What a reader sees of it."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", shown))


@pytest.mark.parametrize(
    "shown",
    [
        page(JobSummary.from_json(HOSTILE)),
        page(Submission.from_json({**HOSTILE, "warnings": [SCRIPT]})),
        page(JobDetail.from_json(HOSTILE_DETAIL)),
        page(JobDetail.from_json({**job("job1", "failed", 1), "failure": HOSTILE_FAILURE})),
        page(QueueStatus.from_json(HOSTILE_STATUS)),
        page(PlanAnswer.from_json({"reason": REASON, "warnings": [SCRIPT], **WHY})),
        page(PlanAnswer.from_json({"wouldStart": True, "evicts": [{"job": SCRIPT, "rule": SCRIPT}]})),
        html.jobs([JobSummary.from_json(HOSTILE)]),
        html.attempts([PAST]),
        html.log([SCRIPT, "\x1b]0;title\x07"]),
        html.progress(1, 2, SCRIPT, [JobSummary.from_json(HOSTILE)]),
    ],
)
def test_others_words_are_no_markup(shown: str) -> None:
    assert "<script" not in shown and "&lt;script&gt;" in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", shown)


def test_nothing_has_a_colour_of_its_own() -> None:
    shown = page(QueueStatus.from_json(STATUS)) + page(JobDetail.from_json(DETAIL)) + html.progress(1, 2, "one is left")
    shown = shown.replace("color: inherit", "")  # that of the page
    assert not re.search(r"colou?r|background|#[0-9a-f]{3}\b|rgb|<style|class=", shown)


def test_each_state_has_a_mark_of_its_own() -> None:
    marks = [html.marked(state)[0] for state in html.MARKS]
    assert len(set(marks)) == len(marks) == 8
    assert html.marked("new") == "new"


def test_a_job() -> None:
    said = words(page(JobDetail.from_json(DETAIL)))
    for part in (
        "job1 ◌ preempted",
        "2 of 2 instances are used",
        "job1-qstamp-1",
        "job4 has priority 3",
        "s3://bucket",
    ):
        assert part in said, part
    assert page(JobDetail.from_json(DETAIL)).count("<h") == 0  # a page has its own


def test_a_failed_job_shows_its_failure() -> None:
    said = words(page(JobDetail.from_json(FAILED)))
    for text in ("Failure of attempt 1", "gpu_memory", "Use a smaller batch.", "algo-2 rank 3", "step 41"):
        assert text in said


def test_the_queue() -> None:
    said = words(page(QueueStatus.from_json(STATUS)))
    for part in ("Policy version 3", "ml.p5.48xlarge 8 6 1 1 2", "research/vision", "job1", "job3"):
        assert part in said, part


def test_a_plan() -> None:
    plan = PlanAnswer.from_json({"evicts": [{"job": "job2", "rule": "reclaim"}], "warnings": ["No checkpoints."]})
    said = words(page(plan))
    assert "would start as soon as 1 job has stopped" in said
    assert "its project holds more than it is entitled to" in said and "No checkpoints." in said


def test_of_a_long_list_the_first_are_shown_and_no_more_than_that_is_read(
    server: ScriptedServer, queue: QueueClient
) -> None:
    pages = [[job(f"job{number}", "pending", 1) for number in range(at, at + 60)] for at in (0, 60, 120)]
    for jobs in pages:
        server.answers(200, {"jobs": jobs, "next": "more"})
    shown = page(queue.jobs())
    assert "job99<" in shown and "job100<" not in shown and "there are more" in shown
    assert len(server.received) == 2


def test_an_empty_list_says_so(server: ScriptedServer, queue: QueueClient) -> None:
    server.answers(200, {"jobs": [], "next": None})
    assert page(queue.jobs()) == "<p>No jobs.</p>"
