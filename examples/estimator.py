"""Queue a training job: what changes for you is one argument and, if you like, a tag.

Try it without an AWS account:

    .venv/bin/python -m local_cloud exec -- python examples/estimator.py
"""

import os
from pathlib import Path

from sagemaker.pytorch import PyTorch

from sagemaker_queue import QueueTrainingJobSession

session = QueueTrainingJobSession()

estimator = PyTorch(
    role=os.environ["SAGEMAKER_QUEUE_ROLE"],
    source_dir=str(Path(__file__).parent),
    entry_point="train.py",
    hyperparameters={"steps": 10, "seconds-per-step": 0.1},
    instance_type="ml.p5.48xlarge",
    instance_count=1,
    framework_version="2.0.1",
    py_version="py310",
    base_job_name="example",
    checkpoint_s3_uri=f"s3://{session.default_bucket()}/checkpoints/example",  # so that it can be preempted
    tags=[{"Key": "priority", "Value": "100"}],  # the higher, the sooner
    sagemaker_session=session,  # the queue
)
estimator.fit()
print(estimator.latest_training_job.name, "has completed")
