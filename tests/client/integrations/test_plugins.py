"""What is shipped for certain programs: the AWS CLI's plugin, and Airflow's session factory."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
import pytest

from sagemaker_queue.integrations import awscli
from tests.client.integrations.boto.hooked_clients import ARN, OWNER, REQUEST

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

pytestmark = pytest.mark.usefixtures("address")


def submitted_by(client: Any, server: ScriptedServer) -> bool:
    # A request without data in S3: there is nothing for the pre-flight to look for but the output's bucket.
    server.answers(202, {"job": "job1", "state": "pending", "owner": OWNER})
    answer = client.create_training_job(**{**REQUEST, "OutputDataConfig": {"S3OutputPath": "s3://b/out"}})
    return bool(answer["TrainingJobArn"] == f"{ARN}/job1")


@pytest.fixture(autouse=True)
def no_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sagemaker_queue.jobs.preflight.check", lambda *_, **__: [])


def test_the_aws_cli_hands_its_events_to_the_plugin(server: ScriptedServer) -> None:
    session = botocore.session.get_session()
    awscli.awscli_initialize(session.get_component("event_emitter"))
    assert submitted_by(session.create_client("sagemaker", region_name="eu-west-1"), server)


def test_airflow_gets_the_session_that_it_would_have_made(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow itself is run by `make clients`."""

    class BaseSessionFactory:
        def create_session(self, deferrable: bool = False) -> boto3.Session:
            assert deferrable
            return boto3.Session("AKIDAIRFLOW", "secret", region_name="eu-west-1")

    name = "airflow.providers.amazon.aws.hooks.base_aws"
    base = ModuleType(name)
    base.BaseSessionFactory = BaseSessionFactory  # type: ignore[attr-defined]
    for end in range(1, 6):
        package = ".".join(name.split(".")[:end])
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    monkeypatch.setitem(sys.modules, name, base)
    monkeypatch.delitem(sys.modules, "sagemaker_queue.integrations.airflow", raising=False)
    factory = importlib.import_module("sagemaker_queue.integrations.airflow").QueueSessionFactory()
    session = factory.create_session(deferrable=True)
    assert submitted_by(session.client("sagemaker"), server)
    assert "Credential=AKIDAIRFLOW/" in server.received[0].headers["Authorization"]
