"""The stage of an attempt (SageMaker's SecondaryStatus): from events, from SageMaker's list, and from nobody else."""

from typing import Any

import pytest

from job_queue.adapters.items import job_from, job_item
from job_queue.domain.job import Job
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

ATTEMPT = "job1-qstamp-1"


def a_queue() -> Harness:
    queue = Harness(slots=2)
    queue.submit("job1")
    return queue


def reached(queue: Harness, stage: str, attempt: str = ATTEMPT) -> dict[str, Any]:
    """SageMaker reports another stage in some seconds; returns the event, which is not delivered yet."""
    queue.now += 10
    queue.training.progress(attempt, stage)
    return queue.training.event(attempt)


def deliver(queue: Harness, detail: dict[str, Any]) -> None:
    queue.controller.training_job_changed(detail, queue.invocation())


def stage(queue: Harness, name: str = "job1") -> str | None:
    job = queue.job(name)
    rows = [row for row in queue.tables.rows.values() if row.get("position") == name and row.get("line") == "active"]
    assert [job_from(row).stage for row in rows] == [job.stage] * len(rows), "both rows have the same stage"
    return job.stage


def test_an_attempt_starts_and_events_tell_how_far_it_is() -> None:
    queue = a_queue()
    assert stage(queue) == "Starting"
    for reported in ("Pending", "Downloading", "DownloadingTrainingImage", "Training", "Uploading"):
        deliver(queue, reached(queue, reported))
        assert stage(queue) == reported
        assert queue.job("job1").stage_at == round(queue.now * 1000)
    assert queue.state("job1") == "running"
    queue.end(ATTEMPT)
    assert (queue.state("job1"), stage(queue)) == ("completed", None)


def test_a_spot_interruption_turns_the_stage_back() -> None:
    queue = a_queue()
    for reported in ("Training", "Interrupted", "Downloading", "Training"):
        deliver(queue, reached(queue, reported))
        assert stage(queue) == reported


def test_late_and_repeated_events_do_not_turn_the_stage_back() -> None:
    queue = a_queue()
    downloading, training = reached(queue, "Downloading"), reached(queue, "Training")
    deliver(queue, training)
    version = queue.job("job1").version
    for late in (downloading, training, {**downloading, "LastModifiedTime": training["LastModifiedTime"]}):
        deliver(queue, late)
        assert stage(queue) == "Training"
    assert queue.job("job1").version == version, "nothing is written"


@pytest.mark.parametrize(
    "status", ["Stopping", "Completed", "Updating", "MaxRuntimeExceeded", "", "x" * 100, "training"]
)
def test_other_statuses_are_no_stages(status: str) -> None:
    queue = a_queue()
    deliver(queue, {**reached(queue, "Downloading"), "SecondaryStatus": status, "TrainingJobStatus": "InProgress"})
    assert stage(queue) == "Starting"


@pytest.mark.parametrize(
    "change", ["another name", "no proof", "a forged proof", "another submission", "no time", "bad time"]
)
def test_an_event_that_does_not_prove_itself_changes_no_stage(change: str) -> None:
    queue = a_queue()
    event = reached(queue, "Training")
    tags = event["Tags"]
    proof = next(key for key in tags if key.endswith("proof"))
    submission = next(key for key in tags if tags[key] == queue.job("job1").submission)
    deliver(
        queue,
        {
            "another name": {**event, "TrainingJobName": "job1-qstamp-2"},
            "no proof": {**event, "Tags": {key: text for key, text in tags.items() if key != proof}},
            "a forged proof": {**event, "Tags": {**tags, proof: "1 0123456789abcdef"}},
            "another submission": {**event, "Tags": {**tags, submission: "0" * 8}},
            "no time": {key: it for key, it in event.items() if key != "LastModifiedTime"},
            "bad time": {**event, "LastModifiedTime": "yesterday"},
        }[change],
    )
    assert stage(queue) == "Starting"
    deliver(queue, event)
    assert stage(queue) == "Training", "the event itself is believed"


def test_a_training_job_that_has_taken_the_free_name_changes_no_stage() -> None:
    queue = a_queue()
    event = reached(queue, "Training")
    queue.now += 3600
    deliver(queue, {**event, "CreationTime": int(queue.now * 1000), "LastModifiedTime": int(queue.now * 1000) + 5})
    assert stage(queue) == "Starting"


def test_an_event_of_the_former_attempt_changes_nothing_of_the_next() -> None:
    queue = a_queue()
    late = reached(queue, "Uploading")
    queue.submit("urgent", 9, instances=2)
    queue.end(ATTEMPT, "Stopped")
    queue.end("urgent-qstamp-1")
    assert queue.job("job1").launched == "job1-qstamp-2"
    deliver(queue, late)
    assert stage(queue) == "Starting"


def test_an_event_before_the_answer_to_the_launch_is_kept() -> None:
    queue = Harness(slots=2)
    queue.training.script = ["lost"]
    queue.submit("job1")
    assert queue.state("job1") == "starting"
    deliver(queue, reached(queue, "Downloading"))
    queue.now += 60
    queue.tick()
    assert (queue.state("job1"), stage(queue)) == ("running", "Downloading")


def test_lost_events_are_made_up_for_by_the_list_without_another_call() -> None:
    queue = a_queue()
    reached(queue, "Training")
    queue.training.calls.clear()
    queue.tick()
    assert stage(queue) == "Training"
    assert {kind for kind, _ in queue.training.calls} == {"list"}
    queue.training.calls.clear()
    version = queue.job("job1").version
    queue.tick()
    assert queue.job("job1").version == version, "nothing is written again"


def test_a_stopping_job_has_no_further_stages() -> None:
    queue = a_queue()
    queue.cancel("job1")
    assert queue.state("job1") == "stopping"
    deliver(queue, {**reached(queue, "Uploading"), "TrainingJobStatus": "InProgress"})
    assert stage(queue) == "Starting"


def test_the_api_tells_the_stage_of_a_running_job_alone() -> None:
    api = Api(slots=1)
    api.add("job1", 1)
    api.add("job2", 1)
    started = api.call("GET", "/jobs/job1")[1]
    assert (started["secondaryStatus"], started["secondaryStatusSince"]) == ("Starting", started["started"])
    deliver(api.queue, reached(api.queue, "Downloading"))
    for path in ("/jobs/job1", "/queue", "/jobs"):
        _, answer = api.call("GET", path)
        jobs = [answer] if "job" in answer else [*answer.get("jobs", ()), *answer.get("active", ())]
        (job,) = [it for it in jobs if it["job"] == "job1"]
        assert job["secondaryStatus"] == "Downloading"
        assert job["secondaryStatusSince"] > job["started"]
    assert api.call("GET", "/jobs/job2")[1]["secondaryStatus"] is None
    api.call("DELETE", "/jobs/job1")
    assert api.call("GET", "/jobs/job1")[1]["secondaryStatus"] is None


def test_rows_of_earlier_versions_are_read_and_learn_their_stage() -> None:
    queue = a_queue()
    item = job_item(queue.job("job1"))
    assert "stageAt" not in item
    del item["stage"]
    old: Job = job_from(item)
    assert (old.stage, old.stage_at) == (None, 0)
    for row in queue.tables.rows.values():
        if row.get("jobName") == "job1":
            row.pop("stage", None)
    assert stage(queue) is None
    reached(queue, "Starting")
    queue.tick()
    assert stage(queue) == "Starting"
