"""The account that the emulator plays: quotas, request rates, a history, and training plans."""

import time
from pathlib import Path
from typing import Any

import pytest

from local_cloud.sagemaker.account.emulated_plans import EmulatedPlan
from local_cloud.sagemaker.account.options import (
    Account,
    Moment,
    PlanOption,
    Rate,
    parse_moment,
    parse_plan,
    parse_quota,
    strict_account,
)
from local_cloud.sagemaker.account.throttling import CallBucket
from tests.counting import counted
from tests.local_cloud.conftest import MakeEmulator
from tests.local_cloud.emulator import Emulator, request
from tests.local_cloud.test_training_api import refusal
from tests.waiting import until

TYPE = "ml.m5.large"
SPOT: dict[str, Any] = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60},
}
ASK = (
    " Please use AWS Service Quotas to request an increase for this quota. If AWS Service Quotas is not available, "
    "contact AWS support to request an increase for this quota."
)


def of(count: int, kind: str = TYPE) -> dict[str, Any]:
    return {"InstanceType": kind, "InstanceCount": count, "VolumeSizeInGB": 1}


def refused(emulator: Emulator, name: str = "refused", **changes: Any) -> tuple[str, str]:
    return refusal(emulator, "create_training_job", **request(name, "sleep", "86400", **changes))


# --- quotas --------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_spot_and_on_demand_have_quotas_of_their_own(make_emulator: MakeEmulator) -> None:
    quotas = {f"{TYPE} for spot training job usage": 0, f"{TYPE} for training job usage": 1}
    emulator = make_emulator(account_options=Account(quotas))
    assert refused(emulator, **SPOT) == (
        "ResourceLimitExceeded",
        f"The account-level service limit '{TYPE} for spot training job usage' is 0 Instances, with current "
        f"utilization of 0 Instances and a request delta of 1 Instances.{ASK}",
    )
    emulator.create("on-demand", "sleep", "86400")
    assert refused(emulator)[1].startswith(
        f"The account-level service limit '{TYPE} for training job usage' is 1 Instances, with current utilization of "
        "1 Instances and a request delta of 1 Instances."
    )
    emulator.create("other-type", "true", ResourceConfig=of(5, "ml.m5.xlarge"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("quota", "limit", "changes", "says"),
    [
        (
            "Longest run time for a training job",
            432000,
            {"StoppingCondition": {"MaxRuntimeInSeconds": 864000}},
            "is 432000 Seconds, with current utilization of 0 Seconds and a request delta of 864000 Seconds.",
        ),
        (
            "Longest run time for a training job",
            3600,
            {"StoppingCondition": {}},  # a day, if it says nothing
            "is 3600 Seconds, with current utilization of 0 Seconds and a request delta of 86400 Seconds.",
        ),
        (
            "Keep alive period for cluster reuse",
            3600,
            {"ResourceConfig": {**of(1), "KeepAlivePeriodInSeconds": 3601}},
            "is 3600 Seconds",
        ),
        ("Maximum number of instances per training job", 2, {"ResourceConfig": of(3)}, "a request delta of 3"),
        (
            "Number of instances across all training jobs",
            2,
            {"ResourceConfig": of(2, "ml.m5.xlarge")},
            "is 2 Instances, with current utilization of 1 Instances and a request delta of 2 Instances.",
        ),
        (
            "Number of instances across all processing jobs",
            1,
            {
                "DebugRuleConfigurations": [
                    {"RuleConfigurationName": name, "RuleEvaluatorImage": "image"} for name in ("a", "b")
                ]
            },
            "is 1 Instances, with current utilization of 0 Instances and a request delta of 2 Instances.",
        ),
    ],
)
def test_a_quota_is_refused_by_name(
    make_emulator: MakeEmulator, quota: str, limit: int, changes: dict[str, Any], says: str
) -> None:
    emulator = make_emulator(account_options=Account({quota: limit}))
    short = {} if "Longest" not in quota else {"StoppingCondition": {"MaxRuntimeInSeconds": 60}}
    emulator.create("first", "sleep", "86400", **short)
    code, message = refused(emulator, **changes)
    assert code == "ResourceLimitExceeded"
    assert message.startswith(f"The account-level service limit '{quota}' is {limit} ")
    assert says in message


def test_the_instances_of_a_job_that_has_ended_count_for_a_while(make_emulator: MakeEmulator) -> None:
    account = Account({"ml.m5.large for training job usage": 1}, quota_lag=3600)
    emulator = make_emulator(account_options=account)
    emulator.create("first", "true")
    emulator.ended("first")
    code, message = refused(emulator)
    assert code == "ResourceLimitExceeded"
    assert "is 1 Instances, with current utilization of 1 Instances and a request delta of 1" in message


def test_without_quota_lag_the_instances_are_free_at_once(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(account_options=Account({"ml.m5.large for training job usage": 1}))
    emulator.create("first", "true")
    emulator.ended("first")
    emulator.create("second", "true")


def test_the_quota_of_each_type_holds_in_each_market_unless_the_type_is_named(make_emulator: MakeEmulator) -> None:
    account = Account({"ml.m5.xlarge for training job usage": 2}, quota_lag=3600).with_slots(1)
    emulator = make_emulator(account_options=account, instances={"ml.m5.2xlarge": 2})
    for name, changes in {"on-demand": {}, "spot": SPOT}.items():
        emulator.create(f"{name}-1", "true", **changes)
        emulator.ended(f"{name}-1")
        code, message = refused(emulator, **changes)
        assert code == "ResourceLimitExceeded"
        assert "is 1 Instances, with current utilization of 1 Instances and a request delta of 1" in message
    emulator.create("named", "true", ResourceConfig=of(2, "ml.m5.xlarge"))
    emulator.create("machines", "true", ResourceConfig=of(2, "ml.m5.2xlarge"))


def test_warm_pools_count_toward_the_quota_of_each_type_and_are_kept(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(account_options=Account(quota_lag=3600).with_slots(1))
    warm = {"ResourceConfig": {**of(1), "KeepAlivePeriodInSeconds": 600}}
    emulator.create("first", "true", **warm)
    emulator.ended("first")
    assert emulator.describe("first")["WarmPoolStatus"]["Status"] == "Available"
    assert refused(emulator, ResourceConfig={**of(1), "VolumeSizeInGB": 9})[0] == "ResourceLimitExceeded"
    emulator.create("second", "true", **warm)
    emulator.ended("second")


def test_without_quota_lag_slots_are_no_quota() -> None:
    for lag in (None, 0.0):
        assert Account(quota_lag=lag).with_slots(8).quota_per_type is None
    assert strict_account(Account()).with_slots(8).quota_per_type == 8


def test_quotas_of_all_spot_jobs_count_spot_only(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(account_options=Account({"Number of instances across all spot training jobs": 1}))
    emulator.create("on-demand", "sleep", "86400")
    emulator.create("spot", "sleep", "86400", **SPOT)
    assert "'Number of instances across all spot training jobs' is 1" in refused(emulator, **SPOT)[1]


# --- rates ---------------------------------------------------------------------------------------


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    now = 0.0
    bucket = CallBucket(Rate(0.5, 2), clock=lambda: now)
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    now = 1.9
    assert not bucket.take()
    now = 2.0
    assert [bucket.take() for _ in range(2)] == [True, False]
    now = 1000.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_calls_beyond_the_rate_are_throttled(make_emulator: MakeEmulator) -> None:
    slow = Rate(0.0001, 1)
    emulator = make_emulator(account_options=Account(create_rate=slow, list_rate=slow))
    emulator.create("first")
    emulator.sagemaker.list_training_jobs()
    assert refused(emulator) == ("ThrottlingException", "Rate exceeded")
    assert refusal(emulator, "list_training_jobs") == ("ThrottlingException", "Rate exceeded")
    emulator.describe("first")  # other operations are not concerned
    assert refusal(emulator, "describe_training_job", TrainingJobName="refused")[0] == "ValidationException"


# --- history -------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_fifty_thousand_ended_jobs_cost_little_and_are_listed_as_others(
    make_emulator: MakeEmulator, tmp_path: Path
) -> None:
    _, fewer = counted(lambda: make_emulator(account_options=Account(history=5_000), workdir=tmp_path / "smaller"))
    emulator, more = counted(lambda: make_emulator(account_options=Account(history=50_000)))
    assert more < 20 * fewer
    emulator.create("now", "sleep", "86400")

    newest = emulator.sagemaker.list_training_jobs(SortBy="CreationTime", SortOrder="Descending", MaxResults=100)
    names = [job["TrainingJobName"] for job in newest["TrainingJobSummaries"]]
    assert names[:2] == ["now", "past-049999"]
    oldest = emulator.sagemaker.list_training_jobs(MaxResults=100, StatusEquals="InProgress")
    assert oldest["TrainingJobSummaries"] == []  # the page is cut before the filter
    assert "NextToken" in oldest
    ended = emulator.describe("past-000004")
    assert (ended["TrainingJobStatus"], ended["ResourceConfig"]["InstanceType"]) == ("Stopped", TYPE)
    assert time.time() - ended["CreationTime"].timestamp() > 28 * 86400
    says = "rejected because the training job is in status Completed"
    assert says in refusal(emulator, "stop_training_job", TrainingJobName="past-000000")[1]
    assert emulator.sagemaker.list_tags(ResourceArn=ended["TrainingJobArn"])["Tags"] == []
    assert refused(emulator, "past-000001")[0] == "ResourceInUse"


# --- training plans ------------------------------------------------------------------------------


def on_plan(emulator: Emulator, name: str, count: int = 1, **config: Any) -> dict[str, Any]:
    arn = f"arn:aws:sagemaker:us-east-1:000000000000:training-plan/{name}"
    return {"ResourceConfig": {**of(count), "TrainingPlanArn": arn, **config}}


def plan(emulator: Emulator, name: str) -> dict[str, Any]:
    described: dict[str, Any] = emulator.sagemaker.describe_training_plan(TrainingPlanName=name)
    return described


def test_a_plan_is_described_with_its_calendar(make_emulator: MakeEmulator) -> None:
    option = parse_plan("june=4,-60,+7140,ml.m5.large")
    emulator = make_emulator(account_options=Account(plans=(option,)))
    emulator.create("busy", "sleep", "86400", **on_plan(emulator, "june", 3))
    until(lambda: emulator.describe("busy")["SecondaryStatus"] == "Training")
    described = plan(emulator, "june")
    arn = described["TrainingPlanArn"]
    assert arn == "arn:aws:sagemaker:us-east-1:000000000000:training-plan/june"
    assert (described["Status"], described["DurationHours"], described["DurationMinutes"]) == ("Active", 2, 0)
    assert (described["EndTime"] - described["StartTime"]).total_seconds() == 7200
    counts = [described[f"{name}InstanceCount"] for name in ("Total", "InUse", "Available")]
    assert counts == [4, 3, 1]
    (reserved,) = described["ReservedCapacitySummaries"]
    assert (reserved["InstanceType"], reserved["TotalInstanceCount"], reserved["Status"]) == (TYPE, 4, "Active")
    assert plan(emulator, arn)["TrainingPlanName"] == "june"
    assert refusal(emulator, "describe_training_plan", TrainingPlanName="july")[0] == "ResourceNotFound"
    listed = emulator.sagemaker.list_training_jobs(TrainingPlanArnEquals=arn)["TrainingJobSummaries"]
    assert [job["TrainingPlanArn"] for job in listed] == [arn]


def calendar(emulator: Emulator, name: str) -> EmulatedPlan:
    """The plan itself, whose start and end a test may move."""
    return emulator.service._plans.named(name)


@pytest.mark.thorough
def test_a_job_waits_for_its_plan_and_for_its_instances(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(account_options=Account(plans=(parse_plan("soon=1,+7200,+14400"),)))
    emulator.create("first", "sleep", "86400", **on_plan(emulator, "soon"))
    until(lambda: emulator.describe("first")["SecondaryStatus"] == "Pending")
    assert plan(emulator, "soon")["Status"] == "Scheduled"
    calendar(emulator, "soon").start = time.time()
    until(lambda: emulator.describe("first")["SecondaryStatus"] == "Training")
    assert plan(emulator, "soon")["Status"] == "Active"

    emulator.create("second", **on_plan(emulator, "soon"))
    until(lambda: emulator.describe("second")["SecondaryStatus"] == "Pending")
    emulator.stop("first")
    assert emulator.ended("second")["TrainingJobStatus"] == "Completed"
    assert plan(emulator, "soon")["InUseInstanceCount"] == 0


@pytest.mark.thorough
def test_instances_are_taken_back_half_an_hour_before_the_end(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(account_options=Account(plans=(parse_plan("short=1,-60,+7200"),)))
    command = "echo $SAGEMAKER_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP; sleep 86400"
    emulator.create("cut", "sh", "-c", command, **on_plan(emulator, "short"))
    told = plan(emulator, "short")["EndTime"].timestamp()
    until(lambda: emulator.log("cut"))
    assert abs(int(emulator.log("cut")[0]) / 1000 - told) < 1
    emulator.create("late", **on_plan(emulator, "short"))
    assert emulator.describe("cut")["SecondaryStatus"] == "Training"

    calendar(emulator, "short").end = time.time() + 1800
    job = emulator.ended("cut")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert "reserved capacity" in job["SecondaryStatusTransitions"][-1]["StatusMessage"]
    described = plan(emulator, "short")
    assert (described["Status"], described["AvailableInstanceCount"], described["InUseInstanceCount"]) == (
        "Active",
        0,
        0,
    )
    assert emulator.describe("late")["SecondaryStatus"] == "Pending"


def test_a_job_whose_plan_ends_before_it_has_instances_fails(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(account_options=Account(plans=(parse_plan("over=1,-7200,+900"),)))
    emulator.create("unlucky", **on_plan(emulator, "over"))
    until(lambda: emulator.describe("unlucky")["SecondaryStatus"] == "Pending")
    calendar(emulator, "over").end = time.time()
    job = emulator.ended("unlucky")
    assert job["FailureReason"].startswith("InsufficientCapacityError: ")
    code, message = refused(emulator, **on_plan(emulator, "over"))
    assert (code, "is in status Expired" in message) == ("ValidationException", True)


@pytest.mark.thorough
def test_what_does_not_go_with_a_plan_is_refused(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(account_options=Account(plans=(parse_plan("p5=1,+0,+7200,ml.p5.48xlarge"),)))
    code, message = refused(emulator, **on_plan(emulator, "p5"))
    assert (code, "does not match the instance type ml.p5.48xlarge" in message) == ("ValidationException", True)
    assert "does not exist" in refused(emulator, **on_plan(emulator, "unknown"))[1]
    spot = {**SPOT, **on_plan(emulator, "p5")}
    assert "cannot be used with a training plan" in refused(emulator, **spot)[1]


@pytest.mark.thorough
def test_preferences_may_name_plans(make_emulator: MakeEmulator) -> None:
    account = Account({f"{TYPE} for training job usage": 0}, plans=(parse_plan("one=1,+0,+7200"),))
    emulator = make_emulator(account_options=account)
    arn = plan(emulator, "one")["TrainingPlanArn"]
    preferences = [
        {"InstanceType": TYPE, "InstanceCount": 1},
        {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "TrainingPlanArns": [arn]},
        {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2},
    ]
    config = {"InstancePreferences": preferences, "VolumeSizeInGB": 1}
    emulator.create("planned", "sleep", "86400", ResourceConfig=config)
    assert emulator.describe("planned")["ResourceConfig"]["SelectedInstanceType"] == "ml.p5.48xlarge"
    until(lambda: plan(emulator, "one")["InUseInstanceCount"] == 1)
    emulator.create("otherwise", ResourceConfig=config)
    selected = emulator.describe("otherwise")["ResourceConfig"]
    assert (selected["SelectedInstanceType"], selected["SelectedInstanceCount"]) == ("ml.m5.xlarge", 2)


# --- options -------------------------------------------------------------------------------------


def test_options_are_read() -> None:
    assert parse_quota("ml.p5.48xlarge for spot training job usage=0") == (
        "ml.p5.48xlarge for spot training job usage",
        0,
    )
    assert parse_moment("1970-01-01T00:01") == parse_moment("1970-01-01T00:01:00Z") == Moment(60)
    assert parse_moment("1970-01-01T01:01+01:00") == Moment(60)
    endpoints = ("endpoint", "studio-apps")
    assert parse_plan("a=2,-5,+5.5,endpoint+studio-apps").targets == endpoints
    assert parse_plan("a=2,-5,+5.5,ml.p5.48xlarge,endpoint").instance_type == "ml.p5.48xlarge"
    assert parse_plan("a=2,-5,+5.5") == PlanOption("a", 2, Moment(-5, True), Moment(5.5, True))
    assert Moment(-5, relative=True).epoch(100) == 95


def test_strict_is_what_nothing_else_says() -> None:
    quota = "Longest run time for a training job"
    plain = strict_account(Account())
    assert (plain.create_rate, plain.list_rate, plain.quotas[quota]) == (Rate(1, 10), Rate(2, 2), 432000)
    assert plain.history > 100
    given = strict_account(Account({quota: 60}, create_rate=Rate(5, 1), history=7))
    assert (given.create_rate, given.quotas[quota], given.history) == (Rate(5, 1), 60, 7)
