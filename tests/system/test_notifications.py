"""The queue's own events, as somebody receives them who has a rule for them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws.stack import LocalCloud
from tests.payloads import payload
from tests.system.conftest import WAIT, System

ROOT = Path(__file__).parents[2]

Json = dict[str, Any]


class Mailbox:
    """An SQS queue to which a rule sends all events of the queue."""

    def __init__(self, system: System) -> None:
        self._sqs = system.cloud.client("sqs")
        self._url = self._sqs.create_queue(QueueName="mailbox")["QueueUrl"]
        attributes = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])["Attributes"]
        events = system.cloud.client("events")
        rule = events.put_rule(Name="mailbox", EventPattern=json.dumps({"source": ["sagemaker-queue"]}))["RuleArn"]
        events.put_targets(Rule="mailbox", Targets=[{"Id": "mailbox", "Arn": attributes["QueueArn"]}])
        allow = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": attributes["QueueArn"],
            "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        self._sqs.set_queue_attributes(QueueUrl=self._url, Attributes={"Policy": policy})
        self.events: list[Json] = []

    def read(self) -> None:
        """Take what has come."""
        while messages := self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                self.events.append(json.loads(message["Body"]))
                self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])

    def of(self, job: str) -> list[Json]:
        """What has come about a job, in the order in which it happened."""
        self.read()
        return sorted(
            (event for event in self.events if event["detail"].get("job") == job),
            key=lambda event: event["detail"]["version"],
        )

    def types(self, job: str) -> list[str]:
        return [event["detail-type"].removeprefix("Training Job ") for event in self.of(job)]


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[LocalCloud]:
    parameters = {"Notices": "true", "NoticeEmail": "team@example.com", "NoticeAfterMinutes": "0"}
    with LocalCloud(slots=2, parameters=parameters) as cloud:
        yield cloud


@pytest.fixture
def mailbox(system: System) -> Iterator[Mailbox]:
    yield Mailbox(system)


@pytest.mark.thorough
def test_a_rule_receives_a_preempted_jobs_whole_life(system: System, mailbox: Mailbox, tmp_path: Path) -> None:
    gate = tmp_path / "they may end"
    system.run("first", WAIT.format(file=str(gate)), priority=1)
    system.run("second", WAIT.format(file=str(gate)), priority=2)
    system.submit("urgent", "pass", priority=3)
    system.wait("first to be resumed", lambda: len(system.job("first").attempts) == 2)
    gate.touch()
    system.wait_state("first", "completed")
    system.wait_state("second", "completed")
    whole_life = ["Queued", "Started", "Preempted", "Resumed", "Finished"]
    system.wait("all events", lambda: len(mailbox.of("first")) >= len(whole_life))
    assert mailbox.types("first") == whole_life
    system.wait("its last event", lambda: len(mailbox.of("urgent")) >= 3)
    assert mailbox.types("urgent") == ["Queued", "Started", "Finished"]
    queued, started, preempted, resumed, finished = (event["detail"] for event in mailbox.of("first"))
    assert queued["owner"] == system.job("first").owner
    assert started["waitSeconds"] >= 0
    assert started["trainingJobName"] == "first-qstamp-1"
    assert (preempted["claimant"], preempted["rule"]) == ("urgent", "preempt")
    assert resumed["trainingJobName"] == "first-qstamp-2"
    assert finished["state"] == "completed"
    assert {event["source"] for event in mailbox.events} == {"sagemaker-queue"}
    assert {event["account"] for event in mailbox.events} == {"000000000000"}


def test_the_rule_in_the_guide_matches_what_it_says(system: System) -> None:
    (pattern,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs/reference/events.md").read_text(), re.DOTALL)
    events = system.cloud.client("events")
    completed = payload("queue-finished")
    failed = {**completed, "detail": {**completed["detail"], "project": "vision", "state": "failed"}}
    matches = [
        events.test_event_pattern(EventPattern=pattern, Event=json.dumps(event))["Result"]
        for event in (failed, completed, payload("queue-started"))
    ]
    assert matches == [True, False, False]


def test_who_is_subscribed_to_the_topic_is_told_in_sentences(system: System) -> None:
    outputs = system.cloud.client("cloudformation").describe_stacks(StackName="sagemaker-queue")["Stacks"][0]["Outputs"]
    (topic,) = [it["OutputValue"] for it in outputs if it["OutputKey"] == "NoticeTopicArn"]
    sns, sqs = system.cloud.client("sns"), system.cloud.client("sqs")
    (mail,) = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert (mail["Protocol"], mail["Endpoint"]) == ("email", "team@example.com")
    url = sqs.create_queue(QueueName="people")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    allow = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage"}
    allow |= {"Resource": arn, "Condition": {"ArnEquals": {"aws:SourceArn": topic}}}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    told: list[str] = []

    def read() -> None:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            text = json.loads(json.loads(message["Body"])["Message"])
            told.extend([text] if text.startswith("told ") else [])  # not of a job of the test before
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    system.submit("told", "raise SystemExit('no such dataset')")
    system.wait("what people are told", lambda: len(told) >= 2, read)
    started, failed = sorted(told, key=lambda text: "failed" in text)
    assert re.fullmatch(r"told \(\S+, project default\) has started, after \d+ s in the queue\.", started)
    assert re.fullmatch(
        r"told \(\S+, project default\) has failed by an error of its own; smq logs told shows it\.", failed
    )
