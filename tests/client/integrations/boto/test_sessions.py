"""Which boto3 sessions send their training jobs through the queue, and what that costs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue import ConfigError, QueueClient, boto_session, install
from tests.client.integrations.boto.hooked_clients import ARN, OWNER, REQUEST

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer


class TestSessions:
    def test_the_default_one(self, server: ScriptedServer, queue: QueueClient, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        install(queue=queue, preflight=False)
        server.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        client: Any = boto3.client("sagemaker")
        assert client.create_training_job(**REQUEST)["TrainingJobArn"] == f"{ARN}/job1"

    def test_a_new_one_is_like_the_default_one_and_leaves_it_alone(
        self, server: ScriptedServer, queue: QueueClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session("AKIDOTHER", "another", region_name="us-west-2"))
        session = boto_session(queue=queue)
        credentials = session.get_credentials()
        assert credentials is not None
        assert (credentials.access_key, session.region_name) == ("AKIDOTHER", "us-west-2")
        with mock_aws():
            direct: Any = boto3.client("sagemaker")
            direct.create_training_job(**REQUEST)
        assert server.received == []

    def test_another_queue_replaces_the_first(self, server: ScriptedServer, queue: QueueClient) -> None:
        session = boto_session(boto3.Session(), queue=QueueClient(url="http://127.0.0.1:9/prod"))
        client: Any = session.client("sagemaker")
        boto_session(session, queue=queue, preflight=False)
        server.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
        client.create_training_job(**REQUEST)
        assert len(server.received) == 1

    def test_no_queue_is_configured(self) -> None:
        with pytest.raises(ConfigError, match="No queue is configured"):
            boto_session()


def test_the_client_is_light_until_it_is_used() -> None:
    program = """
import sys
import sagemaker_queue, sagemaker_queue.cli
sagemaker_queue.cli.main(["logs", "--help"])
heavy = {"boto3", "botocore", "requests", "sagemaker", "pandas", "numpy"} & set(sys.modules)
print("heavy:", sorted(heavy))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines()[-1] == "heavy: []"
