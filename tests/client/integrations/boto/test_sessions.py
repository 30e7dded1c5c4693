"""Which boto3 sessions send their training jobs through the queue, and what that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue import ConfigError, QueueClient, boto_session, install
from sagemaker_queue.integrations.boto.sessions import hooks_of
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

    def test_the_queue_is_found_by_configuration_and_asked_with_the_sessions_credentials(
        self, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SAGEMAKER_QUEUE_URL", server.url)
        session = boto_session(boto3.Session("AKIDOTHER", "another", region_name="us-west-2"))
        server.answers(202, {"job": "job1", "state": "pending"})
        hooks_of(session).jobs.queue.submit(REQUEST)
        assert "Credential=AKIDOTHER/" in server.received[0].headers["Authorization"]

    def test_a_mock_of_a_session_is_hooked_as_a_session_is(self, queue: QueueClient) -> None:
        """Programs are tested with mocks, which have every attribute; handlers that were never made are none."""
        mock = Mock(region_name="us-west-2")
        hooks = hooks_of(boto_session(mock, queue=queue, preflight=False))
        assert (hooks.jobs.queue, hooks.preflight) == (queue, False)
        registered = {call.args[0] for call in mock.events.register_last.call_args_list}
        assert "before-call.sagemaker.CreateTrainingJob" in registered

    def test_a_mock_of_a_session_brings_no_queue(self) -> None:
        with pytest.raises(ConfigError, match="No queue is configured"):
            boto_session(Mock(region_name="us-west-2"))

    def test_no_queue_is_configured(self) -> None:
        with pytest.raises(ConfigError, match="No queue is configured"):
            boto_session()
