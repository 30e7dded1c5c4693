"""Members on a carrier: they come and go, have what was promised, and leave nothing behind."""

import io
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from job_queue.adapters.carriers import program
from tests.carrier_agent.carrier import BUCKET, Carrier
from tests.waiting import has_ended, until

UNTIL_STOPPED = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done"


def test_a_member_runs_and_its_end_is_told(carrier: Carrier) -> None:
    carrier.assign("one-qstamp-1", "echo hello; echo on $CUDA_VISIBLE_DEVICES of $SM_NUM_GPUS", gpus=(2, 3))
    ended = carrier.end_of("one-qstamp-1")
    assert (ended["status"], ended["exit"], ended["sharing"]) == ("Completed", 0, "whole")
    assert ended["at"] >= ended["started"]
    assert {"hello", "on 2,3 of 2"} <= set(carrier.lines("one-qstamp-1"))
    assert not list((carrier.base / "members").iterdir())


def test_a_failure_is_told_as_sagemaker_tells_it(carrier: Carrier) -> None:
    carrier.assign("bad-qstamp-1", 'printf "no such file" > "$SM_OUTPUT_DIR/failure"; exit 3')
    ended = carrier.end_of("bad-qstamp-1")
    assert (ended["status"], ended["exit"]) == ("Failed", 3)
    assert ended["reason"] == "AlgorithmError: no such file, exit code: 3"


def test_who_is_stopped_may_end_by_itself(carrier: Carrier) -> None:
    carrier.assign("long-qstamp-1", UNTIL_STOPPED)
    carrier.until_says("long-qstamp-1", "up")
    until(lambda: carrier.report("long-qstamp-1", "started"))
    carrier.stop("long-qstamp-1")
    assert carrier.end_of("long-qstamp-1")["status"] == "Stopped"
    assert "asked" in carrier.lines("long-qstamp-1")


def test_who_ignores_a_stop_is_killed_with_all_that_it_started(carrier: Carrier) -> None:
    # One is in the group, one has left it for a session of its own.
    script = "trap '' TERM; setsid sleep 1234 & sleep 1234 & echo up; while :; do sleep 0.05; done"
    carrier.assign("deaf-qstamp-1", script, grace=0.5)
    carrier.until_says("deaf-qstamp-1", "up")
    carrier.stop("deaf-qstamp-1")
    assert carrier.end_of("deaf-qstamp-1")["status"] == "Stopped"
    assert not carrier.processes("deaf-qstamp-1")


def test_nothing_is_left_of_one_that_ends_before_what_it_has_started(carrier: Carrier) -> None:
    carrier.assign("parent-qstamp-1", "setsid sh -c 'sleep 1234' & echo done")
    assert carrier.end_of("parent-qstamp-1")["status"] == "Completed"
    assert not carrier.processes("parent-qstamp-1")


def test_a_stop_before_the_assignment_ends_it_before_it_begins(carrier: Carrier) -> None:
    carrier.stop("late-qstamp-1")
    carrier.assign("late-qstamp-1", "echo never")
    assert carrier.end_of("late-qstamp-1")["status"] == "Stopped"
    assert "never" not in carrier.lines("late-qstamp-1")


def test_one_that_runs_too_long_is_stopped(carrier: Carrier) -> None:
    carrier.assign("slow-qstamp-1", UNTIL_STOPPED, request={"StoppingCondition": {"MaxRuntimeInSeconds": 0.5}})
    ended = carrier.end_of("slow-qstamp-1")
    assert (ended["status"], ended["reason"]) == ("Stopped", "MaxRuntimeExceeded")


def test_one_that_eats_the_disk_is_ended_and_its_files_are_gone(carrier: Carrier) -> None:
    script = 'head -c 50000000 /dev/urandom > "$TMPDIR/much"; echo full; while :; do sleep 0.05; done'
    carrier.assign("big-qstamp-1", script, disk=10 << 20)
    ended = carrier.end_of("big-qstamp-1")
    assert ended["status"] == "Failed"
    assert "10 MiB of the carrier's disk" in ended["reason"]
    assert not (carrier.base / "members" / "big-qstamp-1").exists()


@pytest.mark.parametrize(
    ("gpus", "tenths", "why"),
    [((8,), 10, "there is no GPU 8"), ((0, 0), 10, "whole GPUs"), ((0, 1), 5, "whole GPUs"), ((), 10, "whole GPUs")],
)
def test_gpus_that_are_not_there_are_not_given(carrier: Carrier, gpus: tuple[int, ...], tenths: int, why: str) -> None:
    carrier.assign("odd-qstamp-1", "echo never", gpus=gpus, tenths=tenths)
    ended = carrier.end_of("odd-qstamp-1")
    assert (ended["status"], why in ended["reason"]) == ("Failed", True)


def test_nobody_gets_a_gpu_that_another_has(carrier: Carrier) -> None:
    carrier.assign("first-qstamp-1", UNTIL_STOPPED, gpus=(4,), tenths=6)
    carrier.until_says("first-qstamp-1", "up")
    carrier.assign("second-qstamp-1", "echo never", gpus=(4,), tenths=5)
    assert "has 4 free tenths, and 5 are requested" in carrier.end_of("second-qstamp-1")["reason"]
    carrier.assign("third-qstamp-1", "echo $SMQ_GPU_MEMORY_FRACTION $CUDA_VISIBLE_DEVICES", gpus=(4,), tenths=4)
    assert carrier.end_of("third-qstamp-1")["sharing"] == "time-slicing"
    assert "0.4 4" in carrier.lines("third-qstamp-1")


# It runs until it is told to end, as NVIDIA's does in the foreground.
DAEMON = """#!/bin/sh
trap 'exit 0' TERM
echo "daemon $$ $* of $CUDA_VISIBLE_DEVICES at $CUDA_MPS_PIPE_DIRECTORY"
while :; do sleep 0.05; done
"""
LIMITS = (
    "echo $CUDA_VISIBLE_DEVICES $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    " $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT $CUDA_MPS_PIPE_DIRECTORY"
)


def install(carrier: Carrier, name: str, script: str) -> None:
    """A stand-in for a program of NVIDIA's, which no machine without its GPUs has."""
    path = carrier.base / "bin" / name
    path.write_text(script)
    path.chmod(0o755)


def daemons(carrier: Carrier) -> list[str]:
    """What those of MPS have said."""
    return [line for line in carrier.log if line.startswith("daemon ")]


def test_parts_of_a_gpu_are_limited_by_mps_where_it_starts(carrier: Carrier) -> None:
    install(carrier, "nvidia-smi", "#!/bin/sh\necho 80000\n")
    install(carrier, "nvidia-cuda-mps-control", DAEMON)
    for name, tenths in [("one", 3), ("two", 7)]:
        carrier.assign(f"{name}-qstamp-1", LIMITS, gpus=(5,), tenths=tenths)
        assert carrier.end_of(f"{name}-qstamp-1")["sharing"] == "mps"
    (told,) = until(lambda: daemons(carrier))  # one for both
    pid, pipes = int(told.split()[1]), told.rpartition(" ")[2]
    assert told == f"daemon {pid} -f of 5 at {pipes}"
    assert f"0 30 0=24000M {pipes}" in carrier.lines("one-qstamp-1")
    assert f"0 70 0=56000M {pipes}" in carrier.lines("two-qstamp-1")
    assert not has_ended(pid)
    carrier.terminate()
    assert has_ended(pid)


def test_members_take_turns_where_mps_does_not_start(carrier: Carrier) -> None:
    install(carrier, "nvidia-cuda-mps-control", '#!/bin/sh\necho "daemon $$"\nexit 1\n')
    carrier.assign("one-qstamp-1", "true", gpus=(5,), tenths=3)  # a slow machine may not have seen its end yet
    carrier.end_of("one-qstamp-1")
    (told,) = until(lambda: daemons(carrier))
    until(lambda: has_ended(int(told.split()[1])))
    carrier.assign("two-qstamp-1", LIMITS, gpus=(5,), tenths=3)
    assert carrier.end_of("two-qstamp-1")["sharing"] == "time-slicing"
    assert "5" in carrier.lines("two-qstamp-1")


@pytest.mark.thorough
def test_who_has_reported_leaves_its_gpus_to_the_next(carrier: Carrier) -> None:
    for number in range(1, 11):
        carrier.assign(f"m-qstamp-{number}", "true", gpus=tuple(range(8)))
        assert carrier.end_of(f"m-qstamp-{number}")["status"] == "Completed"


def test_data_checkpoints_and_results(carrier: Carrier) -> None:
    data = carrier.put("data/a/b.txt", b"data").rpartition("/a/")[0]
    carrier.put("saved/step", b"41")
    request = {
        "InputDataConfig": [
            {"ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": data}}}
        ],
        "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/{carrier.prefix}/saved"},
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/{carrier.prefix}/results"},
        "HyperParameters": {"lr": "0.1"},
        "Environment": {"WHERE": "/opt/ml/input/data/train"},
    }
    script = """
        cat "$SM_CHANNEL_TRAIN/a/b.txt" "$WHERE/a/b.txt"; echo
        cat "$SM_INPUT_CONFIG_DIR/hyperparameters.json"; echo
        echo $(($(cat "$SM_CHECKPOINT_DIR/step") + 1)) > "$SM_CHECKPOINT_DIR/step"
        echo weights > "$SM_MODEL_DIR/model"; echo figures > "$SM_OUTPUT_DATA_DIR/figures"
    """
    carrier.assign("job-qstamp-1", script, request=request)
    assert carrier.end_of("job-qstamp-1")["status"] == "Completed", carrier.log
    assert {"datadata", '{"lr": "0.1"}'} <= set(carrier.lines("job-qstamp-1"))
    assert carrier.get("saved/step") == b"42\n"
    assert unpacked(carrier.get("results/job-qstamp-1/output/model.tar.gz")) == {"model": b"weights\n"}
    assert unpacked(carrier.get("results/job-qstamp-1/output/output.tar.gz")) == {"data/figures": b"figures\n"}


def unpacked(packed: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        return {member.name: archive.extractfile(member).read() for member in files}  # type: ignore[union-attr]


def test_data_that_is_not_there_fails_it(carrier: Carrier) -> None:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/nowhere"}}
    carrier.assign(
        "x-qstamp-1", "echo never", request={"InputDataConfig": [{"ChannelName": "c", "DataSource": source}]}
    )
    assert "no object in S3 matches" in carrier.end_of("x-qstamp-1")["reason"]


def test_members_do_not_see_the_carriers_variables_nor_one_another(carrier: Carrier) -> None:
    carrier.assign("a-qstamp-1", "env | sort; echo $HOME")
    carrier.end_of("a-qstamp-1")
    lines = carrier.lines("a-qstamp-1")
    assert not any(line.startswith("SM_CHANNEL_CARRIER") for line in lines)
    assert any(line.startswith("TRAINING_JOB_NAME=a-qstamp-1") for line in lines)
    assert any(line.startswith("HOME=") and "/members/a-qstamp-1/" in line for line in lines)


def test_nobody_writes_lines_in_anothers_name(carrier: Carrier) -> None:
    script = (
        r"printf 'victim-qstamp-1| forged\nx\rvictim-qstamp-1| forged\n\377\n'; head -c 100000 /dev/zero | tr '\0' z"
    )
    carrier.assign("rogue-qstamp-1", script)
    carrier.end_of("rogue-qstamp-1")
    assert carrier.lines("victim-qstamp-1") == []
    assert "\ufffd" in carrier.lines("rogue-qstamp-1")
    assert sum(line.count("z") for line in carrier.lines("rogue-qstamp-1")) == 100_000


def test_a_carrier_that_is_stopped_stops_all_and_saves_what_they_have(carrier: Carrier) -> None:
    save = "trap 'echo saved > \"$SM_CHECKPOINT_DIR/step\"; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    for number in range(4):
        home = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/{carrier.prefix}/saved-{number}"}}
        carrier.assign(f"m{number}-qstamp-1", save, gpus=(number,), request=home)
    for number in range(4):
        carrier.until_says(f"m{number}-qstamp-1", "up")
    assert carrier.terminate() == 0
    for number in range(4):
        ended = carrier.report(f"m{number}-qstamp-1")
        assert ended is not None
        assert (ended["status"], ended["reason"]) == ("Stopped", "the carrier was stopped")
        assert carrier.get(f"saved-{number}/step") == b"saved\n"


def test_an_agent_that_starts_a_second_time_ends_its_carrier(carrier: Carrier, tmp_path: Path) -> None:
    """Its key is gone, so it cannot be told from another program."""
    count = tmp_path / "count"
    carrier.assign("once-qstamp-1", f"echo . >> {count}")
    carrier.end_of("once-qstamp-1")
    carrier.kill()
    carrier.start()
    assert carrier.wait() == 1
    assert count.read_text().count(".") == 1


def test_it_says_that_it_is_there(carrier: Carrier) -> None:
    until(lambda: "alive.json" in carrier.keys("out/"))


def test_an_archive_that_somebody_changed_is_not_run(carrier: Carrier) -> None:
    channel = carrier.base / "input" / "data" / "carrier"
    (channel / program.ARCHIVE).write_bytes(b"other")
    environment = {"PATH": os.environ["PATH"], "SM_CHANNEL_CARRIER": str(channel)}
    ended = subprocess.run(program.entry_point(), env=environment, capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"not what was sent" in ended.stderr


def test_signals_reach_the_whole_group(carrier: Carrier) -> None:
    carrier.assign("pipe-qstamp-1", f'sh -c "{UNTIL_STOPPED}" | cat; echo {int(signal.SIGTERM)}')
    carrier.until_says("pipe-qstamp-1", "up")
    carrier.stop("pipe-qstamp-1")
    assert carrier.end_of("pipe-qstamp-1")["status"] == "Stopped"
