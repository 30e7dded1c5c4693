"""An estimator of the SDK v2 whose script hears SIGTERM: the launcher is the first process of its container.

Try it without an AWS account:

    .venv/bin/python -m local_cloud exec -- python examples/saved_when_stopped/estimator.py
"""

import os
from pathlib import Path

from sagemaker.pytorch import PyTorch

from sagemaker_queue import QueueTrainingJobSession, launcher

session = QueueTrainingJobSession()

estimator = PyTorch(
    role=os.environ["SAGEMAKER_QUEUE_ROLE"],
    source_dir=str(Path(__file__).parent),
    entry_point="train.py",
    hyperparameters={"steps": 100},
    container_entry_point=launcher.entry_point(),  # passes SIGTERM on to train.py
    instance_type="ml.p5.48xlarge",
    instance_count=1,
    framework_version="2.0.1",
    py_version="py310",
    base_job_name="saved-by-estimator",
    checkpoint_s3_uri=f"s3://{session.default_bucket()}/checkpoints/saved-by-estimator",
    sagemaker_session=session,
)
estimator.fit()
print(estimator.latest_training_job.name, "has completed")
