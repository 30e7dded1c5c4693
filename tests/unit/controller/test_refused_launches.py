"""Refusals are read: a pool backs off only where it is the pool that is out, and nobody else waits for one job."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from job_queue.adapters.sagemaker import LaunchResult
from job_queue.domain.backoff import LASTING_SECONDS
from job_queue.services.outlook import OutlookService
from tests.fake_sagemaker import refusal
from tests.jobs import P5
from tests.queue_harness import Harness
from tests.unit.queue_api import Api

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p5"
EXPIRED = (LaunchResult.REFUSED, "ValidationException: The training plan arn:... has expired.")
NO_DATA = (LaunchResult.REFUSED, 'ValidationException: No S3 objects found under S3 URL "s3://b/x".')

SPOT: dict[str, Any] = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
}


def a_queue(**pool: Any) -> Harness:
    """Four slots in one pool."""
    queue = Harness()
    pools = [{"name": "p5", "instance_type": P5, "capacity": 4, **pool}]
    policy = {"pools": pools, "projects": [{"name": "default", "quota": {"p5": 4}}]}
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    return queue


class Account:
    """Lets a queue's SageMaker refuse requests that a test's rule finds."""

    def __init__(self, queue: Harness, result: LaunchResult, rule: Any) -> None:
        self.asked: list[str] = []
        create = queue.training.create

        def judged(request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
            self.asked.append(request["TrainingJobName"])
            return (result, refusal(result, request)) if rule(request) else create(request)

        queue.training.create = judged  # type: ignore[method-assign]


def message(queue: Harness, name: str) -> str:
    _, plan = queue.forecast()
    (hold,) = [hold for hold in plan.holds if hold.job == name]
    return hold.message


def test_a_spot_job_without_quota_delays_nobody_and_says_what_to_ask_for() -> None:
    queue = a_queue()
    account = Account(queue, LaunchResult.NO_QUOTA, lambda request: request.get("EnableManagedSpotTraining"))
    queue.submit("spot", 9, **SPOT)
    for number in range(4):
        queue.submit(f"good{number}", 1)
    assert queue.states() == {"spot": "pending", **{f"good{number}": "running" for number in range(4)}}
    assert queue.repository.metadata().capacity_backoffs == {}
    assert "No quota of this account allows the job" in message(queue, "spot")
    assert "Ask AWS for 1 or more" in message(queue, "spot")
    assert account.asked.count("spot-qstamp-1") == 1


def test_nobody_is_stopped_for_a_job_that_no_quota_allows() -> None:
    queue = a_queue(capacity=1)
    Account(queue, LaunchResult.NO_QUOTA, lambda request: request.get("EnableManagedSpotTraining"))
    queue.submit("spot", 9, **SPOT)
    queue.submit("good", 1)
    assert queue.state("good") == "running"
    for _ in range(60):
        queue.tick()
    assert queue.state("good") == "running"
    assert "no job is stopped for it" in message(queue, "spot") or "The next try is" in message(queue, "spot")


def test_a_job_that_is_refused_again_and_again_keeps_no_slots_for_itself() -> None:
    queue = a_queue()
    Account(queue, LaunchResult.NOT_NOW, lambda request: request["TrainingJobName"].startswith("gang"))
    queue.submit("gang", 9, 4)
    for number in range(4):
        queue.submit(f"small{number}", 1)
    for _ in range(90):  # longer than the setting patience
        queue.tick()
        for attempt in [name for name, job in queue.training.jobs.items() if job.status == "Stopping"]:
            queue.end(attempt, "Stopped")
    running = [name for name, state in queue.states().items() if state == "running"]
    assert len(running) == 4


def test_a_job_that_was_refused_makes_others_leave_again_once_it_was_accepted() -> None:
    queue = a_queue(capacity=1)
    queue.training.script = [LaunchResult.NO_QUOTA]
    queue.submit("job1", 5)
    queue.submit("low", 1)
    assert queue.states() == {"job1": "pending", "low": "running"}
    queue.end("low-qstamp-1")
    queue.tick(1000)
    assert (queue.state("job1"), queue.job("job1").refusals) == ("running", 0)


def test_a_quota_that_is_full_pauses_the_pool() -> None:
    queue = a_queue()
    queue.training.script = [LaunchResult.NO_CAPACITY]
    queue.submit("job1", 1)
    assert list(queue.repository.metadata().capacity_backoffs) == ["p5"]
    assert queue.job("job1").refusals == 0


def test_a_full_spot_quota_says_nothing_about_a_pool_on_demand() -> None:
    queue = a_queue()
    queue.training.script = [LaunchResult.NO_CAPACITY]
    queue.submit("spot", 1, **SPOT)
    assert queue.repository.metadata().capacity_backoffs == {}
    assert queue.job("spot").refusals == 3


def test_a_full_spot_quota_pauses_a_pool_of_spot_instances() -> None:
    queue = a_queue(spot=True)
    queue.training.script = [LaunchResult.NO_CAPACITY]
    queue.submit("job1", 1)
    assert list(queue.repository.metadata().capacity_backoffs) == ["p5"]


def test_what_the_pool_put_into_the_request_makes_the_pool_suspect_and_fails_no_job() -> None:
    queue = a_queue(training_plan=PLAN)
    queue.training.script = [EXPIRED]
    queue.submit("job1", 2)
    queue.submit("job2", 1)
    assert queue.states() == {"job1": "pending", "job2": "pending"}
    (backoff,) = queue.repository.metadata().capacity_backoffs.values()
    assert backoff.at_fault == EXPIRED[1]
    assert "Ask an admin to check this pool in the policy. ValidationException: The training plan" in message(
        queue, "job2"
    )
    queue.now = backoff.until
    queue.wake()
    assert queue.states() == {"job1": "pending", "job2": "running"}  # one is tried, and it is another job
    assert "If the job is right, ask an admin to check pool p5 in the policy. The next try is at" in message(
        queue, "job1"
    )
    queue.training.give_instances("job2-qstamp-1", queue.now + 1)
    queue.event("job2-qstamp-1")
    queue.now = queue.job("job1").backoff_until or queue.now
    queue.wake()
    assert queue.state("job1") == "running"


def test_a_job_whose_name_in_a_message_looks_like_a_pools_field_waits_alone() -> None:
    queue = a_queue(spot=True)
    gone = "ValidationException: The repository with name 'spotify-train' does not exist in the registry with id '1'."
    queue.training.script = [(LaunchResult.REFUSED, gone)]
    queue.submit("bad", 2)
    queue.submit("good", 1)
    assert queue.states() == {"bad": "pending", "good": "running"}
    assert queue.repository.metadata().capacity_backoffs == {}


def test_a_job_that_sagemaker_always_refuses_leaves_tries_of_its_pool_to_others() -> None:
    """Its message is like one about the pool, but the job itself is wrong."""
    queue = a_queue(capacity=1, spot=True)
    wrong = "ValidationException: Spot training is not supported for this algorithm."
    create = queue.training.create

    def judged(request: Mapping[str, Any]) -> tuple[LaunchResult, str]:
        bad = request["TrainingJobName"].startswith("bad")
        return (LaunchResult.REFUSED, wrong) if bad else create(request)

    queue.training.create = judged  # type: ignore[method-assign]
    queue.submit("bad", 9)
    queue.submit("good", 1)
    for _ in range(3):
        queue.tick()
    assert queue.states() == {"bad": "pending", "good": "running"}


def test_a_job_with_a_fault_of_its_own_in_such_a_pool_waits_alone() -> None:
    queue = a_queue(training_plan=PLAN)
    queue.training.script = [NO_DATA]
    queue.submit("job1", 2)
    queue.submit("job2", 1)
    assert queue.states() == {"job1": "pending", "job2": "running"}
    assert "No S3 objects found" in message(queue, "job1")


def test_a_wrong_request_fails_its_job_where_the_pool_put_nothing_in() -> None:
    queue = a_queue()
    queue.training.script = [NO_DATA]
    queue.submit("job1", 1)
    assert (queue.state("job1"), queue.job("job1").reason) == ("failed", NO_DATA[1])


def test_what_sagemaker_accepted_once_is_never_refused_for_good() -> None:
    queue = a_queue(capacity=1)
    queue.submit("low", 1)
    queue.submit("high", 5)
    queue.end("low-qstamp-1", "Stopped")
    queue.training.script = [NO_DATA]
    queue.end("high-qstamp-1")
    assert queue.state("low") == "preempted"
    assert queue.job("low").reason == NO_DATA[1]
    queue.tick()
    assert queue.state("low") == "running"


@pytest.mark.parametrize("result", [LaunchResult.NO_QUOTA, LaunchResult.NOT_NOW])
def test_refusals_count_once_half_an_hour_lies_between_the_first_and_the_last(result: LaunchResult) -> None:
    queue = a_queue()
    create, began = queue.training.create, queue.now
    Account(queue, result, lambda request: True)
    for number in range(8):  # whose backoffs differ
        queue.submit(f"job{number}", 1)
    while not lasting(queue):
        assert queue.now < began + 2 * LASTING_SECONDS
        queue.tick()
    assert queue.now >= began + LASTING_SECONDS
    queue.training.create = create  # type: ignore[method-assign]
    for _ in range(20):
        queue.tick()
    running = [queue.job(name) for name, state in queue.states().items() if state == "running"]
    assert [job.refused for job in running] == [None] * 4


def test_a_job_that_is_no_longer_tried_does_not_become_one_that_is_refused_for_long() -> None:
    queue = a_queue()
    Account(queue, LaunchResult.NOT_NOW, lambda request: True)
    queue.submit("job1", 1)
    assert Api(queue=queue).call("PATCH", "/jobs/job1", '{"held": true}')[0] == 200
    for _ in range(60):
        queue.tick()
    assert lasting(queue) == 0


def lasting(queue: Harness) -> int:
    cluster, _ = queue.forecast()
    return cluster.lasting_refusals(cluster.loads([]), queue.now)


def test_a_pool_that_is_refused_for_long_is_counted() -> None:
    queue = a_queue()
    Account(queue, LaunchResult.NO_CAPACITY, lambda request: True)
    queue.submit("job1", 1)
    for _ in range(200):
        queue.tick()
    cluster, _ = queue.forecast()
    assert cluster.lasting_refusals(cluster.loads([]), queue.now) == 1


def without_quota() -> tuple[Harness, Api]:
    """A queue in an account whose quota for the instance type of all jobs is 0."""
    queue = Harness()
    Account(queue, LaunchResult.NO_QUOTA, lambda request: True)
    queue.submit("none")
    return queue, Api(queue=queue)


def test_a_job_without_an_account_quota_never_says_that_it_starts_soon() -> None:
    """Between two tries it is planned to start, as SageMaker might take it: that is no start within a minute."""
    queue, api = without_quota()
    told = set()
    for second in range(1800):
        queue.now += 1
        if second % 60 == 0:
            queue.tick(0)
        _, job = api.call("GET", "/jobs/none")
        assert job["reason"]["code"] == "BACKOFF"
        assert "No quota of this account allows the job" in job["reason"]["message"]
        told.add(job["reason"]["message"].rpartition("The next try is ")[2].partition(" ")[0])
    assert told == {"at"}


def test_when_a_job_without_an_account_quota_starts_nobody_can_tell() -> None:
    queue, api = without_quota()
    queue.tick()
    OutlookService(queue.repository, queue.dry_run.cluster, queue.clock).refresh(lambda: True)
    _, job = api.call("GET", "/jobs/none")
    assert (job["expectedStart"]["start"], job["expectedStart"]["doubt"]) == (None, "REFUSED")
    assert "SageMaker refuses to launch it" in job["expectedStart"]["message"]


def test_a_job_whose_attempt_failed_says_what_happened_while_it_is_tried_again() -> None:
    queue = Harness()
    queue.submit("job1")
    api = Api(queue=queue)
    queue.end("job1-qstamp-1", "Failed", failure="InternalServerError: try again")
    queue.now += 3600
    _, job = api.call("GET", "/jobs/job1", advice="true")
    assert (job["state"], job["reason"]["code"]) == ("pending", "BACKOFF")
    assert job["reason"]["message"].startswith(
        "The queue tries again within a minute. The last try: InternalServerError"
    )
