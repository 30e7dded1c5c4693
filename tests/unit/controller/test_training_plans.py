"""Training plans: SageMaker is asked what they have and when, and what their end does to jobs."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from job_queue.adapters.sagemaker import SageMakerTraining, training_job
from job_queue.domain.errors import Forbidden, InvalidRequest, Unavailable
from job_queue.domain.fleet.training_plans import DESCRIBE_SECONDS, NOTICE_SECONDS, TAKEN_BACK_SECONDS, PlanPart
from job_queue.domain.job import iso
from job_queue.domain.policy_validation import parse_policy
from job_queue.scheduler import Plan
from tests.jobs import NOW, OWNER, P5, a_job, a_request
from tests.queue_harness import Harness
from tests.unit.controller.test_deadlines import tagged
from tests.unit.queue_api import Api

ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/winter"
OTHER = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
PLAN_OF_OTHERS = {"TrainingPlanArn": OTHER}
HOUR = 3600
P4 = "ml.p4d.24xlarge"


def a_plan(*, instances: int = 2, starts: float = -HOUR, ends: float = 10 * HOUR) -> PlanPart:
    """Times are seconds from NOW."""
    return PlanPart(instances, int(NOW + starts), int(NOW + ends))


def a_queue(*parts: PlanPart, **pool: Any) -> Harness:
    """A pool of a plan, and one on demand for another type."""
    queue = Harness()
    queue.training.plans = {ARN: parts}
    pools = [
        {"name": "winter", "instance_type": P5, "training_plan": ARN, **pool},
        {"name": "p4", "instance_type": P4, "capacity": 1},
    ]
    policy = {"pools": pools, "projects": [{"name": "default", "quota": {"winter": 9, "p4": 1}}]}
    queue.repository.apply_policy(json.dumps(policy), 0, "ada", queue.now)
    return queue


def held_back(queue: Harness) -> dict[str, str]:
    plan: Plan = queue.forecast()[1]
    return {hold.job: hold.reason.value for hold in plan.holds}


# --- how many, and when ------------------------------------------------------------------------------


def test_a_plan_pool_has_what_sagemaker_says() -> None:
    queue = a_queue(a_plan(instances=2))
    for name in ("a", "b", "c"):
        queue.submit(name)
    assert queue.states() == {"a": "running", "b": "running", "c": "pending"}
    assert queue.training.requests["a-qstamp-1"]["ResourceConfig"]["TrainingPlanArn"] == ARN


def test_nothing_starts_before_the_plan_does_and_then_it_does_by_itself() -> None:
    queue = a_queue(a_plan(starts=2 * HOUR))
    queue.submit("a")
    assert held_back(queue) == {"a": "OUTSIDE_TRAINING_PLAN"}
    queue.tick(HOUR)
    assert queue.state("a") == "pending"
    queue.tick(HOUR)
    assert queue.state("a") == "running"


def test_nothing_starts_in_the_last_half_hour() -> None:
    queue = a_queue(a_plan(ends=TAKEN_BACK_SECONDS))
    queue.submit("a")
    assert held_back(queue) == {"a": "OUTSIDE_TRAINING_PLAN"}


def test_a_plan_with_a_gap_has_nothing_in_it() -> None:
    queue = a_queue(a_plan(ends=HOUR), a_plan(instances=1, starts=5 * HOUR, ends=10 * HOUR))
    queue.tick(2 * HOUR)
    queue.submit("a")
    assert held_back(queue) == {"a": "OUTSIDE_TRAINING_PLAN"}
    queue.tick(4 * HOUR)
    assert queue.state("a") == "running"


def test_the_policys_capacity_is_a_ceiling_that_may_be_left_out() -> None:
    queue = a_queue(a_plan(instances=2), capacity=1)
    queue.submit("a")
    queue.submit("b")
    assert queue.states() == {"a": "running", "b": "pending"}
    pool = {"name": "p5", "instance_type": P5}
    projects = [{"name": "default", "quota": {"p5": 4}}]
    assert parse_policy({"pools": [{**pool, "training_plan": ARN}], "projects": projects})
    with pytest.raises(Exception, match=r"pools\[0\]: the field capacity is missing"):
        parse_policy({"pools": [pool], "projects": projects})


def test_sagemaker_is_asked_at_most_once_in_some_minutes_and_by_ticks() -> None:
    queue = a_queue(a_plan())
    for name in ("a", "b", "c"):
        queue.submit(name)
    queue.tick()
    assert queue.training.calls.count(("plan", ARN)) == 1
    queue.now += DESCRIBE_SECONDS
    queue.submit("d")
    assert queue.training.calls.count(("plan", ARN)) == 1
    queue.tick()
    assert queue.training.calls.count(("plan", ARN)) == 2


def test_without_an_answer_what_was_known_last_counts() -> None:
    queue = a_queue(a_plan(instances=1))
    queue.submit("a")
    queue.training.plans.clear()
    queue.tick(2 * DESCRIBE_SECONDS)
    queue.submit("b")
    assert queue.states() == {"a": "running", "b": "pending"}


@pytest.mark.parametrize(("pool", "state"), [({"capacity": 1}, "running"), ({}, "pending")])
def test_where_sagemaker_never_answers_the_policys_capacity_counts(pool: dict[str, int], state: str) -> None:
    queue = a_queue(**pool)
    queue.training.plans.clear()
    queue.submit("a")
    assert queue.state("a") == state


def test_a_plan_that_sagemaker_does_not_know_has_nothing() -> None:
    queue = a_queue(capacity=4)
    queue.submit("a")
    assert held_back(queue) == {"a": "NEVER_FITS"}


def test_external_jobs_count_where_their_plan_does() -> None:
    queue = a_queue(a_plan(instances=1))
    resources = {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 1}
    queue.training.create({"TrainingJobName": "beside", "ResourceConfig": resources})
    queue.training.create({"TrainingJobName": "inside", "ResourceConfig": resources | {"TrainingPlanArn": ARN}})
    queue.tick()
    assert queue.dry_run.cluster().external_slots() == {"winter": 2}, "where there is no other pool of its type"
    assert {job.name: job.plan for job in queue.repository.external()} == {"beside": None, "inside": ARN}


# --- who is cut off ----------------------------------------------------------------------------------


def test_who_may_not_be_stopped_starts_only_if_it_ends_in_time() -> None:
    queue = a_queue(a_plan(ends=3 * HOUR))
    for name, runtime in (("short", 2 * HOUR), ("long", 3 * HOUR)):
        tags = [{"Key": "preemptible", "Value": "false"}]
        queue.submit(name, Tags=tags, StoppingCondition={"MaxRuntimeInSeconds": runtime})
    queue.submit("resumable", StoppingCondition={"MaxRuntimeInSeconds": 3 * HOUR})
    assert queue.states() == {"short": "running", "long": "pending", "resumable": "running"}


def causes(queue: Harness, name: str) -> list[str]:
    return [entry.cause for entry in queue.record(name).history]


def test_who_runs_is_told_in_time_and_once() -> None:
    queue = a_queue(a_plan(ends=5 * HOUR))
    queue.submit("long")
    queue.submit("short", StoppingCondition={"MaxRuntimeInSeconds": HOUR})
    queue.tick(2 * HOUR)
    assert not [cause for cause in causes(queue, "long") if cause.startswith("notice: ")]
    closes = 5 * HOUR - TAKEN_BACK_SECONDS
    queue.tick(closes - NOTICE_SECONDS - 2 * HOUR)
    queue.tick()
    (told,) = [cause for cause in causes(queue, "long") if cause.startswith("notice: ")]
    assert "SageMaker takes its instances back at" in told
    assert "the training plan winter ends" in told
    assert queue.job("long").cut_off == int(NOW) + closes
    assert queue.job("short").cut_off is None
    queue.training.plans[ARN] = (a_plan(ends=6 * HOUR),)  # it was extended
    queue.tick(HOUR)
    queue.tick()
    assert queue.job("long").cut_off == int(NOW) + closes + HOUR
    queue.training.plans[ARN] = (a_plan(ends=50 * HOUR),)
    queue.tick(DESCRIBE_SECONDS)
    queue.tick()
    assert queue.job("long").cut_off is None
    assert causes(queue, "long")[-1] == "notice: its training plan was extended"


@pytest.mark.parametrize(("status", "failure"), [("Stopped", None), ("Failed", "AlgorithmError: rank 3 is gone")])
def test_who_is_cut_off_was_preempted_whatever_sagemaker_calls_it(status: str, failure: str | None) -> None:
    queue = a_queue(a_plan(ends=HOUR))
    queue.submit("a")
    queue.now = NOW + HOUR - TAKEN_BACK_SECONDS + 5
    queue.end("a-qstamp-1", status, failure=failure)
    job = queue.job("a")
    assert (job.state, job.attempt, job.retried, job.cut_off) == ("preempted", 2, 0, None)
    assert job.preempted == (), "it made room for no job"
    assert queue.record("a").attempts[0].outcome == "preempted"
    assert causes(queue, "a")[-1] == "cut off: SageMaker has taken the instances of the training plan winter back"
    queue.training.plans[ARN] = (a_plan(starts=2 * HOUR),)
    queue.tick(2 * HOUR)
    queue.tick()
    assert queue.state("a") == "running"


def test_before_the_plans_end_a_failure_is_a_failure() -> None:
    queue = a_queue(a_plan(ends=HOUR))
    queue.submit("a")
    queue.submit("b")
    queue.now = NOW + HOUR - TAKEN_BACK_SECONDS - 120
    queue.end("a-qstamp-1", "Failed", failure="AlgorithmError")
    assert queue.state("a") == "failed"
    queue.now = NOW + HOUR
    queue.end("b-qstamp-1", "Stopped", "MaxRuntimeExceeded")
    assert queue.state("b") == "stopped"


def test_the_time_of_the_end_counts_and_not_that_at_which_it_is_heard_of() -> None:
    ended = training_job(
        {
            "TrainingJobName": "a",
            "TrainingJobStatus": "Failed",
            "TrainingEndTime": datetime.fromtimestamp(NOW, UTC),
            "LastModifiedTime": datetime.fromtimestamp(NOW + 60, UTC),
        },
        {},
    )
    assert ended.ended_at == NOW


# --- requests that name plans ------------------------------------------------------------------------


def test_each_preference_may_have_a_count_and_a_plan_of_its_own() -> None:
    queue = a_queue(a_plan(instances=4))
    preferences = [
        {"InstanceType": P5, "InstanceCount": 2, "TrainingPlanArns": [ARN]},
        {"InstanceType": P4, "InstanceCount": 1},
    ]
    for name in ("a", "b", "c"):
        queue.submit(name, ResourceConfig={"InstancePreferences": preferences, "VolumeSizeInGB": 30})
    assert [dict(queue.job(name).slots) for name in ("a", "b", "c")] == [{"winter": 2}, {"winter": 2}, {"p4": 1}]
    sent = [queue.training.requests[f"{name}-qstamp-1"]["ResourceConfig"] for name in ("a", "c")]
    assert [(it["InstanceType"], it["InstanceCount"], it.get("TrainingPlanArn")) for it in sent] == [
        (P5, 2, ARN),
        (P4, 1, None),
    ]


@pytest.mark.attack
def test_a_plan_that_no_pool_has_is_refused_and_nothing_is_launched_on_it() -> None:
    queue = a_queue(a_plan())
    preferences = [{"InstanceType": P4, "InstanceCount": 1, "TrainingPlanArns": [OTHER]}]
    for resources in ({"InstancePreferences": preferences}, {"InstanceType": P4, "InstanceCount": 1} | PLAN_OF_OTHERS):
        with pytest.raises(Forbidden, match=OTHER) as refused:
            queue.submit("a", ResourceConfig={**resources, "VolumeSizeInGB": 30})
        assert "TrainingPlanArn" in (refused.value.field or "")
    assert not queue.training.requests


@pytest.mark.attack
def test_a_job_that_names_a_plan_runs_on_it_in_no_other_pool() -> None:
    """Otherwise it would have the plan's instances while it holds slots of another pool."""
    queue = a_queue(a_plan(starts=2 * HOUR))
    resources = {"InstanceType": P5, "InstanceCount": 1, "VolumeSizeInGB": 30, "TrainingPlanArn": ARN}
    with pytest.raises(InvalidRequest, match=r"cannot run in p4: its request names a training plan that this pool"):
        queue.submit("a", None, ResourceConfig=resources, **tagged(pools="p4"))
    request = a_request("a", ResourceConfig=resources, **tagged(pools="p4"))
    queue.submissions.submit(request, OWNER, preflight=False)
    queue.submit("late", None, ResourceConfig=resources, **tagged(start_by=iso(NOW + 60), start_by_action="next_pool"))
    queue.tick(90)
    queue.tick()
    assert queue.states() == {"a": "pending", "late": "pending"}
    assert not queue.training.requests
    (message,) = [hold.message for hold in queue.forecast()[1].holds if hold.job == "a"]
    assert message.startswith("No pool that it accepts can run it; its project may use the pools p4 and winter.")


@pytest.mark.attack
def test_a_job_of_before_whose_plan_no_pool_has_waits() -> None:
    """It was stored when that was allowed, or its pool has gone since."""
    queue = a_queue(a_plan())
    queue.repository.add(a_job("a", demand=({P4: 1},), plans=(OTHER,)), json.dumps(a_request("a")), queue.now)
    queue.wake()
    assert queue.state("a") == "pending"
    assert not queue.training.requests


def test_what_was_selected_of_an_external_jobs_preferences_counts() -> None:
    preferences = [
        {"InstanceType": P5, "InstanceCount": 2, "TrainingPlanArns": [ARN]},
        {"InstanceType": P4, "InstanceCount": 3},
    ]

    def counted(**more: Any) -> tuple[dict[str, int], str | None]:
        report = {"TrainingJobName": "theirs", "TrainingJobStatus": "InProgress"}
        found = training_job({**report, "ResourceConfig": {"InstancePreferences": preferences, **more}}, {})
        return dict(found.instance_counts), found.plan

    assert counted() == ({P5: 2}, ARN)
    assert counted(SelectedInstanceType=P4) == ({P4: 3}, None)
    assert counted(SelectedInstanceType=P5, SelectedInstanceCount=1) == ({P5: 1}, ARN)


# --- what SageMaker answers --------------------------------------------------------------------------


class Client:
    """DescribeTrainingPlan, with this answer or error."""

    def __init__(self, answer: dict[str, Any] | str) -> None:
        self._answer = answer

    def describe_training_plan(self, TrainingPlanName: str) -> dict[str, Any]:  # noqa: N803
        assert TrainingPlanName == "winter"
        if isinstance(self._answer, str):
            raise ClientError({"Error": {"Code": self._answer, "Message": "no"}}, "DescribeTrainingPlan")
        return self._answer


def parts_of(answer: dict[str, Any] | str, in_use: int = 0) -> tuple[PlanPart, ...]:
    return SageMakerTraining(cast(Any, Client(answer)), cast(Any, None)).plan_parts(ARN, lambda: in_use)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOW + seconds, UTC)


def test_a_plans_answer() -> None:
    times = {"StartTime": at(0), "EndTime": at(HOUR)}
    counts = {"TotalInstanceCount": 4, "AvailableInstanceCount": 1, "InUseInstanceCount": 2}
    part = PlanPart(3, int(NOW), int(NOW) + HOUR)
    assert parts_of({"Status": "Active", **times, **counts}) == (part,)
    assert parts_of({"Status": "Active", **times, "TotalInstanceCount": 3}) == (part,)
    reserved = {"TotalInstanceCount": 4, "Status": "Scheduled"}
    later = {"StartTime": at(5 * HOUR), "EndTime": at(6 * HOUR)}
    several = parts_of(
        {
            "Status": "Scheduled",
            "StartTime": at(0),
            "EndTime": at(6 * HOUR),
            "TotalInstanceCount": 4,
            "AvailableInstanceCount": 0,
            "InUseInstanceCount": 0,
            "ReservedCapacitySummaries": [{**reserved, **times}, {**reserved, **later, "TotalInstanceCount": 2}],
        }
    )
    assert several == (PlanPart(4, int(NOW), int(NOW) + HOUR), a_plan(instances=2, starts=5 * HOUR, ends=6 * HOUR))
    assert parts_of({"Status": "Failed", **times, **counts}) == ()


def usable(in_use: int = 0, **answer: Any) -> int:
    """Return the instances that the queue counts of an active plan with this answer."""
    times = {"StartTime": at(0), "EndTime": at(HOUR), "Status": "Active", "TrainingPlanArn": ARN}
    (part,) = parts_of({**times, "TotalInstanceCount": 9, **answer}, in_use)
    return part.instances


def test_unhealthy_and_spare_instances_of_a_plan_do_not_count() -> None:
    counts = {"UnhealthyInstanceCount": 2, "AvailableSpareInstanceCount": 1}
    assert usable(**counts) == 6
    assert usable(**counts, Status="Scheduled") == 6
    assert usable(**counts, AvailableInstanceCount=8, InUseInstanceCount=1) == 6
    assert usable(AvailableInstanceCount=3, InUseInstanceCount=2) == 5


@pytest.mark.parametrize("targets", [["endpoint"], ["endpoint", "studio-apps"], ["hyperpod-cluster"]])
def test_a_plan_for_other_resources_has_no_instances_for_training_jobs(targets: list[str]) -> None:
    assert usable(AvailableInstanceCount=9, InUseInstanceCount=0, TargetResources=targets) == 0
    assert usable(Status="Scheduled", TargetResources=targets) == 0


def test_a_job_on_a_plan_for_other_resources_is_told_so_and_what_to_do() -> None:
    times = {"StartTime": at(-HOUR), "EndTime": at(10 * HOUR), "Status": "Active", "TrainingPlanArn": ARN}
    targets = {"TotalInstanceCount": 9, "TargetResources": ["endpoint", "studio-apps"]}
    queue = a_queue(*parts_of({**times, **targets}))
    queue.submit("a")
    _, job = Api(queue=queue).call("GET", "/jobs/a")
    assert (job["state"], job["reason"]["code"]) == ("pending", "NEVER_FITS")
    assert job["reason"]["message"].endswith(
        "The training plan winter of pool winter is not for training jobs, but for endpoint and studio-apps. "
        "Name another pool, or ask an admin to put another plan into the policy."
    )
    queue.training.plans = {ARN: parts_of({**times, **targets, "TargetResources": ["endpoint", "training-job"]})}
    queue.tick(HOUR)
    assert queue.state("a") == "running"


def test_of_a_plan_for_several_resources_only_the_use_by_training_jobs_counts() -> None:
    counts = {"AvailableInstanceCount": 3, "InUseInstanceCount": 5}
    assert usable(in_use=2, **counts, TargetResources=["training-job", "endpoint"]) == 5
    assert usable(in_use=9, **counts, TargetResources=["training-job", "endpoint"]) == 8
    assert usable(in_use=2, **counts, TargetResources=["training-job"]) == 8
    assert usable(in_use=2, **counts) == 8


def test_attempts_and_external_jobs_on_a_plan_are_counted_as_its_use() -> None:
    queue = a_queue(a_plan(instances=4))
    queue.submit("a", instances=2)
    queue.submit("elsewhere", ResourceConfig={"InstanceType": P4, "InstanceCount": 1, "VolumeSizeInGB": 30})
    queue.start_outside("theirs")
    queue.training.jobs["theirs"] = replace(queue.training.jobs["theirs"], plan=ARN)
    queue.tick(DESCRIBE_SECONDS + 1)
    queue.tick(DESCRIBE_SECONDS + 1)
    assert queue.training.plan_uses[ARN] == 3


def test_a_plan_that_is_unknown_and_one_that_may_not_be_asked_about() -> None:
    assert parts_of("ResourceNotFound") == ()
    with pytest.raises(Unavailable, match="AccessDeniedException"):
        parts_of("AccessDeniedException")
