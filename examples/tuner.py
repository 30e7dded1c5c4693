"""Search for the best step size with QueueTuner: what SageMaker's HyperparameterTuner is for, through the queue.

Try it without an AWS account:

    .venv/bin/python -m local_cloud exec -- python examples/tuner.py
"""

import os
from pathlib import Path

from sagemaker.pytorch import PyTorch
from sagemaker.tuner import ContinuousParameter

from sagemaker_queue import QueueTrainingJobSession, QueueTuner

session = QueueTrainingJobSession()

estimator = PyTorch(
    role=os.environ["SAGEMAKER_QUEUE_ROLE"],
    source_dir=str(Path(__file__).parent / "sweep"),
    entry_point="train.py",
    hyperparameters={"steps": 5},
    instance_type="ml.p5.48xlarge",
    instance_count=1,
    framework_version="2.0.1",
    py_version="py310",
    sagemaker_session=session,
)
tuner = QueueTuner(
    estimator,
    objective_metric_name="error",
    hyperparameter_ranges={"lr": ContinuousParameter(0.01, 0.6)},
    metric_definitions=[{"Name": "error", "Regex": r"error ([0-9.]+)"}],
    objective_type="Minimize",
    max_jobs=4,
    max_parallel_jobs=2,
)
tuner.fit(job_name="root-of-two", poll=1)  # the same name again goes on where it was left
print(tuner.best_training_job(), "is the best")
