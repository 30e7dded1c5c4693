"""Real estimators of the SageMaker SDK, as users write them, in a process of their own on a local cloud."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

SCRIPT = '''
import os, pathlib, sys, time
import boto3
from sagemaker.pytorch import PyTorch
from sagemaker_queue import QueueClient, QueueTrainingJobSession

pathlib.Path("mine").mkdir()
pathlib.Path("mine/train.py").write_text("""
import argparse, os, pathlib, time
arguments = argparse.ArgumentParser()
arguments.add_argument("--steps", type=int)
steps = arguments.parse_args().steps
kept = pathlib.Path(os.environ["SM_CHECKPOINT_DIR"], "step")
step = int(kept.read_text()) if kept.exists() else 0
if step:
    steps = step + 5  # however long it took to be preempted
kept.write_text(str(step + 1))
print("from step", step, flush=True)
while step < steps:
    time.sleep(0.1)
    step += 1
    kept.write_text(str(step))
""")

session = QueueTrainingJobSession()

def log_events():
    try:
        return logs.filter_log_events(logGroupName="/aws/sagemaker/TrainingJobs")["events"]
    except logs.exceptions.ResourceNotFoundException:
        return []

def fit(name, priority, steps, wait=False):
    PyTorch(
        role=os.environ["SAGEMAKER_QUEUE_ROLE"], entry_point="train.py", source_dir="mine",
        instance_type="ml.p5.48xlarge", instance_count=1, framework_version="2.0.1", py_version="py310",
        hyperparameters={"steps": steps}, tags=[{"Key": "priority", "Value": str(priority)}],
        checkpoint_s3_uri=f"s3://{session.default_bucket()}/kept/{name}", sagemaker_session=session,
    ).fit(wait=wait, job_name=name)

fit("long", 1, 100_000)
queue, logs = QueueClient(), boto3.client("logs")
while not any("from step" in it["message"] for it in log_events()):
    time.sleep(0.1)
fit("urgent", 9, 5, wait=True)
print("urgent", queue.job("urgent").state)
while not queue.job("long").finished:
    time.sleep(0.2)
long = queue.job("long")
print("long", long.state, [attempt.outcome for attempt in long.attempts])
rows = boto3.resource("dynamodb").Table("sagemaker-queue").scan()["Items"]
print("rows", sorted((row["jobName"], row["jobState"], int(row["priority"])) for row in rows))
'''


def run(script: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Run a script on a local cloud of its own."""
    return subprocess.run(
        [sys.executable, "-m", "local_cloud", "exec", *options, "--", sys.executable, str(script)],
        cwd=script.parent,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "SAGEMAKER_SUPPRESS_V2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def test_the_example_runs() -> None:
    answer = run(ROOT / "examples/estimator.py")
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert answer.stdout.splitlines()[-1].startswith("example-")
    assert answer.stdout.splitlines()[-1].endswith("has completed")


def test_a_users_script_is_preempted_and_resumed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    answer = run(tmp_path / "script.py", "--slots", "1")
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert answer.stdout.splitlines()[-3:] == [
        "urgent completed",
        "long completed ['preempted', 'completed']",
        "rows [('long', 'completed', 1), ('urgent', 'completed', 9)]",
    ]
