"""A task of Airflow whose worker is killed while the job trains; the task is then tried again."""

import json
import subprocess
import sys
import time
from pathlib import Path

import boto3

name = json.loads(Path(sys.argv[1]).read_text())["TrainingJobName"]
task = [sys.executable, str(Path(__file__).with_name("airflow_task.py")), *sys.argv[1:]]
sagemaker = boto3.client("sagemaker")  # calls SageMaker, not the queue


def training_jobs() -> set[str]:
    """Return the names of the task's training jobs in SageMaker, without the job that preempts the task's job."""
    answer = sagemaker.list_training_jobs(NameContains=name, MaxResults=100)
    names = {job["TrainingJobName"] for job in answer["TrainingJobSummaries"]}
    return {one for one in names if not one.startswith(f"{name}-gang")}


first = subprocess.Popen(task)
while not training_jobs():
    assert first.poll() is None, "the task has ended before its job began"
    time.sleep(0.3)
first.kill()
first.wait()
subprocess.run(task, check=True)
assert training_jobs() == {f"{name}-qstamp-1", f"{name}-qstamp-2"}, training_jobs()
