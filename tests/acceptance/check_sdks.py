"""Both SageMaker SDKs, each in its environment, as scripts that users write."""

import sys

from tests.acceptance.account import PROJECT, ROOT, Account
from tests.acceptance.plan import LONGEST_SECONDS

PYTHON_OF_SDK3 = ROOT / ".venv-sdk3/bin/python"

TRAIN = """
import os, pathlib
print("training with the SDK", flush=True)
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text("weights")
"""

ESTIMATOR = """
import os
import boto3
from sagemaker.estimator import Estimator
from sagemaker_queue import QueueTrainingJobSession

session = QueueTrainingJobSession(default_bucket=os.environ["BUCKET"])
estimator = Estimator(
    image_uri=os.environ["IMAGE"], role=os.environ["ROLE"], instance_count=1, instance_type=os.environ["INSTANCE_TYPE"],
    volume_size=10, max_run=int(os.environ["MAX_RUN"]), entry_point="train.py", source_dir="code",
    output_path=os.environ["OUTPUT"], code_location=os.environ["OUTPUT"], sagemaker_session=session,
    tags=[{"Key": "project", "Value": os.environ["PROJECT"]}], checkpoint_s3_uri=os.environ["OUTPUT"] + "/kept-two",
    disable_profiler=True,
)
estimator.fit(wait=True, logs="All", job_name=os.environ["NAME"])
description = estimator.latest_training_job.describe()
print("described", description["TrainingJobName"], description["TrainingJobStatus"])
print("model", estimator.model_data)
"""

MODEL_TRAINER = """
import os
import sagemaker_queue
from sagemaker.core.helper.session_helper import Session
from sagemaker.core.shapes import Tag
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import CheckpointConfig, Compute, OutputDataConfig, SourceCode, StoppingCondition

session = Session(boto_session=sagemaker_queue.boto_session(), default_bucket=os.environ["BUCKET"])
trainer = ModelTrainer(
    sagemaker_session=session, training_image=os.environ["IMAGE"], role=os.environ["ROLE"],
    base_job_name=os.environ["NAME"], source_code=SourceCode(source_dir="code", command="python3 train.py"),
    compute=Compute(instance_type=os.environ["INSTANCE_TYPE"], instance_count=1, volume_size_in_gb=10),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=int(os.environ["MAX_RUN"])),
    output_data_config=OutputDataConfig(s3_output_path=os.environ["OUTPUT"]),
    checkpoint_config=CheckpointConfig(s3_uri=os.environ["OUTPUT"] + "/kept-three"),
    tags=[Tag(key="project", value=os.environ["PROJECT"])],
)
trainer.train(wait=True, logs=True)
job = trainer._latest_training_job
print("described", job.training_job_name, job.training_job_status)
print("model", job.model_artifacts.s3_model_artifacts)
"""


def run(account: Account, python: str, script: str, what: str) -> str:
    account.uses(1)
    code = account.folder / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(TRAIN)
    return account.program(
        [python, "-W", "ignore", "-c", script],
        NAME=account.name(what),
        ROLE=account.settings.role,
        IMAGE=account.settings.image,
        BUCKET=account.settings.bucket,
        OUTPUT=account.uri("output"),
        INSTANCE_TYPE=account.settings.instance_type,
        MAX_RUN=str(LONGEST_SECONDS),
        PROJECT=PROJECT,
        SAGEMAKER_SUPPRESS_V2_WARNING="1",
    )


def check_an_estimator_of_the_sdk_v2(account: Account) -> None:
    output = run(account, sys.executable, ESTIMATOR, "two")
    name = account.name("two")
    assert f"described {name} Completed" in output
    assert "training with the SDK" in output
    assert account.queue.job(name).state == "completed"
    assert f"model {account.uri('output')}/{name}-qstamp-1/" in output


def check_a_model_trainer_of_the_sdk_v3(account: Account) -> None:
    assert PYTHON_OF_SDK3.exists(), "There is no environment with the SageMaker SDK v3: make setup makes it"
    output = run(account, str(PYTHON_OF_SDK3), MODEL_TRAINER, "three")
    described = next(line for line in output.splitlines() if line.startswith("described "))
    name, status = described.split()[1:]
    assert (name.startswith(account.name("three")), status) == (True, "Completed")
    assert account.queue.job(name).state == "completed"
