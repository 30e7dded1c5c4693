"""Four trials of Optuna in four threads, each a training job by boto3; the first job is preempted."""

import json
import sys
import time
from pathlib import Path

import boto3
import optuna

request = json.loads(Path(sys.argv[1]).read_text())


def objective(trial: optuna.Trial) -> float:
    """Train, and return the objective value."""
    x: float = trial.suggest_float("x", -1, 1)
    name = request["TrainingJobName"] if trial.number == 0 else f"{request['TrainingJobName']}-{trial.number}"
    environment = request["Environment"] if trial.number == 0 else {"SCRIPT": "pass"}
    client = boto3.Session().client("sagemaker")
    folder = f"{request['CheckpointConfig']['S3Uri']}-{trial.number}"
    own = {"TrainingJobName": name, "Environment": environment, "CheckpointConfig": {"S3Uri": folder}}
    client.create_training_job(**{**request, **own})
    while (status := client.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]) == "InProgress":
        time.sleep(0.5)
    assert status == "Completed", (name, status)
    return x * x


study = optuna.create_study()
study.optimize(objective, n_trials=4, n_jobs=4)
assert len(study.get_trials(states=[optuna.trial.TrialState.COMPLETE])) == 4
