"""The operations of SageMaker's training API, as boto3 sees them."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from local_cloud.sagemaker.account.capacity import Capacity
from local_cloud.sagemaker.account.emulated_plans import EmulatedPlans
from local_cloud.sagemaker.account.options import Account
from local_cloud.sagemaker.account.past_jobs import past_jobs
from local_cloud.sagemaker.registry import JobRegistry
from local_cloud.sagemaker.training_service import ConnectionAbort, EmulatedError
from tests.local_cloud.conftest import MakeEmulator
from tests.local_cloud.emulator import Emulator, request
from tests.waiting import until

WARM = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1, "KeepAlivePeriodInSeconds": 600}


def refusal(emulator: Emulator, operation: str, **parameters: Any) -> tuple[str, str]:
    """Code and message of the error that the call gets."""
    with pytest.raises(ClientError) as raised:
        getattr(emulator.sagemaker, operation)(**parameters)
    error = raised.value.response["Error"]
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return error["Code"], error["Message"]


def test_a_job_that_runs_is_described(emulator: Emulator) -> None:
    arn = emulator.create("described", "sleep", "86400", Tags=[{"Key": "a", "Value": "b"}], Environment={"A": "1"})
    assert arn == "arn:aws:sagemaker:us-east-1:000000000000:training-job/described"
    until(lambda: emulator.describe("described")["SecondaryStatus"] == "Training")

    job = emulator.describe("described")
    assert job["TrainingJobStatus"] == "InProgress"
    assert job["TrainingJobArn"] == arn
    assert job["Environment"] == {"A": "1"}
    assert job["ResourceConfig"]["InstanceCount"] == 1
    assert job["EnableManagedSpotTraining"] is False
    assert "Tags" not in job
    assert isinstance(job["CreationTime"], datetime)
    *before, last = job["SecondaryStatusTransitions"]
    assert [each["Status"] for each in [*before, last]] == ["Starting", "Downloading", "Training"]
    assert all(each["EndTime"] >= each["StartTime"] and each["StatusMessage"] for each in before)
    assert "EndTime" not in last
    emulator.stop("described")


def test_a_name_is_taken_also_after_the_end_of_its_job(emulator: Emulator) -> None:
    emulator.create("taken")
    emulator.ended("taken")
    code, message = refusal(emulator, "create_training_job", **request("taken"))
    assert code == "ResourceInUse"
    assert "already exists (arn:aws:sagemaker:us-east-1:000000000000:training-job/taken)" in message


def test_of_many_requests_for_one_name_one_is_accepted(emulator: Emulator) -> None:
    answers: list[str] = []

    def create() -> None:
        try:
            answers.append(emulator.create("raced"))
        except ClientError as error:
            answers.append(error.response["Error"]["Code"])

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers)[:7] == ["ResourceInUse"] * 7
    assert answers.count("ResourceInUse") == 7


@pytest.mark.parametrize("operation", ["describe", "stop", "delete"])
def test_an_unknown_job_is_not_found(emulator: Emulator, operation: str) -> None:
    answer = refusal(emulator, f"{operation}_training_job", TrainingJobName="unknown")
    assert answer == ("ValidationException", "Requested resource not found.")


def test_another_operation_is_unknown(emulator: Emulator) -> None:
    assert refusal(emulator, "list_endpoints")[0] == "UnknownOperationException"


def changed(field: str, **values: Any) -> dict[str, Any]:
    base = request("faulty")
    return {**base, field: {**base[field], **values}}


def dropped(field: str, *names: str) -> dict[str, Any]:
    base = request("faulty")
    return {**base, field: {key: value for key, value in base[field].items() if key not in names}}


TYPE, COUNT = "ml.m5.large", 1
CHANNEL = {"ChannelName": "a", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b/c"}}}


@pytest.mark.parametrize(
    ("faulty", "says"),
    [
        (request("x" * 64), "at 'trainingJobName' failed to satisfy constraint: Member must have length less than"),
        (
            request("with space"),
            "'trainingJobName' failed to satisfy constraint: Member must satisfy regular expression",
        ),
        (
            request("faulty", RoleArn=None),
            "Value null at 'roleArn' failed to satisfy constraint: Member must not be null",
        ),
        (
            changed("ResourceConfig", InstanceType="ml.huge"),
            "'resourceConfig.instanceType' failed to satisfy constraint",
        ),
        (changed("ResourceConfig", InstanceCount=0), "InstanceCount of at least 1"),
        (changed("StoppingCondition", MaxRuntimeInSeconds=0), "must have value greater than or equal to 1"),
        (request("faulty", NoSuchField=1), "at 'noSuchField'"),
        (request("faulty", Tags=[{"Key": "a", "Value": "é!"}]), "at 'tags.1.member.value'"),
        (request("faulty", Environment={"1": "x"}), "Map keys must satisfy constraint"),
        (request("faulty", Environment={"x": "y" * 513}), "Map value must satisfy constraint"),
        (
            request("faulty", Tags=[{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]),
            "Duplicate tag keys found: a",
        ),
        (changed("AlgorithmSpecification", AlgorithmName="mine"), "exactly one of TrainingImage and AlgorithmName"),
        (dropped("AlgorithmSpecification", "TrainingImage"), "exactly one of TrainingImage and AlgorithmName"),
        (dropped("ResourceConfig", "InstanceType", "InstanceCount"), "exactly one of InstanceType"),
        (changed("ResourceConfig", InstancePreferences=[{"InstanceType": TYPE}]), "exactly one of InstanceType"),
        (request("faulty", EnableManagedSpotTraining=True), "MaxWaitTimeInSeconds is required"),
        (request("faulty", InputDataConfig=[CHANNEL, CHANNEL]), "each ChannelName may be given once"),
        (request("faulty", StoppingCondition=None), "StoppingCondition is required"),
    ],
)
def test_a_faulty_request_is_refused(emulator: Emulator, faulty: dict[str, Any], says: str) -> None:
    status, answer = emulator.post("CreateTrainingJob", faulty)
    assert (status, answer["__type"]) == (400, "ValidationException")
    assert says in answer["message"]
    assert refusal(emulator, "describe_training_job", TrainingJobName="faulty")[1] == "Requested resource not found."


def test_all_faults_are_named_at_once(emulator: Emulator) -> None:
    faulty = request("no_good") | {"RoleArn": "me"}
    assert refusal(emulator, "create_training_job", **faulty)[1].startswith("3 validation errors detected: ")


def test_a_value_of_another_type_is_refused(emulator: Emulator) -> None:
    status, answer = emulator.post("CreateTrainingJob", request("typed", HyperParameters={"epochs": 3}))
    assert (status, answer["__type"]) == (400, "SerializationException")
    assert answer["message"] == "NUMBER_VALUE can not be converted to String at 'hyperParameters.epochs'"
    assert emulator.post("CreateTrainingJob", ["not", "an", "object"])[1]["__type"] == "SerializationException"


def test_instances_in_use_are_limited_by_type(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(instances={TYPE: 2})
    emulator.create("first", "sleep", "86400")
    two = {"InstanceType": TYPE, "InstanceCount": 2, "VolumeSizeInGB": 1}
    code, message = refusal(emulator, "create_training_job", **request("second", ResourceConfig=two))
    assert code == "ResourceLimitExceeded"
    assert message.startswith(
        "The account-level service limit 'ml.m5.large for training job usage' is 2 Instances, with current utilization "
        "of 1 Instances and a request delta of 2 Instances."
    )
    emulator.create("other-type", ResourceConfig={**two, "InstanceType": "ml.m5.xlarge"})
    emulator.stop("first")
    emulator.ended("first")
    emulator.create("second", "true", ResourceConfig=two)  # a refused name is not taken


def test_instance_groups_and_preferences_count_too(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(instances={TYPE: 2, "ml.g5.xlarge": 0})
    groups = [{"InstanceGroupName": name, "InstanceType": TYPE, "InstanceCount": 1} for name in "ab"]
    emulator.create("groups", "sleep", "86400", ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1})
    full = [{"InstanceType": TYPE}, {"InstanceType": "ml.g5.xlarge"}]
    config = {"InstancePreferences": full, "InstanceCount": 1, "VolumeSizeInGB": 1}
    code, message = refusal(emulator, "create_training_job", **request("refused", ResourceConfig=config))
    assert code == "ResourceLimitExceeded"
    assert f"'{TYPE} for training job usage'" in message  # the first counts
    emulator.create(
        "chosen", ResourceConfig={**config, "InstancePreferences": [*full, {"InstanceType": "ml.m5.xlarge"}]}
    )
    assert emulator.describe("chosen")["ResourceConfig"]["SelectedInstanceType"] == "ml.m5.xlarge"


def test_each_preference_may_have_a_count_of_its_own(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(instances={TYPE: 1})
    preferences = [
        {"InstanceType": TYPE, "InstanceCount": 2},
        {"InstanceType": "ml.m5.xlarge", "InstanceCount": 3},
    ]
    config = {"InstancePreferences": preferences, "VolumeSizeInGB": 1}
    emulator.create("counted", ResourceConfig=config)
    described = emulator.describe("counted")["ResourceConfig"]
    assert described == {**config, "SelectedInstanceType": "ml.m5.xlarge", "SelectedInstanceCount": 3}
    both = {**config, "InstanceCount": 1}
    assert refusal(emulator, "create_training_job", **request("both", ResourceConfig=both))[0] == "ValidationException"


def test_lists_are_paged_and_ordered(emulator: Emulator) -> None:
    names = [f"paged-{number}" for number in range(5)]
    for name in names:
        emulator.create(name)

    pages: list[list[str]] = []
    more: dict[str, str] = {}
    while more or not pages:
        answer = emulator.sagemaker.list_training_jobs(
            NameContains="paged-", SortBy="CreationTime", SortOrder="Descending", MaxResults=2, **more
        )
        pages.append([job["TrainingJobName"] for job in answer["TrainingJobSummaries"]])
        more = {"NextToken": answer["NextToken"]} if "NextToken" in answer else {}
    assert pages == [["paged-4", "paged-3"], ["paged-2", "paged-1"], ["paged-0"]]
    assert refusal(emulator, "list_training_jobs", NextToken="nonsense")[0] == "ValidationException"
    assert refusal(emulator, "list_training_jobs", MaxResults=101)[0] == "ValidationException"


def test_a_page_is_cut_before_the_status_filter(emulator: Emulator) -> None:
    emulator.create("cut-1", "sleep", "86400")
    emulator.create("cut-2")
    emulator.ended("cut-2")

    def listed(**options: Any) -> tuple[list[str], bool]:
        answer = emulator.sagemaker.list_training_jobs(NameContains="cut-", SortBy="Name", **options)
        return [job["TrainingJobName"] for job in answer["TrainingJobSummaries"]], "NextToken" in answer

    assert listed(StatusEquals="Completed") == (["cut-2"], False)
    assert listed(StatusEquals="Completed", MaxResults=1) == ([], True)
    emulator.stop("cut-1")


def test_lists_are_filtered_by_time(emulator: Emulator) -> None:
    emulator.create("dated-1")
    ended = emulator.ended("dated-1")["LastModifiedTime"].timestamp()
    emulator.create("dated-2")
    created = emulator.ended("dated-2")["CreationTime"].timestamp()

    def listed(**options: float) -> list[str]:
        # boto3 cuts times to whole seconds
        answer = emulator.post("ListTrainingJobs", {"NameContains": "dated-", "SortBy": "Name", **options})[1]
        return [job["TrainingJobName"] for job in answer["TrainingJobSummaries"]]

    assert listed(CreationTimeBefore=created) == ["dated-1"]
    assert listed(CreationTimeAfter=ended) == ["dated-2"]
    assert listed(LastModifiedTimeAfter=ended) == ["dated-2"]
    assert listed(LastModifiedTimeBefore=created) == ["dated-1"]


def test_tags_are_listed_and_added(emulator: Emulator) -> None:
    arn = emulator.create("tagged", Tags=[{"Key": "a", "Value": "1"}])
    emulator.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "a", "Value": "2"}, {"Key": "b", "Value": "3"}])
    tags = emulator.sagemaker.list_tags(ResourceArn=arn)["Tags"]
    assert tags == [{"Key": "a", "Value": "2"}, {"Key": "b", "Value": "3"}]
    many = [{"Key": str(number), "Value": ""} for number in range(49)]
    assert refusal(emulator, "add_tags", ResourceArn=arn, Tags=many)[0] == "ValidationException"
    assert refusal(emulator, "list_tags", ResourceArn=f"{arn}-not")[0] == "ValidationException"


def test_only_a_job_that_has_ended_can_be_deleted(emulator: Emulator) -> None:
    emulator.create("deleted", "sleep", "86400")
    assert refusal(emulator, "delete_training_job", TrainingJobName="deleted")[0] == "ResourceInUse"
    emulator.stop("deleted")
    emulator.ended("deleted")
    emulator.sagemaker.delete_training_job(TrainingJobName="deleted")
    until(lambda: refusal_of_describe(emulator, "deleted") == "Requested resource not found.")
    assert refusal(emulator, "delete_training_job", TrainingJobName="deleted")[0] == "ValidationException"
    emulator.create("deleted")
    assert emulator.ended("deleted")["TrainingJobStatus"] == "Completed"


class LockWithCaller:
    """A lock that another caller uses as soon as it has been released for the first time."""

    def __init__(self, other: Callable[[], None]) -> None:
        self._lock, self._others = threading.Lock(), [other]

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        while self._others:
            self._others.pop()()


def test_a_job_that_two_callers_delete_at_once_is_deleted_once() -> None:
    registry = JobRegistry(
        Capacity({}, {}, EmulatedPlans([], "arn:aws:sagemaker", time.time)), past_jobs(1, "arn:", 0.0)
    )

    def delete_too() -> None:
        with suppress(EmulatedError):
            registry.delete("past-000000")
        assert list(registry) == []

    registry._lock = LockWithCaller(delete_too)  # type: ignore[assignment]
    registry.delete("past-000000")
    assert list(registry) == []


def refusal_of_describe(emulator: Emulator, name: str) -> str | None:
    """SageMaker's words; None: it describes the job."""
    try:
        emulator.describe(name)
    except ClientError as error:
        return str(error.response["Error"]["Message"])
    return None


@pytest.mark.thorough
def test_a_job_that_is_being_deleted_keeps_its_name_and_says_how_it_ended(make_emulator: MakeEmulator) -> None:
    told: list[str] = []
    emulator = make_emulator(
        deletion=86400.0,
        account_options=Account(history=3),
        deliver=lambda event: told.append(event["detail"]["TrainingJobStatus"]),
    )
    emulator.create("deleted", "false", **{"ResourceConfig": WARM})
    emulator.ended("deleted")
    emulator.sagemaker.update_training_job(TrainingJobName="deleted", ResourceConfig={"KeepAlivePeriodInSeconds": 0})
    for name, ended in (("deleted", "Failed"), ("past-000002", "Failed")):
        emulator.sagemaker.delete_training_job(TrainingJobName=name)
        described = emulator.describe(name)
        assert (described["TrainingJobStatus"], described["SecondaryStatus"]) == ("Deleting", ended)
        assert described["FailureReason"].startswith("AlgorithmError")
        for call in ("stop_training_job", "delete_training_job"):
            assert "in status Deleting" in refusal(emulator, call, TrainingJobName=name)[1]
    code, message = refusal(
        emulator, "update_training_job", TrainingJobName="deleted", ResourceConfig={"KeepAlivePeriodInSeconds": 0}
    )
    assert (code, "in status Deleting" in message) == ("ValidationException", True)
    assert refusal(emulator, "create_training_job", **request("deleted"))[0] == "ResourceInUse"
    listed = emulator.sagemaker.list_training_jobs(StatusEquals="Deleting", MaxResults=100)["TrainingJobSummaries"]
    assert [job["TrainingJobName"] for job in listed] == ["past-000002", "deleted"]
    by_status = {"Filters": [{"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "Deleting"}]}
    found = emulator.sagemaker.search(Resource="TrainingJob", SearchExpression=by_status)["Results"]
    assert len(found) == 2
    assert "Deleting" not in told


def test_an_infrastructure_check_is_described_as_requested(emulator: Emulator) -> None:
    emulator.create("checked", "true", InfraCheckConfig={"EnableInfraCheck": True})
    assert emulator.describe("checked")["InfraCheckConfig"] == {"EnableInfraCheck": True}
    emulator.create("unchecked", "true")
    assert "InfraCheckConfig" not in emulator.describe("unchecked")


@pytest.mark.parametrize("wrong", ["yes", 1, ["true"]])
def test_an_infrastructure_check_is_true_or_false(emulator: Emulator, wrong: object) -> None:
    asked = {**request("checked"), "InfraCheckConfig": {"EnableInfraCheck": wrong}}
    code, message = refusal(emulator, "create_training_job", **asked)
    assert (code, "infraCheckConfig.enableInfraCheck" in message) == ("SerializationException", True)


def test_remote_debug_is_not_switched_before_a_job_downloads(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(startup_delay=86400.0)
    emulator.create("early", "sleep", "86400")
    switch = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}
    code, message = refusal(emulator, "update_training_job", TrainingJobName="early", **switch)
    assert (code, "and it is Starting" in message) == ("ValidationException", True)


def test_remote_debug_is_switched_while_a_job_trains(emulator: Emulator) -> None:
    switch = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}
    emulator.create("trains", "sleep", "86400")
    until(lambda: emulator.describe("trains")["SecondaryStatus"] == "Training")
    assert emulator.service.instance("trains", "algo-1") is None
    emulator.sagemaker.update_training_job(TrainingJobName="trains", **switch)
    assert emulator.describe("trains")["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    until(lambda: emulator.service.instance("trains", "algo-1") is not None)  # its process starts after the status
    emulator.stop("trains")
    emulator.ended("trains")
    assert refusal(emulator, "update_training_job", TrainingJobName="trains", **switch)[0] == "ValidationException"


@pytest.mark.thorough
def test_a_call_can_be_throttled_or_left_without_an_answer(make_emulator: MakeEmulator) -> None:
    faults: dict[tuple[str, str], Exception] = {
        ("before", "ListTrainingJobs"): EmulatedError("ThrottlingException", "Rate exceeded"),
        ("after", "CreateTrainingJob"): ConnectionAbort(),
    }

    def intercept(phase: str, operation: str, request: dict[str, Any]) -> None:
        if fault := faults.get((phase, operation)):
            raise fault

    emulator = make_emulator(intercept=intercept)
    assert refusal(emulator, "list_training_jobs") == ("ThrottlingException", "Rate exceeded")
    with pytest.raises(ConnectionClosedError):
        emulator.create("unanswered")
    assert emulator.ended("unanswered")["TrainingJobStatus"] == "Completed"  # the job is there all the same
    faults[("before", "CreateTrainingJob")] = ConnectionAbort()
    with pytest.raises(ConnectionClosedError):
        emulator.create("unheard")
    assert refusal(emulator, "describe_training_job", TrainingJobName="unheard")[0] == "ValidationException"
