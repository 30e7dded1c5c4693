"""Alarms on the local cloud: what the function really prints is what they look at, and their topic is told."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws.stack import PROJECT, LocalCloud
from tests.system.conftest import System

TOPIC = "arn:aws:sns:us-east-1:000000000000:operations"
NO_TOPIC = 'AlarmTopicArn:\n    Type: String\n    Default: ""'


@pytest.fixture(scope="module")
def system_with_topic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """The queue, deployed with a topic for its alarms."""
    project: Path = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT / "job_queue", project / "job_queue")
    template = (PROJECT / "template.yaml").read_text()
    assert NO_TOPIC in template
    (project / "template.yaml").write_text(template.replace(NO_TOPIC, NO_TOPIC.replace('""', TOPIC)))
    with LocalCloud(slots=1, project=project) as cloud:
        yield System(cloud)


def printed_metrics(system: System) -> list[dict[str, Any]]:
    """The function's metrics, as CloudWatch reads them in its log."""
    lines = [json.loads(line) for line in system.cloud.function_logs().splitlines() if line.startswith('{"_aws"')]
    return [
        {
            "MetricName": metric["Name"],
            "Unit": metric["Unit"],
            "Values": line[metric["Name"]],
            "Dimensions": [{"Name": name, "Value": line[name]} for name in dimensions],
            "Timestamp": datetime.fromtimestamp(line["_aws"]["Timestamp"] / 1000, UTC),
        }
        for line in lines
        for directive in line["_aws"]["CloudWatchMetrics"]
        for dimensions in directive["Dimensions"]
        for metric in directive["Metrics"]
    ]


def watched_by(alarm: dict[str, Any], system: System) -> list[dict[str, Any]]:
    """Return the values that an alarm evaluates, once the function has printed some.

    The lines of an invocation may come into its log with the next invocation.
    """

    def watched() -> list[dict[str, Any]]:
        return [
            metric
            for metric in printed_metrics(system)
            if (metric["MetricName"], metric["Dimensions"]) == (alarm["MetricName"], alarm["Dimensions"])
        ]

    system.wait("a metric that the alarm looks at, with the same dimensions", watched, system.cloud.tick)
    return watched()


@pytest.mark.thorough
def test_a_cycle_ends_the_alarm_that_there_is_none_and_its_topic_is_told(system_with_topic: System) -> None:
    system = system_with_topic
    cloudwatch, sns, sqs = (system.cloud.client(service) for service in ("cloudwatch", "sns", "sqs"))
    assert sns.create_topic(Name="operations")["TopicArn"] == TOPIC
    url = sqs.create_queue(QueueName="pager")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    allow = {"Effect": "Allow", "Principal": {"Service": "sns.amazonaws.com"}, "Action": "sqs:SendMessage"}
    policy = {"Version": "2012-10-17", "Statement": [{**allow, "Resource": arn}]}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})
    sns.subscribe(TopicArn=TOPIC, Protocol="sqs", Endpoint=arn)
    alarms = {alarm["AlarmName"].split("-")[2]: alarm for alarm in cloudwatch.describe_alarms()["MetricAlarms"]}
    assert len(alarms) == 13
    assert all(alarm["AlarmActions"] == alarm["OKActions"] == [TOPIC] for alarm in alarms.values())
    no_cycle = alarms["NoCycleAlarm"]
    cloudwatch.set_alarm_state(AlarmName=no_cycle["AlarmName"], StateValue="ALARM", StateReason="nothing for a while")

    system.cloud.tick()
    watched = watched_by(no_cycle, system)
    assert watched_by(alarms["ReconciliationAlarm"], system)
    cloudwatch.put_metric_data(Namespace=no_cycle["Namespace"], MetricData=watched)

    def state() -> str:
        (alarm,) = cloudwatch.describe_alarms(AlarmNames=[no_cycle["AlarmName"]])["MetricAlarms"]
        return str(alarm["StateValue"])

    system.wait("the end of the alarm", lambda: state() == "OK")
    told: list[str] = []

    def pager() -> bool:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            told.append(json.loads(json.loads(message["Body"])["Message"])["NewStateValue"])
        return "OK" in told

    system.wait("the topic to be told", pager)
