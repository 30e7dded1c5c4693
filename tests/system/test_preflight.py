"""Pre-flight on the real services: the client's look into S3, and what the queue refuses without queueing it."""

import pytest

from sagemaker_queue import InvalidRequest
from sagemaker_queue.jobs.preflight import check
from tests.system.conftest import System


@pytest.mark.thorough
def test_what_is_in_s3_is_found(system: System) -> None:
    session = system.cloud.boto_session()
    system.cloud.client("s3").put_object(Bucket="system", Key="data/part-0", Body=b"x")
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://system/data"}
    request = system.request("job1", "pass")
    request["InputDataConfig"] = [{"ChannelName": "training", "DataSource": {"S3DataSource": source}}]
    assert check(request, session) == []
    source["S3Uri"] = "s3://system/date"
    request["CheckpointConfig"] = {"S3Uri": "s3://nobodys/checkpoints"}
    assert [finding.field for finding in check(request, session)] == [
        "InputDataConfig[0].DataSource.S3DataSource.S3Uri",
        "CheckpointConfig.S3Uri",
    ]


def test_what_would_come_to_nothing_is_not_queued_unless_one_insists(system: System) -> None:
    request = system.request(
        "brave", "pass", CheckpointConfig={"S3Uri": "s3://system/a/", "LocalPath": "/opt/ml/model"}
    )
    request["OutputDataConfig"] = {"S3OutputPath": "s3://system/a/output"}
    with pytest.raises(InvalidRequest) as refused:
        system.queue.submit(request)
    path, folder = refused.value.errors
    assert (path.field, folder.field) == ("CheckpointConfig.LocalPath", "CheckpointConfig.S3Uri")
    assert "LocalPath is in /opt/ml/model" in path.message
    assert "but OutputDataConfig.S3OutputPath is in" in folder.message
    assert system.state("brave") is None
    assert len(system.queue.plan(request).warnings) == 2
    assert len(system.queue.submit(request, preflight=False).warnings) == 2
    system.wait_state("brave", "completed", "failed")
