"""Submission: what is kept, what is refused and by which field, and that a refusal leaves the queue as it was."""

import copy
import json
from typing import Any

import pytest

from job_queue.domain.errors import InvalidRequest, QueueError
from tests.jobs import OWNER, P5, a_request
from tests.queue_harness import Harness

MODEL = "arn:aws:sagemaker:us-east-1:aws:hub-content/Public/Model/m"


def refused(request: dict[str, Any]) -> QueueError:
    """The refusal of a request, which must leave the tables as they were."""
    queue = Harness()
    queue.submit("there", 1)
    before = copy.deepcopy(queue.tables.rows)
    with pytest.raises(QueueError) as error:
        queue.submissions.submit(request, OWNER)
    assert queue.tables.rows == before
    assert error.value.message.endswith((".", "?"))
    return error.value


def test_a_request_is_kept_as_it_came() -> None:
    queue = Harness()
    request = a_request("job1", 7, instances=2)
    accepted = queue.submissions.submit(request, OWNER)
    record = queue.record("job1")
    job = record.job
    assert json.loads(record.details) == request
    assert (job.priority, job.owner, job.instances, job.state) == (7, OWNER, 2, "pending")
    assert (accepted.known, accepted.warnings) == (False, ())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"Unknown": 1}, "Unknown"),
        (
            {"ResourceConfig": {"InstanceType": P5, "InstanceCount": 0, "VolumeSizeInGB": 30}},
            "ResourceConfig.InstanceCount",
        ),
        ({"ServerlessJobConfig": {"BaseModelArn": MODEL, "JobType": "FineTuning"}}, "ServerlessJobConfig"),
        ({"Tags": [{"Key": "priority"}]}, "Tags[0].Value"),
    ],
)
def test_what_no_part_of_the_validation_lets_pass_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    error = refused(a_request(**change))
    assert isinstance(error, InvalidRequest)
    assert error.field is not None
    assert error.field == field


def test_what_its_tags_say_becomes_the_jobs() -> None:
    queue = Harness()
    tags = {"priority": "3", "group": "layers 2-4", "preemptible": "no", "pools": "default", "retries": "2"}
    queue.submissions.submit(a_request(Tags=[{"Key": key, "Value": value} for key, value in tags.items()]), OWNER)
    job = queue.job("job1")
    assert (job.project, job.priority, job.group, job.preemptible) == ("default", 3, "layers 2-4", False)
    assert (job.pools, job.retries) == (("default",), 2)


def test_the_same_request_again_is_answered_with_the_job_as_it_is() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    queue.end("job1-qstamp-1")
    again = queue.accept("job1", 1)
    assert again.known
    assert again.record.job.state == "completed"
    assert len(queue.training.jobs) == 1


def test_a_job_without_checkpoints_is_warned_about() -> None:
    queue = Harness()
    request = a_request()
    del request["CheckpointConfig"]
    accepted = queue.submissions.submit(request, OWNER)
    assert len(accepted.warnings) == 1
    assert "CheckpointConfig" in accepted.warnings[0]
