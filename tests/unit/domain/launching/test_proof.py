"""Training jobs that are left over from an attempt that is recorded as ended."""

from dataclasses import replace

import pytest

from job_queue.domain.job import EndedAttempt, Job, JobRecord, iso
from job_queue.domain.launching.proof import attempt_tags, is_ended_attempt
from job_queue.domain.names import JOB_TAG, PROOF_TAG, QUEUE_TAG, SUBMISSION_TAG
from job_queue.scheduler import JobState
from tests.jobs import NOW, a_job

NAME = "job1-qstamp-1"
JOB = a_job(state=JobState.COMPLETED, secret="s", sent=1)
TAGS = attempt_tags(replace(JOB, launched=NAME))


def record(job: Job = JOB, name: str = NAME, carrier: str | None = None) -> JobRecord:
    ended = EndedAttempt(1, name, None, iso(NOW), "completed", carrier=carrier)
    return JobRecord(job, "{}", attempts=(ended,))


def test_a_training_job_of_a_recorded_attempt_is_left_over() -> None:
    assert is_ended_attempt(NAME, TAGS, record())


@pytest.mark.attack
@pytest.mark.parametrize("changed", [QUEUE_TAG, JOB_TAG, SUBMISSION_TAG, PROOF_TAG])
def test_a_training_job_with_another_tag_is_not(changed: str) -> None:
    other = attempt_tags(replace(JOB, launched="job1-qstamp-2"))[PROOF_TAG] if changed == PROOF_TAG else "other"
    assert not is_ended_attempt(NAME, {**TAGS, changed: other}, record())
    assert not is_ended_attempt(NAME, {key: it for key, it in TAGS.items() if key != changed}, record())


@pytest.mark.attack
def test_a_training_job_is_not_left_over_from_what_is_not_recorded_as_a_training_job() -> None:
    """The name of an attempt on a carrier is free in SageMaker, so such a training job is not the queue's."""
    assert not is_ended_attempt(NAME, TAGS, record(carrier="c-qstamp-1"))
    assert not is_ended_attempt(NAME, TAGS, record(name="job1-qstamp-2"))
    assert not is_ended_attempt(NAME, TAGS, JobRecord(JOB, "{}"))
    assert not is_ended_attempt(NAME, TAGS, record(replace(JOB, secret=None)))
