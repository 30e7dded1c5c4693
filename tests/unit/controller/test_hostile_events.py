"""Events that SageMaker did not send so, or not about our jobs: they raise nothing, and change nothing of ours.

What an event of this queue's own attempt says is believed: docs/developers/adr/0033 says how an attempt proves itself.
"""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_queue.adapters.sagemaker import training_job_detail
from tests.queue_harness import Harness

Json = dict[str, Any]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
TAGS = ["queue-name", "queue-job", "queue-submission", "queue-attempt", "queue-proof"]
FIELDS = ["TrainingJobName", "TrainingJobStatus", "SecondaryStatus", "FailureReason", "Tags"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(FIELDS + TAGS), json_values | st.just("Completed") | st.just("1"))
def test_a_job_ends_by_no_event_but_one_that_says_so_of_its_attempt(field: str, value: Any) -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    genuine = queue.training.event("job1-qstamp-1") | {"TrainingJobStatus": "Completed"}
    odd = copy.deepcopy(genuine)
    (odd["Tags"] if field in TAGS else odd)[field] = value
    before = copy.deepcopy(queue.tables.rows)
    if read := training_job_detail({"detail": odd}):
        queue.controller.reconciler.handle_event(read)
    says_so = read and all(read.get(part) == genuine[part] for part in ("TrainingJobName", "TrainingJobStatus", "Tags"))
    assert queue.state("job1") == ("completed" if says_so else "running")
    assert says_so or queue.tables.rows == before


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        ("queue-name", "another-queue"),
        ("queue-job", "job2"),
        ("queue-job", "nobodys"),
        ("queue-job", ""),
        ("queue-job", "x" * 1000),
        ("queue-submission", "another"),
        ("queue-attempt", "2"),
        ("queue-attempt", "1 "),
        ("queue-proof", ""),
        ("queue-proof", "1-" + "0" * 64),
        ("queue-proof", "²-" + "0" * 64),
    ],
    ids=lambda text: text[:20],
)
def test_an_end_with_other_tags_than_the_recorded_attempts_ends_nothing(tag: str, value: str) -> None:
    queue = Harness(slots=2)
    queue.submit("job1", 1)
    queue.submit("job2", 1)
    forged = queue.training.event("job1-qstamp-1") | {"TrainingJobStatus": "Completed"}
    before = copy.deepcopy(queue.tables.rows)
    queue.controller.reconciler.handle_event({**forged, "Tags": {**forged["Tags"], tag: value}})
    assert queue.tables.rows == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Tags", 7),
        ("Tags", ["x" * 2000]),
        ("Tags", {"queue-name": 5}),
        ("SecondaryStatus", {"a": 1}),
        ("SecondaryStatus", "x" * 2000),
        ("FailureReason", ["x"]),
        ("FailureReason", "x" * 2000),
    ],
    ids=lambda value: str(value)[:20],
)
def test_of_an_event_that_cannot_be_read_only_its_name_is_used(field: str, value: Any) -> None:
    queue = Harness(slots=1)
    queue.submit("job1", 1)
    ended = queue.training.event("job1-qstamp-1") | {"TrainingJobStatus": "Completed", field: value}
    read = training_job_detail({"detail": ended})
    assert read == {"TrainingJobName": "job1-qstamp-1", "TrainingJobStatus": "Completed"}
    queue.controller.reconciler.handle_event(read)
    assert queue.state("job1") == "running", "SageMaker says that it runs"
    queue.training.end("job1-qstamp-1", "Failed", failure="AlgorithmError")
    queue.controller.reconciler.handle_event(read)
    assert queue.job("job1").reason == "AlgorithmError", "SageMaker says how it ended"


def test_a_wrong_end_of_an_external_job_is_corrected_by_the_next_comparison() -> None:
    queue = Harness(slots=2)
    queue.submit("job1", 1)
    resources = {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1}
    queue.training.create({"TrainingJobName": "theirs", "ResourceConfig": resources})
    queue.event("theirs")
    forged = {"TrainingJobName": "theirs", "TrainingJobStatus": "Completed", "Tags": {}}
    queue.controller.reconciler.handle_event(forged)
    queue.tick()
    assert [job.name for job in queue.repository.external()] == ["theirs"]
    assert queue.state("job1") == "running"
