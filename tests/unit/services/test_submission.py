"""Submission: what is kept, what is refused and by which field, and that a refusal leaves the queue as it was."""

import copy
import json
from typing import Any

import pytest

from job_queue.api.queue_position import QueuePosition
from job_queue.domain.errors import Forbidden, InvalidRequest, NameTaken, QueueError, TooLarge
from job_queue.domain.job import MAX_PRIORITY
from job_queue.services.submission import MAX_REQUEST_BYTES
from tests.jobs import OWNER, P5, a_request
from tests.queue_harness import Harness


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


@pytest.mark.parametrize("text", ["0", "-3", " 5 ", "+9", str(MAX_PRIORITY)])
def test_priorities_are_whole_numbers(text: str) -> None:
    queue = Harness()
    queue.submissions.submit(a_request(Tags=[{"Key": "priority", "Value": text}]), OWNER)
    assert queue.job("job1").priority == int(text)


def test_without_the_tag_the_priority_is_nought() -> None:
    queue = Harness()
    queue.submissions.submit(a_request(priority=None), OWNER)
    assert queue.job("job1").priority == 0


@pytest.mark.parametrize("text", ["", "high", "1.5", "1e3", str(MAX_PRIORITY + 1), "--1", "१"])
def test_other_priorities_are_refused(text: str) -> None:
    error = refused(a_request(Tags=[{"Key": "team", "Value": "x"}, {"Key": "priority", "Value": text}]))
    assert isinstance(error, InvalidRequest)
    assert error.field == "Tags[1].Value"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"TrainingJobName": "a" * 64}, "TrainingJobName"),
        ({"TrainingJobName": "under_score"}, "TrainingJobName"),
        ({"TrainingJobName": "x-qstamp-1"}, "TrainingJobName"),
        ({"Unknown": 1}, "Unknown"),
        (
            {"ResourceConfig": {"InstanceType": P5, "InstanceCount": 0, "VolumeSizeInGB": 30}},
            "ResourceConfig.InstanceCount",
        ),
        (
            {"ResourceConfig": {"InstanceType": "ml.p9.huge", "InstanceCount": 1, "VolumeSizeInGB": 30}},
            "ResourceConfig.InstanceType",
        ),
        ({"ServerlessJobConfig": {}}, "ServerlessJobConfig"),
        ({"HyperParameters": {"lr": 0.1}}, "HyperParameters.lr"),
        ({"Tags": [{"Key": "queue-job", "Value": "x"}]}, "Tags[0].Key"),
        ({"Tags": [{"Key": "Queue-Name", "Value": "x"}]}, "Tags[0].Key"),
    ],
)
def test_what_sagemaker_or_the_queue_would_refuse_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    error = refused(a_request(**change))
    assert isinstance(error, InvalidRequest)
    assert error.field is not None
    assert error.field.startswith(field)


@pytest.mark.parametrize("missing", ["TrainingJobName", "RoleArn", "OutputDataConfig", "ResourceConfig"])
def test_a_missing_field_is_named(missing: str) -> None:
    request = a_request()
    del request[missing]
    error = refused(request)
    assert isinstance(error, InvalidRequest)
    assert (error.field or "").startswith(missing)


def test_a_role_that_is_not_allowed_is_refused() -> None:
    error = refused(a_request(RoleArn="arn:aws:iam::123456789012:role/admin"))
    assert isinstance(error, Forbidden)
    assert error.field == "RoleArn"


def test_a_request_that_does_not_fit_is_refused() -> None:
    large = {f"K{number}": "v" * 2500 for number in range(100)}
    environment = {f"E{number}": "v" * 500 for number in range(100)}
    request = a_request(HyperParameters=large, Environment=environment)
    assert len(json.dumps(request)) > MAX_REQUEST_BYTES
    assert isinstance(refused(request), TooLarge)


def test_the_same_request_again_is_answered_with_the_job_as_it_is() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    queue.end("job1-qstamp-1")
    again = queue.accept("job1", 1)
    assert again.known
    assert again.record.job.state == "completed"
    assert len(queue.training.jobs) == 1


def test_another_request_under_the_name_is_refused() -> None:
    queue = Harness()
    queue.submit("job1", 1)
    with pytest.raises(NameTaken):
        queue.accept("job1", 2)
    assert queue.job("job1").priority == 1


def test_a_job_without_checkpoints_is_warned_about() -> None:
    queue = Harness()
    request = a_request()
    del request["CheckpointConfig"]
    accepted = queue.submissions.submit(request, OWNER)
    assert len(accepted.warnings) == 1
    assert "CheckpointConfig" in accepted.warnings[0]


def test_a_job_larger_than_the_fleet_gets_a_warning_and_blocks_nobody() -> None:
    queue = Harness(slots=2)
    queue.submissions.submit(a_request("huge", 9, instances=3), OWNER, preflight=False)
    queue.submit("small", 1)
    assert queue.states() == {"huge": "pending", "small": "running"}
    _, decided = queue.dry_run.forecast()
    assert [hold.reason for hold in decided.holds] == ["NEVER_FITS"]
    standing = QueuePosition(decided)
    assert standing.position(queue.job("huge")) is None
    assert "3 instances" in (standing.never_starts(queue.job("huge")) or "")
