"""The class of each failure of a real process, from the reason and the log that the local cloud reports."""

import time

import pytest

from job_queue.domain.failures import Failure, FailureClass, LoggedLine, classify, first_failed
from tests.local_cloud.conftest import MakeEmulator
from tests.local_cloud.emulator import BUCKET, Emulator
from tests.local_cloud.test_faults import GANG, WORKS, begun

GROUP = "/aws/sagemaker/TrainingJobs"
# torch does not install here: the texts are those of torch, the processes and their ends are real.
OUT_OF_GPU_MEMORY = (
    "raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.58 GiB')"
)
NO_SPACE = "file = open('/dev/full', 'w'); file.write('checkpoint'); file.flush()"  # Linux: ENOSPC at every write
ARGUMENTS = "import argparse; argparse.ArgumentParser().parse_args(['--epochs', '3'])"
TIME_OUT = """
import os, resource, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print("step 1", flush=True)
if os.environ["SM_CURRENT_HOST"] == "algo-1":
    time.sleep(86400)
print("[rank1]:[E ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=64, "
      "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600410 milliseconds before timing out.", flush=True)
os.kill(os.getpid(), 6)
"""


def logged(emulator: Emulator, job: str) -> list[LoggedLine]:
    """The last lines of a job, oldest first: the newest are asked for, in pages, with a limit."""
    since = round((time.time() - 3600) * 1000)
    pages = emulator.logs.get_paginator("filter_log_events").paginate(
        logGroupName=GROUP,
        logStreamNamePrefix=f"{job}/",
        startTime=since,
        startFromHead=False,
        PaginationConfig={"PageSize": 50, "MaxItems": 100},
    )
    events = [event for page in pages for event in page["events"]]
    return [LoggedLine(it["logStreamName"], it["timestamp"], it["message"]) for it in reversed(events)]


def failure_of(emulator: Emulator, job: str) -> Failure:
    ended = emulator.ended(job)
    assert ended["TrainingJobStatus"] == "Failed"
    return classify(ended["FailureReason"], None, [line.text for line in logged(emulator, job)])


@pytest.mark.thorough
@pytest.mark.parametrize("is_script", [False, True], ids=["container", "script"])
@pytest.mark.parametrize(
    ("name", "code", "expected", "says"),
    [
        ("import", "import no_such_module", FailureClass.USER_ERROR, "The module no_such_module is not installed."),
        ("gpu-memory", OUT_OF_GPU_MEMORY, FailureClass.GPU_MEMORY, "2.00 GiB"),
        ("disk", NO_SPACE, FailureClass.DISK_FULL, "A disk of an instance is full."),
        ("killed", "import os; os.kill(os.getpid(), 9)", FailureClass.MEMORY, "The program was killed, most likely"),
        ("arguments", ARGUMENTS, FailureClass.USER_ERROR, "--epochs"),
        (
            "file",
            "open('/opt/ml/input/data/train/gone')",
            FailureClass.MISSING_DATA,
            "The input /opt/ml/input/data/train/gone does not exist.",
        ),
    ],
)
def test_a_process_that_fails(
    emulator: Emulator, name: str, code: str, expected: FailureClass, says: str, is_script: bool
) -> None:
    job = f"class-{name}-{'script' if is_script else 'container'}"
    if is_script:
        emulator.script(job, code)
    else:
        emulator.create(job, "python", "-c", code)
    failure = failure_of(emulator, job)
    assert failure.failure_class is expected
    assert says in failure.sentence


@pytest.mark.parametrize(("kind", "expected"), [("oom", FailureClass.MEMORY), ("hardware", FailureClass.HARDWARE)])
def test_an_instance_that_fails(emulator: Emulator, kind: str, expected: FailureClass) -> None:
    job = f"struck-{kind}"
    emulator.create(job, "python", "-c", WORKS, ResourceConfig=GANG)
    for host in ("algo-1", "algo-2"):
        emulator.says(job, "works", host)
    emulator.service.strike(job, kind, "algo-2")
    assert failure_of(emulator, job).failure_class is expected
    if kind == "hardware":
        rank, lines = first_failed(logged(emulator, job))
        assert (rank, lines[0]) == ("algo-2", "works")


def test_a_time_out_of_nccl_in_one_of_two_ranks(emulator: Emulator) -> None:
    emulator.script("timed-out", TIME_OUT, ResourceConfig=GANG)
    failure = failure_of(emulator, "timed-out")
    assert failure.failure_class is FailureClass.COMMUNICATION
    assert "ExitCode 134" in emulator.describe("timed-out")["FailureReason"]
    assert first_failed(logged(emulator, "timed-out"))[0] == "algo-2 rank 1"


@pytest.mark.parametrize(
    ("kind", "expected"), [("capacity", FailureClass.CAPACITY), ("internal", FailureClass.INTERNAL)]
)
def test_a_failure_of_sagemaker(make_emulator: MakeEmulator, kind: str, expected: FailureClass) -> None:
    emulator = make_emulator(faults=begun(**{kind: 1.0}))
    emulator.create(f"of-sagemaker-{kind}")
    reason = emulator.ended(f"of-sagemaker-{kind}")["FailureReason"]
    assert classify(reason, None, []).failure_class is expected


def test_data_that_are_gone(emulator: Emulator) -> None:
    emulator.put("gone.manifest", f'[{{"prefix": "s3://{BUCKET}/"}}, "gone.csv"]'.encode())
    source = {"S3DataSource": {"S3DataType": "ManifestFile", "S3Uri": f"s3://{BUCKET}/gone.manifest"}}
    emulator.create("gone-data", InputDataConfig=[{"ChannelName": "train", "DataSource": source}])
    failure = classify(emulator.ended("gone-data")["FailureReason"], None, [])
    assert failure.failure_class is FailureClass.MISSING_DATA
    assert f"s3://{BUCKET}/gone.csv" in failure.sentence
