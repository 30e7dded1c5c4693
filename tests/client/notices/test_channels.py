"""Notices on their way, against a server that answers by script."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
import pytest
from moto import mock_aws

from sagemaker_queue.errors import ConfigError
from sagemaker_queue.queue.client import QueueClient
from sagemaker_queue.workflows.notices.channels import NotSent, Topic, Webhook
from sagemaker_queue.workflows.notices.watch import Notice

if TYPE_CHECKING:
    from tests.client.conftest import ScriptedServer

NOTICE = Notice("failed", "a", "a has failed: <!channel> & more.")
ARN = "arn:aws:sns:eu-west-1:123456789012:training"


def test_a_webhook_gets_words_and_no_orders(server: ScriptedServer) -> None:
    server.answers(200, "ok")
    Webhook(f"{server.url}/T0/B0/secret").send(NOTICE)
    (received,) = server.received
    assert json.loads(received.body) == {"text": "a has failed: &lt;\u200b!channel&gt; &amp; more."}


@pytest.mark.parametrize(("status", "asked"), [(404, 1), (302, 1), (503, 2)])
def test_a_webhook_that_refuses_is_told_without_its_secret(server: ScriptedServer, status: int, asked: int) -> None:
    server.always_answers(status, "no")
    with pytest.raises(NotSent, match=f"answers {status}") as failure:
        Webhook(f"{server.url}/T0/B0/secret").send(NOTICE)
    assert len(server.received) == asked
    assert "secret" not in str(failure.value)


def test_a_webhook_that_is_not_there_is_told_without_its_secret(server: ScriptedServer) -> None:
    server.always_hangs_up()
    with pytest.raises(NotSent, match="cannot be reached") as failure:
        Webhook(f"{server.url}/T0/B0/secret").send(NOTICE)
    assert "secret" not in str(failure.value)


def test_a_webhook_that_all_can_read_on_the_way_is_refused() -> None:
    for address in ("http://hooks.example.com/secret", "hooks.example.com/secret", "ftp://x/y"):
        with pytest.raises(ConfigError, match="https") as failure:
            Webhook(address)
        assert "secret" not in str(failure.value)


def test_an_address_that_is_none_is_told_without_its_secret() -> None:
    with pytest.raises(ConfigError, match="is not valid") as refused:
        Webhook("https://[secret")
    with pytest.raises(NotSent, match="cannot be reached") as failure:
        Webhook("https://hooks..example/secret").send(NOTICE)
    assert "secret" not in f"{refused.value} {failure.value}"


@pytest.fixture
def queue(server: ScriptedServer) -> QueueClient:
    assert urlsplit(server.url).hostname == "127.0.0.1"
    return QueueClient(url=server.url, region="eu-west-1")


@pytest.mark.parametrize("region", ["eu-west-1", "us-east-2"])  # the queue's, and another one
def test_a_topic_gets_it_as_mail_would_show_it(queue: QueueClient, region: str) -> None:
    with mock_aws():
        session = boto3.Session(region_name=region)
        sns, sqs = session.client("sns"), session.client("sqs")
        topic = sns.create_topic(Name="training")["TopicArn"]
        box = sqs.create_queue(QueueName="box")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=box, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        Topic(topic, queue).send(NOTICE)
        (message,) = sqs.receive_message(QueueUrl=box)["Messages"]
    content = json.loads(message["Body"])
    assert (content["Subject"], content["Message"]) == ("a: failed", NOTICE.text)


def test_a_topic_that_is_not_there_is_told(queue: QueueClient) -> None:
    with mock_aws(), pytest.raises(NotSent, match=f"The topic {ARN} takes nothing: .*NotFound"):
        Topic(ARN, queue).send(NOTICE)
    with pytest.raises(ConfigError, match="is not the ARN of an SNS topic"):
        Topic("arn:aws:sqs:eu-west-1:123456789012:box", queue)
