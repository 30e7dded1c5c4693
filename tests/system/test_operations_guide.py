"""docs/operate/runbook.md, taken literally: its commands, typed one after the other against a local cloud."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from local_cloud.aws import deployment
from local_cloud.aws.stack import LocalCloud
from local_cloud.user_errors import LocalCloudError
from tests.system.conftest import System
from tests.system.test_guide import ROOT, blocks, part

pytestmark = pytest.mark.thorough

PAGE = (ROOT / "docs/operate/runbook.md").read_text()
STOP, GO_ON = blocks(part(PAGE, "Stop everything"))
LOOK, REMOVE = blocks(part(PAGE, "Alarm topic"))
(CARD,) = blocks(part(PAGE, "On-call card"))

# For SQS, version 1 of the AWS CLI ignores AWS_ENDPOINT_URL in some regions.
SQS_IS_HERE = 'aws() { if [ "$1" = sqs ]; then set -- --endpoint-url "$AWS_ENDPOINT_URL" "$@"; fi; command aws "$@"; }'


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=1) as cloud:
        yield cloud


def types(cloud: LocalCloud, *commands: str) -> str:
    """Type commands into one shell, which ends at the first failure; return what they print."""
    home = str(Path(sys.executable).parent)
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run(
        [bash, "-euc", "\n".join([SQS_IS_HERE, *commands])],
        env={**cloud.environment(), "PATH": f"{home}:/usr/bin:/bin", "HOME": str(cloud.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_is_stopped_and_goes_on_with_empty_queues(cloud: LocalCloud) -> None:
    events, sqs = cloud.client("events"), cloud.client("sqs")
    assert "STACK=training-job-queue" in STOP
    stop = STOP.replace("STACK=training-job-queue", f"STACK={deployment.STACK}")
    types(cloud, stop)
    (tick,) = [rule for rule in events.list_rules()["Rules"] if rule.get("ScheduleExpression")]
    assert tick["State"] == "DISABLED", "otherwise each minute puts a tick into the dead-letter queue"
    with pytest.raises((ClientError, LocalCloudError)):
        cloud.tick()
    resource = cloud.client("cloudformation").describe_stack_resource(
        StackName=deployment.STACK, LogicalResourceId="DeadLetterQueue"
    )
    url = resource["StackResourceDetail"]["PhysicalResourceId"]
    for number in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps({"given up": number}))

    printed = types(cloud, stop, GO_ON)
    assert '"ApproximateNumberOfMessages": "3"' in printed
    (tick,) = [rule for rule in events.list_rules()["Rules"] if rule.get("ScheduleExpression")]
    assert tick["State"] == "ENABLED"
    assert sqs.receive_message(QueueUrl=url).get("Messages", []) == []
    system = System(cloud)
    system.submit("after")
    system.wait_state("after", "completed")


def test_the_first_three_commands_show_alarms_the_queue_and_errors(cloud: LocalCloud) -> None:
    cloudwatch, logs = cloud.client("cloudwatch"), cloud.client("logs")
    (alarm,) = (
        one["AlarmName"] for one in cloudwatch.describe_alarms()["MetricAlarms"] if "NoCycleAlarm" in one["AlarmName"]
    )
    cloudwatch.set_alarm_state(AlarmName=alarm, StateValue="ALARM", StateReason="no cycle has finished")
    group = f"/aws/lambda/{deployment.STACK}"
    logs.create_log_stream(logGroupName=group, logStreamName="typed")
    now = int(time.time() * 1000)
    lines = [{"level": level, "message": f"a line of {level}"} for level in ("INFO", "ERROR")]
    events = [{"timestamp": now, "message": json.dumps(line)} for line in lines]
    logs.put_log_events(logGroupName=group, logStreamName="typed", logEvents=events)
    printed = types(cloud, CARD.replace("STACK=training-job-queue", f"STACK={deployment.STACK}"))
    assert f"{alarm}\tno cycle has finished" in printed
    assert "default" in printed  # the pool
    assert "a line of ERROR" in printed  # the local cloud ignores patterns of JSON fields: it prints other lines, too


def test_the_key_of_a_topic_is_shown_and_removed(cloud: LocalCloud) -> None:
    sns = cloud.client("sns")
    plain = sns.create_topic(Name="plain")["TopicArn"]
    silent = sns.create_topic(Name="silent", Attributes={"KmsMasterKeyId": "alias/aws/sns"})["TopicArn"]
    assert types(cloud, f"TOPIC={plain}", LOOK).strip() == "None"
    assert types(cloud, f"TOPIC={silent}", LOOK).strip() == "alias/aws/sns"
    assert types(cloud, f"TOPIC={silent}", REMOVE, LOOK).strip() in ("", "None")
