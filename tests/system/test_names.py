"""The training API, logs and metrics of a job that is preempted in the middle, as its user sees them: one training job.

Plain botocore clients on a local cloud; beside them, clients that go past the hooks see what SageMaker has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from job_queue.domain.names import apply_qstamp
from local_cloud.aws.stack import LocalCloud
from sagemaker_queue import boto_session
from sagemaker_queue.integrations.boto.lookup import attempt_name
from tests.system.conftest import FOREVER, System
from tests.waiting import PATIENCE

GROUP = "/aws/sagemaker/TrainingJobs"
NAMESPACE = GROUP
LONG = "a-job-whose-name-leaves-no-room-for-what-the-queue-adds-to-it-1"
# The first attempt runs until it is stopped, the second one ends by itself.
RESUMES = """
import os, pathlib, time
been = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "been")
again = been.exists()
been.write_text("here")
print("this is", os.environ["TRAINING_JOB_NAME"], flush=True)
while not again:
    time.sleep(0.1)
"""
BOTH = ["this is named-qstamp-1", "this is named-qstamp-2"]


@dataclass
class Seen:
    """What the user's clients showed on the way, and the clients."""

    system: System
    clients: dict[str, Any]
    waiting: dict[str, Any]
    listed_waiting: list[dict[str, Any]]
    found_waiting: list[dict[str, Any]]


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    """A job that ran, made room, waited, and came to its end, beside one that nobody queued."""
    with LocalCloud(slots=2) as cloud:
        system = System(cloud)
        session = boto_session(cloud.boto_session(), queue=system.queue)
        create: Any = session.client
        clients = {name: create(name) for name in ("sagemaker", "logs", "cloudwatch")}
        sagemaker = clients["sagemaker"]
        request = system.request("named", RESUMES, instances=2)
        sagemaker.create_training_job(**{**request, "Tags": [*request["Tags"], {"Key": "team", "Value": "vision"}]})
        system.wait_state("named", "running")
        system.wait("the first line of both instances", lambda: system.log("named-qstamp-1").count(BOTH[0]) == 2)
        external = system.request("external", "")
        system.sagemaker.create_training_job(
            **{**external, "ResourceConfig": {**external["ResourceConfig"], "InstanceType": "ml.m5.large"}}
        )
        system.run("urgent", FOREVER, priority=5, instances=2)
        system.wait_state("named", "preempted")
        waiting = sagemaker.describe_training_job(TrainingJobName="named")
        listed = sagemaker.list_training_jobs(SortBy="Name", StatusEquals="InProgress")["TrainingJobSummaries"]
        found = by_names(sagemaker, "named", "urgent", "nobody")
        sagemaker.stop_training_job(TrainingJobName="urgent")
        waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
        waiter.wait(TrainingJobName="named", WaiterConfig={"Delay": 1, "MaxAttempts": round(PATIENCE)})
        system.wait_state("named", "completed")
        system.wait_state("urgent", "stopped")
        by_hand = {"TrainingJobName": "external", "WaiterConfig": {"Delay": 1, "MaxAttempts": round(PATIENCE)}}
        system.sagemaker.get_waiter("training_job_completed_or_stopped").wait(**by_hand)
        yield Seen(system, clients, waiting, listed, found)


def by_names(sagemaker: Any, *names: str) -> list[dict[str, Any]]:
    """As syne-tune does it."""
    filters = [{"Name": "TrainingJobName", "Operator": "Equals", "Value": name} for name in names]
    expression = {"Filters": filters, "Operator": "Or"}
    answer = sagemaker.search(Resource="TrainingJob", MaxResults=20, SearchExpression=expression)
    return sorted((it["TrainingJob"] for it in answer["Results"]), key=lambda job: str(job["TrainingJobName"]))


@pytest.mark.thorough
def test_a_job_that_waits_is_listed_and_found_as_it_is_described(seen: Seen) -> None:
    assert (seen.waiting["TrainingJobStatus"], seen.waiting["SecondaryStatus"]) == ("InProgress", "Pending")
    listed = [(job["TrainingJobName"], job["TrainingJobStatus"]) for job in seen.listed_waiting]
    assert listed == [("named", "InProgress"), ("urgent", "InProgress")]
    assert listed == [(job["TrainingJobName"], job["TrainingJobStatus"]) for job in seen.found_waiting]
    named = seen.found_waiting[0]
    assert named["HyperParameters" if "HyperParameters" in named else "Environment"] is not None
    assert {"Key": "team", "Value": "vision"} in named["Tags"]
    assert named["CreationTime"] == seen.waiting["CreationTime"] == seen.listed_waiting[0]["CreationTime"]


def test_lists_have_each_job_once_and_what_nobody_queued(seen: Seen) -> None:
    pages = seen.clients["sagemaker"].get_paginator("list_training_jobs").paginate(PaginationConfig={"PageSize": 1})
    listed = [job for page in pages for job in page["TrainingJobSummaries"]]
    assert {job["TrainingJobName"]: job["TrainingJobStatus"] for job in listed} == {
        "named": "Completed",
        "urgent": "Stopped",
        "external": "Completed",
    }
    assert len(listed) == 3
    truth = {job["TrainingJobName"] for job in seen.system.attempts()}
    assert truth == {"named-qstamp-1", "named-qstamp-2", "urgent-qstamp-1", "external"}


@pytest.mark.parametrize(
    ("name", "value", "names"),
    [
        ("Tags.team", "vision", ["named"]),
        ("TrainingJobStatus", "Stopped", ["urgent"]),  # and not named, of which an attempt was
        ("TrainingJobStatus", "Completed", ["external", "named"]),
    ],
)
def test_searches_find_jobs_by_what_they_are(seen: Seen, name: str, value: str, names: list[str]) -> None:
    expression = {"Filters": [{"Name": name, "Operator": "Equals", "Value": value}]}
    pages = (
        seen.clients["sagemaker"]
        .get_paginator("search")
        .paginate(Resource="TrainingJob", SearchExpression=expression, PaginationConfig={"PageSize": 1})
    )
    found = [it["TrainingJob"]["TrainingJobName"] for page in pages for it in page["Results"]]
    assert sorted(found) == names


def test_the_description_tells_of_both_attempts(seen: Seen) -> None:
    described = seen.clients["sagemaker"].describe_training_job(TrainingJobName="named")
    first, second = (
        seen.system.sagemaker.describe_training_job(TrainingJobName=f"named-qstamp-{number}") for number in (1, 2)
    )
    assert described["TrainingStartTime"] == first["TrainingStartTime"]
    assert described["TrainingEndTime"] == second["TrainingEndTime"]
    for measure in ("TrainingTimeInSeconds", "BillableTimeInSeconds"):
        assert described[measure] == first[measure] + second[measure]
    assert described["ModelArtifacts"] == second["ModelArtifacts"]
    story = [transition["Status"] for transition in described["SecondaryStatusTransitions"]]
    assert story.count("Training") == 2
    between = story[story.index("Training") : len(story) - story[::-1].index("Training")]
    assert "Interrupted" in between
    assert (story[0], story[-1]) == ("Pending", "Completed")
    assert set(story).isdisjoint({"Stopped", "Stopping", "Failed"})
    starts = [transition["StartTime"] for transition in described["SecondaryStatusTransitions"]]
    assert starts == sorted(starts)
    assert described["LastModifiedTime"] >= seen.waiting["LastModifiedTime"]
    assert described["CreationTime"] == seen.waiting["CreationTime"]


@pytest.mark.parametrize("chosen", [{"logStreamNamePrefix": "named"}, {"logStreamNamePrefix": "named/algo-1"}])
def test_logs_are_filtered_over_both_attempts(seen: Seen, chosen: dict[str, Any]) -> None:
    page = seen.clients["logs"].filter_log_events(logGroupName=GROUP, filterPattern='"this is"', **chosen)
    messages = [event["message"] for event in page["events"] if "/algo-1-" in event["logStreamName"]]
    assert messages == BOTH
    assert {event["logStreamName"].partition("/")[0] for event in page["events"]} == {"named"}


def test_a_query_of_insights_finds_both_attempts(seen: Seen) -> None:
    logs = seen.clients["logs"]
    now = datetime.now(UTC)
    query = logs.start_query(
        logGroupName=GROUP,
        startTime=int((now - timedelta(days=1)).timestamp()),
        endTime=int((now + timedelta(days=1)).timestamp()),
        queryString="fields @message | filter @logStream like /^named\\/algo-1/ | filter @message like /this is/"
        " | sort @timestamp asc",
    )["queryId"]
    rows = logs.get_query_results(queryId=query)["results"]
    assert [field["value"] for row in rows for field in row if field["field"] == "@message"] == BOTH


def test_metrics_are_those_of_both_attempts(seen: Seen) -> None:
    begin = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    for number in (1, 2):
        data = {
            "MetricName": "loss",
            "Dimensions": [{"Name": "TrainingJobName", "Value": f"named-qstamp-{number}"}],
            "Value": 1 / number,
            "Timestamp": begin + timedelta(minutes=10 * number),
        }
        seen.system.cloud.client("cloudwatch").put_metric_data(Namespace=NAMESPACE, MetricData=[data])
    metric = {
        "Namespace": NAMESPACE,
        "MetricName": "loss",
        "Dimensions": [{"Name": "TrainingJobName", "Value": "named"}],
    }
    within = {"StartTime": begin, "EndTime": begin + timedelta(hours=1)}
    cloudwatch = seen.clients["cloudwatch"]
    statistics = cloudwatch.get_metric_statistics(**metric, **within, Period=60, Statistics=["Average"])
    assert [point["Average"] for point in statistics["Datapoints"]] == [1, 0.5]
    query = {"Id": "loss", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Average"}}
    data = cloudwatch.get_metric_data(MetricDataQueries=[query], ScanBy="TimestampAscending", **within)
    assert [(it["Id"], it["Values"]) for it in data["MetricDataResults"]] == [("loss", [1, 0.5])]


def test_who_wants_the_truth_sees_it(seen: Seen) -> None:
    session = boto_session(seen.system.cloud.boto_session(), queue=seen.system.queue, hooks="attempts")
    create: Any = session.client
    sagemaker = create("sagemaker")
    listed = {job["TrainingJobName"] for job in sagemaker.list_training_jobs()["TrainingJobSummaries"]}
    assert listed == {"named-qstamp-1", "named-qstamp-2", "urgent-qstamp-1", "external"}
    with pytest.raises(ClientError, match="not found"):
        sagemaker.describe_training_job(TrainingJobName="named")
    with pytest.raises(ClientError, match="in status Completed"):  # it is the queue that is asked to stop it
        sagemaker.stop_training_job(TrainingJobName="named")


@pytest.mark.parametrize(("name", "number"), [("job1", 1), (LONG, 1), (LONG, 123), ("a" * 54, 1), ("a" * 55, 1)])
def test_the_client_knows_attempts_by_the_names_that_the_queue_gives_them(name: str, number: int) -> None:
    assert attempt_name(name, number) == apply_qstamp(name, number)
