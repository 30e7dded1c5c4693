"""The probes on a local cloud: what they measure, what they print, and that they leave nothing behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from local_cloud.aws import deployment
from local_cloud.aws.stack import LocalCloud
from local_cloud.commands.up_and_exec import without_account
from local_cloud.sagemaker.account.options import Account, limit_exceeded
from local_cloud.sagemaker.events import RuleTargets
from tests.acceptance.plan import Cost
from tests.acceptance.probes import PROBES
from tests.waiting import until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operate/measure-an-account.md").read_text()
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1"  # else the SDK is asked, for seconds
TOPIC = "arn:aws:sns:us-east-1:000000000000:operations"
QUOTA = "ml.m5.large for training job usage"
BUCKET = "sagemaker-us-east-1-000000000000"


class LateQuota:
    """Refuses a further launch with the whole quota a few times, as SageMaker does while a quota comes back."""

    def __init__(self) -> None:
        self.refusals = 0

    def __call__(self, phase: str, operation: str, request: Mapping[str, Any]) -> None:
        is_launch = (phase, operation) == ("before", "CreateTrainingJob")
        if is_launch and "-again" in request["TrainingJobName"] and self.refusals:
            self.refusals -= 1
            raise limit_exceeded(QUOTA, 2, 2, 2)


class Events:
    """SageMaker's events, which can be lost: then a probe that waits for one waits for long."""

    def __init__(self) -> None:
        self.deliver: Callable[[dict[str, Any]], None] = lambda event: None
        self.are_lost = False

    def __call__(self, event: dict[str, Any]) -> None:
        if not self.are_lost:
            self.deliver(event)


LATE, EVENTS = LateQuota(), Events()


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    account, topic_arn = Account(quotas={QUOTA: 2}), {"AlarmTopicArn": TOPIC}
    with LocalCloud(slots=2, account=account, intercept=LATE, deliver=EVENTS, parameters=topic_arn) as cloud:
        EVENTS.deliver = RuleTargets(cloud.client("events"), cloud.client("lambda"), cloud.client("sqs")).deliver
        topic = cloud.client("sns").create_topic(Name="operations", Attributes={"KmsMasterKeyId": "alias/aws/sns"})
        assert topic["TopicArn"] == TOPIC
        yield cloud


def probing(cloud: LocalCloud, *options: str) -> subprocess.Popen[str]:
    stack = ["--stack", deployment.STACK, "--url", cloud.queue_url, "--image", IMAGE, "--yes", "--probe"]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance", *stack, *options],
        cwd=ROOT, env={**without_account(os.environ), **cloud.environment(), **cloud.mark},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def assert_nothing_is_left(cloud: LocalCloud) -> None:
    assert not [it for it in cloud.client("iam").list_roles()["Roles"] if it["RoleName"].startswith("acc-")]
    assert not [it for it in cloud.client("events").list_rules()["Rules"] if it["Name"].startswith("acc-")]
    assert not [it for it in cloud.client("sqs").list_queues().get("QueueUrls", []) if "/acc-" in it]
    jobs = cloud.client("sagemaker").list_training_jobs(MaxResults=100)["TrainingJobSummaries"]
    assert {it["TrainingJobStatus"] for it in jobs} <= {"Completed", "Failed", "Stopped"}
    assert "Contents" not in cloud.client("s3").list_objects_v2(Bucket=BUCKET)


def normal(text: str) -> list[str]:
    """Return the lines of a run without what differs from run to run."""
    text = re.sub(r"https?://[^ ]+?/prod(/_user_request_)?", "URL", text)
    return [re.sub(r"\d+", "N", line).strip() for line in text.splitlines() if line.strip()]


@pytest.mark.thorough
def test_a_run_measures_prints_the_settings_and_leaves_nothing(cloud: LocalCloud) -> None:
    LATE.refusals = 2
    with probing(cloud, "--price", "0.12") as run:
        out, err = run.communicate()
    assert run.returncode == 1, "the topic's key is wrong: " + err
    (sample,) = re.findall(r"```text\n(The queue at .*?)```", PAGE, re.DOTALL)
    assert normal(out) == normal(sample), out
    assert "2 refusals" in out
    assert "403 (Forbidden)" in out
    assert "50 tags" in out
    assert f"--topic-arn {TOPIC} --attribute-name KmsMasterKeyId" in out.partition("Change:")[2]
    assert_nothing_is_left(cloud)


@pytest.mark.thorough
def test_ctrl_c_removes_what_the_probes_made(cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EVENTS, "are_lost", True)  # the probe that has the SQS queue waits for an event
    with probing(cloud) as run:
        sqs = cloud.client("sqs")
        until(lambda: run.poll() is not None or any("/acc-" in it for it in sqs.list_queues().get("QueueUrls", [])))
        run.send_signal(signal.SIGINT)
        _, err = run.communicate()
    assert run.returncode == 130, err
    assert_nothing_is_left(cloud)


def test_the_page_names_each_probe() -> None:
    for probe in PROBES:
        assert probe.__doc__
        assert probe.__doc__ in PAGE


def test_the_price_of_the_probes_is_told() -> None:
    assert Cost.of_probes().sentence("ml.m5.large", 0.12) in PAGE
