"""Probes of training jobs: quotas, tags in events, patterns of events, and the end of a pending time."""

import json
import re
import time
from datetime import datetime
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from tests.acceptance.account import ENDED
from tests.acceptance.plan import PROBED_INSTANCES
from tests.acceptance.probes.finding import Finding, Lab, Skipped, code

MOST_TAGS = 50
LAG_PATIENCE = 600  # seconds: for so long the queue takes a refusal for a late quota
LAG_LOOK = 5  # seconds between two tries
MOST_LISTED = 100  # stopped training jobs that are looked through
REFUSED = re.compile(r"limit '([^']+)' is (\d+) Instances?, with current utilization of (\d+) Instances?")
ASKED_IN_VAIN = 1000  # instances that no ordinary quota has
PATTERN = {
    "source": ["aws.s3"],
    "detail-type": ["Object Created"],
    "detail": {
        "object": {"key": [{"wildcard": "carriers/*/out/*/ended.json"}, {"wildcard": "carriers/*/out/agent.json"}]}
    },
}
KEYS = {
    "carriers/c1/out/m1/ended.json": True,
    "carriers/c1/out/agent.json": True,
    "carriers/c1/in/m1/order.json": False,
    "other/c1/out/m1/ended.json": False,
}


def wildcard_pattern(lab: Lab) -> Finding:
    """Does EventBridge accept and match the wildcard pattern of the reports of members?"""
    events, name, pattern = lab.client("events"), lab.name("wildcard"), json.dumps(PATTERN)
    matches = {
        key: events.test_event_pattern(EventPattern=pattern, Event=_object_created(key))["Result"] for key in KEYS
    }
    try:
        rule = partial(events.put_rule, Name=name, EventPattern=pattern, State="DISABLED")
        lab.make(f"rule {name}", rule, events.delete_rule, Name=name)
        accepted = "accepted in a rule"
    except ClientError as error:
        accepted = f"refused in a rule: {error}"
    right = [key for key, expected in KEYS.items() if matches[key] is expected]
    holds = len(right) == len(KEYS) and accepted == "accepted in a rule"
    return Finding(
        f"{len(right)} of {len(KEYS)} keys matched as expected; {accepted}",
        "all keys match as expected, and a rule accepts the pattern",
        "none" if holds else "WorkBucket='' (share no instances), or a prefix pattern carriers/ in MemberReportRule",
        holds,
    )


def fifty_tags(lab: Lab) -> Finding:
    """Does the event of a training job have all of its 50 tags?"""
    queue_url = _events_of(lab, lab.name("tags"))
    request = lab.account.request("tags", "import time; time.sleep(600)")
    given = {it["Key"]: it["Value"] for it in request["Tags"]}
    given |= {f"probe-{number}": "v" * 256 for number in range(MOST_TAGS - len(given))}
    request["Tags"] = [{"Key": key, "Value": value} for key, value in given.items()]
    lab.account.external.append(request["TrainingJobName"])
    lab.account.sagemaker.create_training_job(**request)
    lab.account.sagemaker.stop_training_job(TrainingJobName=request["TrainingJobName"])
    sqs, deadline = lab.client("sqs"), time.monotonic() + lab.account.settings.patience_seconds
    while time.monotonic() < deadline:
        for message in sqs.receive_message(QueueUrl=queue_url, WaitTimeSeconds=5).get("Messages", ()):
            detail = json.loads(message["Body"])["detail"]
            seen = detail.get("Tags")
            holds = seen == given
            return Finding(
                f"{len(seen or {})} tags in an event of {len(message['Body'])} characters",
                f"all {MOST_TAGS} tags, so an end needs no further call",
                "none"
                if holds
                else "CreateRate: unchanged; each end costs one DescribeTrainingJob and one ListTags more",
                holds,
            )
    raise Skipped(f"no event within {lab.account.settings.patience_seconds:.0f} s")


def pending_time(lab: Lab) -> Finding:
    """How does a training job end that has waited for its MaxPendingTimeInSeconds?"""
    sagemaker = lab.account.sagemaker
    listed = sagemaker.list_training_jobs(
        StatusEquals="Stopped", SortBy="CreationTime", SortOrder="Descending", MaxResults=MOST_LISTED
    )["TrainingJobSummaries"]
    for summary in listed:
        job = sagemaker.describe_training_job(TrainingJobName=summary["TrainingJobName"])
        limit = job["StoppingCondition"].get("MaxPendingTimeInSeconds")
        if limit is None or "TrainingStartTime" in job:
            continue
        waited = (_time(job, "LastModifiedTime") - _time(job, "CreationTime")).total_seconds()
        if waited < limit - LAG_LOOK:
            continue  # stopped by a caller
        holds = waited >= limit and job["SecondaryStatus"] == "Stopped"
        return Finding(
            f"{summary['TrainingJobName']}: {job['SecondaryStatus']} after {waited:.0f} of {limit} s",
            "Stopped, not before the limit is over, without TrainingStartTime",
            "none" if holds else "job_queue/adapters/sagemaker.py, _starved: take this status for lack of instances",
            holds,
        )
    raise Skipped(
        f"none of the newest {len(listed)} stopped training jobs has waited for so long, and the shortest limit is "
        "30 minutes. Run the probes again after a job has waited in vain"
    )


def quota_lag(lab: Lab) -> Finding:
    """How long after the end of a training job does its quota come back?"""
    sagemaker, quota = lab.account.sagemaker, _quota(lab)
    filler = lab.account.start_past_the_queue("fill", "print('it runs')", instances=quota)
    lab.account.wait(f"{filler} to end", lambda: lab.account.status(filler) in ENDED)
    ended = _time(sagemaker.describe_training_job(TrainingJobName=filler), "TrainingEndTime", "LastModifiedTime")
    began, refusals = time.monotonic(), 0
    late = (datetime.now(ended.tzinfo) - ended).total_seconds()  # the end is seen some seconds after it
    while time.monotonic() - began < LAG_PATIENCE:
        if _accepted(lab, f"again{refusals}", quota):
            lag = max(0.0, late + time.monotonic() - began) if refusals else 0.0
            return Finding(
                f"{lag:.0f} s, {refusals} refusals, with a quota of {quota} {lab.account.settings.instance_type}",
                f"at most {LAG_PATIENCE} s, in which refusals are no failures of the pool",
                "none",
                True,
            )
        refusals += 1
        time.sleep(LAG_LOOK)
    return Finding(
        f"more than {LAG_PATIENCE} s ({refusals} refusals)",
        f"at most {LAG_PATIENCE} s, in which refusals are no failures of the pool",
        "the pools' capacity in the policy: less than the quota, by the instances that end within the lag",
        False,
    )


def _quota(lab: Lab) -> int:
    """Return the quota of the instance type, once none of it is in use: the training jobs before may still count."""
    kind, deadline = lab.account.settings.instance_type, time.monotonic() + LAG_PATIENCE
    quota, used = _limit_and_use(lab, kind)
    while used and time.monotonic() < deadline:
        time.sleep(LAG_LOOK)
        quota, used = _limit_and_use(lab, kind)
    if used or not 1 <= quota <= PROBED_INSTANCES:
        raise Skipped(
            f"the quota of {kind} is {quota}, and {used} are in use; it takes a quota of 1 to {PROBED_INSTANCES}, with "
            "none in use. Name another type by --instance-type"
        )
    return quota


def _limit_and_use(lab: Lab, kind: str) -> tuple[int, int]:
    """Read the quota and its use from a refusal, which starts nothing."""
    request = lab.account.request("quota", "pass", instances=ASKED_IN_VAIN)
    name = request["TrainingJobName"]
    lab.account.external.append(name)
    try:
        lab.account.sagemaker.create_training_job(**request)
    except ClientError as error:
        lab.account.external.remove(name)
        found = REFUSED.search(str(error))
        if not found or found[1] != f"{kind} for training job usage":
            raise Skipped(f"the refusal does not name the quota of {kind}: {error}") from error
        return int(found[2]), int(found[3])
    lab.account.sagemaker.stop_training_job(TrainingJobName=name)
    raise Skipped(f"{kind} has no quota below {ASKED_IN_VAIN}: name another type by --instance-type")


def _accepted(lab: Lab, what: str, instances: int) -> bool:
    """Try a launch with the whole quota; stop the training job at once if it was accepted."""
    try:
        name = lab.account.start_past_the_queue(what, "print('it runs')", instances=instances)
    except ClientError as error:
        lab.account.external.pop()
        if code(error) != "ResourceLimitExceeded":
            raise
        return False
    lab.account.sagemaker.stop_training_job(TrainingJobName=name)
    return True


def _events_of(lab: Lab, name: str) -> str:
    """Send the end of the training job `name` to an SQS queue of the probe; return the queue's address."""
    sqs, events = lab.client("sqs"), lab.client("events")

    def delete_queue() -> None:
        sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"])

    url = lab.make(f"queue {name}", partial(sqs.create_queue, QueueName=name), delete_queue)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    detail = {"TrainingJobName": [name], "TrainingJobStatus": ["Stopped", "Failed", "Completed"]}
    pattern = {"source": ["aws.sagemaker"], "detail-type": ["SageMaker Training Job State Change"], "detail": detail}
    put_rule = partial(events.put_rule, Name=name, EventPattern=json.dumps(pattern))
    rule = lab.make(f"rule {name}", put_rule, events.delete_rule, Name=name)["RuleArn"]
    allow = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage"}
    only = {"ArnEquals": {"aws:SourceArn": rule}}
    policy = {"Version": "2012-10-17", "Statement": [{**allow, "Resource": arn, "Condition": only}]}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})
    put_target = partial(events.put_targets, Rule=name, Targets=[{"Id": "probe", "Arn": arn}])
    lab.make(f"target of {name}", put_target, events.remove_targets, Rule=name, Ids=["probe"])
    return str(url)


def _object_created(key: str) -> str:
    detail = {"bucket": {"name": "probe"}, "object": {"key": key}}
    return json.dumps(
        {
            "id": "1",
            "version": "0",
            "account": "111122223333",
            "region": "us-east-1",
            "time": "2026-11-25T00:00:00Z",
            "source": "aws.s3",
            "resources": [],
            "detail-type": "Object Created",
            "detail": detail,
        }
    )


def _time(job: dict[str, Any], *names: str) -> datetime:
    found: datetime = next(job[name] for name in names if name in job)
    return found
