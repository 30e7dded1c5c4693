"""How a job is stopped, and what it may still do then."""

import contextlib
import textwrap
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local_cloud.sagemaker.job_processes import staging
from local_cloud.sagemaker.job_processes.cluster import Cluster
from tests.local_cloud.conftest import MakeEmulator
from tests.local_cloud.emulator import BUCKET, Emulator
from tests.waiting import PATIENCE, has_ended, until

GANG = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
SAVES = """\
    import os, signal, sys, time
    def save(number, frame):
        open(os.environ["SM_CHECKPOINT_DIR"] + "/step", "w").write("7")
        open(os.environ["SM_MODEL_DIR"] + "/partial", "w").write("m")
        print("saved")
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("ready")
    time.sleep(86400)
"""


def run_saves(emulator: Emulator, name: str, code: str = SAVES, **changes: Any) -> None:
    """As the first process of its container, which gets the signal."""
    emulator.create(name, "sh", "-c", 'exec python -c "$CODE"', Environment={"CODE": textwrap.dedent(code)}, **changes)


def statuses(job: dict[str, Any]) -> list[str]:
    return [transition["Status"] for transition in job["SecondaryStatusTransitions"]]


def test_a_script_that_handles_sigterm_saves_and_is_stopped(emulator: Emulator) -> None:
    run_saves(emulator, "saves", CheckpointConfig={"S3Uri": f"s3://{BUCKET}/saves-state"})
    emulator.says("saves", "ready")
    emulator.stop("saves")
    assert emulator.describe("saves")["TrainingJobStatus"] in ("Stopping", "Stopped")
    job = emulator.ended("saves")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert statuses(job) == ["Starting", "Downloading", "Training", "Stopping", "Stopped"]
    assert all("EndTime" in transition for transition in job["SecondaryStatusTransitions"])
    assert emulator.log("saves") == ["ready", "saved"]
    assert emulator.read("saves-state/step") == b"7"
    assert emulator.unpacked("models/saves/output/model.tar.gz") == {"partial": b"m"}


def test_a_script_that_ignores_sigterm_is_killed_after_the_grace(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(stop_grace=0.5)
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(86400)"
    emulator.create("deaf", "python", "-c", code)
    emulator.says("deaf", "deaf")
    emulator.stop("deaf")
    job = emulator.ended("deaf")
    assert job["TrainingJobStatus"] == "Stopped"
    stopping = job["SecondaryStatusTransitions"][3]
    assert (stopping["EndTime"] - stopping["StartTime"]).total_seconds() >= 0.5


@pytest.mark.parametrize("handles", [True, False])
def test_only_the_first_process_gets_the_signal(emulator: Emulator, *, handles: bool) -> None:
    """As with `docker stop`. A first process without a handler is not ended by it either: the kernel drops it."""
    name = f"family-{handles}"
    child = "trap 'echo child; exit' TERM; echo up; while :; do sleep 0.1; done"
    trap = "trap 'echo parent' TERM; " if handles else ""
    emulator.create(name, "sh", "-c", f"{trap}({child}) & wait; echo over; sleep 0.1; echo more")
    emulator.says(name, "up")
    emulator.stop(name)
    assert emulator.ended(name)["TrainingJobStatus"] == "Stopped"
    assert emulator.log(name) == (["up", "parent", "over", "more"] if handles else ["up"])


def test_a_script_of_an_estimator_never_hears_of_its_stop(emulator: Emulator) -> None:
    """The first process is the shell of SageMaker's images: real bash, which has no handler and passes nothing on."""
    emulator.script("unheard", SAVES, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/unheard-state"})
    emulator.says("unheard", "ready")
    tree = emulator.processes("unheard")
    pids = {process.pid for process in tree}
    # Process ids wrap around, so their order is not always the order of the starts.
    assert [process.name() for process in tree if process.ppid() not in pids] == ["bash"]
    assert len(tree) >= 3
    emulator.stop("unheard")
    job = emulator.ended("unheard")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert emulator.log("unheard") == ["ready"]
    assert emulator.keys("unheard-state/") == []
    assert not emulator.processes("unheard")


def test_an_instance_that_dies_of_the_stop_before_the_others_fails_the_job(make_emulator: MakeEmulator) -> None:
    """The others handle the signal and would go on for longer than anybody waits."""
    emulator = make_emulator(stop_grace=86400.0)
    code = """
        import os, signal, sys, time
        last = os.environ["SM_CURRENT_HOST"] == "algo-2"
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143) if last else print("goes on"))
        print("ready")
        while True: time.sleep(0.1)
    """
    run_saves(emulator, "late", code, ResourceConfig=GANG)
    for host in ("algo-1", "algo-2"):
        emulator.says("late", "ready", host)
    emulator.stop("late")
    job = emulator.ended("late")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Failed", "Failed")
    assert job["FailureReason"].startswith("AlgorithmError: ")
    assert job["FailureReason"].endswith("exit code: 143")
    assert statuses(job)[-2:] == ["Stopping", "Failed"]
    assert not emulator.processes("late")


def test_instances_that_die_of_the_stop_together_are_stopped(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, the second one may end more than a second later.
    monkeypatch.setattr("local_cloud.sagemaker.job_processes.execution.FAILED_ALONE_AFTER", PATIENCE)
    code = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        print("ready")
        while True: time.sleep(0.1)
    """
    run_saves(emulator, "together", code, ResourceConfig=GANG)
    for host in ("algo-1", "algo-2"):
        emulator.says("together", "ready", host)
    emulator.stop("together")
    assert emulator.ended("together")["TrainingJobStatus"] == "Stopped"


def test_a_job_that_has_ended_cannot_be_stopped(emulator: Emulator) -> None:
    emulator.create("over")
    emulator.ended("over")
    with pytest.raises(ClientError, match="rejected because the training job is in status Completed") as raised:
        emulator.stop("over")
    assert raised.value.response["Error"]["Code"] == "ValidationException"


def test_a_job_is_stopped_once(emulator: Emulator) -> None:
    emulator.create("twice", "sleep", "86400")
    emulator.stop("twice")
    try:
        emulator.stop("twice")
    except ClientError as error:  # the first stop was that fast
        assert "in status Stopped" in str(error)
    assert statuses(emulator.ended("twice")).count("Stopping") == 1


def test_a_stop_that_comes_during_the_upload_changes_nothing(
    make_emulator: MakeEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = staging.upload_outputs

    def stop_while_uploading(cluster: Cluster, *arguments: Any, **options: Any) -> str | None:
        if cluster.name == "done":
            emulator.stop("done")
        return upload(cluster, *arguments, **options)

    emulator = make_emulator()
    monkeypatch.setattr(staging, "upload_outputs", stop_while_uploading)
    emulator.create("done", "sh", "-c", "echo m > $SM_MODEL_DIR/m")
    job = emulator.ended("done")
    assert emulator.unpacked("models/done/output/model.tar.gz") == {"m": b"m\n"}
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Completed", "Completed")
    assert statuses(job)[-3:] == ["Uploading", "Stopping", "Completed"]


@pytest.mark.parametrize("number", range(3))
def test_a_script_that_was_done_before_the_signal_is_completed(emulator: Emulator, tmp_path: Path, number: int) -> None:
    """The stop is asked for as soon as the script has ended, mostly before the emulator has noticed."""
    name, gate = f"was-done-{number}", tmp_path / "gate"
    emulator.create(name, "sh", "-c", f"echo $$; while [ ! -e {gate} ]; do :; done")
    until(lambda: emulator.log(name))
    pid = int(emulator.log(name)[0])
    gate.touch()
    while not has_ended(pid):
        pass
    with contextlib.suppress(ClientError):  # it may be Completed already
        emulator.stop(name)
    assert emulator.ended(name)["TrainingJobStatus"] == "Completed"


def test_a_job_that_has_not_started_yet_is_stopped_at_once(make_emulator: MakeEmulator) -> None:
    emulator = make_emulator(startup_delay=86400.0)
    emulator.create("early", "true")
    assert emulator.describe("early")["SecondaryStatus"] == "Starting"
    emulator.stop("early")
    job = emulator.ended("early")
    assert statuses(job) == ["Starting", "Stopping", "Stopped"]
    assert "TrainingStartTime" not in job


def test_a_job_that_trains_too_long_is_stopped(emulator: Emulator) -> None:
    for seconds in (1, 5, 25, 125):  # as long as this machine needs to come so far that the signal is handled
        name = f"long-{seconds}"
        run_saves(emulator, name, StoppingCondition={"MaxRuntimeInSeconds": seconds})
        job = emulator.ended(name)
        assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
        if "ready" in emulator.log(name):
            break
    assert emulator.log(name) == ["ready", "saved"]
    assert emulator.unpacked(f"models/{name}/output/model.tar.gz") == {"partial": b"m"}


def test_the_script_itself_is_the_process_that_gets_the_signal(emulator: Emulator) -> None:
    emulator.create("direct", "python", "-c", "import os,time; print(os.getsid(0)==os.getpid()); time.sleep(86400)")
    emulator.says("direct", "True")
    emulator.stop("direct")
    assert emulator.ended("direct")["TrainingJobStatus"] == "Stopped"


def test_an_instance_stays_in_use_until_the_job_is_stopped(make_emulator: MakeEmulator, tmp_path: Path) -> None:
    emulator = make_emulator(instances={"ml.m5.large": 1}, stop_grace=86400.0, workdir=tmp_path / "jobs")
    gate = tmp_path / "gate"
    wait = f"while not os.path.exists({str(gate)!r}): time.sleep(0.05)"
    run_saves(emulator, "busy", SAVES.replace("        sys.exit(0)", f"        {wait}\n        sys.exit(0)"))
    emulator.says("busy", "ready")
    emulator.stop("busy")
    with pytest.raises(ClientError, match="ResourceLimitExceeded"):
        emulator.create("waits")
    gate.touch()
    emulator.ended("busy")
    until(lambda: emulator.create("waits"))
