"""Faults on purpose: each kind does what it says, as often as it says, and the same with the same seed."""

import re
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from local_cloud.aws.stack import LocalCloud
from local_cloud.faults.injection import KINDS, Chance, Faults, parse
from local_cloud.sagemaker.training_job import EmulatedTrainingJob
from local_cloud.user_errors import LocalCloudError
from tests.local_cloud.conftest import MakeEmulator
from tests.local_cloud.emulator import Emulator
from tests.local_cloud.test_stack import probe_project
from tests.waiting import PATIENCE, until

# Says which process it is, and works for longer than a process lives that is to die.
WORKER = """
import os, time

def lambda_handler(event, context):
    time.sleep(event.get("seconds", 0))
    return os.getpid()
"""


def begun(**probabilities: float) -> Faults:
    faults = Faults(probabilities)
    faults.begin()
    return faults


def test_a_list_of_faults() -> None:
    assert parse("throttle=0.2,crash=1, lost=0") == {"throttle": 0.2, "crash": 1.0, "lost": 0.0}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("trottle=0.2", f"there is no fault 'trottle'; known are {', '.join(KINDS)}"),
        ("", "there is no fault ''"),
        ("lost=0.1,", "there is no fault ''"),
        ("lost", "lost must be a probability from 0 to 1, such as lost=0.1, and not ''"),
        ("lost=20", "from 0 to 1, such as lost=0.1, and not '20'"),
        ("lost=-0.1", "from 0 to 1"),
        ("lost=nan", "from 0 to 1"),
        ("lost=some", "from 0 to 1"),
        ("lost=0.1,lost=0.2", "lost is given twice"),
    ],
)
def test_a_list_with_a_mistake(text: str, complaint: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse(text)
    assert complaint in str(raised.value)


def test_the_seed_decides_for_each_kind_by_itself() -> None:
    def drawn(kind: str, seed: int) -> list[float | None]:
        chance = Chance(kind, 0.3, seed)
        return [chance.draw() for _ in range(50)]

    assert drawn("lost", 1) == drawn("lost", 1)
    assert drawn("lost", 1) != drawn("lost", 2)
    assert drawn("lost", 1) != drawn("late", 1)


def test_a_probability_is_kept_and_counted() -> None:
    chance = Chance("lost", 0.3, seed=1)
    drawn = [value for _ in range(1000) if (value := chance.draw()) is not None]
    assert chance.count == len(drawn)
    assert 250 < len(drawn) < 350
    assert 0 <= min(drawn) < 0.1
    assert 0.9 < max(drawn) < 1


def test_nothing_happens_before_the_beginning_and_after_the_end() -> None:
    faults = Faults(dict.fromkeys(KINDS, 1.0))
    for _ in range(2):
        faults.refuse("CreateTrainingJob", {})
        faults.answer()
        assert faults.early_end(may_be_pending=True) is None
        assert list(faults.deliveries()) == [0.0]
        assert faults.strike() is None
        assert faults.log_delay() == 0
        faults.begin()
        faults.end()
    assert set(faults.counts.values()) == {0}


def code_of(emulator: Emulator, operation: str, **parameters: Any) -> str:
    with pytest.raises(ClientError) as raised:
        getattr(emulator.sagemaker, operation)(**parameters)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return str(raised.value.response["Error"]["Code"])


@pytest.mark.thorough
def test_every_call_can_be_throttled(make_emulator: MakeEmulator) -> None:
    faults = begun(throttle=1.0)
    emulator = make_emulator(faults=faults)
    for operation in ("describe_training_job", "stop_training_job"):
        assert code_of(emulator, operation, TrainingJobName="any") == "ThrottlingException"
    assert code_of(emulator, "list_training_jobs") == "ThrottlingException"
    with pytest.raises(ClientError, match="ThrottlingException"):
        emulator.create("throttled")
    assert faults.counts == {"throttle": 4}
    faults.end()
    assert emulator.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []


def test_an_answer_can_be_slow_or_missing(make_emulator: MakeEmulator) -> None:
    faults = begun(slow=1.0, unanswered=1.0)
    emulator = make_emulator(faults=faults)
    with pytest.raises(ConnectionClosedError):
        emulator.create("unanswered")
    assert faults.counts == {"slow": 1, "unanswered": 1}
    faults.end()
    assert emulator.ended("unanswered")["TrainingJobStatus"] == "Completed"


def test_only_launches_meet_the_limit(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(faults=begun(limit=1.0))
    with pytest.raises(ClientError, match="ResourceLimitExceeded"):
        emulator.create("limited")
    assert emulator.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [
        ("capacity", "Failed", "CapacityError: Unable to provision requested ML compute capacity."),
        ("internal", "Failed", "InternalServerError: "),
        ("pending", "Stopped", ""),
    ],
)
def test_a_job_is_accepted_and_ends_before_it_trains(
    make_emulator: MakeEmulator, kind: str, status: str, reason: str
) -> None:
    emulator = make_emulator(faults=begun(**{kind: 1.0}), instances={"ml.m5.large": 1})
    emulator.create("unlucky", StoppingCondition={"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 7200})
    job = emulator.ended("unlucky")
    assert job["TrainingJobStatus"] == status
    assert job.get("FailureReason", "").startswith(reason)
    assert [each["Status"] for each in job["SecondaryStatusTransitions"]] == ["Starting", "Pending", status]
    assert "TrainingStartTime" not in job
    waited = (job["LastModifiedTime"] - job["CreationTime"]).total_seconds()
    assert (waited >= 7200) == (kind == "pending")
    emulator.create("next")  # its instances are free again


@pytest.mark.thorough
def test_a_job_without_a_limit_to_its_waiting_does_not_wait_too_long(make_emulator: MakeEmulator) -> None:
    faults = begun(pending=1.0)
    emulator = make_emulator(faults=faults)
    emulator.create("patient")
    assert emulator.ended("patient")["TrainingJobStatus"] == "Completed"
    assert faults.counts == {"pending": 0}


def test_a_job_that_waits_for_instances_can_be_stopped(
    make_emulator: MakeEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("local_cloud.sagemaker.job_processes.runner.PENDING", PATIENCE)
    emulator = make_emulator(faults=begun(capacity=1.0))
    emulator.create("unlucky")
    emulator.stop("unlucky")
    assert emulator.ended("unlucky")["TrainingJobStatus"] == "Stopped"


GANG = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
WORKS = "print('works', flush=True); import time; time.sleep(86400)"


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "code"), [("oom", 137), ("hardware", 134)])
def test_an_instance_fails_while_it_trains(make_emulator: MakeEmulator, kind: str, code: int) -> None:
    faults = begun(**{kind: 1.0})
    emulator = make_emulator(faults=faults)
    emulator.create("failing", "python", "-c", WORKS, ResourceConfig=GANG)
    job = emulator.ended("failing")
    assert (job["TrainingJobStatus"], job["FailureReason"]) == ("Failed", f"AlgorithmError: , exit code: {code}")
    assert faults.counts == {kind: 1}
    assert "TrainingStartTime" in job
    told = [any(sign in line for line in emulator.log("failing")) for sign in ("NVRM: Xid", "uncorrectable ECC error")]
    assert told == [kind == "hardware"] * 2
    assert not emulator.processes("failing")


def test_a_script_whose_container_is_killed_gives_no_reason(make_emulator: MakeEmulator) -> None:
    """The training toolkit is killed, too, and writes none."""
    emulator = make_emulator()
    emulator.script("killed", WORKS)
    emulator.says("killed", "works")
    emulator.service.strike("killed", "oom")
    assert emulator.ended("killed")["FailureReason"] == "AlgorithmError: , exit code: 137"


def test_a_test_chooses_the_time_and_the_instance(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator()
    emulator.create("struck", "python", "-c", WORKS, ResourceConfig=GANG)
    for host in ("algo-1", "algo-2"):
        emulator.says("struck", "works", host)
    emulator.service.strike("struck", "hardware", "algo-2")
    assert emulator.ended("struck")["FailureReason"] == "AlgorithmError: , exit code: 134"
    assert len(emulator.log("struck", "algo-2")) == 4
    assert emulator.log("struck") == ["works"]
    with pytest.raises(ValueError, match="no training job 'struck' is running"):
        emulator.service.strike("struck", "oom")
    with pytest.raises(ValueError, match="there is no fault 'lost' of a job that trains; known are oom, "):
        emulator.service.strike("struck", "lost")


def test_no_fault_happens_to_a_job_that_has_ended(make_emulator: MakeEmulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of the job may still run after the end of the job."""
    end, over = EmulatedTrainingJob.end, threading.Event()

    def end_and_wait(job: EmulatedTrainingJob, *arguments: Any, **options: Any) -> None:
        end(job, *arguments, **options)
        over.wait(PATIENCE)

    monkeypatch.setattr(EmulatedTrainingJob, "end", end_and_wait)
    emulator = make_emulator()
    try:
        emulator.create("ended")
        emulator.ended("ended")
        with pytest.raises(ValueError, match="no training job 'ended' is running"):
            emulator.service.strike("ended", "oom")
    finally:
        over.set()


@pytest.mark.thorough
def test_a_gpu_has_the_same_uuid_as_long_as_jobs_get_the_same_machine(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator()

    def uuid_of(job: str, host: str) -> str:
        emulator.says(job, "works", host)
        emulator.service.strike(job, "hardware", host)
        emulator.ended(job)
        (found,) = re.findall(r"GPU-[0-9a-f-]{36}", "\n".join(emulator.log(job, host)))
        return str(found)

    emulator.create("first", "python", "-c", WORKS, ResourceConfig=GANG)
    emulator.create("beside", "python", "-c", WORKS, ResourceConfig={**GANG, "InstanceCount": 1})
    second = uuid_of("first", "algo-2")
    emulator.create("again", "python", "-c", WORKS, ResourceConfig=GANG)
    assert uuid_of("again", "algo-2") == second
    assert uuid_of("beside", "algo-1") != second
    emulator.create("once", "python", "-c", WORKS, ResourceConfig=GANG)
    assert uuid_of("once", "algo-1") != second


def statuses(emulator: Emulator, job: str) -> set[str]:
    """The statuses of the job's processes, without one that ends meanwhile."""
    found: set[str] = set()
    for process in emulator.processes(job):
        with suppress(psutil.NoSuchProcess):
            found.add(process.status())
    return found


def test_a_job_that_hangs_writes_nothing_and_can_be_stopped(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(stop_grace=0.2)
    code = "for ((n = 0; ; n++)); do echo $n; sleep 0.1; done"
    emulator.create("hung", "bash", "-c", f"trap : TERM; setsid bash -c '{code}' & {code}")
    until(lambda: emulator.log("hung").count("3") == 2)  # both loops run
    emulator.service.strike("hung", "hang")
    until(lambda: statuses(emulator, "hung") == {psutil.STATUS_STOPPED})
    size = next(emulator.service._machine.workdir.glob("*/algo-1.log")).stat().st_size
    assert emulator.describe("hung")["SecondaryStatus"] == "Training"
    emulator.stop("hung")
    job = emulator.ended("hung")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert sum(len(line) + 1 for line in emulator.log("hung")) <= size
    assert not emulator.processes("hung")


@pytest.mark.thorough
def test_a_hang_at_random(make_emulator: MakeEmulator) -> None:
    faults = begun(hang=1.0)
    emulator = make_emulator(faults=faults, stop_grace=0.2)
    emulator.create("hanging", "python", "-c", WORKS)
    until(lambda: psutil.STATUS_STOPPED in statuses(emulator, "hanging"))
    assert faults.counts == {"hang": 1}
    assert emulator.describe("hanging")["TrainingJobStatus"] == "InProgress"


def test_a_log_can_be_late(make_emulator: MakeEmulator) -> None:
    faults = begun(**{"logs-late": 1.0})
    emulator = make_emulator(faults=faults)
    emulator.create("late", "sh", "-c", "for n in 1 2 3; do echo $n; done")
    ended = emulator.ended("late")["LastModifiedTime"].timestamp() * 1000
    until(lambda: emulator.log("late") == ["1", "2", "3"])
    assert faults.counts == {"logs-late": 1}
    group, prefix = "/aws/sagemaker/TrainingJobs", "late/"
    events = emulator.logs.filter_log_events(logGroupName=group, logStreamNamePrefix=prefix)["events"]
    assert all(event["timestamp"] <= ended for event in events)  # when a line was written, not when it arrived


@pytest.mark.thorough
def test_the_most_instances_in_use_are_remembered(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator()
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    emulator.create("long", "sleep", "86400")
    emulator.create("two", ResourceConfig=two)
    emulator.ended("two")
    emulator.create("one")
    assert emulator.service.most_in_use == {"ml.m5.large": 3}


@pytest.mark.parametrize(("kind", "times"), [("lost", 0), ("duplicate", 2), ("late", 1)])
def test_events_are_lost_doubled_and_late(make_emulator: MakeEmulator, kind: str, times: int) -> None:
    told: list[str] = []
    faults = begun(**{kind: 1.0})
    emulator = make_emulator(faults=faults, deliver=lambda event: told.append(event["id"]))
    emulator.create("told")
    emulator.ended("told")
    faults.end()
    emulator.create("good")
    emulator.ended("good")
    number = 5  # of the events of a job
    until(lambda: len(told) == number * (times + 1))
    assert sorted(Counter(told).values()) == sorted([times] * number * bool(times) + [1] * number)
    assert faults.counts == {kind: number}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = probe_project(tmp_path)
    (project / "job_queue" / "lambda_function.py").write_text(WORKER)
    return project


@pytest.mark.thorough
def test_processes_of_the_function_are_killed_at_work(project: Path) -> None:
    with LocalCloud(faults=Faults({"crash": 1.0}, seed=3), project=project) as cloud:
        for count in (1, 2):
            with pytest.raises(LocalCloudError, match="Worker process died"):
                cloud.invoke({"seconds": 5})
            assert cloud.fault_counts() == {"crash": count}
        cloud.check()  # the services live


def test_short_invocations_die_of_what_they_add_up_to(project: Path) -> None:
    with LocalCloud(faults=Faults({"crash": 1.0}, seed=3), project=project) as cloud:
        answers = []
        while cloud.fault_counts()["crash"] == 0:
            try:
                answers.append(cloud.invoke({"seconds": 0.02}))
            except LocalCloudError:
                break
        assert len(set(answers)) <= 1
        assert len(answers) <= 25


@pytest.mark.thorough
def test_without_faults_no_process_dies(project: Path) -> None:
    with LocalCloud(project=project) as cloud:
        assert len({cloud.invoke({"seconds": 0.3}) for _ in range(4)}) == 1
        assert cloud.fault_counts() == {}
