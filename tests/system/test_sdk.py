"""Scripts as users write them, each in a process of its own, on a local cloud, with a preemption in the middle.

Three of them wait for a training job: by an estimator of the SageMaker SDK v2, by a ModelTrainer of the v3, by plain
boto3. Then a gang comes for all the instances. None of them should notice.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from local_cloud.aws.stack import LocalCloud
from local_cloud.commands.up_and_exec import without_account
from tests.system.conftest import System
from tests.waiting import PATIENCE

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parent.parent.parent
PYTHON_OF_SDK3 = ROOT / ".venv-sdk3/bin/python"

# Ends once it has been preempted and resumed, and not before.
TRAIN = """
import os, pathlib, time
kept = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "step")
begin = step = int(kept.read_text()) if kept.exists() else 0
print("starting at", begin, flush=True)
while not begin or step < begin + 3:
    time.sleep(0.1)
    step += 1
    new = kept.with_suffix(".new")
    new.write_text(str(step))
    new.replace(kept)
    print("step", step, flush=True)
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text(str(step))
"""

ESTIMATOR = """
import os, sys
from sagemaker import utils
from sagemaker.pytorch import PyTorch
from sagemaker_queue import QueueTrainingJobSession

utils.validate_sagemaker_config = lambda _: None  # the SDK does at each look into its settings
session = QueueTrainingJobSession()
estimator = PyTorch(
    role=os.environ["SAGEMAKER_QUEUE_ROLE"], entry_point="train.py", source_dir="code",
    instance_type="ml.p5.48xlarge", instance_count=1, framework_version="2.0.1", py_version="py310",
    tags=[{"Key": "priority", "Value": "1"}, {"Key": "team", "Value": "vision"}],
    checkpoint_s3_uri=f"s3://{session.default_bucket()}/kept/two", sagemaker_session=session,
)
estimator.fit(wait=True, logs="All", job_name="two")
description = estimator.latest_training_job.describe()
print("described", description["TrainingJobName"], description["TrainingJobStatus"])
attached = PyTorch.attach("two", sagemaker_session=session)
print("attached", attached.latest_training_job.name, {"Key": "team", "Value": "vision"} in attached.tags)
print("same model", attached.model_data == estimator.model_data)
print("model", estimator.model_data)
"""

MODEL_TRAINER = """
import os
import sagemaker_queue
from sagemaker.core.shapes import Tag
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import CheckpointConfig, Compute, SourceCode

session = sagemaker_queue.install()
trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1", role=os.environ["SAGEMAKER_QUEUE_ROLE"],
    base_job_name="three", source_code=SourceCode(source_dir="code", command="python train.py"),
    compute=Compute(instance_type="ml.p5.48xlarge", instance_count=1), tags=[Tag(key="priority", value="1")],
    checkpoint_config=CheckpointConfig(s3_uri="s3://sdk/kept/three"),
)
trainer.train(wait=True, logs=True)
job = trainer._latest_training_job
print("described", job.training_job_name, job.training_job_status)
print("model", job.model_artifacts.s3_model_artifacts)
"""

BOTO3 = """
import os, time
import sagemaker_queue

session = sagemaker_queue.boto_session()
sagemaker, logs = session.client("sagemaker"), session.client("logs")
request = dict(
    RoleArn=os.environ["SAGEMAKER_QUEUE_ROLE"],
    AlgorithmSpecification={
        "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1", "TrainingInputMode": "File",
        "ContainerEntrypoint": ["python", "-c", "import os; exec(os.environ['SCRIPT'])"],
    },
    Environment={"SCRIPT": open("code/train.py").read()},
    OutputDataConfig={"S3OutputPath": "s3://sdk/output"},
    ResourceConfig={"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    StoppingCondition={"MaxRuntimeInSeconds": 600},
    CheckpointConfig={"S3Uri": "s3://sdk/kept/plain"},
    Tags=[{"Key": "priority", "Value": "1"}],
)

def wait(name):
    seen = []
    while True:
        description = sagemaker.describe_training_job(TrainingJobName=name)
        if description["TrainingJobStatus"] not in seen:
            seen.append(description["TrainingJobStatus"])
        if seen[-1] in ("Completed", "Failed", "Stopped"):
            return seen, description
        time.sleep(0.2)

arn = sagemaker.create_training_job(TrainingJobName="plain", **request)["TrainingJobArn"]
seen, description = wait("plain")
print("seen", seen)
print("described", description["TrainingJobName"], description["TrainingJobStatus"])
print("the same ARN", description["TrainingJobArn"] == arn)
print("tags", sagemaker.list_tags(ResourceArn=arn)["Tags"])
group = "/aws/sagemaker/TrainingJobs"
for stream in logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="plain/")["logStreams"]:
    token = {}
    while True:
        page = logs.get_log_events(
            logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True, **token
        )
        for event in page["events"]:
            print(event["message"])
        if token == {"nextToken": page["nextForwardToken"]}:
            break
        token = {"nextToken": page["nextForwardToken"]}
print("model", description["ModelArtifacts"]["S3ModelArtifacts"])
updated = sagemaker.update_training_job(TrainingJobName="plain", ResourceConfig={"KeepAlivePeriodInSeconds": 0})
print("updated", updated["TrainingJobArn"] == arn)
try:
    sagemaker.create_training_job(TrainingJobName="plain", **{**request, "Environment": {"SCRIPT": "pass"}})
except sagemaker.exceptions.ResourceInUse:
    print("the name is taken")
sagemaker.create_training_job(TrainingJobName="unwanted", **{**request, "CheckpointConfig": {"S3Uri": "s3://sdk/no"}})
sagemaker.stop_training_job(TrainingJobName="unwanted")
print("unwanted", wait("unwanted")[0][-1])
"""


class Script:
    """A script that runs, and what it has written once it has ended."""

    def __init__(self, cloud: LocalCloud, folder: Path, python: Path | str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [str(python), *arguments],
            cwd=folder,
            env=environment(cloud),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.notes = ""

    def end(self) -> None:
        output, self.notes = self._process.communicate(timeout=PATIENCE)
        assert self._process.returncode == 0, f"{output[-2000:]}\n{self.notes[-3000:]}"
        self.lines = output.splitlines()

    def kill(self) -> None:
        """End the script, if it still runs, and close its pipes."""
        self._process.kill()
        with self._process:
            pass

    def told(self, word: str) -> str:
        """The line that begins with a word, without it."""
        (line,) = [line for line in self.lines if line.startswith(f"{word} ")]
        return line.removeprefix(f"{word} ")

    @property
    def log(self) -> list[str]:
        return [line for line in self.lines if line.startswith(("starting at ", "step "))]


def environment(cloud: LocalCloud) -> Mapping[str, str]:
    return {
        **without_account(os.environ),
        **cloud.environment(),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
    }


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with LocalCloud(slots=4) as cloud:
        cloud.client("s3").create_bucket(Bucket="sdk")
        yield cloud


@pytest.fixture(scope="module")
def system(cloud: LocalCloud) -> System:
    return System(cloud)


@pytest.fixture(scope="module")
def runs(cloud: LocalCloud, system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Script]]:
    """All scripts, and a follower from the shell, through one preemption of all jobs."""
    assert PYTHON_OF_SDK3.exists(), "There is no environment with the SageMaker SDK v3: make setup makes it"
    folder = tmp_path_factory.mktemp("scripts")
    with ExitStack() as stack:
        runs: dict[str, Script] = {}

        def start(name: str, script: str, python: Path | str, *arguments: str) -> None:
            home = folder / name
            (home / "code").mkdir(parents=True)
            (home / "code/train.py").write_text(TRAIN)
            (home / "script.py").write_text(script)
            runs[name] = Script(cloud, home, python, *(arguments or ["script.py"]))
            stack.callback(runs[name].kill)

        start("three", MODEL_TRAINER, PYTHON_OF_SDK3)
        start("two", ESTIMATOR, sys.executable)
        start("plain", BOTO3, sys.executable)
        system.wait(
            "three jobs that train", lambda: sum(steps(system, job.job) > 3 for job in system.queue.jobs()) == 3
        )
        start("smq", "", sys.executable, "-m", "sagemaker_queue", "logs", "-f", "plain")
        system.submit("gang", "pass", priority=9, instances=4)
        for run in runs.values():
            run.end()
        yield runs


def steps(system: System, job: str) -> int:
    return sum(line.startswith("step ") for line in system.log(f"{job}-qstamp-1"))


def written(system: System, job: str) -> list[str]:
    """What both attempts have written, by CloudWatch's own word."""
    lines = [line for attempt in (1, 2) for line in system.log(f"{job}-qstamp-{attempt}")]
    return [line for line in lines if line.startswith(("starting at ", "step "))]


@pytest.mark.parametrize("name", ["two", "three", "plain"])
def test_a_job_is_preempted_and_its_script_does_not_notice(runs: dict[str, Script], system: System, name: str) -> None:
    job, status = runs[name].told("described").split()
    assert (job.partition("-")[0], status) == (name, "Completed")
    assert [attempt.outcome for attempt in system.job(job).attempts] == ["preempted", "completed"]
    assert runs[name].log == written(system, job)
    assert runs[name].told("model").endswith(f"/{job}-qstamp-2/output/model.tar.gz")


@pytest.mark.parametrize("name", ["two", "three", "smq"])
def test_whoever_waits_is_told_of_the_preemption(runs: dict[str, Script], name: str) -> None:
    assert "was preempted (attempt 1): made room for gang" in runs[name].notes
    assert " completed" in runs[name].notes


def test_an_estimator_is_attached_by_the_jobs_name(runs: dict[str, Script]) -> None:
    assert runs["two"].told("attached") == "two True"
    assert runs["two"].told("same model") == "True"
    assert runs["two"].told("Training").startswith("seconds: ")


def test_plain_boto3_sees_sagemaker_as_ever(runs: dict[str, Script]) -> None:
    plain = runs["plain"]
    assert plain.told("seen") == "['InProgress', 'Completed']"
    assert plain.told("the same ARN") == "True"
    assert plain.told("tags") == "[{'Key': 'priority', 'Value': '1'}]"
    assert plain.told("updated") == "True"
    assert "the name is taken" in plain.lines
    assert plain.told("unwanted") == "Stopped"


def test_smq_follows_the_log(runs: dict[str, Script], system: System) -> None:
    assert runs["smq"].lines == written(system, "plain")


def test_the_examples_run(cloud: LocalCloud, runs: dict[str, Script]) -> None:
    pythons: dict[str, Path | str] = {
        "estimator.py": sys.executable,
        "model_trainer.py": PYTHON_OF_SDK3,
        "boto3_job.py": sys.executable,
    }
    with ExitStack() as stack:
        examples = []
        for example, python in pythons.items():
            examples.append(Script(cloud, ROOT, python, str(ROOT / "examples" / example)))
            stack.callback(examples[-1].kill)
        for script in examples:
            script.end()
            assert script.lines[-1].startswith("example-")
            assert script.lines[-1].endswith("has completed")
