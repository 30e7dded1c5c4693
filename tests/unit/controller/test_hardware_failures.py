"""After a hardware failure SageMaker is asked to check the instances, and a GPU that returns is recognised."""

import json
from dataclasses import replace
from typing import Any

import pytest

from job_queue.adapters.items import job_from, job_item
from job_queue.adapters.records.failed_gpu_records import FAILED_GPUS, FailedGpuRecords
from job_queue.adapters.sagemaker import LaunchResult
from job_queue.domain.errors import Refused, Unavailable
from job_queue.domain.job import FailedAttempt, ReturnedGpu
from job_queue.domain.launching.instance_check import with_instance_check
from job_queue.domain.requests.training_request import TrainingRequest
from tests.jobs import OWNER, P5, a_job, a_request
from tests.memory_tables import MemoryTables
from tests.unit.controller.test_failure_actions import LATE, NCCL, Logged, notifying, tags
from tests.unit.queue_api import STRANGER, Api
from tests.waiting import PATIENCE

XID = "NVRM: Xid (PCI:0000:07:00): 48, pid=1, An uncorrectable double bit error (DBE) has been detected"
CHECK = {"EnableInfraCheck": True}
INVALID = (LaunchResult.REFUSED, "ValidationException: InfraCheckConfig is not supported for this instance type.")


def broken(slots: int = 1, **changes: Any) -> Logged:
    """A queue with a job whose first attempt has had a hardware failure, and whose second attempt runs."""
    queue = Logged(slots=slots)
    queue.lines = [("algo-1", XID)]
    queue.submit("job1", **changes)
    queue.fail("job1-qstamp-1", after=LATE)
    return queue


def check_of(queue: Logged, attempt: int) -> dict[str, bool] | None:
    check: dict[str, bool] | None = queue.training.requests[f"job1-qstamp-{attempt}"].get("InfraCheckConfig")
    return check


def creates(queue: Logged, attempt: str) -> int:
    return queue.training.calls.count(("create", attempt))


def test_the_attempt_after_a_hardware_failure_is_launched_with_a_check_of_its_instances() -> None:
    queue = broken()
    assert (check_of(queue, 1), check_of(queue, 2)) == (None, CHECK)
    queue.lines = [("algo-1", "nothing is known")]
    queue.submit("other")
    queue.fail("job1-qstamp-2", after=LATE)
    assert not queue.job("job1").infra_check


def test_a_later_attempt_that_follows_another_cause_is_not_checked() -> None:
    queue = broken(**tags(retries=1))
    queue.lines = [("algo-1", NCCL)]
    queue.fail("job1-qstamp-2", after=LATE)
    assert check_of(queue, 3) is None
    assert not queue.job("job1").infra_check


def test_a_preemption_after_the_check_needs_no_second_check() -> None:
    queue = broken()
    queue.submit("high", 9)
    queue.training.jobs["job1-qstamp-2"] = replace(queue.training.jobs["job1-qstamp-2"], began=queue.now)
    queue.now += 60
    queue.end("job1-qstamp-2", "Stopped")
    queue.end("high-qstamp-1")
    assert (queue.state("job1"), check_of(queue, 3)) == ("running", None)


@pytest.mark.parametrize("why", ["CapacityError: no instances", "InternalServerError: try again"])
def test_the_check_stays_due_until_an_attempt_has_instances(why: str) -> None:
    queue = broken()
    queue.fail("job1-qstamp-2", why)
    assert queue.job("job1").infra_check
    queue.tick(3600)
    assert (queue.state("job1"), check_of(queue, 3)) == ("running", CHECK)


def test_a_repeated_launch_has_the_same_request() -> None:
    queue = Logged(slots=1)
    queue.lines = [("algo-1", XID)]
    queue.submit("job1")
    queue.training.script = ["never", "never"]
    queue.fail("job1-qstamp-1", after=LATE)
    assert queue.state("job1") == "starting"
    queue.tick(61)
    queue.tick(61)
    assert creates(queue, "job1-qstamp-2") == 3
    assert check_of(queue, 2) == CHECK


def test_a_refused_check_does_not_prevent_the_retry() -> None:
    """Nothing documents where SageMaker offers the check, so its refusal must cost the job no more than a moment."""
    queue = Logged(slots=1)
    queue.lines = [("algo-1", XID)]
    queue.submit("job1")
    queue.training.script = [INVALID]
    queue.fail("job1-qstamp-1", after=LATE)
    assert (queue.state("job1"), queue.job("job1").infra_check) == ("pending", False)
    assert "The next launch goes without InfraCheckConfig" in (queue.job("job1").reason or "")
    queue.tick(61)
    assert (queue.state("job1"), check_of(queue, 2)) == ("running", None)
    assert not queue.repository.metadata().capacity_backoffs, "the pool is not at fault"


def test_while_an_earlier_call_may_take_effect_the_refused_request_is_not_changed() -> None:
    queue = Logged(slots=1)
    queue.lines = [("algo-1", XID)]
    queue.submit("job1")
    queue.training.script = ["late", INVALID]
    queue.fail("job1-qstamp-1", after=LATE)
    queue.tick(61)
    assert (queue.state("job1"), queue.job("job1").infra_check) == ("starting", True)
    queue.training.land()
    queue.tick(61)
    assert (queue.state("job1"), check_of(queue, 2)) == ("running", CHECK)


def test_a_request_that_is_wrong_without_the_check_as_well_is_refused_as_before() -> None:
    queue = Logged(slots=1)
    queue.lines = [("algo-1", XID)]
    queue.submit("job1")
    queue.training.script = [INVALID, (LaunchResult.REFUSED, "ValidationException: the role was removed")]
    queue.fail("job1-qstamp-1", after=LATE)
    queue.tick(61)
    assert queue.state("job1") == "pending", "SageMaker accepted the first attempt"
    assert "the role was removed" in (queue.job("job1").reason or "")


def test_a_lost_connection_is_checked_only_if_a_rule_suspects_the_instances() -> None:
    for retry_on, expected in (("communication=retry-free", None), ("communication=retry-free-fresh", CHECK)):
        queue = Logged(slots=1)
        queue.lines = [("algo-1", NCCL)]
        queue.submit("job1", **tags(retry_on=retry_on))
        queue.fail("job1-qstamp-1", after=LATE)
        assert check_of(queue, 2) == expected
    queue.lines = [("algo-1", "CUDA out of memory")]
    queue.submit("job2", **tags(retry_on="gpu_memory=retry-fresh"))
    assert not queue.job("job2").infra_check


@pytest.mark.parametrize("own", [{"EnableInfraCheck": False}, {"EnableInfraCheck": True}, {}])
def test_the_users_own_setting_prevails(own: dict[str, bool]) -> None:
    queue = broken(InfraCheckConfig=own)
    assert (check_of(queue, 1), check_of(queue, 2)) == (own, own)


def test_a_refusal_of_the_users_own_check_is_no_fault_of_the_queue() -> None:
    queue = Logged(slots=1)
    queue.training.script = [INVALID]
    queue.submit("job1", InfraCheckConfig=CHECK)
    assert queue.state("job1") == "failed"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"InstanceType": P5, "InstanceCount": 1}, CHECK),
        ({"InstanceType": "ml.g5.xlarge", "InstanceCount": 2}, CHECK),
        ({"InstanceType": "ml.m5.large", "InstanceCount": 1}, None),
        ({"InstanceType": "ml.trn1.32xlarge", "InstanceCount": 1}, None),
        ({"InstanceType": "ml.p99.new", "InstanceCount": 1}, None),
        ({"InstanceGroups": [{"InstanceType": P5, "InstanceCount": 1, "InstanceGroupName": "a"}]}, None),
    ],
)
def test_only_instances_of_one_type_with_gpus_are_checked(resources: dict[str, Any], expected: object) -> None:
    request = TrainingRequest.read({**a_request(), "ResourceConfig": resources})
    sent = with_instance_check(request, request.content, a_job(infra_check=True))
    assert sent.get("InfraCheckConfig") == expected
    assert "InfraCheckConfig" not in with_instance_check(request, request.content, a_job())
    assert "InfraCheckConfig" not in with_instance_check(request, request.content, a_job(infra_check=True, gpus=10))


def test_a_row_of_an_earlier_version_asks_for_no_check() -> None:
    stored = job_item(a_job())
    assert "infraCheck" not in stored
    assert job_from(stored).infra_check is False
    assert job_from(job_item(a_job(infra_check=True))).infra_check is True


def test_a_job_that_has_ended_asks_for_no_check() -> None:
    queue = broken()
    queue.end("job1-qstamp-2")
    assert (queue.state("job1"), queue.job("job1").infra_check) == ("completed", False)


# --- GPUs that return --------------------------------------------------------------------------------

GPU, OTHER_GPU = ("GPU-" + digit * 8 + "-0000-4000-8000-" + digit * 12 for digit in "ab")


def gpu_line(uuid: str) -> tuple[str, str]:
    return "algo-1", f"GPU 0: NVIDIA A10G (UUID: {uuid})"


def failure_of(queue: Logged, name: str = "job1") -> FailedAttempt:
    failure = queue.job(name).failure
    assert failure is not None
    return failure


def test_a_gpu_that_returns_in_another_job_is_recognised() -> None:
    queue = Logged(slots=2)
    queue.lines = [gpu_line(GPU), ("algo-1", XID)]
    queue.submit("job1")
    queue.submit("job2")
    queue.fail("job1-qstamp-1", after=LATE)
    first = int(queue.now)
    assert (failure_of(queue).gpu_uuids, failure_of(queue).returned_gpus) == ((GPU,), ())
    queue.lines = [gpu_line(OTHER_GPU), gpu_line(GPU), ("algo-1", XID)]
    queue.fail("job2-qstamp-1", after=LATE)
    (returned,) = failure_of(queue, "job2").returned_gpus
    assert (returned.uuid, returned.failures) == (GPU, 1)
    assert abs(returned.latest - first) <= 1
    records = queue.repository.attempts.ended_since(queue.now - 3600, queue.now)
    assert [it.gpu_uuids for it in records] == [(GPU,), (OTHER_GPU, GPU)]


def test_a_gpu_does_not_return_by_an_end_that_is_recorded_twice() -> None:
    queue = broken()
    queue.training.end("job1-qstamp-2", "Failed", failure=f"AlgorithmError: {XID} on {GPU}")
    record, ended = queue.record("job1"), queue.training.jobs["job1-qstamp-2"]
    reconciler = queue.controller.reconciler
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue.repository, "apply", _refuse)
        assert not reconciler.end(record, ended)
    assert len(queue.tables.query("sagemaker-queue-lines", FAILED_GPUS)) == 1
    queue.event("job1-qstamp-2")
    assert (failure_of(queue).gpu_uuids, failure_of(queue).returned_gpus) == ((GPU,), ())


def _refuse(*args: Any) -> None:
    raise Refused({})


def test_a_gpu_of_the_day_before_does_not_return() -> None:
    queue = Logged(slots=1)
    queue.lines = [gpu_line(GPU), ("algo-1", XID)]
    queue.submit("job1")
    queue.fail("job1-qstamp-1", after=LATE)
    queue.fail("job1-qstamp-2", after=24 * 3600 + 60)
    assert failure_of(queue).returned_gpus == ()
    queue.fail("job1-qstamp-3", after=LATE)
    assert [it.failures for it in failure_of(queue).returned_gpus] == [1]


def test_other_failures_record_no_gpus_and_read_nothing() -> None:
    queue = Logged(slots=1)
    queue.lines = [gpu_line(GPU), ("algo-1", NCCL)]
    queue.submit("job1")
    queue.fail("job1-qstamp-1", after=LATE)
    assert failure_of(queue).gpu_uuids == ()
    assert queue.tables.query("sagemaker-queue-lines", FAILED_GPUS) == []


def test_a_hardware_failure_without_a_uuid_records_no_row() -> None:
    queue = broken()
    assert queue.tables.query("sagemaker-queue-lines", FAILED_GPUS) == []
    assert failure_of(queue).gpu_uuids == ()


def test_the_rows_expire_and_name_no_job() -> None:
    queue = Logged(slots=1)
    queue.lines = [gpu_line(GPU), ("algo-1", XID)]
    queue.submit("secret-name")
    queue.fail("secret-name-qstamp-1", after=LATE)
    (row,) = queue.tables.query("sagemaker-queue-lines", FAILED_GPUS)
    assert row["expires"] > queue.now + 24 * 3600
    assert "secret-name" not in str(row)


def test_people_are_told_of_a_gpu_that_returned_and_not_whose_job_it_was() -> None:
    queue, notifier, sent = notifying()
    queue.lines = [gpu_line(GPU), ("algo-1", XID)]
    api = Api(queue=queue)
    queue.submit("theirs")
    queue.submit("job1")
    queue.fail("theirs-qstamp-1", after=LATE)
    queue.fail("job1-qstamp-1", after=LATE)
    notifier.flush(PATIENCE)
    (detail,) = [json.loads(it["Detail"]) for it in sent if it["DetailType"] == "Training Job GPU Returned"]
    assert (detail["job"], detail["trainingJobName"]) == ("job1", "job1-qstamp-1")
    assert (detail["failureClass"], detail["returnedGpus"]) == ("hardware", [GPU])
    assert f"had a hardware failure, and is tried again. {GPU} returned within a day" in detail["notice"]
    assert detail["notice"].endswith("SageMaker can exclude no instance.")
    for caller in (OWNER, STRANGER):
        _, shown = api.call("GET", "/jobs/job1", caller=caller)
        assert (shown["failure"]["gpuUuids"], shown["failure"]["instanceCheck"]) == ([GPU], True)
        assert [(it["uuid"], it["failures"]) for it in shown["failure"]["returnedGpus"]] == [(GPU, 1)]
        assert shown["failure"]["remedy"].startswith(f"{GPU} returned within a day")
        assert "theirs" not in json.dumps(shown["failure"])
    queue.now += 60
    _, page = api.call("GET", "/history", caller=STRANGER)
    assert [it["gpuUuids"] for it in page["attempts"]] == [[GPU], [GPU]]


def test_without_its_table_a_failure_counts_as_the_first_one() -> None:
    queue = Logged(slots=1)
    queue.lines = [gpu_line(GPU), ("algo-1", XID)]
    queue.submit("job1")
    queue.repository.failed_gpus = FailedGpuRecords(_Throttled(), "sagemaker-queue-lines")
    queue.fail("job1-qstamp-1", after=LATE)
    assert (queue.state("job1"), failure_of(queue).gpu_uuids, failure_of(queue).returned_gpus) == (
        "running",
        (GPU,),
        (),
    )


class _Throttled(MemoryTables):
    def transact(self, writes: Any) -> None:
        raise Unavailable("throttled")


def test_a_failure_of_an_earlier_version_has_no_gpus() -> None:
    stored = job_item(a_job(failure=FailedAttempt(1, "hardware", "A GPU failed.", "retry free", "built-in")))
    del stored["failure"]["gpuUuids"], stored["failure"]["returnedGpus"]
    failure = job_from(stored).failure
    assert failure is not None
    assert (failure.gpu_uuids, failure.returned_gpus) == ((), ())
    kept = replace(failure, gpu_uuids=(GPU,), returned_gpus=(ReturnedGpu(GPU, 2, 5),))
    assert job_from(job_item(a_job(failure=kept))).failure == kept
