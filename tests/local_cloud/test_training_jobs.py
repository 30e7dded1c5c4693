"""What a training job finds, does and leaves: real processes, real S3, real logs."""

import json
import threading
from pathlib import Path

import pytest

from tests.local_cloud.conftest import MakeEmulator
from tests.local_cloud.emulator import BUCKET, Emulator, packed
from tests.waiting import until

GANG = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}


def channel(name: str, prefix: str, **source: object) -> dict[str, object]:
    place = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": place | source}}


def test_a_script_gets_hyperparameters_channels_and_variables(emulator: Emulator) -> None:
    emulator.put("numbers/a/one.txt", b"1")
    emulator.put("numbers/two.txt", b"2")
    emulator.put("numbers-of-another/three.txt", b"3")
    emulator.script(
        "script",
        """
        import json, os, sys
        from pathlib import Path
        folder = Path(os.environ["SM_CHANNEL_TRAIN"])
        print(json.dumps({
            "arguments": sys.argv[1:],
            "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*.txt")),
            "variables": dict(os.environ),
            "hyperparameters": json.loads(Path(os.environ["SM_INPUT_CONFIG_DIR"], "hyperparameters.json").read_text()),
            "cwd": os.getcwd(),
            "executable": sys.executable,
        }))
        """,
        {"epochs": 3, "lr": 0.1, "name": "a b", "flag": True},
        InputDataConfig=[channel("train", "numbers/")],
        Environment={"MINE": "yes"},
    )
    job = emulator.ended("script")
    assert job["TrainingJobStatus"] == "Completed"
    until(lambda: emulator.log("script"))
    (line,) = emulator.log("script")
    seen = json.loads(line)

    assert seen["arguments"] == ["--epochs", "3", "--flag", "True", "--lr", "0.1", "--name", "a b"]
    assert seen["files"] == ["a/one.txt", "two.txt"]
    assert seen["hyperparameters"]["sagemaker_program"] == '"train.py"'
    variables = seen["variables"]
    assert json.loads(variables["SM_HPS"]) == {"epochs": 3, "lr": 0.1, "name": "a b", "flag": True}
    expected = {
        "SM_HP_EPOCHS": "3",
        "SM_HP_NAME": "a b",
        "SM_HP_FLAG": "true",
        "SM_CHANNELS": '["train"]',
        "SM_HOSTS": '["algo-1"]',
        "SM_CURRENT_HOST": "algo-1",
        "SM_CURRENT_INSTANCE_TYPE": "ml.m5.large",
        "SM_NUM_GPUS": "0",
        "SM_MODULE_NAME": "train",
        "SM_USER_ARGS": '["--epochs","3","--flag","True","--lr","0.1","--name","a b"]',
        "TRAINING_JOB_NAME": "script",
        "TRAINING_JOB_ARN": job["TrainingJobArn"],
        "AWS_ENDPOINT_URL": emulator.aws_url,
        "AWS_ENDPOINT_URL_SAGEMAKER": emulator.service.url,
        "AWS_REGION": "us-east-1",
        "MINE": "yes",
    }
    assert variables | expected == variables
    for name in ("SM_MODEL_DIR", "SM_OUTPUT_DATA_DIR", "SM_CHECKPOINT_DIR", "SM_TRAINING_ENV", "SM_RESOURCE_CONFIG"):
        assert variables[name]


@pytest.mark.parametrize("where", ["word", "variable"])
def test_what_no_process_can_be_given_fails_the_job(emulator: Emulator, where: str) -> None:
    """No process has a NUL in its words or its variables."""
    words = ("echo", "a\0b") if where == "word" else ("true",)
    environment = {} if where == "word" else {"Environment": {"A": "a\0b"}}
    emulator.create(f"nul-{where}", *words, ResourceConfig=GANG, **environment)
    job = emulator.ended(f"nul-{where}")
    assert job["TrainingJobStatus"] == "Failed"
    assert "cannot be started" in job["FailureReason"]


def test_a_command_runs_as_it_is_and_leaves_artifacts(emulator: Emulator) -> None:
    emulator.create("plain", "sh", "-c", "printf w > $SM_MODEL_DIR/weights; printf n > $SM_OUTPUT_DATA_DIR/notes")
    job = emulator.ended("plain")
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Completed", "Completed")
    address = job["ModelArtifacts"]["S3ModelArtifacts"]
    assert address == f"s3://{BUCKET}/models/plain/output/model.tar.gz"
    assert emulator.unpacked("models/plain/output/model.tar.gz") == {"weights": b"w"}
    assert emulator.unpacked("models/plain/output/output.tar.gz") == {"notes": b"n"}
    assert job["TrainingEndTime"] >= job["TrainingStartTime"]
    assert job["BillableTimeInSeconds"] >= 1


def test_artifacts_may_be_left_unpacked(emulator: Emulator) -> None:
    output = {"S3OutputPath": f"s3://{BUCKET}/loose/", "CompressionType": "NONE"}
    emulator.create("loose", "sh", "-c", "printf w > $SM_MODEL_DIR/weights", OutputDataConfig=output)
    address = emulator.ended("loose")["ModelArtifacts"]["S3ModelArtifacts"]
    assert address == f"s3://{BUCKET}/loose/loose/output/model/"
    assert emulator.keys("loose/loose/") == ["loose/loose/output/model/weights"]


def test_opt_ml_is_there_for_the_job_only(emulator: Emulator, mounted: bool) -> None:
    """Where the kernel shows a job no /opt/ml, its log says so."""
    before = Path("/opt/ml").exists()
    code = "ls /opt/ml && getent hosts algo-1 && touch /opt/ml/model/weights && ls /proc/self/root/opt"
    emulator.create("at-opt-ml", "sh", "-c", code)
    job = emulator.ended("at-opt-ml")
    lines = emulator.log("at-opt-ml")
    if mounted:
        assert job["TrainingJobStatus"] == "Completed", job["FailureReason"]
        assert lines[:5] == ["checkpoints", "code", "input", "model", "output"]
        assert lines[5].split() == ["127.0.0.1", "algo-1"]
        assert sorted({entry.name for entry in Path("/opt").iterdir()} | {"ml"}) == sorted(lines[6:])
        assert set(emulator.unpacked("models/at-opt-ml/output/model.tar.gz")) == {"weights"}
    else:
        assert "/opt/ml cannot be shown on this machine" in emulator.whole_log("at-opt-ml")[0]
    assert Path("/opt/ml").exists() == before


def test_two_instances_are_two_processes_that_know_each_other(emulator: Emulator) -> None:
    emulator.script(
        "gang",
        """
        import os, socket, time
        from pathlib import Path
        host, address = os.environ["SM_CURRENT_HOST"], (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if host == "algo-1":
            with socket.create_server(address) as server:
                print(server.accept()[0].recv(100).decode())
        else:
            with socket.socket() as connection:
                while connection.connect_ex(address):  # the other does not listen yet
                    time.sleep(0.02)
                connection.sendall(f"{host} of {os.environ['SM_HOSTS']}".encode())
        Path(os.environ["SM_MODEL_DIR"], host).touch()
        """,
        ResourceConfig=GANG,
    )
    assert emulator.ended("gang")["TrainingJobStatus"] == "Completed"
    assert emulator.log("gang") == ['algo-2 of ["algo-1","algo-2"]']
    assert set(emulator.unpacked("models/gang/output/model.tar.gz")) == {"algo-1", "algo-2"}


def test_instances_share_a_sharded_channel(emulator: Emulator) -> None:
    for number in range(3):
        emulator.put(f"shards/{number}", b"")
    emulator.create(
        "sharded",
        "sh",
        "-c",
        "ls $SM_CHANNEL_ALL",
        ResourceConfig=GANG,
        InputDataConfig=[channel("all", "shards/", S3DataDistributionType="ShardedByS3Key")],
    )
    emulator.ended("sharded")
    assert (emulator.log("sharded"), emulator.log("sharded", "algo-2")) == (["0", "2"], ["1"])


def test_a_sharded_channel_of_instance_groups_is_shared_by_the_instances_of_these_groups(emulator: Emulator) -> None:
    for number in range(3):
        emulator.put(f"parts/{number}", b"")
    groups = [
        {"InstanceGroupName": name, "InstanceType": "ml.m5.large", "InstanceCount": count}
        for name, count in (("cpu", 1), ("gpu", 2))
    ]
    emulator.create(
        "of-groups",
        "sh",
        "-c",
        "ls $SM_INPUT_DIR/data/all; true",
        ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1},
        InputDataConfig=[
            channel("all", "parts/", S3DataDistributionType="ShardedByS3Key", InstanceGroupNames=["gpu"]),
        ],
    )
    emulator.ended("of-groups")
    assert (emulator.log("of-groups", "algo-2"), emulator.log("of-groups", "algo-3")) == (["0", "2"], ["1"])


def test_one_instance_that_fails_ends_the_job(emulator: Emulator) -> None:
    code = "import os,time; os.environ['SM_CURRENT_HOST']=='algo-2' and exit(3); time.sleep(86400)"
    emulator.create("half", "python", "-c", code, ResourceConfig=GANG)
    job = emulator.ended("half")
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"] == "AlgorithmError: , exit code: 3"
    assert not emulator.processes("half")


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("raises", "raise ValueError('no data')", "AlgorithmError: , exit code: 1"),
        (
            "reports",
            "import os; open(os.environ['SM_OUTPUT_DIR']+'/failure','w').write('disk is full'); exit(2)",
            "AlgorithmError: disk is full, exit code: 2",
        ),
        (
            "reports-much",
            "import os; open(os.environ['SM_OUTPUT_DIR']+'/failure','w').write('no' + 2000 * '!'); exit(2)",
            f"AlgorithmError: no{'!' * (1024 - 16 - 2 - 14)}, exit code: 2",
        ),
        ("is-killed", "import os; os.kill(os.getpid(), 9)", "AlgorithmError: , exit code: 137"),
    ],
)
def test_the_reason_of_a_container_is_its_failure_file_and_its_exit_code(
    emulator: Emulator, name: str, code: str, reason: str
) -> None:
    emulator.create(name, "python", "-c", code)
    job = emulator.ended(name)
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Failed", "Failed")
    assert job["FailureReason"] == reason
    assert "ModelArtifacts" not in job


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        (
            "script-raises",
            "print('before')\ndef load():\n    raise OSError('no data')\nload()",
            'ExitCode 1\nErrorMessage "raise OSError(\'no data\')\nOSError: no data"\nCommand "',
        ),
        (
            "script-says-more",
            "print('ImportError: one'); print('two:'); print('two'); exit(4)",
            'ExitCode 4\nErrorMessage "ImportError: one\ntwo"\nCommand "',
        ),
        ("script-is-silent", "print('before'); exit(3)", 'ExitCode 3\nErrorMessage ""\nCommand "'),
        (
            "script-is-killed",
            "import os; os.kill(os.getpid(), 9)",
            'ExitCode 137\nErrorMessage ""\nExtraInfo "OutOfMemory: Process killed by SIGKILL (signal 9)"\nCommand "',
        ),
    ],
)
def test_the_reason_of_a_script_is_that_of_the_training_toolkit(
    emulator: Emulator, name: str, code: str, reason: str
) -> None:
    """The message begins with the first line that names an error, which is often the source line of a traceback."""
    emulator.script(name, code, {"epochs": 3})
    failure = emulator.ended(name)["FailureReason"]
    assert failure.startswith(f"AlgorithmError: ExecuteUserScriptError:\n{reason}")
    assert failure.endswith('train.py --epochs 3", exit code: 1')


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        (
            "no-data",  # SageMaker looks a prefix up when the job is created, and what a manifest names later
            {"InputDataConfig": [channel("train", "no-data.manifest", S3DataType="ManifestFile")]},
            "Data download failed:no object in S3 matches",
        ),
        (
            "no-object",
            {"InputDataConfig": [channel("train", "no-object.manifest", S3DataType="ManifestFile")]},
            "Data download failed:Unable to download object s3://training-data/gone (NoSuchKey: ",
        ),
        ("no-bucket", {"OutputDataConfig": {"S3OutputPath": "s3://no-such-bucket/x"}}, "Artifact upload failed"),
        (
            "image-only",
            {"AlgorithmSpecification": {"TrainingImage": "i", "TrainingInputMode": "File"}},
            "not run images",
        ),
    ],
)
def test_what_is_missing_is_a_client_error(
    emulator: Emulator, name: str, changes: dict[str, object], says: str
) -> None:
    emulator.put("no-data.manifest", b'[{"prefix": "s3://training-data/"}]')
    emulator.put("no-object.manifest", b'[{"prefix": "s3://training-data/"}, "gone"]')
    emulator.create(name, **changes)
    job = emulator.ended(name)
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("ClientError: ")
    assert says in job["FailureReason"]


def test_a_command_that_does_not_exist_fails(emulator: Emulator) -> None:
    emulator.create("mistyped", "pyton3")
    assert emulator.ended("mistyped")["FailureReason"] == "AlgorithmError: , exit code: 127"
    assert "pyton3 could not be run" in emulator.log("mistyped")[0]


def test_requirements_that_are_there_already_are_not_installed(emulator: Emulator) -> None:
    """`psutil` comes with the local cloud; pip would not reach an index in this test."""
    archive = packed({"train.py": "import psutil; print(psutil.__file__)", "requirements.txt": "psutil\n"})
    emulator.put("required.tar.gz", archive)
    hyperparameters = {
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": f'"s3://{BUCKET}/required.tar.gz"',
    }
    emulator.create(
        "required",
        AlgorithmSpecification={"TrainingImage": "i", "TrainingInputMode": "File"},
        HyperParameters=hyperparameters,
    )
    job = emulator.ended("required")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert str(emulator.service._machine.workdir) not in emulator.log("required")[0]


def test_requirements_that_cannot_be_had_are_the_reason(emulator: Emulator) -> None:
    archive = packed({"train.py": "", "requirements.txt": "./no-such-package\n"})
    emulator.put("unmet.tar.gz", archive)
    hyperparameters = {
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": f'"s3://{BUCKET}/unmet.tar.gz"',
    }
    emulator.create(
        "unmet",
        AlgorithmSpecification={"TrainingImage": "i", "TrainingInputMode": "File"},
        HyperParameters=hyperparameters,
    )
    assert "InstallRequirementsError" in emulator.ended("unmet")["FailureReason"]


@pytest.mark.parametrize("local_path", [None, "/opt/ml/saved", "/tmp/a-new-folder/of-a-job", "/a-new-folder"])
def test_checkpoints_are_restored_in_a_second_job(emulator: Emulator, mounted: bool, local_path: str | None) -> None:
    name = "checkpoints" if local_path is None else f"checkpoints-{Path(local_path).name}"
    config = {"S3Uri": f"s3://{BUCKET}/{name}"} | ({"LocalPath": local_path} if local_path else {})
    folder = local_path or "/opt/ml/checkpoints"
    for number in (1, 2, 3):
        job = f"{name}-{number}"
        code = (
            "cd $SM_CHECKPOINT_DIR; mkdir -p steps; date >> steps/all; echo $SM_CHECKPOINT_DIR; sort steps/all | wc -l"
        )
        emulator.create(job, "sh", "-c", code, CheckpointConfig=config)
        ended = emulator.ended(job)
        assert ended["TrainingJobStatus"] == "Completed", ended.get("FailureReason")
        *_, where, count = emulator.log(job)
        assert count == str(number)
        assert (where == folder) == mounted
    assert emulator.keys(f"{name}/") == [f"{name}/steps/all"]
    assert not Path("/tmp/a-new-folder").exists()
    assert not Path("/a-new-folder").exists()


def test_entries_beside_a_new_folder_may_vanish_while_it_is_made(emulator: Emulator, tmp_path: Path) -> None:
    ended = threading.Event()

    def come_and_go() -> None:
        places = [tmp_path / f"entry{number}" for number in range(300)]
        while not ended.is_set():
            for place in places:
                place.mkdir()
            for place in places:
                place.rmdir()

    others = threading.Thread(target=come_and_go)
    others.start()
    try:
        for number in range(3):
            config = {"S3Uri": f"s3://{BUCKET}/vanish", "LocalPath": str(tmp_path / "new" / "folder")}
            emulator.create(f"vanish-{number}", "true", CheckpointConfig=config)
            job = emulator.ended(f"vanish-{number}")
            assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    finally:
        ended.set()
        others.join()


def test_each_instance_has_its_own_checkpoint_folder_until_all_is_restored(emulator: Emulator) -> None:
    code = "cd $SM_CHECKPOINT_DIR; echo before: $(ls); touch $SM_CURRENT_HOST; echo after: $(ls)"
    config = {"S3Uri": f"s3://{BUCKET}/of-a-gang"}
    for job, before in (("gang-first", []), ("gang-second", ["algo-1", "algo-2"])):
        emulator.create(job, "sh", "-c", code, ResourceConfig=GANG, CheckpointConfig=config)
        ended = emulator.ended(job)
        assert ended["TrainingJobStatus"] == "Completed", ended.get("FailureReason")
        for host in ("algo-1", "algo-2"):
            told = [line.split() for line in emulator.log(job, host)]
            assert told == [["before:", *before], ["after:", *(before or [host])]]
    assert emulator.keys("of-a-gang/") == ["of-a-gang/algo-1", "of-a-gang/algo-2"]


def test_checkpoints_and_logs_come_while_the_job_trains(emulator: Emulator) -> None:
    emulator.script(
        "lively",
        """
        import itertools, os, time
        with open(os.environ["SM_CHECKPOINT_DIR"] + "/state", "w") as file:
            for step in itertools.count():
                file.seek(0)
                file.write(f"{step:06}")
                file.flush()
                if step == 10:
                    print("step ten", flush=True)
                time.sleep(0.01)
        """,
        CheckpointConfig={"S3Uri": f"s3://{BUCKET}/lively-state"},
    )
    emulator.says("lively", "step ten")
    until(lambda: emulator.keys("lively-state/"))
    early = emulator.read("lively-state/state")
    until(lambda: emulator.read("lively-state/state") > early)
    emulator.stop("lively")
    emulator.ended("lively")
    # What was written last is there at the end.
    assert int(emulator.read("lively-state/state")) >= int(early)


def test_a_job_leaves_no_process_and_no_file(make_emulator: MakeEmulator, tmp_path: Path) -> None:
    emulator = make_emulator()
    code = "import subprocess as s; s.Popen(['sleep','86401'],start_new_session=True); s.Popen(['sleep','86402'])"
    emulator.create("parent", "python", "-c", code)
    assert emulator.ended("parent")["TrainingJobStatus"] == "Completed"
    assert not emulator.processes("parent")
    assert not list((tmp_path / "training").glob("[0-9]*"))


@pytest.mark.thorough
def test_stopping_the_service_ends_every_job(make_emulator: MakeEmulator, tmp_path: Path) -> None:
    emulator = make_emulator()
    stubborn = "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(86400)"
    emulator.create("left-1", "python", "-c", stubborn)
    emulator.create("left-2", "sleep", "86400", ResourceConfig=GANG)
    emulator.says("left-1", "deaf")
    emulator.service.stop()
    assert not emulator.processes()
    assert not list(tmp_path.iterdir())
