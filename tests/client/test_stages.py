"""What SageMaker does for a running job, and estimates that are still missing, in tables and sentences."""

from datetime import datetime, timedelta, timezone
from typing import Any, Optional

import pytest

from api_contract.models import JobSummary
from job_queue.domain.job import STAGES
from sagemaker_queue.jobs.formatting import (
    FIRST_ESTIMATE_SECONDS,
    NOT_ESTIMATED,
    NOT_YET,
    end_cell,
    stage_sentence,
    stage_word,
    start_cell,
    state_sentence,
)
from sagemaker_queue.presentation.tables.jobs import COLUMNS, job_facts


def a_job(state: str, ago: float = 0, **more: Any) -> JobSummary:
    at = datetime.now(timezone.utc) - timedelta(seconds=ago)
    return JobSummary("slow", state, entry_time=at, state_since=at, **more)


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_each_stage_but_training_has_a_word_and_a_sentence(stage: str) -> None:
    job = a_job("running", secondary_status=stage)
    trains = stage == "Training"
    assert (stage_word(job) is None, stage_sentence(job) is None) == (trains, trains)
    assert COLUMNS["activity"][1](job) == (stage_word(job) or "running")
    assert COLUMNS["state"][1](job) == "running", "programs read this column"


def test_a_silent_running_says_what_sagemaker_does() -> None:
    soon = datetime.now(timezone.utc) + timedelta(minutes=5)  # SageMaker's clock is ahead of this one
    job = a_job("running", secondary_status="Starting", secondary_status_since=soon)
    assert state_sentence(job) == "slow is running: SageMaker is getting its instances"
    state = str(job_facts(job)["State"])
    assert state.endswith("; SageMaker is getting its instances (SecondaryStatus Starting, for 0 seconds)")


@pytest.mark.parametrize("stage", [None, "Training", "ANewStatus"])
def test_an_older_queue_and_a_new_status_are_shown_as_running(stage: Optional[str]) -> None:
    assert state_sentence(a_job("running", secondary_status=stage)) == "slow is running"


def test_a_stage_is_shown_of_running_jobs_only() -> None:
    assert state_sentence(a_job("stopping", secondary_status="Starting")) == "slow is stopping"


@pytest.mark.parametrize(
    ("state", "more", "start", "end"),
    [
        ("pending", {}, NOT_YET, NOT_YET),
        ("pending", {"held": True}, "", ""),
        ("pending", {"ago": FIRST_ESTIMATE_SECONDS + 1}, "", ""),
        ("running", {}, "", NOT_YET),
        ("stopping", {}, "", ""),
        ("completed", {}, "", ""),
    ],
)
def test_a_missing_first_estimate_is_shown(state: str, more: dict[str, Any], start: str, end: str) -> None:
    job = a_job(state, **more)
    assert (start_cell(job), end_cell(job)) == (start, end)
    assert (job_facts(job)["Starts"] == NOT_ESTIMATED) is (start == NOT_YET)
