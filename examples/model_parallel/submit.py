"""Queue a network that is split over two instances: they start together, and leave together when they have to.

Try it without an AWS account, in an environment with PyTorch (pip install '.[torch]'):

    python -m local_cloud exec -- python examples/model_parallel/submit.py
"""

import os
import sys
from pathlib import Path

from sagemaker.pytorch import PyTorch

from sagemaker_queue import QueueTrainingJobSession

session = QueueTrainingJobSession()
name = sys.argv[1] if len(sys.argv) > 1 else None

estimator = PyTorch(
    role=os.environ["SAGEMAKER_QUEUE_ROLE"],
    source_dir=str(Path(__file__).parent),
    entry_point="train.py",
    hyperparameters={"steps": 60, "checkpoint-every": 5, "seconds-per-step": 0.05},
    instance_type="ml.c5.2xlarge",
    instance_count=2,  # a gang: the queue starts both or none
    framework_version="2.6",
    py_version="py312",
    base_job_name="two-stages",
    checkpoint_s3_uri=f"s3://{session.default_bucket()}/checkpoints/{name or 'two-stages'}",  # one for both stages
    tags=[{"Key": "priority", "Value": "1"}],
    sagemaker_session=session,
)
estimator.fit(job_name=name)
print(estimator.latest_training_job.name, "has completed")
